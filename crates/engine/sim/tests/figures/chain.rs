//! One circuit through three relays with fixed windows and with congestion control: its rate, its delay, and
//! its cells in flight.

use super::arithmetic::cells_mbit_per_s;
use super::world::World;
use flashflow_sim::wire::PathModel;
use onion::cell::CELL_LEN;
use onion::client::CircuitPlan;
use onion::{Duration, Rate};
use std::fmt;

const WARM_UP: Duration = Duration::from_secs(5);
const COUNTED: Duration = Duration::from_secs(10);

/// A stream's window is half of its circuit's: this number of streams fill it.
const STREAMS: usize = 2;

/// The path between any two nodes, and the one between the first two relays.
#[derive(Clone, Copy)]
struct Situation {
    name: &'static str,
    latency: Duration,
    rate_mbit_per_s: f64,
}

/// The result of one run.
struct Seen {
    situation: Situation,
    flow: &'static str,
    mbit_per_s: f64,
    /// Of the circuit alone, and with its uploads.
    unloaded: Duration,
    loaded: Duration,
    /// DATA cells that the client has sent and no SENDME has acknowledged.
    window_cells: u64,
    fingerprint: u64,
}

fn simulate(situation: Situation, has_congestion_control: bool) -> Seen {
    let model = PathModel { latency: situation.latency, ..PathModel::default() };
    // Only cells of the circuit are to be counted.
    let mut world = World::new(3, model, |_, config| config.padding = false);
    let narrow = PathModel {
        rate: Some(Rate::from_mbit_per_s(situation.rate_mbit_per_s)),
        queue: Duration::from_secs(1),
        ..model
    };
    world.wire.set_path(world.relays[0], world.relays[1], narrow);
    let client = world.add_client();
    let path = CircuitPlan { has_congestion_control, ..world.path() };
    let circuit = world.open(client, &path);
    world.build(&[(client, circuit)]);
    let unloaded = world.round_trip(client, circuit);
    let base = world.wire.tally(client);
    (0..STREAMS).for_each(|_| _ = world.upload(client, circuit));
    world.pass(WARM_UP);
    let received = |world: &World| world.server().received_bytes();
    let before = received(&world);
    world.pass(COUNTED);
    let mbit_per_s = cells_mbit_per_s(received(&world) - before, COUNTED);
    let tally = world.wire.tally(client);
    // Except for BEGIN and CONNECTED, all cells are DATA in one direction and SENDME in the other.
    let cells = |bytes: u64| bytes / CELL_LEN as u64 - STREAMS as u64;
    let sent = cells(tally.sent_bytes - base.sent_bytes);
    let sendmes = cells(tally.received_bytes - base.received_bytes);
    // With fixed windows one per hundred cells of the circuit, and one per fifty of a stream.
    let acknowledged = if has_congestion_control { sendmes * 31 } else { sendmes * 100 / 3 };
    Seen {
        situation,
        flow: if has_congestion_control { "Vegas" } else { "fixed" },
        mbit_per_s,
        unloaded,
        loaded: world.round_trip(client, circuit),
        window_cells: sent - acknowledged,
        fingerprint: world.wire.fingerprint(),
    }
}

/// A row of the table.
impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { situation, flow, mbit_per_s, window_cells, fingerprint, .. } = self;
        let ms = |time: Duration| time.as_nanos() as f64 * 1e-6;
        write!(
            f,
            "{:8} {:6.1} {flow:8} {mbit_per_s:7.3}",
            situation.name, situation.rate_mbit_per_s
        )?;
        write!(f, " {:8.1} {:8.1}", ms(self.unloaded), ms(self.loaded))?;
        writeln!(f, " {window_cells:8}  {fingerprint:016x}")
    }
}

const HEAD: &str = "\
one circuit                carried   round trip, ms    window,
place    Mbit/s windows   Mbit/s    alone   loaded     cells  fingerprint
";

#[test]
fn congestion_control_keeps_bottlenecks_fast_and_long_paths_full() {
    let narrow =
        Situation { name: "narrow", latency: Duration::from_millis(10), rate_mbit_per_s: 4.0 };
    let long =
        Situation { name: "long", latency: Duration::from_millis(75), rate_mbit_per_s: 20.0 };
    let [narrow_fixed, narrow_vegas] = [false, true].map(|is_vegas| simulate(narrow, is_vegas));
    let [long_fixed, long_vegas] = [false, true].map(|is_vegas| simulate(long, is_vegas));
    let table = format!("{HEAD}{narrow_fixed}{narrow_vegas}{long_fixed}{long_vegas}");
    println!("{table}");
    assert!(narrow_vegas.loaded < narrow_fixed.loaded.mul_f64(0.5));
    assert!(narrow_vegas.mbit_per_s > 0.97 * narrow_fixed.mbit_per_s);
    assert!(long_vegas.mbit_per_s > 1.3 * long_fixed.mbit_per_s);
    for fixed in [narrow_fixed, long_fixed] {
        assert!((900..=1000).contains(&fixed.window_cells), "{fixed}");
    }
    insta::assert_snapshot!("table", table);
}
