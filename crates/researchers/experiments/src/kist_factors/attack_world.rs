//! The adversary's network: honest guards under test, whose circuits are those of victims, of the adversary's probes and of others.

use super::scenes::LinkScheduler;
use onion::flow::control::CongestionParams;
use onion::{Duration, Rate};
use sim::world::{
    Candidate, ClientConfig, Control, Egress, Fetch, HostConfig, HostFigures, HostId, Net, Part,
    Paths, Probe, Record, RelayConfig, Role, SEGMENT_MEMORY_BYTES, Scan, Size, SplitMix64, Users,
};
use std::sync::Arc;

/// Honest guards, each of two victims.
pub(super) const GUARDS: usize = 4;

/// Victims, each at another distance from all relays.
pub(super) const VICTIMS: usize = 8;

/// The difference in latency, one way, between two neighbouring victims.
const STEP: Duration = Duration::from_millis(10);

/// The places of the adversary's probes: those of the first victim and of the last.
const NEAR: usize = 1;
const FAR: usize = VICTIMS;

const GUARD: Rate = Rate::from_bit_per_s(20_000_000);
const FAST: Rate = Rate::from_bit_per_s(200_000_000);

/// Other clients.
const OTHERS: usize = 40;

/// Downloads of victims in bytes, and those of the adversary's probes.
const PAGE_BYTES: (u64, u64) = (30_000, 600_000);
const PROBE_BYTES: u32 = 100_000;

/// More downloads than fit into a run.
const DOWNLOADS: u32 = 10_000;

/// The hosts, in the order in which they are added.
pub(super) struct AttackWorld {
    hosts: Vec<HostConfig>,
    net: Net,
    candidates: Vec<Candidate>,
    scheduler: LinkScheduler,
    rng: SplitMix64,
    pub(super) guards: Vec<HostId>,
    /// Each victim's exit, which the adversary watches.
    pub(super) exits: Vec<HostId>,
    pub(super) victims: Vec<HostId>,
    /// Probes of each guard, from near and from far.
    pub(super) near: Vec<HostId>,
    /// See `near`.
    pub(super) far: Vec<HostId>,
}

/// The downloads of all hosts in a run, and what each sent.
pub(super) struct Watched {
    records: Vec<Record>,
    figures: Vec<HostFigures>,
}

impl Watched {
    /// The downloads of a host that had a first byte, in order.
    pub(super) fn downloads(&self, host: HostId) -> impl Iterator<Item = &Record> {
        let of_host = self.records.iter().filter(move |record| record.client == host);
        of_host.filter(|record| record.first_byte.is_some() && record.last_byte.is_some())
    }

    /// What a host sent in each second.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a second")]
    pub(super) fn sent(&self, host: HostId) -> Vec<f64> {
        let figures = self.figures.iter().find(|figures| figures.host == host);
        figures.map_or_else(Vec::new, |figures| {
            figures.sent_bytes.iter().map(|bytes| *bytes as f64).collect()
        })
    }
}

/// The latency, one way, between two places. Relays and servers are at place 0, victims at 1 to [`VICTIMS`].
fn latency(from: u16, to: u16) -> Duration {
    if from == to { Duration::from_millis(5) } else { STEP * u32::from(from + to) }
}

impl AttackWorld {
    pub(super) fn new(scheduler: LinkScheduler, seed: u64) -> Self {
        let places = u16::try_from(FAR + 1).unwrap_or(u16::MAX);
        let mut world = Self {
            hosts: Vec::new(),
            net: Net::new(places, |from, to| (latency(from, to), 0.0)),
            candidates: Vec::new(),
            scheduler,
            rng: SplitMix64::of(seed, 0),
            guards: Vec::new(),
            exits: Vec::new(),
            victims: Vec::new(),
            near: Vec::new(),
            far: Vec::new(),
        };
        world.add(0, FAST, Role::Server(Arc::default()));
        world.guards = (0..GUARDS).map(|_| world.relay(GUARD, true, false)).collect();
        for is_exit in [false, false, true, true] {
            world.relay(FAST, false, is_exit);
        }
        let candidates = world.candidates.len();
        world.exits = (0..VICTIMS).map(|_| world.relay(FAST, false, true)).collect();
        let own_exit = world.relay(FAST, false, true);
        // Nobody else uses these exits.
        world.candidates.truncate(candidates);
        world.add_victims();
        let probes = |_: &mut SplitMix64| PROBE_BYTES;
        for guard in world.guards.clone() {
            let near = world.scanner(NEAR, [guard, own_exit], probes);
            world.near.push(near);
            let far = world.scanner(FAR, [guard, own_exit], probes);
            world.far.push(far);
        }
        for number in 0..OTHERS {
            world.other(1 + number % VICTIMS);
        }
        world
    }

    fn add_victims(&mut self) {
        let page = |rng: &mut SplitMix64| {
            let bytes = PAGE_BYTES.0 + rng.below(PAGE_BYTES.1 - PAGE_BYTES.0);
            u32::try_from(bytes).unwrap_or(u32::MAX)
        };
        for number in 0..VICTIMS {
            let path = [self.guards[number % GUARDS], self.exits[number]];
            let victim = self.scanner(number + 1, path, page);
            self.victims.push(victim);
        }
    }

    fn add(&mut self, place: usize, rate: Rate, role: Role) -> HostId {
        let is_relay = matches!(role, Role::Relay(_));
        self.hosts.push(HostConfig {
            up: rate,
            down: rate,
            queue: Duration::from_millis(100),
            control: Control::Cubic,
            segment_memory_bytes: SEGMENT_MEMORY_BYTES,
            egress: Egress {
                has_notsent_lowat: self.scheduler.has_notsent_lowat(),
                ..Egress::default()
            },
            role,
        });
        self.net.add(u16::try_from(place).unwrap_or(0), is_relay)
    }

    fn relay(&mut self, rate: Rate, is_guard: bool, is_exit: bool) -> HostId {
        let host = self.add(
            0,
            rate,
            Role::Relay(RelayConfig {
                is_exit,
                limit: None,
                scheduler: self.scheduler.config(),
                cell_cost: Duration::ZERO,
                congestion: CongestionParams::default(),
                hop_windows: None,
                measured_by: Vec::new(),
            }),
        );
        self.candidates.push(Candidate { host, weight: 100, is_guard, is_exit });
        host
    }

    fn client(&mut self, place: usize, users: Users) -> HostId {
        let begins = Duration::from_millis(self.rng.below(5000));
        let config = ClientConfig {
            guards: 0,
            ready_circuits: u8::from(matches!(users, Users::Fetch(_))),
            dirtiness: Duration::from_secs(10),
            build_timeout: Duration::from_secs(60),
            congestion: None,
            hop_windows: None,
            users,
            begins,
        };
        self.add(place, FAST, Role::Client(config))
    }

    /// A client that downloads without a pause over circuits of these two relays.
    fn scanner(
        &mut self,
        place: usize,
        path: [HostId; 2],
        bytes: impl Fn(&mut SplitMix64) -> u32,
    ) -> HostId {
        let timeout = Duration::from_secs(60);
        let probes = (0..DOWNLOADS).map(|_| Probe {
            path: path.into(),
            round_trips: [].into(),
            bytes: bytes(&mut self.rng),
            timeout,
        });
        let scan = Scan { probes: probes.collect(), at_once: 1 };
        self.client(place, Users::Scan(Arc::new(scan)))
    }

    /// A client with bursts of downloads over other relays behind the guards.
    fn other(&mut self, place: usize) {
        let size = |bytes, weight| Size { weight, bytes, timeout: None, stallout: None };
        let fetch = Fetch {
            pauses: [2, 5, 10, 20].map(Duration::from_secs).into(),
            count: None,
            sizes: vec![size(100_000, 6.0), size(1_000_000, 3.0), size(5_000_000, 1.0)],
        };
        self.client(place, Users::Fetch(Arc::new(fetch)));
    }

    /// Runs the world.
    pub(super) fn run(&self, seconds: u32, seed: u64) -> Watched {
        let all: Vec<HostId> = (0..self.hosts.len())
            .filter_map(|place| u32::try_from(place).ok())
            .map(HostId)
            .collect();
        let (net, paths) = (Arc::new(self.net.clone()), Arc::new(Paths::new(&self.candidates)));
        let mut part = Part::new(&self.hosts, &all, &net, &paths, seed);
        while part.now_ns() < u64::from(seconds) * 1_000_000_000 {
            part.pass_window(|_| ());
        }
        Watched { records: part.take_records(), figures: part.figures().collect() }
    }
}
