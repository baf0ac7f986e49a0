//! Fetching documents from directory authorities: plain HTTP, as dir-spec.txt, section 4.1 has it.
//!
//! There is no TLS: the documents carry their own signatures, and an authority's directory port
//! speaks nothing else. Any proxy in the environment is passed by, and redirects aren't followed.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use ureq::http::StatusCode;
use ureq::{Agent, Timeout};

use crate::consdiff::ConsensusDigest;
use crate::id::Fingerprint;

/// A document an authority serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Resource {
    /// The current consensus, ns flavour.
    Consensus,
    /// The current consensus, microdesc flavour.
    ConsensusMicrodesc,
    /// The server descriptors of all relays.
    AllDescriptors,
    /// The server descriptors of these relays. Authorities answer for up to 96 at once.
    Descriptors(Vec<Fingerprint>),
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

/// Why a document couldn't be fetched. Every message names the URL and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("can't fetch {url}: {problem}")]
pub struct FetchError {
    /// What was asked for, and whom.
    pub url: String,
    /// What went wrong.
    #[source]
    pub problem: Problem,
}

/// What went wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Nobody answered at that address and port.
    #[error("{reason}; check the address and its directory port, or ask another authority")]
    Unreachable {
        /// What the system said.
        reason: String,
    },
    /// The answer took too long.
    #[error("timed out ({during}); try again, ask another authority, or allow more time")]
    TimedOut {
        /// During which step.
        during: String,
    },
    /// The authority refused.
    #[error("HTTP status {status}; {}", remedy(*status))]
    Status {
        /// The status, such as 404.
        status: u16,
    },
    /// The answer isn't HTTP, or breaks off.
    #[error("a broken answer ({reason}); try again, or ask another authority")]
    Broken {
        /// What is wrong with it.
        reason: String,
    },
    /// The document is longer than allowed.
    #[error("longer than {max_bytes} bytes; allow more, or ask another authority")]
    TooLong {
        /// The limit.
        max_bytes: u64,
    },
}

fn remedy(status: u16) -> &'static str {
    match status {
        304 => "it has none later than ours",
        400 => "the path is malformed",
        404 => "it has no such document now: check the path, or ask another authority",
        503 => "it is busy: try again later, or ask another authority",
        300..=399 => "redirects aren't followed: check the address",
        _ => "ask another authority",
    }
}

/// How to fetch: time and size limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fetcher {
    /// How long connecting may take; 10 s by default.
    pub connect_timeout: Duration,
    /// How long nothing may come, be it before the answer or in it; 20 s by default. Who is silent is not waited for as long as who is slow.
    pub silence_timeout: Duration,
    /// How long everything together may take; 2 min by default.
    pub total_timeout: Duration,
    /// How long the document may be, in bytes; 64 MiB by default.
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
    /// Asks the authority at this address and directory port for a document, and waits for it.
    ///
    /// The document is returned as it came. An answer without `Content-Length` may have been cut
    /// without notice; the readers of this crate find that out.
    ///
    /// # Errors
    /// [`FetchError`], which names the URL.
    pub fn get(&self, authority: SocketAddr, what: &Resource) -> Result<Vec<u8>, FetchError> {
        self.get_since(authority, what, &[])
    }

    /// The same for a consensus, of which these earlier ones are here, by
    /// [their digests](crate::consdiff::digest_as_signed): what comes may be a
    /// [difference](crate::consdiff) to one of them. With the latest among them there is nothing to come, which
    /// is [`Problem::Status`] with 304.
    ///
    /// # Errors
    /// [`FetchError`], which names the URL.
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
