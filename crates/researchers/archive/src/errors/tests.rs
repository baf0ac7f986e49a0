//! Compares the engine with a search through all rows, on generated networks.

use super::*;
use crate::dataset::Dataset;
use crate::engine::Limits;
use crate::rows::{Descriptor, Origin, RelayId, Relays, Status};
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A relay in a consensus, or a value that it published.
#[derive(Clone, Debug)]
struct World {
    listed: Vec<(u32, u8, Option<u32>)>,
    published: Vec<(u32, u8, u32)>,
}

/// Hours since the first one, with long gaps and repetitions.
fn hour() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..60, 0_u32..60, 700_u32..760, 9_000_u32..9_020]
}

fn world() -> impl Strategy<Value = World> {
    let weight = prop_oneof![Just(None), Just(Some(0)), (1_u32..100_000).prop_map(Some)];
    let value = prop_oneof![Just(0_u32), 1_u32..10, 1_000_u32..200_000_000];
    let listed = proptest::collection::btree_map((hour(), 0_u8..5), weight, 1..120);
    // Equal times, and times of consensuses, are frequent.
    let second = prop_oneof![Just(0_u32), Just(1800), 0_u32..3600];
    let published = proptest::collection::vec((hour(), second, 0_u8..5, value), 0..80);
    (listed, published).prop_map(|(listed, published)| World {
        listed: listed
            .into_iter()
            .map(|((hour, relay), weight)| (hour * 3600, relay, weight))
            .collect(),
        published: published
            .into_iter()
            .map(|(hour, second, relay, value)| (hour * 3600 + second, relay, value))
            .collect(),
    })
}

fn fingerprint(relay: u8) -> RsaId {
    // Spread over the ranges of all threads.
    RsaId([relay.wrapping_mul(51); 20])
}

const BEGIN: u32 = 1_500_000_000 - 1_500_000_000 % 3600;

fn dataset(world: &World, folder: &std::path::Path) -> Dataset {
    let dataset = Dataset::create(folder).unwrap();
    let mut relays = Relays::default();
    let mut id = |relay: u8| -> RelayId { relays.id(fingerprint(relay)) };
    let statuses: Vec<Status> = world
        .listed
        .iter()
        .map(|(time, relay, weight_kb_per_s)| Status {
            weight_kb_per_s: *weight_kb_per_s,
            ..Status::new(id(*relay), BEGIN + time, Origin::Tor, Flags::from_iter([Flag::Running]))
        })
        .collect();
    let descriptors: Vec<Descriptor> = world
        .published
        .iter()
        .map(|(time, relay, value)| Descriptor {
            relay: id(*relay),
            published_unix_s: BEGIN + time,
            origin: Origin::Tor,
            advertised_byte_per_s: *value,
            rate_byte_per_s: Some(u32::MAX),
            burst_byte_per_s: None,
            observed_byte_per_s: Some(*value),
        })
        .collect();
    let mut writer = dataset.writer(&mut || true).unwrap().unwrap();
    writer.add(statuses, &mut relays).unwrap();
    writer.add(descriptors, &mut relays).unwrap();
    dataset
}

/// For each relay the means of RCE, RWE and both RSD; for each time NCE and NWE.
#[derive(Debug, Default)]
struct Naive {
    relays: [Vec<f64>; 4],
    network: Vec<(i64, Option<f64>, Option<f64>)>,
}

/// A literal implementation of the definitions, in quadratic time.
fn naive(world: &World, length: i64, from: i64) -> Naive {
    // A dataset is a set, so duplicates are dropped.
    let mut published: Vec<_> =
        world.published.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    published.sort_unstable_by_key(|(time, relay, value)| (*time, *value, *relay));
    let times: BTreeSet<u32> = world.listed.iter().map(|row| row.0).collect();
    let at = |time: u32| world.listed.iter().filter(move |row| row.0 == time);
    let is_in = |then: u32, now: u32| i64::from(then) > i64::from(now) - length && then <= now;
    let share = |time: u32, relay: u8| {
        let total: f64 = at(time).filter_map(|row| row.2).map(f64::from).sum();
        let weight = at(time).find(|row| row.1 == relay)?.2?;
        (total > 0.0).then(|| f64::from(weight) / total)
    };
    let advertised = |time: u32, relay: u8| {
        published
            .iter()
            .rfind(|descriptor| descriptor.1 == relay && descriptor.0 <= time)
            .map(|descriptor| f64::from(descriptor.2))
    };
    let values = |time: u32, relay: u8| -> Vec<f64> {
        let window = published
            .iter()
            .filter(|descriptor| descriptor.1 == relay && is_in(descriptor.0, time));
        let values: Vec<f64> = window.map(|window| f64::from(window.2)).collect();
        if values.is_empty() { advertised(time, relay).into_iter().collect() } else { values }
    };
    let capacity = |time: u32, relay: u8| values(time, relay).into_iter().reduce(f64::max);
    let rsd = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean > 0.0).then(|| variance.sqrt() / mean)
    };
    let mut means: BTreeMap<u8, [Vec<f64>; 4]> = BTreeMap::new();
    let mut network = Vec::new();
    for time in times {
        let unix_s = i64::from(BEGIN + time);
        if unix_s < from {
            continue;
        }
        let known: Vec<(u8, f64, f64)> = at(time)
            .filter_map(|row| Some((row.1, advertised(time, row.1)?, capacity(time, row.1)?)))
            .collect();
        let weighted: Vec<(u8, f64, f64)> = known
            .iter()
            .filter_map(|row| {
                Some((row.0, f64::from(at(time).find(|other| other.1 == row.0)?.2?), row.2))
            })
            .collect();
        let (sum_a, sum_c): (f64, f64) =
            known.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.1, sum.1 + row.2));
        let (sum_w, sum_wc): (f64, f64) =
            weighted.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.1, sum.1 + row.2));
        let nce = (sum_c > 0.0).then(|| 1.0 - sum_a / sum_c);
        let has_weights = sum_w > 0.0 && sum_wc > 0.0;
        let nwe = has_weights.then(|| {
            weighted.iter().map(|row| (row.1 / sum_w - row.2 / sum_wc).abs()).sum::<f64>() / 2.0
        });
        network.push((unix_s, nce, nwe));
        for (_, relay, _) in at(time) {
            let entry = means.entry(*relay).or_default();
            if let Some((_, a, c)) = known.iter().find(|row| row.0 == *relay && row.2 > 0.0) {
                entry[0].push(1.0 - a / c);
            }
            if let Some((_, w, c)) =
                weighted.iter().find(|row| row.0 == *relay && row.2 > 0.0 && has_weights)
            {
                entry[1].push((w / sum_w) / (c / sum_wc));
            }
            entry[2].extend(rsd(&values(time, *relay)));
            let past = world.listed.iter().filter(|row| row.1 == *relay && is_in(row.0, time));
            let shares: Vec<f64> = past.filter_map(|row| share(row.0, *relay)).collect();
            entry[3].extend(rsd(&shares));
        }
    }
    let mut relays: [Vec<f64>; 4] = Default::default();
    for entry in means.into_values() {
        for (all, values) in relays.iter_mut().zip(entry) {
            if !values.is_empty() {
                all.push(values.iter().sum::<f64>() / values.len() as f64);
            }
        }
    }
    relays.iter_mut().for_each(|relay| relay.sort_by(f64::total_cmp));
    Naive { relays, network }
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs())
}

fn are_near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => is_near(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_engine_agrees_with_a_search(world in world(), threads in 1_usize..4) {
        let folder = tempfile::tempdir().unwrap();
        let dataset = dataset(&world, folder.path());
        let engine = Engine::open(dataset, Limits { threads, memory_mib: 256 }).unwrap();
        let mut view = View::new("tor");
        view.periods = ["day", "3d", "year"].iter().map(|period| period.parse().unwrap()).collect();
        let options = ErrorsOptions { view, warm_up: WarmUp::Own, from_unix_s: None, until_unix_s: None };
        let first = i64::from(BEGIN + world.listed.iter().map(|row| row.0).min().unwrap());
        let found = match compute(&engine, &options) {
            Ok(found) => found,
            Err(ArchiveError::Missing(_)) => {
                let rows = |period: &Period| naive(&world, period.length_s, first + period.length_s).network.len();
                prop_assert_eq!(options.view.periods.iter().map(rows).sum::<usize>(), 0);
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        for period in &found.periods {
            let wanted = naive(&world, period.period.length_s, first + period.period.length_s);
            let relays = [&period.capacity_errors, &period.weight_errors, &period.advertised_rsds, &period.weight_rsds];
            for (found, wanted) in relays.into_iter().zip(&wanted.relays) {
                prop_assert_eq!(found.len(), wanted.len());
                for (found, wanted) in found.iter().zip(wanted) {
                    prop_assert!(is_near(*found, *wanted), "{} {}", found, wanted);
                }
            }
            prop_assert_eq!(period.network.len(), wanted.network.len());
            for (found, (time, nce, nwe)) in period.network.iter().zip(&wanted.network) {
                prop_assert_eq!(found.unix_s, *time);
                prop_assert!(are_near(found.capacity_error, *nce), "{:?} {:?}", found, nce);
                prop_assert!(are_near(found.weight_error, *nwe), "{:?} {:?}", found, nwe);
            }
        }
    }
}
