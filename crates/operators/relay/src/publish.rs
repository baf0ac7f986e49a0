//! Publishes a descriptor: one HTTP POST to a directory authority (dir-spec.txt, section 4).
//!
//! Implemented without an HTTP library, because an authority states its reason for a refusal in the
//! status line, which libraries discard. Authorities answer in HTTP/1.0 and close the connection.

#[cfg(test)]
mod tests;

use link::Clock;
use onion::{Duration, Instant};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The longest answer that is read; authorities send a few hundred bytes.
const ANSWER_MAX: usize = 8 * 1024;
/// The longest reason that is passed on, in characters: it is untrusted.
const REASON_MAX: usize = 500;

/// An authority's answer to a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accepted.
    Accepted,
    /// It keeps the one that it has: there is no relevant change (`X-Descriptor-Not-New`).
    NotNew,
    /// Refused.
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its reason, shortened and without control characters.
        reason: String,
    },
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accepted => f.write_str("accepted"),
            Self::NotNew => f.write_str("nothing new, it keeps the one that it has"),
            Self::Refused { status, reason } => write!(f, "refused: {reason} (HTTP {status})"),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// No connection.
    #[error("cannot connect: {0}; check the address and the directory port")]
    Unreachable(io::Error),
    /// Timeout.
    #[error("no answer within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The connection was lost.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The answer is not HTTP.
    #[error("{0:?} is not an HTTP response; is that a directory port?")]
    NotHttp(String),
}

/// Time limits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The limit for connecting.
    pub connect: Duration,
    /// The limit for the whole request.
    pub total: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), total: Duration::from_secs(30) }
    }
}

/// Sends a descriptor to the authority at this address and directory port, and waits for its
/// answer.
///
/// # Errors
/// [`PublishError`] if there is no answer. A refusal is an [`Answer`].
pub fn post(
    authority: SocketAddr,
    descriptor: &str,
    clock: Clock,
    patience: Patience,
) -> Result<Answer, PublishError> {
    let deadline = clock.now() + patience.total;
    let stream = TcpStream::connect_timeout(&authority, patience.connect.min(patience.total))
        .map_err(PublishError::Unreachable)?;
    let mut exchange = Exchange { stream, clock, deadline };
    let request = format!(
        "POST /tor/ HTTP/1.0\r\nHost: {authority}\r\nContent-Length: {}\r\n\r\n{descriptor}",
        descriptor.len()
    );
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => PublishError::TimedOut(patience.total),
        _ => PublishError::Broken(error),
    };
    // An authority may refuse before it has read everything: its answer counts.
    let sent = exchange.send(request.as_bytes());
    match (exchange.receive(), sent) {
        (Ok(answer), Ok(())) => parse(&answer),
        (Ok(answer), Err(error)) if answer.is_empty() => Err(failed(error)),
        (Ok(answer), Err(_)) => parse(&answer),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(failed(error)),
    }
}

/// A connection with a deadline for all operations.
struct Exchange {
    stream: TcpStream,
    clock: Clock,
    deadline: Instant,
}

impl Exchange {
    /// The remaining time, never zero, which sockets take as no limit.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline - self.clock.now();
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads up to the end of the header or of the connection.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        let mut room = [0; 1024];
        while answer.len() < ANSWER_MAX && !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            self.stream.set_read_timeout(Some(self.left()?))?;
            match self.stream.read(&mut room) {
                Ok(0) => break,
                Ok(len) => answer.extend_from_slice(&room[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Closing a connection with unread data resets it, after the answer.
                Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answer)
    }
}

/// Parses a status line and the relevant header.
fn parse(answer: &[u8]) -> Result<Answer, PublishError> {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status_line = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split_once(' '));
    let (code, reason) = match status_line {
        Some((_, rest)) => rest.split_once(' ').unwrap_or((rest, "")),
        None => return Err(PublishError::NotHttp(harmless(first))),
    };
    let Some(status) = code.parse().ok().filter(|status| (100..1000).contains(status)) else {
        return Err(PublishError::NotHttp(harmless(first)));
    };
    if status != 200 {
        return Ok(Answer::Refused { status, reason: harmless(reason) });
    }
    let is_not_new = lines.take_while(|line| !line.is_empty()).any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("X-Descriptor-Not-New")
                && value.trim().eq_ignore_ascii_case("yes")
        })
    });
    Ok(if is_not_new { Answer::NotNew } else { Answer::Accepted })
}

/// Untrusted text, shortened and without control characters.
fn harmless(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(REASON_MAX).collect()
}
