use super::*;
use dirmgr::fixture::documents;
use std::io::{Read, Write};
use std::net::TcpStream as StdStream;

/// The server's answer to these bytes, until it closes the connection.
fn ask(server: &Server, request: &str) -> String {
    let mut stream = StdStream::connect(server.address()).expect("connected");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("answered");
    String::from_utf8_lossy(&answer).into_owned()
}

fn started() -> Server {
    let cache = Cache::default();
    cache.set(documents().0);
    Server::start(cache).expect("started")
}

#[test]
fn answers_to_tors_requests_have_headers_in_title_case() {
    let server = started();
    assert!(server.address().ip().is_loopback());
    // Requests as sent by tor.
    let found = ask(
        &server,
        "GET /tor/keys/all.z HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept-Encoding: identity\r\n\r\n",
    );
    let (header, _) = found.split_once("\r\n\r\n").expect("a header");
    assert!(header.starts_with("HTTP/1.0 200 OK\r\n"), "{header}");
    for line in [
        "\r\nDate: ",
        "\r\nContent-Encoding: deflate",
        "\r\nContent-Length: ",
        "\r\nContent-Type: text/plain",
        "\r\nExpires: ",
    ] {
        assert!(header.contains(line), "{line} in {header}");
    }
    let later = "Fri, 15 Dec 2090 12:00:00 GMT";
    let request = format!("GET /tor/keys/all HTTP/1.0\r\nIf-Modified-Since: {later}\r\n\r\n");
    assert!(ask(&server, &request).starts_with("HTTP/1.0 304 Not modified\r\n"));
    let nothing = ask(&server, "GET /tor/nothing HTTP/1.0\r\n\r\n");
    assert!(nothing.starts_with("HTTP/1.0 404 Not found\r\n") && nothing.contains("\r\nDate: "));
    let post = "POST /tor/ HTTP/1.0\r\nContent-Length: 1\r\n\r\nx";
    assert!(ask(&server, post).starts_with("HTTP/1.0 400 Bad request\r\n"));
    assert!(ask(&server, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));
    let endless = format!("GET /{} HTTP/1.0\r\n\r\n", "x".repeat(2 * REQUEST_MAX));
    let mut stream = StdStream::connect(server.address()).expect("connected");
    // The connection may be closed during the request.
    let _ = stream.write_all(endless.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/1.0 200"));
}

#[test]
fn dropping_the_server_stops_it() {
    let server = started();
    let mut stream = StdStream::connect(server.address()).expect("connected");
    drop(server);
    // Closed or reset: there is no answer.
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty());
}

#[test]
fn http_dates_are_parsed_and_formatted() {
    assert_eq!(http_date(784_111_777).expect("a date"), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(unix_time("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    for bad in ["", "yesterday", "Sun, 06 Nov 1994 08:49:37 +0100", "Sun, 66 Nov 1994 08:49:37 GMT"]
    {
        assert_eq!(unix_time(bad), None, "{bad}");
    }
    assert_eq!(http_date(u64::MAX), None);
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let pace = Pace { interval: Duration::from_millis(10), least_bytes: 64 << 10 };
    let server = Server::with(long_cache(16 << 20), pace, 10).expect("started");
    let mut stream = StdStream::connect(server.address()).expect("connected");
    stream.write_all(b"GET /tor/server/authority HTTP/1.0\r\n\r\n").expect("sent");
    // Once the server has closed the connection, sending fails.
    while stream.write_all(b"x").is_ok() {}
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.len() < 8 << 20, "{}", answer.len());
}

/// A cache with a descriptor that exceeds the kernel's buffers.
fn long_cache(descriptor_bytes: usize) -> Cache {
    let mut documents = documents().0;
    documents.own.descriptor = vec![b'x'; descriptor_bytes].into();
    let cache = Cache::default();
    cache.set(documents);
    cache
}

/// Opens stalled connections: half never complete their request, half read nothing of an answer that exceeds the kernel's buffers.
fn stalled(server: &Server, count: usize) -> Vec<StdStream> {
    let open = |number: usize| {
        let mut stream = StdStream::connect(server.address()).expect("connected");
        let end = if number.is_multiple_of(2) { "" } else { "\r\n" };
        let request = format!("GET /tor/server/authority HTTP/1.0\r\n{end}");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    };
    (0..count).map(open).collect()
}

#[test]
fn requests_are_answered_while_all_streams_of_the_router_are_stalled() {
    link::raise_descriptor_limit();
    let server = Server::start(long_cache(8 << 20)).expect("started");
    // The router has closed one for the new stream, and the server has not yet seen that.
    let _stalled = stalled(&server, onion::router::DIRECTORY_STREAMS_MAX);
    let found = ask(&server, "GET /tor/robots.txt HTTP/1.0\r\n\r\n");
    assert!(found.starts_with("HTTP/1.0 200 OK\r\n"), "{found}");
}

#[test]
fn a_new_connection_replaces_the_one_without_progress_for_longest() {
    const MAX: usize = 8;
    let server = Server::with(long_cache(64 << 20), Pace::REAL, MAX).expect("started");
    let mut slow = StdStream::connect(server.address()).expect("connected");
    slow.write_all(b"GET /tor/server/authority HTTP/1.0\r\n\r\n").expect("sent");
    let (mut part, mut others) = (vec![0; 8 << 20], Vec::new());
    for _ in 0..6 {
        slow.read_exact(&mut part).expect("it takes its answer, so it stays");
        others.push(stalled(&server, MAX / 2));
        let found = ask(&server, "GET /tor/robots.txt HTTP/1.0\r\n\r\n");
        assert!(found.starts_with("HTTP/1.0 200 OK\r\n"), "{found}");
    }
    let mut first = others.swap_remove(0).swap_remove(0);
    first.set_read_timeout(Some(REQUEST_TIMEOUT / 2)).expect("set");
    let end = first.read(&mut [0; 100]);
    let reset = io::ErrorKind::ConnectionReset;
    assert!(
        matches!(end, Ok(0)) || end.is_err_and(|error| error.kind() == reset),
        "its place is taken"
    );
}
