//! Measurers that are limited by a cause of their own.

use super::lab::quiet;
use super::*;
use crate::{PathParams, Priority, RelayIndex};
use std::boxed::Box;

/// A relay of 200 Mbit/s at 40 ms, with one measurer behind a bottleneck.
fn behind(measurer: usize, narrow: f64) -> Lab {
    let narrow = (measurer, mbit(narrow).as_byte_per_s(), Duration::from_millis(80));
    Lab { rtt: Some(Duration::from_millis(40)), narrow: Some(narrow), ..relay(200.0) }
}

fn far(guess: f64, team: &[f64]) -> Measurement {
    let path = PathParams { first_sockets: 32, lead_s: 2, probes: true, few_circuits_s: 0 };
    let params = Params { path, ..quiet() };
    measurement_with(params, Mode::Transit, guess, team)
}

fn bottlenecks(measurement: &Measurement) -> Vec<(usize, Bottleneck)> {
    let rounds = measurement.course().rounds;
    rounds
        .last()
        .unwrap()
        .bottlenecks
        .iter()
        .map(|bottleneck| (bottleneck.measurer.0, bottleneck.by))
        .collect()
}

const QUEUE: Bottleneck = Bottleneck::Path { queue_ms: 80 };

#[test]
fn a_bottleneck_of_one_of_two_measurers_is_named_and_the_other_shows_the_relays_limit() {
    for narrow in [0, 1] {
        let mut measurement = far(200.0, &[800.0, 800.0]);
        let estimate = estimate(behind(narrow, 20.0).run(&mut measurement));
        // Each is assigned 295 Mbit/s at first. The relay returns 180 to the other, too many for that load.
        assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 2), "{estimate}");
        assert!(estimate.capacity > mbit(199.9), "{estimate}");
        assert_eq!(bottlenecks(&measurement), [(narrow, QUEUE)]);
    }
}

#[test]
fn the_load_of_the_other_measurers_alone_must_show_the_limit() {
    // The other is assigned 190 of 590 Mbit/s, and gets 180 back. The whole load would seem to suffice.
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
fn load_moves_to_measurers_without_a_bottleneck() {
    // The first round has 390 and 200. Then the first measurer is assigned 25, but the second has no more to give.
    let mut lab = behind(0, 20.0);
    let mut measurement = far(200.0, &[600.0, 200.0]);
    let bigger = estimate(lab.run(&mut measurement));
    assert!(!bigger.is_conclusive(), "the second has no more: {bigger}");

    let mut lab = behind(0, 20.0);
    let mut measurement = far(200.0, &[500.0, 100.0, 100.0, 90.0, 90.0, 90.0, 90.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 2), "{estimate}");
    assert!(estimate.capacity > mbit(199.9), "{estimate}");
    let first = lab.log.iter().find(|line| line.starts_with("prepare 1")).unwrap();
    assert_eq!(first, "prepare 1: 490.62 Mbit/s + 100.00 Mbit/s", "{:?}", lab.log);
}

#[test]
fn a_queue_on_all_paths_is_attributed_to_the_relay() {
    let mut lab = relay(50.0);
    lab.rtt = Some(Duration::from_millis(40));
    lab.relays_queue = Duration::from_millis(200);
    let mut measurement = far(50.0, &[800.0, 800.0]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, 1), "{estimate}");
    assert_eq!(bottlenecks(&measurement), []);
}

#[test]
fn distant_relays_get_two_measurers_if_there_are_two() {
    let mut lab = behind(0, 900.0);
    estimate(lab.run(&mut far(100.0, &[800.0, 700.0, 600.0])));
    assert_eq!(lab.log[0], "prepare 1: 147.66 Mbit/s + 147.66 Mbit/s");
    estimate(lab.run(&mut far(100.0, &[800.0])));
    assert!(lab.log.contains(&"prepare 1: 295.31 Mbit/s".to_string()), "{:?}", lab.log);
}

/// In a campaign, which assigns as few measurers as possible.
#[test]
fn a_queue_on_the_path_of_a_single_measurer_causes_a_turn_with_two() {
    // Also for a near relay, which otherwise needs one measurer.
    for rtt_ms in [1, 40] {
        check_next_turn_has_two(Duration::from_millis(rtt_ms));
    }
}

fn check_next_turn_has_two(rtt: Duration) {
    let params = quiet();
    let capacities = vec![mbit(800.0); 3];
    let mut campaign = crate::Campaign::new(params.excess_factor(), params.sockets, capacities);
    let relay = RelayIndex(3);
    campaign.add(relay, Priority::Known, mbit(200.0), 12);
    let mut turns = vec![];
    while let Some(launch) = campaign.poll_launch() {
        // The first of the team is behind the bottleneck, at any place in this turn.
        let place = launch.allocation.place(MeasurerId(0));
        let shares: Vec<Rate> =
            launch.allocation.assignments.iter().map(|assignment| assignment.rate).collect();
        let measurers = shares.len();
        let path = PathParams { first_sockets: 32, lead_s: 2, probes: true, few_circuits_s: 0 };
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
    // The third turn has the other two.
    let expected = [(1, false, vec![]), (2, false, vec![(0, QUEUE)]), (2, true, vec![])];
    assert_eq!(turns, expected, "{rtt:?}");
}

/// A bottleneck without a queue, or on the return path, shows only in the returned rate.
#[test]
fn a_bottleneck_without_other_symptoms_shows_in_comparison_with_a_fully_served_measurer() {
    let mut lab = behind(0, 15.0);
    lab.narrow = lab.narrow.map(|(who, rate, _)| (who, rate, Duration::ZERO));
    lab.capacity = Box::new(|_| mbit(1000.0).as_byte_per_s());
    // The other was assigned 190 Mbit/s, and got all of it back. With a load of 590, 205 would seem to be the limit.
    let estimate = estimate(lab.run(&mut far(200.0, &[400.0, 190.0])));
    let Some(Inconclusive::MeasurerLimited { bottleneck, next: None }) = estimate.inconclusive
    else {
        panic!("{estimate}");
    };
    assert_eq!(
        (bottleneck.measurer, bottleneck.by),
        (MeasurerId(0), Bottleneck::Share { percent: 7 })
    );
    assert!(estimate.to_string().contains("which got back its whole load"), "{estimate}");
}

#[test]
fn if_one_of_two_measurers_is_busy_the_other_decides_the_verdict() {
    for (team, is_conclusive) in [([800.0, 800.0], true), ([400.0, 190.0], false)] {
        let mut measurement = far(200.0, &team);
        // Its processor limits it to 20 Mbit/s; there is no queue.
        let mut lab = behind(0, 20.0);
        lab.narrow = lab.narrow.map(|(who, rate, _)| (who, rate, Duration::ZERO));
        lab.busy = Some(0);
        let estimate = estimate(lab.run(&mut measurement));
        assert_eq!(estimate.is_conclusive(), is_conclusive, "{estimate}");
        assert_eq!(bottlenecks(&measurement), [(0, Bottleneck::Processor)]);
    }
}

/// Observations of earlier periods are added again between the turns of a plan.
#[test]
fn a_measurer_with_a_busy_processor_is_assigned_less_in_later_turns_despite_earlier_observations() {
    let params = quiet();
    let capacities = vec![mbit(400.0); 3];
    let campaign = crate::Campaign::new(params.excess_factor(), params.sockets, capacities);
    let (mut campaign, relay) = (campaign.returning_follow_ups(), RelayIndex(3));
    let turn = Attempt::first(mbit(200.0), 12);
    campaign.add_turn(relay, Priority::Known, turn);
    let launch = campaign.poll_launch().expect("room");
    assert_eq!(launch.allocation.assignments.len(), 2);
    let shares: Vec<Rate> =
        launch.allocation.assignments.iter().map(|assignment| assignment.rate).collect();
    let path = PathParams { first_sockets: 32, lead_s: 2, probes: true, few_circuits_s: 0 };
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
    let assigned = launch
        .allocation
        .assignments
        .iter()
        .find(|assignment| assignment.measurer == MeasurerId(0));
    assert!(assigned.is_none_or(|assigned| assigned.rate <= mbit(26.0)), "{launch:?}");
}

#[test]
fn a_measurer_that_got_nothing_back_does_not_count_as_load() {
    // The first two are assigned 240 Mbit/s each, and the last 110. The first gets 20 back, the second nothing, and the
    // last 60: too much for a load of 110 to show the limit, though little for 350.
    let mut lab = behind(0, 20.0);
    lab.deaf = Some(1);
    lab.capacity = Box::new(|_| mbit(80.0).as_byte_per_s());
    lab.rtt = Some(Duration::from_millis(1));
    let params = Params { max_rounds: 1, ..quiet() };
    let mut measurement = measurement_with(params, Mode::Transit, 200.0, &[240.0, 240.0, 110.0]);
    let reason = estimate(lab.run(&mut measurement)).inconclusive;
    assert!(matches!(reason, Some(Inconclusive::MeasurerLimited { .. })), "{reason:?}");
}

#[test]
fn a_false_count_of_a_measurer_with_a_queue_makes_no_result_conclusive() {
    // It claims nine tenths of its load; the relay carries a sixth of that.
    let mut lab = behind(0, 20.0);
    lab.capacity = Box::new(|_| mbit(50.0).as_byte_per_s());
    lab.claims = Some((0, mbit(270.0).as_byte_per_s()));
    lab.rtt = Some(Duration::from_millis(1));
    let params = Params { max_rounds: 1, ..quiet() };
    let mut measurement = measurement_with(params, Mode::Transit, 200.0, &[300.0; 2]);
    let estimate = estimate(lab.run(&mut measurement));
    assert_eq!(bottlenecks(&measurement), [(0, QUEUE)]);
    assert!(!estimate.is_conclusive(), "{estimate}");
}

proptest::proptest! {
    /// A measurer that lies about its queue can spoil a verdict, but cannot make one conclusive.
    #[test]
    fn a_reported_queue_makes_no_result_conclusive(
        capacity in 20.0f64..600.0, guess in 50.0f64..300.0, got in 1.0f64..600.0,
        first in 50.0f64..900.0, second in 50.0f64..900.0,
    ) {
        let conclusive = |queue: u64| {
            let params = Params { max_rounds: 1, ..quiet() };
            let mut measurement = measurement_with(params, Mode::Transit, guess, &[first, second]);
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
