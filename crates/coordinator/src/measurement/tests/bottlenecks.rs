//! Measurers that something of their own holds back.

use super::*;
use crate::{PathParams, Priority, RelayIndex};
use std::boxed::Box;

/// Of a relay of 200 Mbit/s at 40 ms, of whose measurers one is behind a narrow place.
fn behind(measurer: usize, narrow: f64) -> Lab {
    let narrow = (measurer, mbit(narrow).as_byte_per_s(), Duration::from_millis(80));
    Lab { rtt: Some(Duration::from_millis(40)), narrow: Some(narrow), ..relay(200.0) }
}

fn far(guess: f64, team: &[f64]) -> Measurement {
    let path = PathParams { first_sockets: 32, lead_s: 2, probes: true };
    let params = Params { path, ..Params::default() };
    let team = team.iter().copied().map(mbit).collect();
    Measurement::new(Instant::ORIGIN, params, Mode::Transit, mbit(guess), team).unwrap()
}

fn bottlenecks(measurement: &Measurement) -> Vec<(usize, Bottleneck)> {
    let rounds = measurement.course().rounds;
    rounds.last().unwrap().bottlenecks.iter().map(|it| (it.measurer.0, it.by)).collect()
}

const QUEUE: Bottleneck = Bottleneck::Path { queue_ms: 80 };

#[test]
fn a_narrow_place_of_one_of_two_is_named_and_the_other_shows_the_relay() {
    for narrow in [0, 1] {
        let mut measurement = far(200.0, &[800.0, 800.0]);
        let estimate = estimate(behind(narrow, 20.0).run(&mut measurement));
        // Each has 295 Mbit/s to do at first, too few for the 180 that the relay has for the other.
        assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 2), "{estimate}");
        assert!(estimate.capacity > mbit(199.9), "{estimate}");
        assert_eq!(bottlenecks(&measurement), [(narrow, QUEUE)]);
    }
}

#[test]
fn what_the_others_were_asked_for_must_show_the_limit_by_itself() {
    // The other has 190 Mbit/s of 590 to do, and the relay 180 for it. All that is sent would seem to
    // suffice.
    let mut measurement = far(200.0, &[400.0, 190.0]);
    let estimate = estimate(behind(0, 20.0).run(&mut measurement));
    let Some(Inconclusive::MeasurerLimited { bottleneck, next: None }) = estimate.inconclusive
    else {
        panic!("{estimate}");
    };
    assert_eq!((bottleneck.measurer, bottleneck.by), (MeasurerId(0), QUEUE));
    assert!(estimate.to_string().contains("held it back at 20"), "{estimate}");
}

#[test]
fn the_load_goes_to_those_that_can_bear_it() {
    // It begins with 390 and 200. Then the first has 25, but the second no more than before.
    let mut lab = behind(0, 20.0);
    let mut measurement = far(200.0, &[600.0, 200.0]);
    let bigger = estimate(lab.run(&mut measurement));
    assert!(!bigger.is_conclusive(), "the second has no more: {bigger}");

    let mut lab = behind(0, 20.0);
    let mut measurement = far(200.0, &[500.0, 100.0, 100.0, 90.0, 90.0, 90.0, 90.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 2), "{estimate}");
    assert!(estimate.capacity > mbit(199.9), "{estimate}");
    let first = lab.log.iter().find(|it| it.starts_with("prepare 1")).unwrap();
    assert_eq!(first, "prepare 1: 490.62 Mbit/s + 100.00 Mbit/s", "{:?}", lab.log);
}

#[test]
fn a_queue_that_all_meet_is_the_relays() {
    let mut lab = relay(50.0);
    lab.rtt = Some(Duration::from_millis(40));
    lab.relays_queue = Duration::from_millis(200);
    let mut measurement = far(50.0, &[800.0, 800.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 1), "{estimate}");
    assert_eq!(bottlenecks(&measurement), []);
}

#[test]
fn far_relays_are_measured_by_two_if_there_are_two() {
    let mut lab = behind(0, 900.0);
    estimate(lab.run(&mut far(100.0, &[800.0, 700.0, 600.0])));
    assert_eq!(lab.log[0], "prepare 1: 147.66 Mbit/s + 147.66 Mbit/s");
    estimate(lab.run(&mut far(100.0, &[800.0])));
    assert!(lab.log.contains(&"prepare 1: 295.31 Mbit/s".to_string()), "{:?}", lab.log);
}

/// As a campaign sees it, which gives a relay as few measurers as it can.
#[test]
fn a_queue_before_the_only_measurer_asks_for_another_one_beside_it() {
    // To a near relay as well, to which one measurer is otherwise enough.
    for rtt_ms in [1, 40] {
        asks_for_another_one(Duration::from_millis(rtt_ms));
    }
}

fn asks_for_another_one(rtt: Duration) {
    let params = Params::default();
    let capacities = vec![mbit(800.0); 3];
    let mut campaign = crate::Campaign::new(params.excess_factor(), params.sockets, capacities);
    let relay = RelayIndex(3);
    campaign.add(relay, Priority::Known, mbit(200.0), 12);
    let mut turns = vec![];
    while let Some(launch) = campaign.poll_launch() {
        // The first of the team is behind the narrow place, wherever it stands in this turn.
        let place = launch.allocation.place(MeasurerId(0));
        let shares: Vec<Rate> = launch.allocation.assignments.iter().map(|it| it.rate).collect();
        let measurers = shares.len();
        let path = PathParams { first_sockets: 32, lead_s: 2, probes: true };
        let params = Params { path, ..params };
        let mut measurement = Measurement::of_turn(
            Instant::ORIGIN,
            params,
            Mode::Transit,
            launch.turn,
            false,
            shares,
        )
        .unwrap();
        let mut lab = Lab { rtt: Some(rtt), ..behind(place.unwrap_or(9), 20.0) };
        let outcome = lab.run(&mut measurement);
        let estimate = estimate(outcome.clone());
        turns.push((measurers, estimate.is_conclusive(), bottlenecks(&measurement)));
        if let Some(reason @ Inconclusive::QueueOfOne { queue_ms: 80, .. }) = estimate.inconclusive
        {
            assert!(reason.to_string().contains("the only measurer"));
        }
        campaign.handle_outcome(relay, &outcome);
    }
    // Then it is left to the others.
    let expected = [(1, false, vec![]), (2, false, vec![(0, QUEUE)]), (2, true, vec![])];
    assert_eq!(turns, expected, "{rtt:?}");
}

/// A bottleneck without a queue, or on the return path, shows only in the returned rate.
#[test]
fn a_narrow_place_that_nothing_shows_is_found_by_what_came_back_to_one_that_was_served() {
    let mut lab = behind(0, 15.0);
    lab.narrow = lab.narrow.map(|(who, rate, _)| (who, rate, Duration::ZERO));
    lab.capacity = Box::new(|_| mbit(1000.0).as_byte_per_s());
    // The other had 190 Mbit/s to send, and all of it came back: of 590, 205 would seem to be the relay's limit.
    let estimate = estimate(lab.run(&mut far(200.0, &[400.0, 190.0])));
    let Some(Inconclusive::MeasurerLimited { bottleneck, next: None }) = estimate.inconclusive
    else {
        panic!("{estimate}");
    };
    assert_eq!(
        (bottleneck.measurer, bottleneck.by),
        (MeasurerId(0), Bottleneck::Share { percent: 7 })
    );
    assert!(estimate.to_string().contains("which had no more to send"), "{estimate}");
}

#[test]
fn of_two_measurers_one_that_is_busy_leaves_the_verdict_to_the_other() {
    for (team, is_conclusive) in [([800.0, 800.0], true), ([400.0, 190.0], false)] {
        let mut measurement = far(200.0, &team);
        // Its processor lets 20 Mbit/s through; there is no queue.
        let mut lab = behind(0, 20.0);
        lab.narrow = lab.narrow.map(|(who, rate, _)| (who, rate, Duration::ZERO));
        lab.busy = Some(0);
        let estimate = estimate(lab.run(&mut measurement));
        assert_eq!(estimate.is_conclusive(), is_conclusive, "{estimate}");
        assert_eq!(bottlenecks(&measurement), [(0, Bottleneck::Processor)]);
    }
}

/// A refresh of what earlier periods know comes between the turns of a plan.
#[test]
fn whose_processor_was_busy_is_asked_for_less_in_a_later_turn_whatever_earlier_periods_know() {
    let params = Params::default();
    let capacities = vec![mbit(400.0); 3];
    let campaign = crate::Campaign::new(params.excess_factor(), params.sockets, capacities);
    let (mut campaign, relay) = (campaign.leaving_what_follows(), RelayIndex(3));
    let turn = Attempt::first(mbit(200.0), 12);
    campaign.add_turn(relay, Priority::Known, turn);
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(launch.allocation.assignments.len(), 2);
    let shares: Vec<Rate> = launch.allocation.assignments.iter().map(|it| it.rate).collect();
    let path = PathParams { first_sockets: 32, lead_s: 2, probes: true };
    let params = Params { path, ..params };
    let (now, mode) = (Instant::ORIGIN, Mode::Transit);
    let mut measurement = Measurement::of_launch(now, params, mode, &launch, shares).unwrap();
    let mut lab = behind(0, 20.0);
    lab.narrow = lab.narrow.map(|(who, rate, _)| (who, rate, Duration::ZERO));
    lab.busy = Some(0);
    let outcome = lab.run(&mut measurement);
    let follows = campaign.handle_outcome(relay, &outcome).follows;
    campaign.expect_path(relay, MeasurerId(0), crate::PathSeen::default());
    campaign.add_turn(relay, Priority::Known, follows.unwrap_or_else(|| panic!("{outcome}")));
    let launch = campaign.poll_launch().expect("room");
    let asked = launch.allocation.assignments.iter().find(|it| it.measurer == MeasurerId(0));
    assert!(asked.is_none_or(|it| it.rate <= mbit(26.0)), "{launch:?}");
}

#[test]
fn a_measurer_that_got_nothing_is_no_load_beside_one_that_is_held_back() {
    // Of 590 Mbit/s the first two have 240 each to do and the last 110. The first gets 20, the second nothing, and
    // the last 60: too much of 110 to show the limit, though little of 350.
    let mut lab = behind(0, 20.0);
    lab.deaf = Some(1);
    lab.capacity = Box::new(|_| mbit(80.0).as_byte_per_s());
    lab.rtt = Some(Duration::from_millis(1));
    let team = [240.0, 240.0, 110.0].map(mbit).to_vec();
    let params = Params { max_rounds: 1, ..Params::default() };
    let mut measurement =
        Measurement::new(Instant::ORIGIN, params, Mode::Transit, mbit(200.0), team).unwrap();
    let reason = estimate(lab.run(&mut measurement)).inconclusive;
    assert!(matches!(reason, Some(Inconclusive::MeasurerLimited { .. })), "{reason:?}");
}

#[test]
fn who_claims_more_than_came_back_is_not_believed_for_a_queue_of_its_own() {
    // Nine tenths of what it was to send, of a relay that did a sixth of that.
    let mut lab = behind(0, 20.0);
    lab.capacity = Box::new(|_| mbit(50.0).as_byte_per_s());
    lab.claims = Some((0, mbit(270.0).as_byte_per_s()));
    lab.rtt = Some(Duration::from_millis(1));
    let team = vec![mbit(300.0); 2];
    let params = Params { max_rounds: 1, ..Params::default() };
    let mut measurement =
        Measurement::new(Instant::ORIGIN, params, Mode::Transit, mbit(200.0), team).unwrap();
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!(bottlenecks(&measurement), [(0, QUEUE)]);
    assert!(!estimate.is_conclusive(), "{estimate}");
}

proptest::proptest! {
    /// Who lies about a queue of its own may spoil a verdict, but gains none.
    #[test]
    fn what_a_measurer_says_of_its_path_makes_nothing_conclusive(
        capacity in 20.0f64..600.0, guess in 50.0f64..300.0, got in 1.0f64..600.0,
        first in 50.0f64..900.0, second in 50.0f64..900.0,
    ) {
        let conclusive = |queue: u64| {
            let params = Params { max_rounds: 1, ..Params::default() };
            let team = vec![mbit(first), mbit(second)];
            let guess = mbit(guess);
            let mut measurement =
                Measurement::new(Instant::ORIGIN, params, Mode::Transit, guess, team).unwrap();
            let narrow = (0, mbit(got).as_byte_per_s(), Duration::from_millis(queue));
            let rtt = Some(Duration::from_millis(1));
            let mut lab = Lab { rtt, narrow: Some(narrow), ..relay(capacity) };
            estimate(lab.run(&mut measurement)).is_conclusive()
        };
        if conclusive(80) {
            proptest::prop_assert!(conclusive(0));
        }
    }
}
