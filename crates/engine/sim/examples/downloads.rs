//! Three relays, a server and a client that downloads 1 MiB ten times, in virtual time.
//!
//! ```sh
//! cargo run --release -p flashflow-sim --example downloads
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use flashflow_sim::world::{
    Candidate, ClientConfig, Control, Egress, Fetch, HostConfig, HostId, Models, Net, Part, Paths,
    RelayConfig, Role, SEGMENT_MEMORY_BYTES, Size, Users,
};
use onion::flow::control::CongestionParams;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use std::sync::Arc;

/// How long the network runs.
const SECONDS: u64 = 60;

fn main() {
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
        pauses: vec![Duration::from_secs(5)],
        count: Some(10),
        sizes: vec![Size { weight: 1.0, bytes: 1 << 20, timeout: None, stallout: None }],
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
    let roles = [
        relay(false),
        relay(false),
        relay(true),
        Role::Server(Arc::new(Models::default())),
        client,
    ];

    // Each host is at one of two places, 40 ms apart.
    let mut net =
        Net::new(2, |from, to| (Duration::from_millis(if from == to { 5 } else { 40 }), 0.0));
    let mut hosts = Vec::new();
    for (place, role) in (0..).zip(roles) {
        net.add(place % 2, matches!(role, Role::Relay(_)));
        let rate = Rate::from_bit_per_s(100_000_000);
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
    let seed = 1;
    let mut world =
        Part::new(&hosts, &here, &Arc::new(net), &Arc::new(Paths::new(&candidates)), seed);
    while world.now_ns() < SECONDS * 1_000_000_000 {
        // Messages between hosts of one part stay inside.
        world.pass_window(|_| unreachable!("all hosts are here"));
    }
    for record in world.take_records() {
        let last = record.last_byte.map_or(f64::NAN, |time| time.as_secs_f64());
        println!("{:?}: {} bytes, {last:.3} s to the last byte", record.ending, record.bytes);
    }
}
