//! The record has the data on which the state machine based its verdict.

use super::lab::quiet;
use super::lab::{mbit, relay};
use super::*;
use crate::record::{End, Facts, Observations, Record, RelaySelfReport, Subject, Verdict};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use proptest::prelude::*;

/// The facts that a shell would add.
fn facts() -> Facts {
    Facts {
        relay: Subject {
            nickname: "steady".to_string(),
            ids: RelayIds { rsa: RsaId([7; 20]), ed25519: Some(Ed25519Id([9; 32])) },
            address: ([127, 0, 0, 1], 9001).into(),
            limit: Some(mbit(100.0)),
        },
        ended_unix_s: 1_800_000_000,
        starts: vec![],
    }
}

pub(super) fn record(measurement: &Measurement, outcome: &Outcome) -> Record {
    Record::new(facts(), measurement.course(), outcome)
}

#[test]
fn observations_are_recorded_with_their_round_and_second() {
    let mut measurement = measurement(Mode::Echo, 50.0, &[1000.0]);
    let outcome = relay(100.0).run(&mut measurement);
    let report =
        |round, second| RelaySelfReport { round, second, rate: mbit(f64::from(round * second)) };
    let facts = Facts { starts: vec![(1, 11), (2, 22), (3, 33)], ..facts() };
    let observations = Observations {
        hearsay: vec![report(1, 4), report(2, 5), report(2, 6), report(2, 29), report(9, 1)],
        ..Observations::default()
    };
    let record = Record::new(facts, measurement.course(), &outcome).observed(observations);
    let starts: Vec<_> = record.rounds.iter().map(|round| round.started_unix_s).collect();
    assert_eq!(starts, [Some(11), Some(22)]);
    assert_eq!(record.rounds[0].seconds[4].relay_reported, Some(mbit(4.0)));
    assert_eq!(record.rounds[1].seconds[4].relay_reported, None);
    assert_eq!(record.relay_reported(), Some(mbit(12.0)), "the median of the decisive round alone");
}

#[test]
fn a_failed_round_is_recorded_up_to_its_failure() {
    let mut lab = relay(100.0);
    lab.unreported = Some((1, 3));
    let mut measurement = measurement(Mode::Echo, 100.0, &[200.0, 200.0]);
    let outcome = lab.run(&mut measurement);
    let record = record(&measurement, &outcome);
    assert!(matches!(record.verdict(), Verdict::Failed(Failure::SecondMissing { second: 3 })));
    assert_eq!(record.to_string(), outcome.to_string());
    let [round] = &record.rounds[..] else { panic!("{record:?}") };
    assert!(round.seconds[3].returned_bytes[0].is_some(), "one measurer has reported it");
    assert_eq!(round.seconds[3].returned_bytes[1], None);
    let whole: Vec<u32> = record.totals(round).map(|total| total.second).collect();
    assert!(whole.contains(&2) && !whole.contains(&3), "{whole:?}");
    assert_eq!((record.capacity(), record.bounds(), record.spread()), (None, None, None));
}

proptest! {
    #[test]
    fn a_record_agrees_with_the_estimate_and_survives_json(
        capacity in 1u64..2_000, guess in 1u64..400, clients in 0u64..90, echo: bool,
        seconds in 1u32..12,
    ) {
        let params = Params { seconds, max_rounds: 4, ..quiet() };
        let mode = if echo { Mode::Echo } else { Mode::Transit };
        let team = [mbit(900.0), mbit(300.0), mbit(300.0)].to_vec();
        let guess = Rate::from_bit_per_s(guess * 1_000_000);
        let mut measurement =
            Measurement::new(Instant::ORIGIN, params, mode, guess, team).unwrap();
        let mut lab = relay(capacity as f64);
        lab.clients = clients * 125_000;
        let outcome = lab.run(&mut measurement);
        let record = record(&measurement, &outcome);
        let text = serde_json::to_string(&record).unwrap();
        let stored: Record = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&stored, &record);
        // Records of earlier versions have arrays of bytes.
        let mut earlier = serde_json::to_value(&record).unwrap();
        earlier["relay"]["ids"] = serde_json::json!({"rsa": vec![7; 20], "ed25519": vec![9; 32]});
        let stored: Record = serde_json::from_value(earlier).unwrap();
        prop_assert_eq!(&stored, &record);
        let Outcome::Measured(estimate) = outcome else {
            prop_assert_eq!(record.failure(), Some(&Failure::RelayedNothing { idle: seconds, seconds }));
            return Ok(());
        };
        let round = record.decisive_round().expect("an estimate is of a round");
        prop_assert_eq!(record.rounds.len(), estimate.rounds as usize);
        prop_assert_eq!(record.capacity(), Some(estimate.capacity));
        prop_assert_eq!(record.verdict() == Verdict::Conclusive, estimate.is_conclusive());
        prop_assert_eq!(record.bounds(), Some(estimate.bounds()));
        prop_assert_eq!(record.spread(), Some(estimate.spread));
        prop_assert_eq!(round.allocation.total(), estimate.allocated);
        prop_assert_eq!(round.checked_cells, estimate.checked_cells);
        prop_assert_eq!(record.totals(round).collect::<Vec<_>>(), estimate.seconds);
        for (number, round) in (1..).zip(&record.rounds) {
            prop_assert_eq!(round.number, number);
            let is_last = number == estimate.rounds;
            prop_assert!(is_last || record.totals(round).count() <= seconds as usize);
            let shares = round.allocation.assignments.len();
            prop_assert!(round.seconds.iter().all(|second| second.returned_bytes.len() == shares));
        }
        let is_last = matches!(record.end, End::Measured { round, .. } if round == estimate.rounds);
        prop_assert!(is_last);
    }
}
