//! HTTP for directory streams: one request and one answer for each stream (dir-spec §4.1).

use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{Problem, Resource};

/// Limit on the bytes of a header.
pub const HEAD_MAX: usize = 16 << 10;
/// Limit on header lines.
const HEADERS_MAX: usize = 64;

/// The request for a document. It is identical for all clients, except for the digests of their
/// consensuses.
pub(super) fn request(what: &Resource, have: &[ConsensusDigest]) -> Vec<u8> {
    let mut text = format!("GET {what} HTTP/1.0\r\nAccept-Encoding: identity\r\n");
    if !have.is_empty() {
        let digests: Vec<String> = have.iter().map(hex::encode_upper).collect();
        text += &format!("X-Or-Diff-From-Consensus: {}\r\n", digests.join(" "));
    }
    text += "\r\n";
    text.into_bytes()
}

/// The document in a complete answer.
pub(super) fn document(mut answer: Vec<u8>, max_bytes: u64) -> Result<Vec<u8>, Problem> {
    let broken = |reason: &str| Problem::Broken { reason: reason.to_owned() };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = answer.get(..HEAD_MAX).unwrap_or(&answer);
    let begins = match response.parse(head) {
        Ok(httparse::Status::Complete(begins)) => begins,
        Ok(httparse::Status::Partial) => return Err(broken("it ends within its head")),
        Err(error) => return Err(Problem::Broken { reason: format!("it is not HTTP: {error}") }),
    };
    let status = response.code.unwrap_or(0);
    if status != 200 {
        return Err(Problem::Status { status });
    }
    let len = (answer.len() - begins) as u64;
    if len > max_bytes {
        return Err(Problem::TooLong { max_bytes });
    }
    for header in &*response.headers {
        let value = str::from_utf8(header.value).unwrap_or_default();
        if header.name.eq_ignore_ascii_case("content-encoding") && value != "identity" {
            return Err(Problem::Broken { reason: format!("it is encoded as {value:?}") });
        }
        if header.name.eq_ignore_ascii_case("content-length") && value.parse() != Ok(len) {
            let reason = format!("it has {len} bytes, and announces {value:?}");
            return Err(Problem::Broken { reason });
        }
    }
    answer.drain(..begins);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Vec<u8>, Problem> {
        document(text.as_bytes().to_vec(), 10)
    }

    #[test]
    fn an_answer_is_its_document_or_an_error() {
        let good =
            of("HTTP/1.0 200 OK\r\nContent-Length: 3\r\nContent-Encoding: identity\r\n\r\nabc");
        assert_eq!(good.expect("good"), b"abc");
        assert_eq!(of("HTTP/1.0 200 OK\r\n\r\n").expect("empty"), b"");
        assert!(matches!(
            of("HTTP/1.0 304 Not modified\r\n\r\n"),
            Err(Problem::Status { status: 304 })
        ));
        assert!(matches!(of("HTTP/1.0 200 OK\r\n\r\nabcdefghijk"), Err(Problem::TooLong { .. })));
        for broken in [
            "",
            "HTTP/1.0 200 OK\r\n",
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.0 200 OK\r\nContent-Length: -1\r\n\r\nabc",
            "HTTP/1.0 200 OK\r\nContent-Encoding: deflate\r\n\r\nabc",
        ] {
            assert!(matches!(of(broken), Err(Problem::Broken { .. })), "{broken:?}");
        }
    }

    #[test]
    fn a_request_names_the_document_and_known_consensuses() {
        let text = String::from_utf8(request(&Resource::ConsensusMicrodesc, &[[0xAB; 32]]));
        let text = text.expect("text");
        assert!(text.starts_with("GET /tor/status-vote/current/consensus-microdesc HTTP/1.0\r\n"));
        let difference = format!("X-Or-Diff-From-Consensus: {}\r\n\r\n", "AB".repeat(32));
        assert!(text.ends_with(&difference), "{text}");
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic_or_an_overlong_document(
            bytes in prop::collection::vec(any::<u8>(), 0..200), has_head: bool,
        ) {
            let head: &[u8] = if has_head { b"HTTP/1.0 200 OK\r\n\r\n" } else { b"" };
            let found = document([head, &bytes].concat(), 10);
            prop_assert!(found.is_err() || found.is_ok_and(|document| document.len() <= 10));
        }
    }
}
