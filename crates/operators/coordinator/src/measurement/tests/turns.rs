//! One round at a time, in a campaign: the same decisions as with a team for all rounds.

use super::lab::quiet;
use super::lab::{Lab, mbit, relay};
use super::records::record;
use super::*;
use crate::campaign::{Campaign, Next, Priority, RelayIndex};
use crate::record::{End, Record};
use proptest::collection::vec;
use proptest::prelude::*;

const RELAY: RelayIndex = RelayIndex(0);

/// Measures a relay turn by turn; returns its record.
fn by_campaign(
    lab: &mut Lab,
    params: Params,
    mode: Mode,
    guess: Rate,
    team: &[Rate],
) -> Option<Record> {
    let mut campaign = Campaign::new(params.excess_factor(), params.sockets, team.to_vec());
    campaign.add(RELAY, Priority::New, guess, params.max_rounds);
    let mut whole: Option<Record> = None;
    while let Some(launch) = campaign.poll_launch() {
        let shares =
            launch.allocation.assignments.iter().map(|assignment| assignment.rate).collect();
        let (turn, is_whole_team) = (launch.turn, launch.is_whole_team);
        let mut measurement =
            Measurement::of_turn(Instant::ORIGIN, params, mode, turn, is_whole_team, shares)
                .expect("valid");
        let outcome = lab.run(&mut measurement);
        let this = record(&measurement, &outcome).in_team(&launch.allocation);
        whole = Some(match whole {
            Some(earlier) => earlier.followed_by(this),
            None => this,
        });
        if campaign.handle_outcome(RELAY, &outcome).is_over {
            break;
        }
    }
    whole
}

fn turn(lab: &mut Lab, turn: Attempt, is_whole_team: bool, shares: &[f64]) -> Outcome {
    let shares = shares.iter().copied().map(mbit).collect();
    let params = quiet();
    let measurement =
        Measurement::of_turn(Instant::ORIGIN, params, Mode::Echo, turn, is_whole_team, shares);
    lab.run(&mut measurement.expect("valid"))
}

/// A load of 147.7 Mbit/s is conclusive for 45, but not for the 80 of an earlier round with a larger team.
#[test]
fn a_load_that_is_too_small_for_an_earlier_result_shows_no_limit() {
    let first = Attempt::first(mbit(50.0), 12);
    let done = |passed: f64| {
        let turn_ = Attempt { round: 2, passed: mbit(passed), ..first };
        let outcome = turn(&mut relay(40.0), turn_, false, &[147.7]);
        let estimate = outcome.estimate().expect("some").clone();
        (estimate.capacity, estimate.is_conclusive(), Next::after(&outcome) != Next::Nothing)
    };
    assert_eq!(done(45.0), (mbit(45.0), true, false));
    assert_eq!(done(80.0), (mbit(80.0), false, true));
}

#[test]
fn a_turn_ends_as_soon_as_another_is_certain_to_follow_and_gives_its_guess() {
    let mut lab = relay(100.0);
    let first = Attempt::first(mbit(50.0), 12);
    let outcome = turn(&mut lab, first, false, &[147.7]);
    assert!(lab.log.contains(&"stop 1 at 16.000000 s".to_string()), "{:?}", lab.log);
    let estimate = outcome.estimate().expect("a lower bound");
    let next = Attempt { round: 2, ..Attempt::first(mbit(100.0), 12) };
    assert_eq!(estimate.inconclusive, Some(Inconclusive::LoadTooSmall { next }));
    assert_eq!(Next::after(&outcome), Next::Enlarged(next));
    // The result of the seconds that it skipped is unknown: no more than this is certain.
    let limit = quiet().conclusive_limit(estimate.allocated);
    assert_eq!((estimate.capacity, estimate.seconds.len()), (limit, 16));
    assert!(estimate.bounds().lower < mbit(100.0));
}

#[test]
fn the_last_turn_and_one_with_the_whole_team_have_full_length_and_give_the_reason() {
    for (turn_, is_whole, is_right) in [
        (Attempt { round: 2, ..Attempt::first(mbit(50.0), 2) }, false, "after 2 rounds"),
        (Attempt::first(mbit(50.0), 12), true, "the team is too small"),
    ] {
        let outcome = turn(&mut relay(100.0), turn_, is_whole, &[147.7]);
        let estimate = outcome.estimate().expect("a lower bound");
        assert_eq!((estimate.capacity, estimate.seconds.len()), (mbit(100.0), 30));
        let reason = estimate.inconclusive.expect("a reason").to_string();
        assert!(reason.contains(is_right), "{reason}");
        assert_eq!(Next::after(&outcome), Next::Nothing);
    }
}

#[test]
fn a_measurer_that_fails_in_a_turn_is_named_by_its_place_in_the_team_and_gets_no_work() {
    let mut campaign = Campaign::new(2.0, 160, [10.0, 30.0, 20.0].map(mbit).to_vec());
    campaign.add(RELAY, Priority::New, mbit(25.0), 2);
    let launch = campaign.poll_launch().expect("room");
    let reason = Failure::MeasurerLost { detail: "gone".to_string() };
    let second = MeasurerId(1);
    let outcome = Outcome::Failed { reason, measurer: Some(second), round: 1, second: None };
    let ended = campaign.handle_outcome(RELAY, &outcome);
    assert_eq!((ended.is_over, ended.lost), (false, Some(MeasurerId(2))), "{launch:?}");
    let again = campaign.poll_launch().expect("the other measurers");
    assert_eq!((again.turn.round, again.turn.guess), (2, launch.turn.guess));
    assert!(
        again.allocation.assignments.iter().all(|assignment| assignment.measurer != MeasurerId(2))
    );
    // A failure of the relay is not repeated, and does not exclude a measurer.
    let reason = Failure::RelayClosed { detail: "bye".to_string() };
    let outcome = Outcome::Failed { reason, measurer: Some(second), round: 2, second: None };
    let ended = campaign.handle_outcome(RELAY, &outcome);
    assert_eq!((ended.is_over, ended.lost), (true, None));
}

#[test]
fn a_relay_that_declines_another_round_keeps_the_estimate_of_the_previous_one() {
    let mut lab = relay(1000.0);
    let mut alone = measurement(Mode::Echo, 10.0, &[10_000.0]);
    lab.rounds_allowed = Some(2);
    let outcome = lab.run(&mut alone);
    let estimate = outcome.estimate().expect("that of round 2");
    assert_eq!((estimate.rounds, alone.round()), (2, 3));
    let Some(Inconclusive::LoadTooSmall { next }) = estimate.inconclusive else { panic!() };
    assert_eq!(next.round, 3);
    let record = record(&alone, &outcome);
    assert_eq!(
        (record.rounds.len(), record.decisive_round().map(|round| round.number)),
        (3, Some(2))
    );
    // Attributed failures keep their attribution.
    let mut alone = measurement(Mode::Echo, 10.0, &[10_000.0]);
    lab.rounds_allowed = None;
    lab.never_ready_in = Some(2);
    assert!(lab.run(&mut alone).estimate().is_none());
}

proptest! {
    #[test]
    fn a_campaign_with_one_relay_gives_the_same_result_as_a_single_measurement(
        capacity in 1u64..2_000, guess in 1u64..200, team in vec(1u64..900, 1..4),
        max_rounds in 1u32..6, rounds_allowed in prop::option::of(0u32..5), echo: bool,
    ) {
        let mode = if echo { Mode::Echo } else { Mode::Transit };
        let params = Params { seconds: 7, max_rounds, ..quiet() };
        let rate = |mbit: u64| Rate::from_bit_per_s(mbit * 1_000_000);
        let team: Vec<Rate> = team.into_iter().map(rate).collect();
        let mut lab = relay(capacity as f64);
        lab.rounds_allowed = rounds_allowed;
        lab.clients = 1_000_000;
        let mut alone =
            Measurement::new(Instant::ORIGIN, params, mode, rate(guess), team.clone()).unwrap();
        let outcome = lab.run(&mut alone);
        let alone = record(&alone, &outcome);
        let shared = by_campaign(&mut lab, params, mode, rate(guess), &team).expect("a record");
        prop_assert_eq!(&shared, &alone);
        let is_cut = matches!(
            shared.end,
            End::Measured { inconclusive: Some(Inconclusive::LoadTooSmall { .. }), .. }
        );
        prop_assert!(!is_cut || rounds_allowed.is_some(), "only a declined round leaves this reason");
    }
}
