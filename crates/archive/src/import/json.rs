//! JSON documents: tornettools' staged networks, and Onionoo's details.

use super::documents::{Kind, Rows};
use crate::rows::{Descriptor, Origin, Relays, Staged, Status};
use crate::times;
use netdoc::Fingerprint;
use serde::Deserialize;
use std::collections::BTreeMap;

/// tornettools' `relayinfo_staging_*.json`.
#[derive(Deserialize)]
struct Staging {
    min_unix_time: f64,
    max_unix_time: f64,
    relays: BTreeMap<Fingerprint, StagedRelay>,
}

#[derive(Deserialize)]
struct StagedRelay {
    weight: f64,
    bandwidth_capacity: f64,
    bandwidth_rate: f64,
    bandwidth_burst: f64,
    running_frequency: f64,
    guard_frequency: f64,
    exit_frequency: f64,
}

/// Onionoo's `details` document. Other fields are ignored.
#[derive(Deserialize)]
struct Details {
    relays_published: String,
    relays: Vec<DetailsRelay>,
}

#[derive(Deserialize)]
struct DetailsRelay {
    fingerprint: Fingerprint,
    #[serde(default = "yes")]
    running: bool,
    advertised_bandwidth: Option<u32>,
    consensus_weight: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
}

const fn yes() -> bool {
    true
}

pub(super) fn parse(text: &[u8], relays: &mut Relays, rows: &mut Rows) -> Kind {
    let staging = match serde_json::from_slice::<Staging>(text) {
        Ok(staging) => return staged(staging, relays, rows),
        Err(error) => error,
    };
    match serde_json::from_slice::<Details>(text) {
        Ok(details) => detailed(details, relays, rows),
        Err(details) => Kind::Damaged(format!(
            "JSON, but neither a network staged by tornettools ({staging}) nor Onionoo's details ({details})"
        )),
    }
}

fn staged(staging: Staging, relays: &mut Relays, rows: &mut Rows) -> Kind {
    let times = [staging.min_unix_time, staging.max_unix_time];
    if times.iter().any(|it| !(0.0..=f64::from(u32::MAX)).contains(it)) {
        return Kind::Damaged("`min_unix_time` or `max_unix_time` is not a Unix time".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let [from_unix_s, until_unix_s] = times.map(|it| it as u32);
    rows.staged.extend(staging.relays.into_iter().map(|(fingerprint, it)| Staged {
        relay: relays.id(fingerprint),
        from_unix_s,
        until_unix_s,
        weight_share: it.weight,
        capacity_byte_per_s: it.bandwidth_capacity,
        rate_byte_per_s: it.bandwidth_rate,
        burst_byte_per_s: it.bandwidth_burst,
        running_share: it.running_frequency,
        guard_share: it.guard_frequency,
        exit_share: it.exit_frequency,
    }));
    Kind::Used("staged network")
}

fn detailed(details: Details, relays: &mut Relays, rows: &mut Rows) -> Kind {
    let time = times::parse(&details.relays_published).ok().and_then(|it| u32::try_from(it).ok());
    let Some(time_s) = time else {
        return Kind::Damaged("`relays_published` is not a time".to_owned());
    };
    for it in details.relays.iter().filter(|it| it.running) {
        let relay = relays.id(it.fingerprint);
        let has = |flag: &str| it.flags.iter().any(|it| it == flag);
        rows.statuses.push(Status {
            relay,
            valid_after_unix_s: time_s,
            origin: Origin::Onionoo,
            weight_kb_per_s: it.consensus_weight,
            is_unmeasured: false,
            is_running: true,
            is_guard: has("Guard"),
            is_exit: has("Exit"),
            is_bad_exit: has("BadExit"),
            is_authority: has("Authority"),
        });
        if let Some(advertised_byte_per_s) = it.advertised_bandwidth {
            rows.descriptors.push(Descriptor {
                relay,
                published_unix_s: time_s,
                origin: Origin::Onionoo,
                advertised_byte_per_s,
                rate_byte_per_s: None,
                burst_byte_per_s: None,
                observed_byte_per_s: None,
            });
        }
    }
    Kind::Used("details of Onionoo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_of_onionoo_are_a_view_and_published_values() {
        let text = br#"{"version": "8.0", "relays_published": "2026-01-01 05:00:00", "relays": [
            {"fingerprint": "000A10D43011EA4928A35F610405F92B4433B4DC", "running": true,
             "advertised_bandwidth": 1048576, "consensus_weight": 12, "flags": ["Guard", "Running"]},
            {"fingerprint": "000D11C0BF30C48FD81644ED2AA3D3733A5149D1", "running": false},
            {"fingerprint": "000D11C0BF30C48FD81644ED2AA3D3733A5149D2", "running": true}], "bridges": []}"#;
        let (mut relays, mut rows) = (Relays::default(), Rows::default());
        assert_eq!(parse(text, &mut relays, &mut rows), Kind::Used("details of Onionoo"));
        assert_eq!((rows.statuses.len(), rows.descriptors.len()), (2, 1));
        assert_eq!(rows.statuses[0].valid_after_unix_s, 1_767_243_600);
        assert!(rows.statuses[0].is_guard && !rows.statuses[0].is_exit);
        let Kind::Damaged(reason) = parse(b"{}", &mut relays, &mut rows) else { panic!() };
        assert!(reason.contains("neither"), "{reason}");
    }
}
