use super::message::{HostId, Job};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use onion::Duration;
use onion::circuit::NextHop;
use onion::identity::{Ed25519Id, RelayIds, RsaId};

/// Hosts' places, and latency and loss between places.
#[derive(Clone, Debug)]
pub struct Net {
    /// The place of each host.
    place_of: Vec<u16>,
    is_relay: Vec<bool>,
    places: usize,
    /// One-way latency in nanoseconds, from row to column.
    latency_ns: Vec<u32>,
    /// Loss in 2⁻³² per segment.
    loss: Vec<u32>,
}

impl Net {
    /// A network with this number of places and no hosts. `between` returns one-way latency and the loss rate
    /// of segments, from the first to the second.
    pub fn new(places: u16, mut between: impl FnMut(u16, u16) -> (Duration, f64)) -> Self {
        let all = (0..places).flat_map(|from| (0..places).map(move |to| (from, to)));
        let (latency_ns, loss) = all
            .map(|(from, to)| {
                let (latency, loss) = between(from, to);
                let ns = u32::try_from(latency.as_nanos()).unwrap_or(u32::MAX).max(1);
                (ns, share_of_u32(loss))
            })
            .unzip();
        Self { place_of: Vec::new(), is_relay: Vec::new(), places: places.into(), latency_ns, loss }
    }

    /// Adds a host at a place.
    pub fn add(&mut self, place: u16, is_relay: bool) -> HostId {
        self.place_of.push(place);
        self.is_relay.push(is_relay);
        HostId(u32::try_from(self.place_of.len() - 1).unwrap_or(u32::MAX))
    }

    /// The number of hosts.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.place_of.len()
    }

    /// The minimum latency between any two places: the length of a window, in nanoseconds.
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.latency_ns.iter().copied().min().unwrap_or(1_000_000).into()
    }

    /// Latency in nanoseconds and loss in 2⁻³² per segment, from one host to another.
    pub(super) fn between(&self, from: u32, to: u32) -> (u32, u32) {
        let place = |host: u32| usize::from(self.place_of[host as usize]);
        let at = place(from) * self.places + place(to);
        (self.latency_ns[at], self.loss[at])
    }

    pub(super) fn is_relay(&self, host: u32) -> bool {
        self.is_relay[host as usize]
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped before")]
fn share_of_u32(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32
}

/// The address of a host: 11.0.0.0/8 in order.
pub(super) fn address(host: u32) -> IpAddr {
    Ipv4Addr::from(0x0b00_0000 + host).into()
}

/// The host with an address.
pub(super) fn host_at(address: IpAddr) -> Option<u32> {
    let IpAddr::V4(address) = address else { return None };
    u32::from(address).checked_sub(0x0b00_0000)
}

/// The identity of a relay.
pub(super) fn ids(host: u32) -> RelayIds {
    let mut rsa = [0x11; 20];
    rsa[..4].copy_from_slice(&host.to_be_bytes());
    let mut ed25519 = [0x22; 32];
    ed25519[..4].copy_from_slice(&host.to_be_bytes());
    RelayIds { rsa: RsaId(rsa), ed25519: Some(Ed25519Id(ed25519)) }
}

pub(super) fn next_hop(host: u32) -> NextHop {
    NextHop { address: SocketAddr::new(address(host), 9001), ids: ids(host), onion_key: [0; 32] }
}

/// The address by which a stream finds a server and its job.
pub(super) fn job_address(server: u32, job: Job) -> Ipv6Addr {
    let (bytes, seed) = match job {
        Job::Fetch(bytes) => (bytes, 0),
        Job::Packets(seed) => (0, seed),
    };
    let high = 0x2a00_u128 << 112 | u128::from(server) << 96;
    Ipv6Addr::from(high | u128::from(bytes) << 64 | u128::from(seed))
}

/// The server and its job.
pub(super) fn job_at(address: IpAddr) -> Option<(u32, Job)> {
    let IpAddr::V6(address) = address else { return None };
    let bits = u128::from(address);
    let part = |shift: u32, mask: u128| u64::try_from(bits >> shift & mask).unwrap_or(0);
    let server = u32::try_from(part(96, 0xffff)).ok()?;
    let bytes = u32::try_from(part(64, 0xffff_ffff)).ok()?;
    let job = if bytes > 0 { Job::Fetch(bytes) } else { Job::Packets(part(0, u64::MAX.into())) };
    Some((server, job))
}
