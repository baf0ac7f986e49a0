//! A network in virtual time: downloads over three relays.

use onion::flow::control::CongestionParams;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use sim::world::{
    Candidate, ClientConfig, Control, Egress, Fetch, HostConfig, HostId, Models, Net, Part, Paths,
    RelayConfig, Role, SEGMENT_MEMORY_BYTES, Size, Users,
};
use std::sync::Arc;

/// The size of a download.
const BYTES: u32 = 1 << 20;
/// Downloads of a repetition.
const DOWNLOADS: u32 = 2;
/// The hops of a cell, each from a relay to the next host.
const HOPS: u64 = 3;

/// Downloads files. Returns the number of hops of cells with data.
pub(crate) fn run(repetitions: u32) -> u64 {
    let downloads = repetitions * DOWNLOADS;
    let mut world = world(downloads);
    let mut finished = 0;
    while finished < downloads {
        world.pass_window(|_| unreachable!("all hosts are here"));
        for record in world.take_records() {
            assert_eq!(record.bytes, u64::from(BYTES), "{:?}", record.ending);
            finished += 1;
        }
    }
    // A cell has 498 bytes of data.
    u64::from(downloads) * u64::from(BYTES.div_ceil(498)) * HOPS
}

fn world(downloads: u32) -> Part {
    let relay = |is_exit| {
        Role::Relay(RelayConfig {
            is_exit,
            limit: None,
            scheduler: SchedulerConfig::default(),
            cell_cost: Duration::ZERO,
            congestion: CongestionParams::default(),
            hop_windows: None,
            measured_by: Vec::new(),
        })
    };
    let fetch = Fetch {
        pauses: vec![Duration::from_secs(1)],
        count: Some(downloads),
        sizes: vec![Size { weight: 1.0, bytes: BYTES, timeout: None, stallout: None }],
    };
    let client = Role::Client(ClientConfig {
        guards: 1,
        ready_circuits: 1,
        dirtiness: Duration::from_secs(600),
        build_timeout: Duration::from_secs(60),
        congestion: Some(Arc::new(CongestionParams::default())),
        hop_windows: None,
        users: Users::Fetch(Arc::new(fetch)),
        begins: Duration::from_secs(1),
    });
    let server = Role::Server(Arc::new(Models::default()));
    let mut net = Net::new(1, |_, _| (Duration::from_millis(20), 0.0));
    let mut hosts = Vec::new();
    for role in [relay(false), relay(false), relay(true), server, client] {
        net.add(0, matches!(role, Role::Relay(_)));
        let rate = Rate::from_mbit_per_s(100.0);
        hosts.push(HostConfig {
            up: rate,
            down: rate,
            queue: Duration::from_millis(100),
            control: Control::Cubic,
            segment_memory_bytes: SEGMENT_MEMORY_BYTES,
            egress: Egress::default(),
            role,
        });
    }
    let candidates = [0, 1, 2].map(|number| Candidate {
        host: HostId(number),
        weight: 100,
        is_guard: number == 0,
        is_exit: number == 2,
    });
    let here: Vec<HostId> = (0..5).map(HostId).collect();
    Part::new(&hosts, &here, &Arc::new(net), &Arc::new(Paths::new(&candidates)), 1)
}
