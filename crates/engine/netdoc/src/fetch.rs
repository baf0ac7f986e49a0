//! Fetches documents from directory authorities by plain HTTP (dir-spec.txt, section 4.1).
//!
//! There is no TLS: documents carry their own signatures, and an authority's directory port
//! supports nothing else. Proxies in the environment are ignored, and redirects are not followed.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ureq::http::StatusCode;
use ureq::{Agent, Timeout};

use crate::consdiff::ConsensusDigest;
use identity::RsaId;

/// A document that an authority serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resource {
    /// The current consensus, ns flavour.
    Consensus,
    /// The current consensus, microdesc flavour.
    ConsensusMicrodesc,
    /// The server descriptors of all relays.
    AllDescriptors,
    /// The server descriptors of these relays. Authorities answer for up to 96 at once.
    Descriptors(Vec<RsaId>),
    /// The authority's own vote in the current consensus.
    CurrentVote,
    /// The bandwidth file that the authority will vote on next.
    NextBandwidthFile,
    /// Any other path, from its `/`.
    Path(String),
}

impl fmt::Display for Resource {
    /// The path of its URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Consensus => f.write_str("/tor/status-vote/current/consensus"),
            Self::ConsensusMicrodesc => f.write_str("/tor/status-vote/current/consensus-microdesc"),
            Self::AllDescriptors => f.write_str("/tor/server/all"),
            Self::Descriptors(relays) => {
                f.write_str("/tor/server/fp/")?;
                relays.iter().enumerate().try_for_each(|(i, relay)| {
                    write!(f, "{}{relay}", if i == 0 { "" } else { "+" })
                })
            }
            Self::CurrentVote => f.write_str("/tor/status-vote/current/authority"),
            Self::NextBandwidthFile => f.write_str("/tor/status-vote/next/bandwidth"),
            Self::Path(path) => f.write_str(path),
        }
    }
}

/// Why a document could not be fetched. Every message contains the URL and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("can't fetch {url}: {problem}")]
pub struct FetchError {
    /// The URL.
    pub url: String,
    /// The problem.
    #[source]
    pub problem: Problem,
}

/// The problem with a request.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// No connection to that address and port.
    #[error("{reason}; check the address and its directory port, or ask another authority")]
    Unreachable {
        /// The I/O error.
        reason: String,
    },
    /// A time limit was exceeded.
    #[error("timed out ({during}); try again, ask another authority, or allow more time")]
    TimedOut {
        /// The step.
        during: String,
    },
    /// The authority answered with an error status.
    #[error("HTTP status {status}; {}", remedy(*status))]
    Status {
        /// The status, such as 404.
        status: u16,
    },
    /// The answer is not HTTP, or is truncated.
    #[error("a broken answer ({reason}); try again, or ask another authority")]
    Broken {
        /// The reason.
        reason: String,
    },
    /// The document exceeds the limit.
    #[error("longer than {max_bytes} bytes; allow more, or ask another authority")]
    TooLong {
        /// The limit.
        max_bytes: u64,
    },
}

fn remedy(status: u16) -> &'static str {
    match status {
        304 => "it has no later one",
        400 => "the path is malformed",
        404 => "it has no such document now: check the path, or ask another authority",
        503 => "it is busy: try again later, or ask another authority",
        300..=399 => "redirects aren't followed: check the address",
        _ => "ask another authority",
    }
}

/// Time and size limits of a fetch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetcher {
    /// Time limit for connecting; 10 s by default.
    pub connect_timeout: Duration,
    /// Time limit between received bytes, and before the first; 20 s by default. It is shorter than
    /// the total limit, so that a silent server is abandoned before a slow one.
    pub silence_timeout: Duration,
    /// Time limit for the whole fetch; 2 min by default.
    pub total_timeout: Duration,
    /// Size limit of the document, in bytes; 64 MiB by default.
    pub max_bytes: u64,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(20),
            total_timeout: Duration::from_secs(120),
            max_bytes: 64 << 20,
        }
    }
}

impl Fetcher {
    /// Fetches a document from the authority with this address and directory port.
    ///
    /// The document is returned unchanged. An answer without `Content-Length` may be truncated
    /// without notice; the parsers of this crate detect that.
    ///
    /// # Errors
    /// [`FetchError`], which contains the URL.
    pub fn get(&self, authority: SocketAddr, what: &Resource) -> Result<Vec<u8>, FetchError> {
        self.get_since(authority, what, &[])
    }

    /// Fetches a consensus, where earlier ones are known by [their
    /// digests](crate::consdiff::digest_as_signed). The answer may be a [diff](crate::consdiff)
    /// from one of them. If the latest is among them, the error is [`Problem::Status`] with 304.
    ///
    /// # Errors
    /// [`FetchError`], which contains the URL.
    pub fn get_since(
        &self,
        authority: SocketAddr,
        what: &Resource,
        have: &[ConsensusDigest],
    ) -> Result<Vec<u8>, FetchError> {
        let url = format!("http://{authority}{what}");
        self.get_url(&url, have).map_err(|problem| FetchError { url, problem })
    }

    fn get_url(&self, url: &str, have: &[ConsensusDigest]) -> Result<Vec<u8>, Problem> {
        let agent: Agent = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent("")
            .accept("*/*")
            .accept_encoding("identity")
            .timeout_connect(Some(self.connect_timeout))
            .timeout_per_read(Some(self.silence_timeout))
            .timeout_global(Some(self.total_timeout))
            .max_idle_connections(0)
            .build()
            .into();
        let mut request = agent.get(url);
        if !have.is_empty() {
            let digests: Vec<_> = have.iter().map(hex::encode_upper).collect();
            request = request.header("X-Or-Diff-From-Consensus", digests.join(" "));
        }
        let mut response = request.call().map_err(|error| self.problem(error))?;
        if response.status() != StatusCode::OK {
            return Err(Problem::Status { status: response.status().as_u16() });
        }
        let encoding = response.headers().get("content-encoding");
        if let Some(encoding) = encoding.filter(|encoding| *encoding != "identity") {
            return Err(Problem::Broken { reason: format!("it is encoded as {encoding:?}") });
        }
        let body = response.body_mut().with_config().limit(self.max_bytes);
        body.read_to_vec().map_err(|error| self.problem(error))
    }

    fn problem(&self, error: ureq::Error) -> Problem {
        match error {
            ureq::Error::Timeout(Timeout::Connect) => {
                Problem::TimedOut { during: "connecting".to_owned() }
            }
            ureq::Error::Timeout(during) => Problem::TimedOut { during: during.to_string() },
            ureq::Error::BodyExceedsLimit(max_bytes) => Problem::TooLong { max_bytes },
            ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => {
                Problem::Unreachable { reason: error.to_string() }
            }
            ureq::Error::Io(error) => match error.kind() {
                std::io::ErrorKind::ConnectionRefused
                | std::io::ErrorKind::HostUnreachable
                | std::io::ErrorKind::NetworkUnreachable => {
                    Problem::Unreachable { reason: error.to_string() }
                }
                _ => Problem::Broken { reason: error.to_string() },
            },
            other => Problem::Broken { reason: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests;
