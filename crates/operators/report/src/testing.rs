//! Relays for tests.

use crate::{Mode, RelayReport, Report, SecondPoint, Spread};

pub(crate) fn report(relays: Vec<RelayReport>) -> Report {
    Report {
        title: "Test".into(),
        generated_unix_s: 1_800_000_000,
        software_version: "0.1.0".into(),
        relays,
        ..Report::default()
    }
}

pub(crate) fn conclusive() -> RelayReport {
    RelayReport {
        nickname: "steady".into(),
        fingerprint: "A".repeat(40),
        mode: Mode::Echo,
        limit_mbit_per_s: Some(250.0),
        estimate_mbit_per_s: Some(240.0),
        relay_reported_mbit_per_s: Some(241.5),
        conclusive: true,
        conclusive_limit_mbit_per_s: Some(262.5),
        bounds_mbit_per_s: Some((228.6, Some(300.0))),
        spread_mbit_per_s: Some(Spread {
            min: 200.0,
            lower_quartile: 238.0,
            upper_quartile: 243.0,
            max: 260.0,
        }),
        rounds: 2,
        seconds: 3,
        cells_checked: 1234,
        weight_kb_s: Some(30_000),
        consensus_weight_kb_s: Some(29_000),
        series: [(1, 0, 120.0), (1, 1, 122.0), (2, 0, 238.0), (2, 1, 240.0), (2, 2, 243.0)]
            .map(|(round, second, measured_mbit_per_s)| SecondPoint {
                round,
                second,
                measured_mbit_per_s,
                relay_reported_mbit_per_s: Some(measured_mbit_per_s + 1.5),
            })
            .to_vec(),
        ..RelayReport::default()
    }
}

pub(crate) fn inconclusive() -> RelayReport {
    RelayReport {
        nickname: "unbounded".into(),
        mode: Mode::Transit,
        limit_mbit_per_s: None,
        conclusive: false,
        inconclusive_reason: Some("the team is too small".into()),
        bounds_mbit_per_s: Some((228.6, None)),
        ..conclusive()
    }
}

pub(crate) fn failed() -> RelayReport {
    RelayReport {
        nickname: "broken".into(),
        fingerprint: "B".repeat(40),
        limit_mbit_per_s: Some(100.0),
        error: Some("the relay forged a cell".into()),
        rounds: 1,
        seconds: 30,
        ..RelayReport::default()
    }
}
