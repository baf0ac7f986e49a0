use alloc::boxed::Box;
use core::net::IpAddr;

/// The TLS session of a link, as the engine needs it.
pub trait TlsSession {
    /// The peer's certificate in DER; `None` for the responder, whose peers present none.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// SHA-256 of this side's certificate; `None` if it presents none, or if there is only one.
    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        None
    }

    /// Exported keying material (RFC 5705); `None` if the session cannot export it.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]>;

    /// The peer's address, if the shell knows it.
    fn peer_address(&self) -> Option<IpAddr> {
        None
    }

    /// Whether [`Node::admits`](crate::node::Node::admits) was called before the handshake.
    fn was_admitted(&self) -> bool {
        false
    }

    /// The session without the connection, for another thread or for later; `None` if that is impossible.
    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        None
    }
}

/// The session of a connection without TLS, for nodes that listen for such connections: no certificate and no
/// keying material.
#[derive(Clone, Copy, Debug)]
pub struct NoTls;

impl TlsSession for NoTls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        None
    }
}
