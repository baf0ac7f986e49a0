use super::*;
use crate::Bottleneck;
use crate::turn::Attempt;
use onion::Duration;
use onion::identity::RsaId;
use std::string::ToString;
use std::vec;

fn mbit(rate: f64) -> Rate {
    Rate::from_mbit_per_s(rate)
}

/// A relay of 50 Mbit/s, measured in one round.
fn record(end: End) -> Record {
    let allocation = crate::allocate(mbit(150.0), &[mbit(1000.0)], 160);
    let seconds = (0..3).map(|second| SecondRecord {
        second,
        returned_bytes: vec![Some(mbit(50.0).as_byte_per_s())],
        client_bytes: None,
        relay_reported: None,
        accounts: Vec::new(),
    });
    let round = RoundRecord {
        schedule: Schedule::PLAIN,
        number: 1,
        guess: mbit(50.0),
        allocation,
        started_unix_s: None,
        checked_cells: 9,
        bottlenecks: vec![],
        seconds: seconds.collect(),
    };
    Record {
        relay: Subject {
            nickname: "steady".to_string(),
            ids: RelayIds { rsa: RsaId([1; 20]), ed25519: None },
            address: ([127, 0, 0, 1], 9001).into(),
            limit: None,
        },
        ended_unix_s: 1_800_000_000,
        mode: Mode::Transit,
        params: Params { seconds: 3, ..Params::default() },
        rounds: vec![round],
        processor: None,
        shared: None,
        end,
    }
}

const fn measured(capacity: Rate, inconclusive: Option<Inconclusive>) -> End {
    End::Measured { capacity, round: 1, inconclusive }
}

const fn failed(reason: Failure) -> End {
    End::Failed { reason, measurer: None, round: 1, second: None }
}

fn not_now() -> Failure {
    Failure::RelayNotNow { detail: "2 in 24 hours".to_string() }
}

/// The record of a conclusive estimate of 50 Mbit/s, under this limit, with this share of a core.
fn watched(limit: Option<f64>, percent: Option<u64>) -> Record {
    let plain = record(measured(mbit(50.0), None));
    let estimate = Estimate {
        capacity: mbit(50.0),
        inconclusive: None,
        rounds: 1,
        allocated: mbit(150.0),
        seconds: vec![],
        spread: Spread::default(),
        checked_cells: 9,
        mode: Mode::Transit,
        params: plain.params,
    };
    let passed = Duration::from_secs(10);
    let processor =
        percent.and_then(|share| ProcessorTime::within(Duration::from_millis(100 * share), passed));
    let facts = Facts { relay: plain.relay, ended_unix_s: plain.ended_unix_s, starts: vec![] };
    let course = RoundHistory { mode: plain.mode, params: plain.params, rounds: plain.rounds };
    let limit = limit.map(mbit);
    let observations = Observations { limit, processor, ..Observations::default() };
    Record::new(facts, course, &Outcome::Measured(estimate)).observed(observations)
}

#[test]
fn a_relay_starved_by_its_machine_has_a_lower_bound_in_all_representations() {
    let starved = watched(Some(100.0), Some(40));
    let Verdict::LowerBound(reason) = starved.verdict() else { panic!("{starved:?}") };
    assert!(reason.to_string().contains("got only 40 % of a core"), "{reason}");
    assert_eq!(starved.capacity(), Some(mbit(50.0)));
    assert_eq!(starved.bounds().map(|bounds| bounds.upper), Some(None));
    assert_eq!(
        crate::PastEstimate::of(&starved).and_then(|estimate| estimate.is_conclusive),
        Some(false)
    );
}

#[test]
fn a_relay_at_its_limit_or_with_a_busy_processor_is_conclusive() {
    for (limit, percent, is_believed) in [
        (None, None, true),
        (Some(55.0), Some(10), true),
        (Some(66.0), Some(10), true),
        (Some(67.0), Some(10), false),
        (None, Some(10), false),
        (None, Some(90), false),
        (None, Some(91), true),
        (Some(1000.0), Some(110), true),
    ] {
        let record = watched(limit, percent);
        let is_conclusive = record.verdict() == Verdict::Conclusive;
        assert_eq!(is_conclusive, is_believed, "{limit:?}, {percent:?}");
    }
    assert_eq!(ProcessorTime::within(Duration::ZERO, Duration::ZERO), None);
}

#[test]
fn the_next_period_starts_with_the_sockets_that_this_one_needed_or_half() {
    let halves = Schedule { lead_s: 2, held_back_s: Some(5), few_circuits_s: 0 };
    let next = |schedule: Schedule, sockets: &[u32]| {
        let mut record = record(measured(mbit(50.0), None));
        let round = record.rounds.remove(0);
        let allocation = |sockets| crate::allocate(mbit(150.0), &[mbit(1000.0)], sockets);
        record.rounds = (1..)
            .zip(sockets)
            .map(|(number, sockets)| RoundRecord {
                number,
                schedule,
                allocation: allocation(*sockets),
                ..round.clone()
            })
            .collect();
        crate::PastEstimate::of(&record).expect("an estimate").sockets
    };
    assert_eq!(next(halves, &[8, 16, 64]), Some(64));
    assert_eq!(next(halves, &[64]), Some(32), "the path may have improved");
    assert_eq!(next(Schedule::PLAIN, &[160]), None, "not known whether they were needed");
}

#[test]
fn an_estimate_remains_valid_only_if_the_relay_declined_another_round() {
    let next = Attempt { round: 2, ..Attempt::first(mbit(100.0), 2) };
    let first = record(measured(mbit(50.0), Some(Inconclusive::LoadTooSmall { next })));
    let second = |end| {
        let mut record = record(end);
        record.rounds[0].number = 2;
        Record { ended_unix_s: record.ended_unix_s + 60, ..record }
    };
    let refused = first.clone().followed_by(second(failed(not_now())));
    assert_eq!((&refused.end, refused.rounds.len()), (&first.end, 2));
    assert_eq!(refused.ended_unix_s, first.ended_unix_s, "the time is that of the estimate");
    let broken = failed(Failure::RelayClosed { detail: "bye".to_string() });
    for end in [broken, measured(mbit(80.0), None)] {
        let whole = first.clone().followed_by(second(end.clone()));
        assert_eq!((&whole.end, whole.rounds.len()), (&end, 2));
    }
    let never = record(failed(not_now())).followed_by(second(failed(not_now())));
    assert_eq!(never.capacity(), None);
}

#[test]
fn an_earlier_estimate_is_kept_unless_the_relay_failed_or_there_is_a_new_one() {
    let (policy, now) = (crate::HistoryPolicy::default(), 1_800_000_000);
    let mut history = crate::History::default();
    let relay = RsaId([1; 20]);
    let record_of = |end| Record { ended_unix_s: now - 3600, ..record(end) };
    let earlier = crate::PastEstimate::of(&record_of(measured(mbit(50.0), None)));
    history.add(relay, earlier.expect("an estimate"));
    let kept = |record: Option<&Record>| history.kept(&policy, relay, record, now);
    assert_eq!(kept(None), earlier);
    assert_eq!(kept(Some(&record(failed(not_now())))), earlier);
    let closed = Failure::RelayClosed { detail: "bye".to_string() };
    assert_eq!(kept(Some(&record(failed(closed)))), None);
    assert_eq!(kept(Some(&record(measured(mbit(20.0), None)))), None);
    // While the next turn is pending, a lower bound does not reduce the weight of a relay that took the full load.
    let next = Attempt::first(mbit(100.0), 3).enlarged(mbit(20.0)).expect("another");
    let bound = |rate| record(measured(mbit(rate), Some(Inconclusive::LoadTooSmall { next })));
    assert_eq!(kept(Some(&bound(20.0))), earlier);
    assert_eq!(kept(Some(&bound(80.0))), None, "the lower bound is higher");
}

#[test]
fn an_estimate_refuted_by_a_failure_is_not_restored_in_the_next_period() {
    let (policy, now) = (crate::HistoryPolicy::default(), 1_800_000_000);
    let relay = RsaId([1; 20]);
    let estimate = |ago| {
        let record = Record { ended_unix_s: now - ago, ..record(measured(mbit(50.0), None)) };
        crate::PastEstimate::of(&record).expect("an estimate")
    };
    let mut history = crate::History::default();
    history.add(relay, estimate(7200));
    history.refute(relay, now - 3600);
    history.refute(relay, now - 5000);
    let kept = |history: &crate::History, record: Option<&Record>| {
        history.kept(&policy, relay, record, now)
    };
    assert_eq!(kept(&history, None), None, "it was not due yet");
    assert_eq!(kept(&history, Some(&record(failed(Failure::Cancelled)))), None);
    assert_eq!(history.last(relay), Some(&estimate(7200)), "its estimate is still the guess");
    history.add(relay, estimate(1800));
    assert_eq!(kept(&history, None), Some(estimate(1800)), "a newer estimate counts");
    history.refute(relay, now + 60);
    assert_eq!(kept(&history, None), Some(estimate(1800)), "a wrong clock");
}

#[test]
fn a_turn_is_reported_with_the_teams_numbers() {
    let team = [mbit(10.0), mbit(90.0), mbit(60.0)];
    let allocation = crate::allocate(mbit(150.0), &team, 160);
    let place = MeasurerId(1);
    let lost = Failure::MeasurerLost { detail: "gone".to_string() };
    let end = End::Failed { reason: lost, measurer: Some(place), round: 1, second: Some(2) };
    let shares: Vec<Rate> =
        allocation.assignments.iter().map(|assignment| assignment.rate).collect();
    let mut turn = record(end);
    turn.rounds[0].allocation = crate::allocate(mbit(150.0), &shares, 160);
    let converted = turn.in_team(&allocation);
    assert_eq!(converted.rounds[0].allocation, allocation);
    assert_eq!(
        converted.to_string(),
        "failed in round 1, second 2, measurer 2: the measurer was lost: gone"
    );
    let bottleneck =
        MeasurerBottleneck { measurer: MeasurerId(0), by: Bottleneck::Processor, got: mbit(9.0) };
    let reason = Inconclusive::MeasurerLimited { bottleneck, next: None };
    let mut turn = record(measured(mbit(50.0), Some(reason)));
    turn.rounds[0].bottlenecks = vec![bottleneck];
    let converted = turn.in_team(&allocation);
    assert_eq!(
        converted.bottlenecks(),
        [MeasurerBottleneck { measurer: MeasurerId(1), ..bottleneck }]
    );
    let Verdict::LowerBound(reason) = converted.verdict() else { panic!("{converted:?}") };
    assert!(reason.to_string().starts_with("measurer 1 is a bottleneck"), "{reason}");
}

#[test]
fn stored_names_are_pinned() {
    let text = serde_json::to_string(&record(failed(not_now()))).expect("data");
    for part in [
        r#""end":{"failed":{"reason":{"relay_not_now":{"detail":"2 in 24 hours"}}"#,
        r#""mode":"transit""#,
        r#""address":"127.0.0.1:9001""#,
        r#""guess":50000000"#,
        r#""returned_bytes":[6250000]"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
