use super::conn::LinkId;
use crate::link::TlsSession;
use sha2::{Digest, Sha256};

/// TLS in name only.
pub(super) struct NullTls<'a> {
    pub(super) link: LinkId,
    /// What the peer shows: the listener's certificate, to the side that dialled.
    pub(super) certificate: Option<&'a [u8]>,
}

impl TlsSession for NullTls<'_> {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.certificate
    }

    /// The same on both sides of a connection, another for each connection, label and context. No
    /// secret at all.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let hash = Sha256::new()
            .chain_update(self.link.0.to_be_bytes())
            .chain_update((label.len() as u64).to_be_bytes())
            .chain_update(label)
            .chain_update(context);
        Some(hash.finalize().into())
    }
}
