use super::*;
use coordinator::{End, Failure, MeasurerId, Params, RoundRecord, SecondRecord, Subject, allocate};
use onion::identity::{RelayIds, RsaId};

fn mbps(rate: f64) -> Rate {
    Rate::from_mbit_per_s(rate)
}

/// Two rounds of a relay: an aborted one at 20 Mbit/s and a complete one at 48 to 52.
fn record(end: End) -> Record {
    let round = |number, guess: f64, rates: &[f64]| RoundRecord {
        number,
        guess: mbps(guess),
        allocation: allocate(mbps(guess * 3.0), &[mbps(1000.0)], 160),
        schedule: coordinator::Schedule::PLAIN,
        started_unix_s: Some(1_800_000_000),
        checked_cells: u64::from(number) * 100,
        bottlenecks: Vec::new(),
        seconds: (0..)
            .zip(rates)
            .map(|(second, rate)| SecondRecord {
                second,
                returned_bytes: vec![Some(mbps(*rate).as_byte_per_s())],
                client_bytes: None,
                relay_reported: Some(mbps(rate + 1.0)),
                accounts: Vec::new(),
            })
            .collect(),
    };
    Record {
        relay: Subject {
            nickname: "steady".to_owned(),
            ids: RelayIds { rsa: RsaId([0xAB; 20]), ed25519: None },
            address: ([127, 0, 0, 1], 9001).into(),
            limit: Some(mbps(60.0)),
        },
        ended_unix_s: 1_800_000_060,
        mode: coordinator::Mode::Transit,
        params: Params { seconds: 3, ..Params::default() },
        rounds: vec![round(1, 10.0, &[20.0, 20.0]), round(2, 60.0, &[50.0, 52.0, 48.0])],
        processor: None,
        shared: None,
        end,
    }
}

const fn measured(inconclusive: Option<Inconclusive>) -> End {
    let capacity = Rate::from_bit_per_s(50_000_000);
    End::Measured { capacity, round: 2, inconclusive }
}

#[test]
fn a_report_has_the_results_of_the_last_round() {
    let report = RelayReport::from(&record(measured(None)));
    assert_eq!((report.nickname.as_str(), report.fingerprint), ("steady", "AB".repeat(20)));
    assert_eq!(report.mode, Mode::Transit);
    assert_eq!((report.estimate_mbit_per_s, report.limit_mbit_per_s), (Some(50.0), Some(60.0)));
    assert_eq!((report.conclusive, report.inconclusive_reason, report.error), (true, None, None));
    assert_eq!(report.relay_reported_mbit_per_s, Some(51.0), "of round 2 alone");
    assert_eq!((report.rounds, report.seconds, report.cells_checked), (2, 3, 200));
    let (lower, upper) = report.bounds_mbit_per_s.expect("bounds");
    assert!(lower < 50.0 && upper.expect("conclusive") > 50.0);
    // 180 Mbit/s of load: Σaᵢ(1−ε₁)/m.
    assert_eq!(report.conclusive_limit_mbit_per_s, Some(64.0));
    let spread = report.spread_mbit_per_s.expect("seconds");
    assert_eq!((spread.min, spread.max), (48.0, 52.0));
    let points: Vec<_> = report
        .series
        .iter()
        .map(|point| (point.round, point.second, point.measured_mbit_per_s))
        .collect();
    let expected = [(1, 0, 20.0), (1, 1, 20.0), (2, 0, 50.0), (2, 1, 52.0), (2, 2, 48.0)];
    assert_eq!(points, expected);
    assert!(report.series.iter().all(|point| {
        point.relay_reported_mbit_per_s.is_some_and(|reported| reported > point.measured_mbit_per_s)
    }));
}

#[test]
fn a_report_has_the_reason_of_an_inconclusive_record() {
    let processor = coordinator::ProcessorTime::within(
        onion::Duration::from_secs(1),
        onion::Duration::from_secs(4),
    );
    let processor = processor.expect("time passed");
    let reason = Inconclusive::RelayStarved { processor };
    let record = Record { processor: Some(processor), ..record(measured(Some(reason))) };
    let report = RelayReport::from(&record);
    assert!(!report.conclusive && report.estimate_mbit_per_s == Some(50.0));
    assert!(
        report
            .inconclusive_reason
            .is_some_and(|inconclusive_reason| inconclusive_reason.contains("only 25 % of a core"))
    );
    assert_eq!(report.bounds_mbit_per_s.map(|(_, upper)| upper), Some(None));
    assert_eq!(report.relay_cpu_share, Some(0.25));
}

#[test]
fn a_failure_has_a_reason_and_no_estimate() {
    let reason = Failure::MeasurerLost { detail: "gone".to_owned() };
    let end = End::Failed { reason, measurer: Some(MeasurerId(1)), round: 2, second: Some(1) };
    let report = RelayReport::from(&record(end));
    let text = "failed in round 2, second 1, measurer 1: the measurer was lost: gone";
    assert_eq!(report.error.as_deref(), Some(text));
    assert_eq!((report.estimate_mbit_per_s, report.bounds_mbit_per_s), (None, None));
    assert!(!report.conclusive && report.spread_mbit_per_s.is_none());
    assert_eq!((report.rounds, report.cells_checked, report.series.len()), (2, 0, 5));
}
