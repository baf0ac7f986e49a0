//! Sources of a consensus.

use crate::error::Error;
use netdoc::consensus::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The source of a consensus. Displayed as "the consensus from …" or "the consensus in …".
#[derive(Clone, Debug)]
pub enum Source {
    /// A directory authority or cache.
    Authority(SocketAddr),
    /// A file.
    File(PathBuf),
}

impl Source {
    /// Reads or fetches the consensus, without verifying it. See [`consensus`](crate::consensus) for the accepted files.
    ///
    /// # Errors
    /// The consensus cannot be read, fetched or parsed; the message names the source.
    pub fn consensus(&self, now_unix_s: u64) -> Result<Consensus, Error> {
        match self {
            Self::File(path) => crate::consensus(path, now_unix_s),
            Self::Authority(authority) => {
                let text = Fetcher::default().get(*authority, &Resource::Consensus)?;
                let what = self.to_string();
                let parsed = Consensus::parse(&text);
                let consensus =
                    parsed.map_err(|source| Error::Consensus { what: what.clone(), source })?;
                crate::files::note_validity(&what, &consensus, now_unix_s);
                Ok(consensus)
            }
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority(authority) => write!(f, "the consensus from {authority}"),
            Self::File(path) => write!(f, "the consensus in {}", path.display()),
        }
    }
}
