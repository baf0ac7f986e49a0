//! How documents are requested.

use netdoc::consdiff::ConsensusDigest;
use netdoc::fetch::{FetchError, Fetcher, Resource};
use std::net::SocketAddr;

/// Requests documents from directories. A directory is identified by the address that the
/// configuration gives for it.
pub trait Source {
    /// Directories that are asked before the authorities for documents that prove themselves, the
    /// best first.
    fn mirrors(&mut self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Requests a document as [`Fetcher::get_since`] does, and waits for it within `limits`.
    ///
    /// # Errors
    /// [`FetchError`] names the document and the directory.
    fn get_since(
        &mut self,
        from: SocketAddr,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, FetchError>;

    /// Called after the last request of a fetch. The next fetch may be hours away.
    fn close_idle(&mut self) {}
}

/// Plain HTTP to directory ports, with one connection for each document.
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
