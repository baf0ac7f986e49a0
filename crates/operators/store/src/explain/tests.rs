use super::*;
use crate::testing::{NOW, Scratch, closed, failed, relay};
use crate::{ConsensusEntry, Entry, ListedRelay, MeasurementFinished, Store};
use coordinator::{End, Failure, Inconclusive};

const DAY: u64 = 24 * 3600;

const fn voted(bw_kb_s: u64, time_unix_s: u64) -> Option<Option<Line>> {
    Some(Some(Line {
        bw_kb_s,
        time_unix_s: Some(time_unix_s),
        is_voted: true,
        is_unmeasured: false,
        is_under_min_report: false,
    }))
}

/// The explanation of relay 1 after these measurements, with this line.
fn explanation(
    closed: &[MeasurementFinished],
    line: Option<Option<Line>>,
    left_out: Option<&str>,
) -> String {
    explanation_at([127, 0, 0, 1], &[1], closed, line, left_out)
}

/// The explanation, with these relays at this address.
fn explanation_at(
    address: [u8; 4],
    relays: &[u8],
    closed: &[MeasurementFinished],
    line: Option<Option<Line>>,
    left_out: Option<&str>,
) -> String {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    for measurement in closed {
        store.write([&Entry::Finished(Box::new(measurement.clone()))]).expect("room");
    }
    let sighting = |number: &u8| ListedRelay {
        ids: relay(*number),
        nickname: format!("relay{number}"),
        address: (address, 9000 + u16::from(*number)).into(),
        weight_kb_s: None,
        left_out: left_out.map(str::to_owned),
    };
    let seen = ConsensusEntry {
        valid_after_unix_s: NOW,
        at_unix_s: NOW,
        source: "a test".to_owned(),
        signers: None,
        relays: relays.iter().map(sighting).collect(),
    };
    store.write([&Entry::Consensus(seen)]).expect("room");
    let row = store.relay(relay(1).rsa).expect("read").expect("known");
    let measurements = store.measurements_of(relay(1).rsa, 20).expect("read");
    let explainer = store.explainer(Audience::Operator, NOW + 3600).expect("read");
    explainer.explain(&row, &measurements, line).expect("read").join("\n")
}

fn check_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

#[test]
fn a_weight_is_explained_by_its_measurement() {
    let measured = closed(relay(1), NOW, 1, 5_000_000);
    let at = measured.record.ended_unix_s;
    let text = explanation(&[measured], voted(5000, at), None);
    check_contains(
        &text,
        &[
            "has the weight 5000 KB/s",
            "40.00 Mbit/s",
            "conclusive",
            "Of 5 seconds, most cells waited for the path to the relay in 5",
        ],
    );
    check_contains(&text, &["The weight is the estimate in KB/s", "secret"]);
}

/// Earlier versions called a result conclusive whatever held its seconds back.
#[test]
fn a_conclusive_result_that_its_own_seconds_contradict_is_read_as_a_lower_bound() {
    let mut measured = closed(relay(1), NOW, 1, 5_000_000);
    for second in &mut measured.record.rounds[0].seconds {
        for account in second.accounts.iter_mut().flatten() {
            (account.elapsed, account.busiest) = (Duration::from_secs(1), Duration::from_secs(1));
        }
    }
    let at = measured.record.ended_unix_s;
    let text = explanation(&[measured], voted(5000, at), None);
    let reason = "a lower bound: most cells waited for a measurer's processor in 5 of 5 seconds";
    check_contains(
        &text,
        &[reason, "Of 5 seconds, most cells waited for a measurer's processor in 5"],
    );
    assert!(!text.contains("conclusive"), "{text}");
}

/// A measurement that the end of the coordinator interrupted needs no investigation; the estimate is that of another.
#[test]
fn an_interrupted_measurement_hides_no_earlier_one_and_blames_no_one() {
    let before = closed(relay(1), NOW - DAY, 1, 5_000_000);
    let at = before.record.ended_unix_s;
    let cancelled = |number| failed(relay(1), NOW, number, Failure::Cancelled);
    let text = explanation(&[before, cancelled(1), cancelled(2)], voted(5000, at), None);
    check_contains(
        &text,
        &["interrupted", "had to stop", "The last one with a result", "40.00 Mbit/s in transit"],
    );
    check_contains(&text, &["is conclusive", "Of 5 seconds", "remains valid for"]);
    for part in ["investigate", "in a row"] {
        assert!(!text.contains(part), "{part:?} in:\n{text}");
    }
}

/// The explanation agrees with the policy for weights.
#[test]
fn the_explanation_and_the_policy_agree_on_valid_estimates() {
    let before = || closed(relay(1), NOW - DAY, 1, 5_000_000);
    let late = |number| failed(relay(1), NOW, number, Failure::Cancelled);
    let detail = String::new;
    for (failure, holds) in [
        (Failure::RelayClosed { detail: detail() }, false),
        (Failure::RelayUnreachable { detail: detail() }, false),
        (Failure::ConsentRefused { detail: detail() }, false),
        (Failure::RelayNotNow { detail: detail() }, true),
        (Failure::MeasurerLost { detail: detail() }, true),
        (Failure::Cancelled, true),
    ] {
        // Also if interrupted measurements follow.
        for last in [vec![], vec![late(2)], vec![late(2), late(3)]] {
            let failed = failed(relay(1), NOW, 1, failure.clone());
            let all: Vec<MeasurementFinished> = [vec![before(), failed], last].concat();
            let text = explanation(&all, None, None);
            let scratch = Scratch::new();
            let mut store = Store::open(&scratch.store).expect("new");
            let entries =
                all.iter().map(|measurement| Entry::Finished(Box::new(measurement.clone())));
            store.write(&entries.collect::<Vec<_>>()).expect("room");
            let history = store.history().expect("read");
            let now =
                all.iter().map(|measurement| measurement.record.ended_unix_s).max().expect("some");
            let kept = history.kept(&HistoryPolicy::default(), relay(1).rsa, None, now);
            assert_eq!(kept.is_some(), holds, "{failure:?}");
            assert_eq!(text.contains("remains valid for"), holds, "{failure:?}: {text}");
            assert_eq!(text.contains("is no longer valid"), !holds, "{failure:?}: {text}");
        }
    }
}

/// A relay that chooses its time of measurement by declining all others loses its weight.
#[test]
fn two_declines_in_a_row_halve_an_estimate_and_a_third_invalidates_it() {
    let detail = String::new;
    let hours = |hours: u64| NOW - DAY + hours * 3600;
    for failure in [
        Failure::RelayNotNow { detail: detail() },
        Failure::CutOff { detail: detail() },
        Failure::LoadStopped { detail: detail() },
        Failure::OutOfReach { detail: detail() },
        Failure::NothingReceived { detail: detail() },
        Failure::CountsDiffer { returned_bytes: 9, sent_bytes: 1 },
        Failure::GotNothing,
        Failure::NoRoom { detail: detail() },
    ] {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let mut all = vec![closed(relay(1), NOW - DAY, 1, 5_000_000)];
        let mut kept = || {
            let ended = Entry::Finished(Box::new(all.last().expect("one").clone()));
            store.write(&[ended]).expect("room");
            let history = store.history().expect("read");
            let found = history.kept(&HistoryPolicy::default(), relay(1).rsa, None, NOW);
            let number = u32::try_from(all.len()).expect("few") + 1;
            let mut next =
                failed(relay(1), hours(7 * u64::from(number - 1)), number, failure.clone());
            // It belongs to the same period, and ends later.
            next.begun.period_unix_s = NOW - DAY;
            all.push(next);
            found.map(|estimate| estimate.capacity.as_mbit_per_s().round())
        };
        assert_eq!(
            [kept(), kept(), kept(), kept()],
            [Some(40.0), Some(40.0), Some(20.0), None],
            "{failure:?}"
        );
    }
}

#[test]
fn an_operators_limit_is_distinguished_from_an_older_file() {
    let measured = closed(relay(1), NOW, 1, 5_000_000);
    let at = measured.record.ended_unix_s;
    check_contains(
        &explanation(std::slice::from_ref(&measured), voted(2000, at), None),
        &["the operator allows at most 16.00 Mbit/s"],
    );
    check_contains(
        &explanation(std::slice::from_ref(&measured), voted(6000, at), None),
        &["does not count the traffic of its clients"],
    );
    check_contains(
        &explanation(&[measured], voted(2000, at - DAY), None),
        &["made before the last estimate"],
    );
}

#[test]
fn the_explanation_names_the_relays_at_the_same_address() {
    let measured = closed(relay(1), NOW, 1, 5_000_000);
    let at = measured.record.ended_unix_s;
    let measured = [measured];
    let of =
        |address, relays: &[u8]| explanation_at(address, relays, &measured, voted(2000, at), None);
    let text = of([192, 0, 2, 1], &[1, 2, 3]);
    check_contains(&text, &["2 other relays are at its address", "at the same instant"]);
    check_contains(&text, &["measured at different times"]);
    for text in [of([192, 0, 2, 1], &[1]), of([127, 0, 0, 1], &[1, 2])] {
        assert!(!text.contains("at its address"), "{text}");
    }
}

#[test]
fn a_suspicion_is_explained_with_a_remedy() {
    let of = |others: u8| {
        let suspect = |number: u8| Suspect {
            suspicion: Suspicion {
                relays: (relay(1).rsa, relay(number).rsa),
                moves: 60,
                alike: 58,
                by_chance: 0.001,
            },
            nicknames: ("relay1".to_owned(), format!("relay{number}")),
        };
        let suspects: Vec<Suspect> = (2..2 + others).map(suspect).collect();
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        let measured = closed(relay(1), NOW, 1, 5_000_000);
        store.write([&Entry::Finished(Box::new(measured))]).expect("room");
        let row = store.relay(relay(1).rsa).expect("read").expect("known");
        let subject = Subject {
            relay: &row,
            measurements: &[],
            neighbours: 0,
            suspects: &suspects,
            consensus_seen_unix_s: Some(NOW),
            line: None,
            policy: HistoryPolicy::default(),
            now_unix_s: NOW + 3600,
        };
        explain(&subject).join("\n")
    };
    assert!(!of(0).contains("share a machine"));
    check_contains(
        &of(1),
        &["those of relay2 (", "58 of 60 moves alike", "no proof", "together = [["],
    );
    check_contains(&of(5), &["relay2 (", "relay4 (", " and 2 more"]);
    assert!(!of(5).contains("relay5 ("));
}

#[test]
fn the_explanation_of_a_relay_without_weight_has_the_reason() {
    let down = || Failure::RelayUnreachable { detail: "refused".to_owned() };
    let failures = [1, 2, 3].map(|days| failed(relay(1), NOW - days * DAY, 1, down()));
    let unmeasured = Some(Some(Line {
        is_voted: false,
        is_unmeasured: true,
        ..voted(1, NOW).flatten().expect("a line")
    }));
    let text = explanation(&failures, unmeasured, None);
    check_contains(
        &text,
        &["has no weight: it could not be measured", "cannot be reached: refused"],
    );
    check_contains(&text, &["The relay's operator", "failed 3 times in a row", "counts as new"]);

    let text = explanation(&[], Some(None), Some("it is on a public address and has not opted in"));
    check_contains(&text, &["not in the bandwidth file", "has not opted in", "no longer applies"]);

    let lost = Failure::MeasurerLost { detail: "gone".to_owned() };
    let turns = [closed(relay(1), NOW - DAY, 1, 5_000_000), failed(relay(1), NOW, 1, lost)];
    let text = explanation(&turns, voted(5000, NOW - DAY + 140), None);
    check_contains(
        &text,
        &[
            "measurer's operator",
            "shows nothing about the relay",
            "remains valid for 29 hours more",
        ],
    );
    let turns = [closed(relay(1), NOW - DAY, 1, 5_000_000), failed(relay(1), NOW, 1, down())];
    check_contains(&explanation(&turns, Some(None), None), &["is no longer valid"]);
}

#[test]
fn a_lower_bound_is_explained_with_its_reason() {
    let end = End::Measured {
        capacity: Rate::from_byte_per_s(5_000_000),
        round: 1,
        inconclusive: Some(Inconclusive::RoundLimit { rounds: 2 }),
    };
    let closed = crate::testing::with_end(crate::testing::begun(relay(1), NOW, 1), 5_000_000, end);
    let text = explanation(&[closed], None, None);
    check_contains(&text, &["a lower bound: still inconclusive after 2 rounds"]);
}

#[test]
fn the_operator_of_a_relay_reads_its_weight_and_what_limited_it() {
    let conclusive = closed(relay(1), NOW, 1, 2_300_000).record;
    let words = explain_record(&conclusive).join("\n");
    check_contains(&words, &["the weight 2300 KB/s", "for the path to the relay in 5"]);
    assert!(!words.contains("So the limit"), "the verdict says that it is the relay's: {words}");
    let (capacity, next) =
        (Rate::from_byte_per_s(2_300_000), coordinator::Attempt::first(Rate::ZERO, 4));
    let lower_bound = End::Measured {
        capacity,
        round: 1,
        inconclusive: Some(Inconclusive::LoadTooSmall { next }),
    };
    let mut far = conclusive.clone();
    far.end = lower_bound.clone();
    check_contains(&explain_record(&far).join("\n"), &["So the limit is the network"]);
    let mut busy = conclusive;
    let accounts = busy.rounds.iter_mut().flat_map(|round| &mut round.seconds);
    for account in accounts.flat_map(|second| &mut second.accounts).flatten() {
        account.unacked_bytes = 0;
    }
    let words = explain_record(&busy).join("\n");
    check_contains(
        &words,
        &["most cells waited for the relay in 5", "So the limit is the relay's own"],
    );
    let mut bound = busy;
    bound.end = lower_bound;
    let words = explain_record(&bound).join("\n");
    check_contains(&words, &["the weight 2300 KB/s"]);
    assert!(
        !words.contains("So the limit"),
        "a relay with spare capacity also makes cells wait: {words}"
    );
    let failed =
        failed(relay(1), NOW, 1, Failure::RelayUnreachable { detail: "refused".to_owned() });
    assert!(explain_record(&failed.record).is_empty(), "the reason is in the table");
}
