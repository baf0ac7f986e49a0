//! How documents are asked for.

use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{FetchError, Fetcher, Resource};
use std::net::SocketAddr;

/// A way to ask directories for documents. Each goes by the address that was given for it.
pub trait Source {
    /// Directories besides the authorities, which are asked before them for what anybody may give away; the best first.
    fn nearer(&mut self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Asks for a document, as [`Fetcher::get_since`] does, and waits for it no longer than the limits permit.
    ///
    /// # Errors
    /// [`FetchError`], which names what was asked for, and whom.
    fn get_since(
        &mut self,
        from: SocketAddr,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, FetchError>;

    /// A look at the directories is over. It may be hours until the next.
    fn rest(&mut self) {}
}

/// Plain HTTP, from directory ports: a connection for each document.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainHttp;

impl Source for PlainHttp {
    fn get_since(
        &mut self,
        from: SocketAddr,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, FetchError> {
        limits.get_since(from, what, have)
    }
}
