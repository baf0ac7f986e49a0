use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use onion::cell_model::{CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, Tor};
use onion::identity::{Ed25519Id, OwnIdentity, RelayIds, RsaId};

/// A cell model that a [`Stage`](super::Stage) supports.
pub trait StageModel: CellModel {
    /// A relay's identity; different numbers are different relays.
    fn identity(number: u8) -> Self::Identity;

    /// Its onion key.
    fn onion_key(identity: &Self::Identity) -> [u8; 32];

    /// Stream data at this offset.
    fn with_data<T>(at: u32, len: u32, give: impl FnOnce(Self::PayloadSlice<'_>) -> T) -> T;

    /// A buffer for this number of bytes.
    fn with_room<T>(most: u32, take: impl FnOnce(Self::Room<'_>) -> T) -> T;
}

impl StageModel for Tor {
    fn identity(number: u8) -> Arc<OwnIdentity> {
        Arc::new(OwnIdentity {
            rsa: RsaId([number + 1; 20]),
            rsa_sha256: [number + 2; 32],
            ed25519: Ed25519Id([number + 3; 32]),
            rsa_identity_cert: Vec::new(),
            signing_cert: Vec::new(),
            tls_link_cert: Vec::new(),
            authenticate_cert: Vec::new(),
            rsa_cross_cert: Vec::new(),
            authenticate_seed: [number + 4; 32],
            onion_secret: [number + 5; 32],
            previous_onion_secret: None,
        })
    }

    fn onion_key(identity: &Arc<OwnIdentity>) -> [u8; 32] {
        identity.onion_key()
    }

    fn with_data<T>(at: u32, len: u32, give: impl FnOnce(&[u8]) -> T) -> T {
        let bytes: Vec<u8> = (0..len).map(|n| at.wrapping_add(n).to_le_bytes()[0]).collect();
        give(&bytes)
    }

    fn with_room<T>(most: u32, take: impl FnOnce(&mut [u8]) -> T) -> T {
        take(&mut vec![0; most as usize])
    }
}

impl StageModel for HeaderOnly {
    fn identity(number: u8) -> RelayIds {
        RelayIds { rsa: RsaId([number + 1; 20]), ed25519: Some(Ed25519Id([number + 3; 32])) }
    }

    fn onion_key(_identity: &RelayIds) -> [u8; 32] {
        [0; 32]
    }

    fn with_data<T>(at: u32, len: u32, give: impl FnOnce(HeaderOnlyPayload<'_>) -> T) -> T {
        give(HeaderOnlyPayload::Run(Run { at, len }))
    }

    fn with_room<T>(most: u32, take: impl FnOnce(&mut RunRoom) -> T) -> T {
        take(&mut RunRoom { room_bytes: most, ..RunRoom::default() })
    }
}
