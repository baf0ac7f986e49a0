//! The connection to a control port.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::event::Event;
use super::parse::{Message, ParseError, Parser};
use crate::clock;

/// Maximum wait for a connection and for each reply. Tor answers from its main loop, which a measurement at
/// full load may delay by seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a control port request failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The connection could not be established or used.
    #[error("cannot reach {address}: {source}")]
    Connect {
        /// The control port.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The file with the authentication cookie could not be read.
    #[error("cannot read the cookie `{}`: {source}", .path.display())]
    Cookie {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Tor closed the connection, most likely because it ended.
    #[error("tor closed the connection")]
    Closed,
    /// Tor sent something that is not the control protocol.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// Tor refused a command.
    #[error("tor refused `{command}`: {code} {text}")]
    Refused {
        /// The command's first word.
        command: String,
        /// Tor's status code.
        code: u16,
        /// Tor's explanation.
        text: String,
    },
    /// Tor did not answer in time.
    #[error("tor did not answer `{command}` within {} s", .after.as_secs())]
    NoReply {
        /// The command's first word.
        command: String,
        /// How long this process waited.
        after: Duration,
    },
    /// A command contains a line break, which would start another command.
    #[error("a command contains a line break")]
    LineBreak,
    /// Tor's answer lacks the requested value.
    #[error("unexpected answer: {0}")]
    Unexpected(String),
}

/// An authenticated connection to the control port of a tor process.
///
/// A thread reads from it, so that events get their arrival time. Dropping the value ends both.
#[derive(Debug)]
pub struct Control {
    stream: TcpStream,
    replies: Receiver<Message>,
    events: Receiver<Event>,
    /// Why the reader ended, if not by an orderly close.
    failure: Arc<Mutex<Option<ParseError>>>,
    reader: Option<JoinHandle<()>>,
}

impl Control {
    /// Connects, and authenticates with the cookie in a file.
    ///
    /// # Errors
    /// [`ControlError`] if the port or the cookie cannot be used.
    pub fn connect(address: SocketAddr, cookie: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Connect { address, source };
        let cookie = std::fs::read(cookie)
            .map_err(|source| ControlError::Cookie { path: cookie.to_owned(), source })?;
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let reading = stream.try_clone().map_err(failed)?;
        let (reply_sender, replies) = mpsc::channel();
        let (event_sender, events) = mpsc::channel();
        let failure: Arc<Mutex<_>> = Arc::default();
        let report = Arc::clone(&failure);
        let reader = thread::Builder::new()
            .name("tor control".to_owned())
            .spawn(move || {
                if let Err(error) = read_all(reading, &reply_sender, &event_sender) {
                    *report.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            })
            .map_err(failed)?;
        let mut control = Self { stream, replies, events, failure, reader: Some(reader) };
        control.request(&format!("AUTHENTICATE {}", hex::encode(cookie)))?;
        Ok(control)
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// [`ControlError::Refused`] if the reply's code is a failure; another [`ControlError`] if there is no
    /// reply.
    pub fn request(&mut self, command: &str) -> Result<Message, ControlError> {
        if command.contains(['\r', '\n']) {
            return Err(ControlError::LineBreak);
        }
        // Errors contain only the first word: the rest may be a cookie.
        let word = || command.split(' ').next().unwrap_or("").to_owned();
        if self.stream.write_all(format!("{command}\r\n").as_bytes()).is_err() {
            return Err(self.why_closed());
        }
        let reply = self.replies.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                // A late reply would be mistaken for the reply to the next command.
                let _already_closed = self.stream.shutdown(Shutdown::Both);
                ControlError::NoReply { command: word(), after: PATIENCE }
            }
            RecvTimeoutError::Disconnected => self.why_closed(),
        })?;
        if (200..300).contains(&reply.code) {
            Ok(reply)
        } else {
            let text = reply.text().to_owned();
            Err(ControlError::Refused { command: word(), code: reply.code, text })
        }
    }

    /// The value of one `GETINFO` key.
    ///
    /// # Errors
    /// [`ControlError`] if tor refuses, for example because it has no such document yet.
    pub fn get_info(&mut self, key: &str) -> Result<String, ControlError> {
        let reply = self.request(&format!("GETINFO {key}"))?;
        let line = reply.lines.into_iter().next().unwrap_or_default();
        match line.text.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => Ok(line.data.unwrap_or_else(|| value.to_owned())),
            None => Err(ControlError::Unexpected(line.text)),
        }
    }

    /// Subscribes to exactly these kinds of events.
    ///
    /// # Errors
    /// [`ControlError`] if tor does not know one of them.
    pub fn set_events(&mut self, kinds: &[&str]) -> Result<(), ControlError> {
        self.request(&format!("SETEVENTS {}", kinds.join(" "))).map(drop)
    }

    /// The events, in order of arrival. The channel closes when tor ends.
    #[must_use]
    pub const fn events(&self) -> &Receiver<Event> {
        &self.events
    }

    /// Why the connection ended.
    pub(super) fn why_closed(&self) -> ControlError {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failure.map_or(ControlError::Closed, ControlError::Parse)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The reader is blocked in a read; this ends it.
        let _already_closed = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _cannot_panic = reader.join();
        }
    }
}

/// Reads until the connection ends.
fn read_all(
    mut stream: TcpStream,
    replies: &Sender<Message>,
    events: &Sender<Event>,
) -> Result<(), ParseError> {
    let mut parser = Parser::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ok(()),
        };
        let at = clock::now();
        let outcome = parser.feed(buffer.get(..length).unwrap_or_default());
        while let Some(message) = parser.next_message() {
            // Both ends are in one struct, so a closed channel means that the reader is to end anyway.
            let _receiver_gone = if message.is_event() {
                events.send(Event { at, message }).is_err()
            } else {
                replies.send(message).is_err()
            };
        }
        outcome?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that reads one command line per answer.
    fn peer(answers: &'static [&'static [u8]]) -> (SocketAddr, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut received = Vec::new();
            for answer in answers {
                let mut byte = [0];
                while stream.read(&mut byte).expect("a command") == 1 {
                    received.push(byte[0]);
                    if byte[0] == b'\n' {
                        break;
                    }
                }
                stream.write_all(answer).expect("written");
            }
            String::from_utf8(received).expect("text")
        });
        (address, server)
    }

    fn cookie() -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), [0xab, 0xcd]).expect("written");
        file
    }

    #[test]
    fn events_between_replies_do_not_disturb_requests() {
        let (address, server) = peer(&[
            b"250 OK\r\n",
            b"650 BW 1 2\r\n250+a/b=\r\nx\r\n.\r\n250 OK\r\n",
            b"552 Unrecognized key\r\n",
        ]);
        let mut control = Control::connect(address, cookie().path()).expect("connected");
        assert_eq!(control.get_info("a/b").expect("a value"), "x\n");
        let event = control.events().recv().expect("an event");
        assert_eq!(event.keyword(), "BW");
        let refused = control.get_info("c").expect_err("refused").to_string();
        assert_eq!(refused, "tor refused `GETINFO`: 552 Unrecognized key");
        assert!(matches!(control.request("A\r\nB"), Err(ControlError::LineBreak)));
        let received = server.join().expect("no panic");
        assert_eq!(received, "AUTHENTICATE abcd\r\nGETINFO a/b\r\nGETINFO c\r\n");
    }

    #[test]
    fn invalid_data_and_a_closed_connection_are_errors() {
        let (address, _server) = peer(&[b"HTTP/1.0 400 Bad request\r\n"]);
        let error = Control::connect(address, cookie().path()).expect_err("garbage");
        assert!(matches!(error, ControlError::Parse(_)), "{error}");
        let (address, _server) = peer(&[b"250 OK\r\n"]);
        let mut control = Control::connect(address, cookie().path()).expect("connected");
        assert!(matches!(control.request("GETINFO version"), Err(ControlError::Closed)));
    }
}
