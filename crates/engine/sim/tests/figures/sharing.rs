//! Flows that share a bottleneck before their first relay: each is a download over a circuit of three relays,
//! on its own link.

use super::arithmetic::{cells_mbit_per_s, jain};
use super::world::World;
use flashflow_sim::wire::PathModel;
use onion::client::CircuitPlan;
use onion::{Duration, Rate};

const RATE_MBIT_PER_S: f64 = 4.0;
const WARM_UP: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(6);

const QUEUES_MS: [u64; 3] = [20, 100, 400];
const LOSSES_PER_MILLION: [u32; 3] = [0, 1_000, 10_000];
const FLOWS: [usize; 3] = [1, 4, 12];

/// The results of flows.
struct Shares {
    mbit_per_s: f64,
    fairness: f64,
    fingerprint: u64,
}

fn simulate(narrow: PathModel, flows: usize, has_congestion_control: bool) -> Shares {
    let mut world = World::new(3, PathModel::default(), |_, _| ());
    let client = world.add_client();
    world.wire.set_path(client, world.relays[0], narrow);
    let path = CircuitPlan { has_congestion_control, has_own_link: true, ..world.path() };
    let circuits: Vec<_> = (0..flows).map(|_| (client, world.open(client, &path))).collect();
    world.build(&circuits);
    let streams: Vec<_> =
        circuits.iter().map(|(_, circuit)| world.download(client, *circuit)).collect();
    let received = |world: &mut World| -> Vec<u64> {
        streams.iter().map(|stream| world.received_bytes(client, *stream)).collect()
    };
    world.pass(WARM_UP);
    let before = received(&mut world);
    world.pass(COUNTED);
    let after = received(&mut world);
    let bytes: Vec<u64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    Shares {
        mbit_per_s: cells_mbit_per_s(bytes.iter().sum(), COUNTED),
        fairness: jain(&bytes),
        fingerprint: world.wire.fingerprint(),
    }
}

const HEAD: &str = "\
a place of 4 Mbit/s        fixed windows       congestion control
queue, ms  loss  flows   Mbit/s  fairness      Mbit/s  fairness   fingerprint
";

/// Both kinds of windows at one bottleneck, as a row of the table.
fn compare(queue_ms: u64, loss_per_million: u32, flows: usize) -> String {
    let narrow = PathModel {
        rate: Some(Rate::from_mbit_per_s(RATE_MBIT_PER_S)),
        queue: Duration::from_millis(queue_ms),
        loss_per_million,
        ..PathModel::default()
    };
    let both = [false, true].map(|has_congestion_control| {
        let shared = simulate(narrow, flows, has_congestion_control);
        let used = shared.mbit_per_s / RATE_MBIT_PER_S;
        let least = if loss_per_million < 10_000 { 0.95 } else { 0.85 };
        // Out-of-order data counts when the gap before it is filled.
        assert!((least..1.04).contains(&used), "{narrow:?}, {flows} flows: {used}");
        assert!(shared.fairness > 0.6, "{narrow:?}, {flows} flows: {}", shared.fairness);
        shared
    });
    let [fixed, vegas] = &both;
    let loss = f64::from(loss_per_million) / 1e4;
    let columns =
        both.each_ref().map(|shares| format!("{:6.3} {:9.4}", shares.mbit_per_s, shares.fairness));
    let fingerprint = fixed.fingerprint ^ vegas.fingerprint.rotate_left(1);
    let [fixed, vegas] = columns;
    format!("{queue_ms:9} {loss:3.1} % {flows:6}   {fixed}      {vegas}   {fingerprint:016x}\n")
}

#[test]
fn a_bottleneck_is_saturated_and_shared() {
    let mut table = String::from(HEAD);
    for queue_ms in QUEUES_MS {
        for loss_per_million in LOSSES_PER_MILLION {
            table.extend(FLOWS.map(|flows| compare(queue_ms, loss_per_million, flows)));
        }
    }
    println!("{table}");
    insta::assert_snapshot!("table", table);
}
