use alloc::boxed::Box;
use core::net::IpAddr;

/// What the engine needs to know of the TLS session under a link.
pub trait TlsSession {
    /// The peer's certificate in DER; `None` for the responder, whose peers show none.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// SHA-256 of the certificate that our own side shows; `None` where it shows none, or where only
    /// one can be meant.
    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        None
    }

    /// Keying material of the session (RFC 5705); `None` if the session cannot export.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]>;

    /// The address at the other end of the connection, where the shell knows it.
    fn peer_address(&self) -> Option<IpAddr> {
        None
    }

    /// Whether the node was [asked](crate::node::Node::admits) before the handshake began.
    fn was_admitted(&self) -> bool {
        false
    }

    /// The same without the connection, for another thread or for later; `None` if that cannot be.
    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        None
    }
}

/// The session of a connection without TLS, for nodes that listen for such ones: it shows and
/// exports nothing.
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
