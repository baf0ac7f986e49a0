use crate::identity::{OwnIdentity, RelayIds};
use core::net::SocketAddr;

/// The relay that a circuit is extended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its address, for the previous hop.
    pub address: SocketAddr,
    /// Its identities, which the previous hop verifies.
    pub ids: RelayIds,
    /// Its ntor onion key.
    pub onion_key: [u8; 32],
}

impl NextHop {
    /// This relay itself, listening at `address`.
    #[must_use]
    pub fn to_own(identity: &OwnIdentity, address: SocketAddr) -> Self {
        let ids = RelayIds { rsa: identity.rsa, ed25519: Some(identity.ed25519) };
        Self { address, ids, onion_key: identity.onion_key() }
    }
}
