use super::*;
use proptest::prelude::*;
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Answers one connection. Returns the result of the request.
fn serve(answer: &'static [u8]) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = Vec::new();
        let mut room = [0; 1024];
        while !request.ends_with(b"the end") {
            let len = stream.read(&mut room).expect("readable");
            assert!(len > 0, "cut request");
            request.extend_from_slice(&room[..len]);
        }
        stream.write_all(answer).expect("written");
        String::from_utf8(request).expect("text")
    });
    (address, server)
}

fn answered(answer: &'static [u8]) -> Result<Answer, PublishError> {
    let (address, server) = serve(answer);
    let result = post(address, "router …the end", Clock::start(), Patience::default());
    let request = server.join().expect("served");
    let expected = format!(
        "POST /tor/ HTTP/1.0\r\nHost: {address}\r\nContent-Length: 17\r\n\r\nrouter …the end"
    );
    assert_eq!(request, expected);
    result
}

#[test]
fn answers_of_authorities_are_parsed() {
    let accepted = b"HTTP/1.0 200 Descriptor accepted\r\nDate: now\r\n\r\n";
    assert_eq!(answered(accepted).expect("an answer"), Answer::Accepted);
    let known = b"HTTP/1.0 200 OK\r\nDate: now\r\nX-Descriptor-Not-New: Yes\r\n\r\n";
    assert_eq!(answered(known).expect("an answer"), Answer::NotNew);
    // The body is not parsed as headers.
    let body = b"HTTP/1.0 200 OK\r\n\r\nX-Descriptor-Not-New: Yes\r\n";
    assert_eq!(answered(body).expect("an answer"), Answer::Accepted);

    let refused = b"HTTP/1.0 400 Missing TAP key in descriptor.\r\nDate: now\r\n\r\n";
    let refused = answered(refused).expect("an answer");
    assert_eq!(refused.to_string(), "refused: Missing TAP key in descriptor. (HTTP 400)");
    let hostile = answered(b"HTTP/1.0 400 \x1b[2Jbad\x07\r\n\r\n").expect("an answer");
    let expected = Answer::Refused { status: 400, reason: "[2Jbad".to_owned() };
    assert_eq!(hostile, expected);
    let silent = answered(b"HTTP/1.1 503\r\n\r\n").expect("an answer");
    assert_eq!(silent, Answer::Refused { status: 503, reason: String::new() });
}

#[test]
fn an_invalid_answer_is_an_error_with_the_reason() {
    for answer in [&b"220 smtp.example\r\n"[..], b"", b"HTTP/1.0 abc no\r\n\r\n", b"HTTP/1.0 2 a"] {
        let error = answered(answer).expect_err("no answer").to_string();
        assert!(error.contains("is that a directory port?"), "{error}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let error = post(address, "", Clock::start(), Patience::default()).expect_err("nobody");
    assert!(matches!(error, PublishError::Unreachable(_)), "{error}");
}

#[test]
fn a_silent_authority_times_out() {
    // The listener never accepts its queued connections.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let short = Duration::from_millis(50);
    let patience = Patience { connect: short, total: short };
    let error = post(address, "router", Clock::start(), patience).expect_err("silence");
    assert!(matches!(error, PublishError::TimedOut(_)), "{error}");
}

#[test]
fn an_endless_answer_is_cut_off() {
    let flood = answered([b'x'; 3 * ANSWER_MAX].as_slice().to_vec().leak());
    // Either end may see the connection fail.
    assert!(flood.is_err_and(|error| error.to_string().len() < 2 * REASON_MAX));
}

proptest! {
    #[test]
    fn no_answer_makes_the_reader_panic(answer: Vec<u8>, text in "HTTP/1.[ 0-9]{0,6}(\\PC|\r\n){0,40}") {
        for answer in [&answer[..], text.as_bytes()] {
            if let Ok(Answer::Refused { reason, .. }) = parse(answer) {
                prop_assert!(!reason.chars().any(char::is_control));
            }
        }
    }
}
