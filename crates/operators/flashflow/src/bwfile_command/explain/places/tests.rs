use super::*;
use netdoc::BandwidthFile;
use onion::identity::RsaId;
use std::path::PathBuf;

const NOW: u64 = 1_800_000_000;

fn relay(capacity_mbyte_s: Option<u64>) -> RelayRow {
    RelayRow {
        rsa: RsaId([0x11; 20]),
        nickname: "relay7".to_owned(),
        address: String::new(),
        first_seen_unix_s: NOW,
        last_seen_unix_s: NOW,
        left_out: String::new(),
        capacity: capacity_mbyte_s.map(|rate| Rate::from_byte_per_s(rate * 1_000_000)),
        estimated_unix_s: capacity_mbyte_s.map(|_| NOW),
        mode: None,
        is_conclusive: capacity_mbyte_s.map(|_| true),
        last_state: None,
        last_ended_unix_s: None,
        last_cause: None,
    }
}

/// A place whose file has this line of the relay.
fn place(name: &str, line: &str) -> Place {
    let fingerprint = "11".repeat(20);
    let text = format!("{NOW}\nversion=1.9.0\n=====\nnode_id=${fingerprint} {line}\n");
    let file = BandwidthFile::parse(text.as_bytes()).expect("a file").file;
    Place {
        name: name.to_owned(),
        path: PathBuf::from(format!("{name}.v3bw")),
        bytes: text.into_bytes(),
        file,
    }
}

fn measured(name: &str, mbyte_s: u64) -> Place {
    let line = format!(
        "bw=1 time=2027-01-15T07:00:00 flashflow_conclusive=1 flashflow_capacity_bytes_s={mbyte_s}000000"
    );
    place(name, &line)
}

/// The places that are far off, of our estimate and those of others, in MB/s.
fn far_off(here: u64, others: &[u64]) -> Vec<u64> {
    let places: Vec<Place> = others.iter().map(|rate| measured("FR", *rate)).collect();
    let found = estimates(&relay(Some(here)), Some("AT".to_owned()), &places);
    let far = found.iter().filter(|estimate| estimate.is_far_off);
    far.filter_map(|estimate| Some(estimate.capacity_byte_s? / 1_000_000)).collect()
}

#[test]
fn the_place_that_differs_from_most_others_is_far_off() {
    assert_eq!(far_off(50, &[52, 16]), [16]);
    assert_eq!(far_off(16, &[50, 52]), [16]);
    assert_eq!(far_off(50, &[52, 160]), [160]);
    assert_eq!(far_off(50, &[52, 40]), Vec::<u64>::new());
    // Of two that disagree, either may be wrong.
    assert_eq!(far_off(50, &[20]), [50, 20]);
    assert_eq!(far_off(50, &[25]), Vec::<u64>::new(), "1.41 times the median");
    assert_eq!(far_off(50, &[]), Vec::<u64>::new());
}

#[test]
fn the_spread_is_told_with_the_places_that_are_far_off() {
    let words = |places: &[Place]| in_words(&estimates(&relay(Some(50)), None, places));
    let three = words(&[measured("FR", 52), measured("US", 13)]);
    assert!(three.contains("of 3 places is 4.00 times the smallest"), "{three}");
    assert!(three.contains("Far from their median: US."), "{three}");
    let two = words(&[measured("FR", 13)]);
    assert!(two.contains("cannot show which one is wrong"), "{two}");
    assert!(words(&[measured("FR", 52)]).contains("None is far"));
    assert!(words(&[place("FR", "bw=1 unmeasured=1 vote=0")]).contains("Fewer than two"));
}

#[test]
fn a_place_without_an_estimate_has_its_reason() {
    let failed = place("FR", "bw=1 unmeasured=1 vote=0 error=busy,_retry_in_17_s");
    let bound = place(
        "US",
        "bw=40000 time=2027-01-15T07:00:00 flashflow_conclusive=0 flashflow_cause=team_too_small",
    );
    let mut other = measured("JP", 50);
    other.file.relays.clear();
    let found = estimates(&relay(Some(50)), Some("AT".to_owned()), &[failed, bound, other]);
    let rows = table(&found);
    for (row, parts) in rows.iter().zip([
        ["  here (AT)", "400.00 Mbit/s", "conclusive"],
        ["  FR", "no estimate", "busy, retry in 17 s"],
        ["  US", "320.00 Mbit/s", "lower bound: team_too_small"],
        ["  JP", "no estimate", "it has no line"],
    ]) {
        assert!(parts.iter().all(|part| row.contains(part)), "{parts:?}: {rows:#?}");
    }
    let starts: Vec<Option<usize>> = rows[..3].iter().map(|row| row.find("  2027")).collect();
    assert!(starts[0].is_some() && starts[0] == starts[2], "aligned: {rows:#?}");
}
