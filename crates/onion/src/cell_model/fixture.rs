//! Relays that both suites know, for tests over either.

use super::{CellModel, HeaderOnly, HeaderOnlyPayload, Run, RunRoom, Tor};
use crate::circuit::NextHop;
use crate::client::Pattern;
use crate::identity::{Ed25519Id, OwnIdentity, RelayIds, RsaId};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

/// A suite whose relays can be made up.
pub(crate) trait Staged: CellModel {
    /// The relay of this number.
    fn identity(number: u8) -> Self::Identity;

    /// Puts so many bytes of some stream into `room`, from `from` on.
    fn put(room: Self::Room<'_>, from: u64, most_bytes: usize) -> usize;

    /// Whether these bytes of that stream begin at `from`.
    fn is_from(data: Self::PayloadSlice<'_>, from: u64) -> bool;
}

/// The bytes of that stream.
const STREAM: Pattern = Pattern { seed: 7 };

/// The relay of this number, as far as handshakes of circuits go: no certificate is there.
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

/// What a client knows of the relay of this number.
pub(crate) fn hop(number: u8) -> NextHop {
    let address = SocketAddr::from(([192, 0, 2, number], 9001));
    NextHop::to_own(&own_identity(number), address)
}
