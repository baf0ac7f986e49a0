//! The configuration, consensus and history of the coordinator, and the identities of relays and measurers.

use crate::flow_level::Scene;
use coordinator::period::{Bounds, MeasurerConfig, NetworkView, Now, PeriodConfig, Router, Timing};
use coordinator::{Defences, History, HistoryPolicy, MeasurerId, Params, PastEstimate, PathSeen};
use onion::identity::{RelayIds, RsaId};
use onion::measure::protocol::MeasurerKey;
use onion::{Duration, Instant, Rate};
use std::net::SocketAddr;

/// The paper's team (§7).
pub(super) const MEASURERS: [Rate; 3] = [Rate::from_bit_per_s(1_000_000_000); 3];

/// When the simulated time begins, in Unix seconds.
const BEGIN_UNIX_S: u64 = 1_800_000_000;

/// Longer than any campaign: a period without slots ends when all relays are measured.
const PERIOD_S: u64 = 30 * 24 * 3600;

/// The round trip of each measurer to each relay: near enough that all sockets start at once.
pub(super) const RTT: Duration = Duration::from_millis(20);

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a second")]
pub(super) fn bytes(count: f64) -> u64 {
    count as u64
}

/// Both clocks at an instant.
pub(super) fn time(instant: Instant) -> Now {
    let passed = instant.saturating_since(Instant::ORIGIN);
    Now { instant, unix: Duration::from_secs(BEGIN_UNIX_S) + passed }
}

pub(super) fn config(params: Params) -> PeriodConfig {
    let measurer = |(place, limit): (usize, &Rate)| MeasurerConfig {
        name: format!("measurer {place}"),
        key: key(place),
        address: address([10, 255], place),
        limit: *limit,
    };
    PeriodConfig {
        bounds: Bounds { begin_unix_s: BEGIN_UNIX_S, length_s: PERIOD_S, slot_s: 1 },
        timing: Timing::Greedy,
        params,
        policy: HistoryPolicy::default(),
        measurers: MEASURERS.iter().enumerate().map(measurer).collect(),
        at_once_max: None,
        echo_rounds: params.max_rounds,
        always_authenticate: false,
        path: None,
        measurers_min: 1,
        repeats_failures: true,
        certain: Vec::new(),
        refresh: Duration::from_secs(PERIOD_S),
        secret: [0; 32],
    }
}

/// As if every relay had been measured in the previous period, while the adversary was honest.
pub(super) fn history(scene: &Scene) -> History {
    let mut history = History::default();
    for (place, relay) in scene.relays.iter().enumerate() {
        let capacity = Rate::from_byte_per_s(bytes(relay.capacity / 8.0));
        let measured_unix_s = BEGIN_UNIX_S - 1;
        let estimate = PastEstimate {
            capacity,
            measured_unix_s,
            mode: None,
            is_conclusive: None,
            sockets: None,
        };
        history.add(rsa(place), estimate);
        for measurer in 0..MEASURERS.len() {
            let path = PathSeen { rtt: Some(RTT), ..PathSeen::default() };
            history.add_path(rsa(place), MeasurerId(measurer), path, measured_unix_s);
        }
    }
    history
}

/// The consensus.
pub(super) fn view(scene: &Scene) -> NetworkView {
    let relays = || 0..scene.relays.len();
    let router = |place: usize| Router {
        ids: RelayIds { rsa: rsa(place), ed25519: None },
        nickname: format!("relay{place}"),
        address: address([10, 0], place),
        is_authority: false,
        is_running: true,
        weight_kb_s: None,
    };
    NetworkView {
        valid_after_unix_s: BEGIN_UNIX_S,
        source: "the model".to_owned(),
        signers: None,
        routers: relays().map(router).collect(),
        named: None,
        echo: relays().map(rsa).collect(),
        families: Vec::new(),
        policy_relays: None,
        defences: Defences::default(),
    }
}

/// An identity that contains the relay's place in the scene.
fn rsa(place: usize) -> RsaId {
    let mut id = [0; 20];
    id[12..].copy_from_slice(&(place as u64).to_be_bytes());
    RsaId(id)
}

pub(in super::super) fn place_of(RsaId(id): RsaId) -> usize {
    let mut place = [0; 8];
    place.copy_from_slice(&id[12..]);
    usize::try_from(u64::from_be_bytes(place)).unwrap_or(usize::MAX)
}

/// The address of each of up to 65,536 hosts.
fn address([a, b]: [u8; 2], place: usize) -> SocketAddr {
    let [.., c, d] = place.to_be_bytes();
    ([a, b, c, d], 9001).into()
}

pub(super) fn key(place: usize) -> MeasurerKey {
    let mut key = [0; 32];
    key[24..].copy_from_slice(&(place as u64 + 1).to_be_bytes());
    MeasurerKey(key)
}

/// The time of a record, in hours after the beginning.
pub(in super::super) fn hours_after_begin(unix_s: u64) -> f64 {
    unix_s.saturating_sub(BEGIN_UNIX_S) as f64 / 3600.0
}
