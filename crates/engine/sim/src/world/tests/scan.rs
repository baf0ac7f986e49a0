use super::small::{FAST, Small};
use crate::world::{Ending, HostId, Probe, Scan, Users};
use onion::{Duration, Rate};
use std::sync::Arc;
use std::vec::Vec;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The server is host 0, and the relays are hosts 1 to 4, of which the third is an exit. Odd hosts are at one place, even ones at the other.
fn probe(path: &[u32], round_trips: &[u8]) -> Probe {
    let path = path.iter().map(|host| HostId(*host)).collect();
    Probe { path, round_trips: round_trips.into(), bytes: 0, timeout: TIMEOUT }
}

fn scanned(probes: Vec<Probe>, last: Rate) -> super::small::Played {
    let small = Small::new().fast_relays(3).relay(last, false, |_| ());
    small.client(Users::Scan(Arc::new(Scan { probes, at_once: 1 }))).run(100, 1, 1)
}

#[test]
fn round_trips_to_each_hop_are_those_of_the_links_on_the_way() {
    // The client is host 5: 5 ms to odd hosts, 20 ms to even ones.
    let probes = [probe(&[1, 2, 3], &[0, 1, 2, 0]), probe(&[2, 3], &[1])].into();
    let played = scanned(probes, FAST);
    let ms = |all: &[Duration]| all.iter().map(|time| time.as_millis()).collect::<Vec<_>>();
    assert_eq!(ms(&played.probed[0].round_trips), [10, 50, 90, 10]);
    assert_eq!(ms(&played.probed[1].round_trips), [80]);
    let hops = &played.probed[0].hop_times;
    // TCP, TLS and link handshakes, which the second circuit needs as well.
    assert!(played.probed.iter().all(|probed| probed.link_time.as_millis() >= 30), "{played:?}");
    assert!(hops.len() == 3 && hops.is_sorted() && hops[0].as_millis() == 10, "{hops:?}");
    let ended = played.records.iter().map(|record| (record.probe, record.ending));
    let expected = [0, 1].map(|number| (Some(number), Ending::Complete));
    assert!(ended.eq(expected), "{:?}", played.records);
}

#[test]
fn a_circuit_that_cannot_be_built_has_no_measurements_and_the_next_one_follows() {
    let probes = [probe(&[1, 4, 3], &[2]), probe(&[1, 2, 3], &[2])].into();
    let played = scanned(probes, Rate::from_bit_per_s(8));
    assert_eq!(played.probed.iter().map(|probed| probed.probe).collect::<Vec<_>>(), [1]);
    let endings: Vec<Ending> = played.records.iter().map(|record| record.ending).collect();
    assert_eq!(endings, [Ending::Lost, Ending::Complete]);
}
