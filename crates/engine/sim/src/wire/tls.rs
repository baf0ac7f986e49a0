use super::conn::LinkId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;
use onion::link::TlsSession;
use sha2::{Digest, Sha256};

/// TLS without cryptography.
#[derive(Clone)]
pub(super) struct NullTls {
    pub(super) link: LinkId,
    /// The peer's certificate: the listener's, for the dialler.
    pub(super) certificate: Option<Vec<u8>>,
    /// The peer's address, if it has one.
    pub(super) peer: Option<IpAddr>,
}

impl TlsSession for NullTls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    fn peer_address(&self) -> Option<IpAddr> {
        self.peer
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }

    /// Equal on both sides of a connection, and different for each connection, label and context. Not
    /// secret.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let hash = Sha256::new()
            .chain_update(self.link.0.to_be_bytes())
            .chain_update((label.len() as u64).to_be_bytes())
            .chain_update(label)
            .chain_update(context);
        Some(hash.finalize().into())
    }
}
