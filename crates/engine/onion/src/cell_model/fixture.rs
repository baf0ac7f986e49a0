//! Test relays for both cell models.

use super::{CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, Tor};
use crate::circuit::NextHop;
use crate::client::Pattern;
use crate::identity::{Ed25519Id, OwnIdentity, RelayIds, RsaId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// A cell model with test relays.
pub(crate) trait Staged: CellModel {
    /// The relay with this number.
    fn identity(number: u8) -> Self::Identity;

    /// Writes this number of bytes of a test stream into `room`, beginning at `from`.
    fn put(room: Self::Room<'_>, from: u64, most_bytes: usize) -> usize;

    /// Whether these bytes are those of the test stream at `from`.
    fn is_from(data: Self::PayloadSlice<'_>, from: u64) -> bool;
}

/// The bytes of the test stream.
const STREAM: Pattern = Pattern { seed: 7 };

/// The relay with this number, for circuit handshakes only: it has no certificates.
fn own_identity(number: u8) -> OwnIdentity {
    OwnIdentity {
        rsa: RsaId([number; 20]),
        rsa_sha256: [number; 32],
        ed25519: Ed25519Id([number; 32]),
        rsa_identity_cert: Vec::new(),
        signing_cert: Vec::new(),
        tls_link_cert: Vec::new(),
        authenticate_cert: Vec::new(),
        rsa_cross_cert: Vec::new(),
        authenticate_seed: [number; 32],
        onion_secret: [number; 32],
        previous_onion_secret: None,
    }
}

impl Staged for Tor {
    fn identity(number: u8) -> Arc<OwnIdentity> {
        Arc::new(own_identity(number))
    }

    fn put(room: &mut [u8], from: u64, most_bytes: usize) -> usize {
        let len = room.len().min(most_bytes);
        STREAM.fill(from, &mut room[..len]);
        len
    }

    fn is_from(data: &[u8], from: u64) -> bool {
        STREAM.matches(from, data)
    }
}

impl Staged for HeaderOnly {
    fn identity(number: u8) -> RelayIds {
        own_identity(number).ids()
    }

    fn put(room: &mut RunRoom, from: u64, most_bytes: usize) -> usize {
        room.put(from, most_bytes as u64)
    }

    fn is_from(data: HeaderOnlyPayload<'_>, from: u64) -> bool {
        matches!(data, HeaderOnlyPayload::Run(run) if run.at == Run::place(from))
    }
}

/// A client's knowledge of the relay with this number.
pub(crate) fn hop(number: u8) -> NextHop {
    let address = SocketAddr::from(([192, 0, 2, number], 9001));
    NextHop::to_own(&own_identity(number), address)
}
