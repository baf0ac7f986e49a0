//! JSON documents: tornettools' staged networks, and Onionoo's details.

use super::documents::{Kind, Rows};
use super::places::Places;
use crate::rows::{Descriptor, Origin, Properties, Relays, Staged, Status};
use crate::times;
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// tornettools' `relayinfo_staging_*.json`.
#[derive(Deserialize)]
struct Staging {
    min_unix_time: f64,
    max_unix_time: f64,
    relays: BTreeMap<RsaId, StagedRelay>,
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
    fingerprint: RsaId,
    #[serde(default = "yes")]
    running: bool,
    advertised_bandwidth: Option<u32>,
    consensus_weight: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
    nickname: Option<String>,
    #[serde(default)]
    or_addresses: Vec<String>,
    country: Option<String>,
    #[serde(rename = "as")]
    autonomous_system: Option<String>,
    as_name: Option<String>,
    version: Option<String>,
    platform: Option<String>,
    #[serde(default)]
    effective_family: Vec<String>,
    contact: Option<String>,
}

const fn yes() -> bool {
    true
}

pub(super) fn parse(text: &[u8], places: &Places, relays: &mut Relays, rows: &mut Rows) -> Kind {
    let staging = match serde_json::from_slice::<Staging>(text) {
        Ok(staging) => return staged(staging, relays, rows),
        Err(error) => error,
    };
    match serde_json::from_slice::<Details>(text) {
        Ok(details) => detailed(details, places, relays, rows),
        Err(details) => Kind::Damaged(format!(
            "JSON, but neither a network staged by tornettools ({staging}) nor Onionoo's details ({details})"
        )),
    }
}

fn staged(staging: Staging, relays: &mut Relays, rows: &mut Rows) -> Kind {
    let times = [staging.min_unix_time, staging.max_unix_time];
    if times.iter().any(|time| !(0.0..=f64::from(u32::MAX)).contains(time)) {
        return Kind::Damaged("`min_unix_time` or `max_unix_time` is not a Unix time".to_owned());
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    let [from_unix_s, until_unix_s] = times.map(|time| time as u32);
    rows.staged.extend(staging.relays.into_iter().map(|(fingerprint, relay)| Staged {
        relay: relays.id(fingerprint),
        from_unix_s,
        until_unix_s,
        weight_share: relay.weight,
        capacity_byte_per_s: relay.bandwidth_capacity,
        rate_byte_per_s: relay.bandwidth_rate,
        burst_byte_per_s: relay.bandwidth_burst,
        running_share: relay.running_frequency,
        guard_share: relay.guard_frequency,
        exit_share: relay.exit_frequency,
    }));
    Kind::Used("staged network")
}

fn detailed(details: Details, places: &Places, relays: &mut Relays, rows: &mut Rows) -> Kind {
    let time =
        times::parse(&details.relays_published).ok().and_then(|time| u32::try_from(time).ok());
    let Some(time_s) = time else {
        return Kind::Damaged("`relays_published` is not a time".to_owned());
    };
    for entry in details.relays.iter().filter(|relay| relay.running) {
        let relay = relays.id(entry.fingerprint);
        let names = entry.flags.iter().filter_map(|name| Flag::from_name(name.as_bytes()));
        let mut flags: Flags = names.collect();
        flags.insert(Flag::Running);
        rows.statuses.push(Status {
            weight_kb_per_s: entry.consensus_weight,
            ..Status::new(relay, time_s, Origin::Onionoo, flags)
        });
        let address =
            entry.or_addresses.first().and_then(|address| address.parse::<SocketAddr>().ok());
        let address: Option<IpAddr> = address.map(|socket| socket.ip());
        let place = address.map(|address| places.find(address)).unwrap_or_default();
        let country = entry.country.as_ref().map(|code| code.to_ascii_uppercase());
        let number = entry
            .autonomous_system
            .as_deref()
            .map(|number| number.trim_start_matches("AS").parse());
        let texts = &mut rows.texts;
        let mut text = |text: &str| {
            Some(text.trim()).filter(|text| !text.is_empty()).map(|text| texts.shared(text))
        };
        let seen = Properties {
            relay,
            first_seen_unix_s: time_s,
            last_seen_unix_s: time_s,
            origin: Origin::Onionoo,
            nickname: entry.nickname.as_deref().and_then(&mut text),
            address: address.map(|address| address.to_string()).as_deref().and_then(&mut text),
            country: country.or(place.country).as_deref().and_then(&mut text),
            as_number: number.and_then(Result::ok).or(place.as_number),
            as_name: entry.as_name.as_deref().or(place.as_name.as_deref()).and_then(&mut text),
            version: entry.version.as_deref().and_then(&mut text),
            platform: entry.platform.as_deref().and_then(&mut text),
            family: text(&entry.effective_family.join(" ")),
            contact: entry.contact.as_deref().and_then(&mut text),
        };
        rows.see(seen);
        if let Some(advertised_byte_per_s) = entry.advertised_bandwidth {
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
             "advertised_bandwidth": 1048576, "consensus_weight": 12, "flags": ["Guard", "Running"], "nickname": "a",
             "or_addresses": ["192.0.2.1:9001", "[2001:db8::1]:9001"], "country": "de", "as": "AS24940", "as_name": "Hetzner",
             "version": "0.4.8.12", "platform": "Tor 0.4.8.12 on Linux", "contact": "me",
             "effective_family": ["000D11C0BF30C48FD81644ED2AA3D3733A5149D1", "000D11C0BF30C48FD81644ED2AA3D3733A5149D2"]},
            {"fingerprint": "000D11C0BF30C48FD81644ED2AA3D3733A5149D1", "running": false},
            {"fingerprint": "000D11C0BF30C48FD81644ED2AA3D3733A5149D2", "running": true}], "bridges": []}"#;
        let (mut relays, mut rows) = (Relays::default(), Rows::default());
        assert_eq!(
            parse(text, &Places::default(), &mut relays, &mut rows),
            Kind::Used("details of Onionoo")
        );
        assert_eq!((rows.statuses.len(), rows.descriptors.len()), (2, 1));
        assert_eq!(rows.statuses[0].valid_after_unix_s, 1_767_243_600);
        assert!(rows.statuses[0].is_guard && !rows.statuses[0].is_exit);
        assert_eq!(rows.statuses[0].flags.to_string(), "Guard Running");
        let seen = &rows.properties[0];
        assert_eq!((seen.country.as_deref(), seen.as_number), (Some("DE"), Some(24_940)));
        let texts = [&seen.nickname, &seen.address, &seen.as_name, &seen.version, &seen.contact];
        let expected = ["a", "192.0.2.1", "Hetzner", "0.4.8.12", "me"];
        assert_eq!(texts.map(|text| text.as_deref().unwrap()), expected);
        assert_eq!(seen.family.as_deref().unwrap().split(' ').count(), 2);
        let Kind::Damaged(reason) = parse(b"{}", &Places::default(), &mut relays, &mut rows) else {
            panic!()
        };
        assert!(reason.contains("neither"), "{reason}");
    }
}
