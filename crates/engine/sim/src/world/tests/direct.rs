//! TCP alone: downloads without Tor.

use super::small::FAST;
use crate::world::{
    Control, Direct, Egress, Ending, HostConfig, HostId, Net, Part, Paths, Record, Role,
    SEGMENT_MEMORY_BYTES,
};
use onion::{Duration, Rate};
use std::sync::Arc;
use std::vec::Vec;

const ENDLESS: u32 = u32::MAX;

/// One host fetches from one server for each of these round-trip times simultaneously, over its download rate.
fn fetch(
    round_trips_ms: &[u64],
    loss: f64,
    (down, control): (Rate, Control),
    size: (u32, u64, u64),
) -> Vec<Record> {
    fetch_and_count(round_trips_ms, loss, (down, control), size).0
}

/// The results, and the number of flights that the full download queue has dropped.
fn fetch_and_count(
    round_trips_ms: &[u64],
    loss: f64,
    (down, control): (Rate, Control),
    (bytes, seconds, seed): (u32, u64, u64),
) -> (Vec<Record>, u64) {
    let mut net = Net::new(u16::try_from(round_trips_ms.len() + 1).expect("few"), |from, to| {
        let far = usize::from(from.max(to));
        let round_trip_ms = far.checked_sub(1).map_or(10, |place| round_trips_ms[place]);
        (Duration::from_micros(round_trip_ms * 500), if to == 0 { loss } else { 0.0 })
    });
    let host = |down, role| HostConfig {
        up: FAST,
        down,
        queue: Duration::from_millis(100),
        control,
        segment_memory_bytes: SEGMENT_MEMORY_BYTES,
        egress: Egress::default(),
        role,
    };
    let host_at = |place: usize| HostId(u32::try_from(place).expect("few"));
    let plan = |place| Direct {
        server: host_at(place + 1),
        bytes,
        begins: Duration::ZERO,
        timeout: Duration::from_secs(seconds),
    };
    let plans = (0..round_trips_ms.len()).map(plan).collect();
    let mut hosts = Vec::from([host(down, Role::Direct(plans))]);
    net.add(0, false);
    for place in 0..round_trips_ms.len() {
        hosts.push(host(FAST, Role::Server(Arc::default())));
        net.add(u16::try_from(place + 1).expect("few"), false);
    }
    let all: Vec<HostId> = (0..=round_trips_ms.len()).map(host_at).collect();
    let mut part = Part::new(&hosts, &all, &Arc::new(net), &Arc::new(Paths::new(&[])), seed);
    while part.now_ns() < (seconds + 1) * 1_000_000_000 {
        part.pass_window(|_| ());
    }
    let mut records = part.take_records();
    records.sort_by_key(|record| record.size);
    (records, part.figures().map(|figures| figures.dropped_flights).sum())
}

#[test]
fn reno_with_loss_matches_the_formula_of_mathis() {
    for (round_trip_ms, loss) in [(50, 0.001), (50, 0.01), (200, 0.001), (200, 0.01)] {
        let of_seed = |seed| {
            let how = (FAST, Control::Reno);
            fetch(&[round_trip_ms], loss, how, (ENDLESS, 200, seed))[0].bytes as f64 / 200.0
        };
        let byte_per_s = (0..4).map(of_seed).sum::<f64>() / 4.0;
        let expected = 1448.0 * 1000.0 / round_trip_ms as f64 * (1.5 / loss).sqrt();
        let ratio = byte_per_s / expected;
        assert!((0.8..1.3).contains(&ratio), "{round_trip_ms} ms, {loss}: {ratio:.2} of it");
    }
}

#[test]
fn a_single_connection_saturates_its_path() {
    let down = Rate::from_mbit_per_s(20.0);
    let [record] = fetch(&[50], 0.0, (down, Control::Cubic), (20_000_000, 30, 1))[..] else {
        panic!("one")
    };
    assert_eq!((record.ending, record.bytes), (Ending::Complete, 20_000_000));
    let took_s = record.last_byte.expect("complete").as_secs_f64();
    // 8 s, 5 % for headers, slow start.
    assert!((8.3..9.5).contains(&took_s), "{took_s}");
}

#[test]
fn a_shorter_rtt_gets_a_larger_share_of_a_bottleneck() {
    let down = Rate::from_mbit_per_s(20.0);
    for control in [Control::Cubic, Control::Reno] {
        let records = fetch(&[20, 160], 0.0, (down, control), (ENDLESS, 60, 3));
        let [near, far] = [0, 1].map(|place| records[place].bytes as f64);
        assert!((1.2..10.0).contains(&(near / far)), "{control:?}: {}", near / far);
        let of_all = (near + far) * 8.0 / 60.0 / 20e6;
        assert!(of_all > 0.85, "{control:?}: {of_all} of the capacity is used");
        assert!(records.iter().all(|record| record.ending == Ending::TimedOut));
    }
}

#[test]
fn slow_start_ends_by_delay_with_cubic_and_by_loss_with_reno() {
    let down = Rate::from_mbit_per_s(20.0);
    let dropped = |control| fetch_and_count(&[50], 0.0, (down, control), (2_000_000, 10, 1)).1;
    assert_eq!(dropped(Control::Cubic), 0);
    assert!(dropped(Control::Reno) > 5, "{}", dropped(Control::Reno));
}

/// Linux 6.18 with Cubic gives a distant flow 2.5 Mbit/s in the first eight seconds (`flashflow-lab sim
/// truth`).
#[test]
fn a_long_rtt_gets_as_small_a_share_as_on_linux() {
    let how = (Rate::from_mbit_per_s(20.0), Control::Cubic);
    let of_seed = |seed| fetch(&[20, 160], 0.0, how, (ENDLESS, 8, seed))[1].bytes as f64 * 1e-6;
    let mbit_per_s: Vec<f64> = (0..15).map(of_seed).collect();
    let mean = mbit_per_s.iter().sum::<f64>() / 15.0;
    assert!((1.8..3.2).contains(&mean), "{mbit_per_s:?}");
}
