//! The control protocol's messages: bytes to replies and events.

use std::collections::VecDeque;

/// Maximum accepted line length, in bytes. Tor's longest lines are those of `GETINFO` answers.
const LINE_MAX: usize = 1 << 20;
/// Maximum accepted data in one message, in bytes. A consensus of the public network has 3 MB.
const DATA_MAX: usize = 64 << 20;

/// One line of a message, without its status code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The line's text.
    pub text: String,
    /// The data block after a `+` line, with `\n` line ends.
    pub data: Option<String>,
}

/// A reply, or an asynchronous event if its code is one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Status code: 250 is success, 4xx and 5xx are failures, 6xx are events.
    pub code: u16,
    /// The lines, at least one.
    pub lines: Vec<Line>,
}

impl Message {
    /// Whether this is an event rather than the reply to a request.
    #[must_use]
    pub const fn is_event(&self) -> bool {
        self.code >= 600
    }

    /// The text of the first line.
    #[must_use]
    pub fn text(&self) -> &str {
        self.lines.first().map_or("", |line| &line.text)
    }
}

/// The peer does not speak the control protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line without status code and separator.
    #[error("not a control protocol line: {0:?}")]
    Malformed(String),
    /// A line whose status code differs from that of the message it continues.
    #[error("a message of code {expected} continues with code {found}")]
    MixedCodes {
        /// Code of the message's first line.
        expected: u16,
        /// Code of the offending line.
        found: u16,
    },
    /// A line or message longer than tor ever sends.
    #[error("a line or message is too long")]
    TooLong,
}

/// Splits a byte stream into messages.
///
/// An error is final: the caller should close the connection.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The message being read; empty between messages.
    message: Message,
    /// The data block being read.
    data: Option<String>,
    data_bytes: usize,
    ready: VecDeque<Message>,
}

impl Parser {
    /// A parser at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes.
    ///
    /// # Errors
    /// [`ParseError`] if the bytes are not the control protocol. Messages before the error are kept.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), ParseError> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (head, rest) = bytes.split_at(end);
            self.extend(head)?;
            bytes = rest.get(1..).unwrap_or_default();
            let mut line = std::mem::take(&mut self.line);
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            self.take_line(&String::from_utf8_lossy(&line))?;
        }
        self.extend(bytes)
    }

    /// The next complete message.
    pub fn next_message(&mut self) -> Option<Message> {
        self.ready.pop_front()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        if self.line.len() + bytes.len() > LINE_MAX {
            return Err(ParseError::TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take_line(&mut self, line: &str) -> Result<(), ParseError> {
        self.data_bytes += line.len() + 1;
        if self.data_bytes > DATA_MAX {
            return Err(ParseError::TooLong);
        }
        if let Some(mut data) = self.data.take() {
            if line == "." {
                if let Some(last) = self.message.lines.last_mut() {
                    last.data = Some(data);
                }
            } else {
                // A leading dot is doubled in transit.
                data.push_str(line.strip_prefix('.').unwrap_or(line));
                data.push('\n');
                self.data = Some(data);
            }
            return Ok(());
        }
        let malformed = || ParseError::Malformed(line.chars().take(80).collect());
        let (code, rest) = line.split_at_checked(3).ok_or_else(malformed)?;
        if !code.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed());
        }
        let code: u16 = code.parse().map_err(|_| malformed())?;
        let mut chars = rest.chars();
        let separator = chars.next().ok_or_else(malformed)?;
        if self.message.lines.is_empty() {
            self.message.code = code;
        } else if self.message.code != code {
            return Err(ParseError::MixedCodes { expected: self.message.code, found: code });
        }
        self.message.lines.push(Line { text: chars.as_str().to_owned(), data: None });
        match separator {
            '-' => {}
            '+' => self.data = Some(String::new()),
            ' ' => {
                self.data_bytes = 0;
                self.ready.push_back(std::mem::take(&mut self.message));
            }
            _ => return Err(malformed()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> (Vec<Message>, Result<(), ParseError>) {
        let mut parser = Parser::new();
        let outcome = parser.feed(bytes);
        (std::iter::from_fn(|| parser.next_message()).collect(), outcome)
    }

    #[test]
    fn replies_of_one_and_of_several_lines_are_parsed() {
        let (messages, outcome) = parse(
            b"250 OK\r\n250-version=0.4.9.11\r\n250 OK\r\n\
              250+a=\r\nx\r\n..y\r\n.\r\n250 OK\r\n650 BW 12 34\r\n",
        );
        assert_eq!(outcome, Ok(()));
        assert_eq!(messages.len(), 4);
        assert_eq!(messages[0].text(), "OK");
        assert_eq!(messages[1].lines.len(), 2);
        assert_eq!(messages[2].lines[0].data.as_deref(), Some("x\n.y\n"));
        assert!(messages[3].is_event());
    }

    #[test]
    fn invalid_lines_are_errors() {
        for bytes in [&b"HTTP/1.0 400\r\n"[..], b"25\n", b"250\n", b"250?x\n", "25é x\n".as_bytes()]
        {
            assert!(matches!(parse(bytes).1, Err(ParseError::Malformed(_))), "{bytes:?}");
        }
        assert!(matches!(parse(b"250-a\n251 b\n").1, Err(ParseError::MixedCodes { .. })));
        assert_eq!(parse(&vec![b'x'; LINE_MAX + 1]).1, Err(ParseError::TooLong));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn nearly_valid_bytes_never_panic(
            lines in proptest::collection::vec("(250|650|5)?[-+ .]?[a-z.=\u{e9}]{0,4}\r?\n", 0..20)
        ) {
            let _ = parse(lines.concat().as_bytes());
        }

        #[test]
        fn messages_do_not_depend_on_how_the_stream_is_cut(
            lines in proptest::collection::vec("250[-+ ][a-z]{0,4}\r\n|\\.\r\n", 0..12),
            cut in 0usize..200,
        ) {
            let bytes = lines.concat().into_bytes();
            let (expected, outcome) = parse(&bytes);
            let (head, tail) = bytes.split_at(cut.min(bytes.len()));
            let mut parser = Parser::new();
            let cut_outcome = parser.feed(head).and_then(|()| parser.feed(tail));
            prop_assert_eq!(outcome, cut_outcome);
            let found: Vec<_> = std::iter::from_fn(|| parser.next_message()).collect();
            prop_assert_eq!(expected, found);
        }
    }
}
