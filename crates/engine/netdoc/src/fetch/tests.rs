use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use super::*;

/// A server for one request: gets the request's text, and answers by hand.
fn serve(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        answer(&mut stream);
        String::from_utf8(request).unwrap()
    });
    (address, server)
}

/// Asks a server that sends these bytes, then closes.
fn ask(answer: &'static [u8]) -> Result<Vec<u8>, FetchError> {
    let (address, server) = serve(|stream| {
        let _ = stream.write_all(answer);
    });
    let result = patient().get(address, &Resource::Consensus);
    server.join().unwrap();
    result
}

/// Far more than a server of this process takes.
fn patient() -> Fetcher {
    Fetcher {
        connect_timeout: Duration::from_secs(30),
        silence_timeout: Duration::from_secs(30),
        total_timeout: Duration::from_secs(60),
        max_bytes: 100,
    }
}

#[test]
fn a_document_arrives_unchanged_with_and_without_content_length() {
    let with = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\na\nb\0\xff";
    assert_eq!(ask(with).unwrap(), b"a\nb\0\xff");
    let without = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nab";
    assert_eq!(ask(without).unwrap(), b"ab");
}

#[test]
fn the_request_is_plain_and_does_not_identify_us() {
    let (address, server) = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let relays = vec![RsaId([1; 20]), RsaId([2; 20])];
    patient().get(address, &Resource::Descriptors(relays)).unwrap();
    let request = server.join().unwrap().to_lowercase();
    let path = format!("get /tor/server/fp/{}+{} http/1.1\r\n", "01".repeat(20), "02".repeat(20));
    assert!(request.starts_with(&path), "{request}");
    assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
    assert!(!request.contains("user-agent"), "{request}");
}

#[test]
fn a_cut_document_is_an_error() {
    let error = ask(b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nab").unwrap_err();
    assert!(matches!(error.problem, Problem::Broken { .. }), "{error}");
}

#[test]
fn an_authoritys_refusal_is_reported_with_the_remedy() {
    let error = ask(b"HTTP/1.0 404 Consensus not available\r\n\r\n").unwrap_err();
    assert!(matches!(error.problem, Problem::Status { status: 404 }), "{error}");
    let error = ask(b"HTTP/1.0 503 Directory busy, try again later\r\n\r\n").unwrap_err();
    assert!(error.to_string().contains("busy: try again later"), "{error}");
    let error = ask(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\n\r\n").unwrap_err();
    assert!(matches!(error.problem, Problem::Status { status: 302 }), "{error}");
}

#[test]
fn garbage_is_rejected() {
    for garbage in [&b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..], b"HTTP/1.0 2x0 OK\r\n\r\n", b""] {
        let error = ask(garbage).unwrap_err();
        assert!(matches!(error.problem, Problem::Broken { .. }), "{garbage:?}: {error}");
    }
    let encoded = b"HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 1\r\n\r\nx";
    assert!(ask(encoded).unwrap_err().to_string().contains("deflate"));
}

#[test]
fn an_oversized_document_is_rejected() {
    static LONG: [u8; 200] = [b'x'; 200];
    let (address, server) = serve(|stream| {
        let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        let _ = stream.write_all(&LONG);
    });
    let error = patient().get(address, &Resource::AllDescriptors).unwrap_err();
    assert!(matches!(error.problem, Problem::TooLong { max_bytes: 100 }), "{error}");
    server.join().unwrap();
}

#[test]
fn a_stalled_or_silent_server_times_out() {
    let brief = Duration::from_millis(1000);
    let impatient = Fetcher { total_timeout: brief, ..patient() };
    let soon_bored = Fetcher { silence_timeout: brief, ..patient() };
    for beginning in [&b""[..], b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\nab"] {
        for fetcher in [impatient, soon_bored] {
            let (stop, stopped) = std::sync::mpsc::channel::<()>();
            let (address, server) = serve(move |stream| {
                let _ = stream.write_all(beginning);
                let _ = stopped.recv();
            });
            let error = fetcher.get(address, &Resource::Consensus).unwrap_err();
            assert!(matches!(error.problem, Problem::TimedOut { .. }), "{error}");
            drop(stop);
            server.join().unwrap();
        }
    }
}

#[test]
fn the_error_names_the_address_and_the_url() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = patient().get(address, &Resource::NextBandwidthFile).unwrap_err();
    assert!(matches!(error.problem, Problem::Unreachable { .. }), "{error}");
    let url = format!("http://{address}/tor/status-vote/next/bandwidth");
    assert!(error.to_string().contains(&url), "{error}");
    let error = patient().get(address, &Resource::Path("no slash".to_owned())).unwrap_err();
    assert!(matches!(error.problem, Problem::Broken { .. }), "{error}");
}
