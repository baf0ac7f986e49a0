//! Links between relays: certificates, and the handshake that authenticates the peer (tor-spec §4, cert-spec).

mod certs;
mod channel;

pub use certs::{
    CertError, CertifiedKey, PeerIdentity, issue_cross_cert, issue_ed25519_cert,
    verify_family_cert, verify_initiator_certs, verify_responder_certs,
};
pub use channel::{
    Authentication, Channel, ChannelError, ExpectedPeer, NoTls, TlsSession, Verification, Verified,
};
