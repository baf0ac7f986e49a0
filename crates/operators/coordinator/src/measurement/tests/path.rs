//! Distant relays: whether the relay or the path to it limits a round.

use super::lab::quiet;
use super::*;
use crate::PathParams;

/// A measurement over a path that needs this number of sockets at first.
fn far(guess: f64, first_sockets: u32, max_rounds: u32) -> Measurement {
    let path = PathParams { first_sockets, lead_s: 2, probes: true, few_circuits_s: 0 };
    let params = Params { max_rounds, path, ..quiet() };
    measurement_with(params, Mode::Transit, guess, &[5000.0])
}

/// A relay of this capacity, over a path with this rate per socket.
fn over(capacity: f64, per_socket: f64) -> Lab {
    Lab { per_socket: Some(mbit(per_socket).as_byte_per_s()), ..relay(capacity) }
}

fn sockets(lab: &Lab) -> usize {
    lab.log.iter().filter(|line| line.starts_with("start")).count()
}

#[test]
fn a_path_with_spare_capacity_costs_no_round_and_no_accuracy() {
    let mut lab = over(90.0, 12.0);
    let estimate = estimate(lab.run(&mut far(90.0, 16, 12)));
    assert!(estimate.is_conclusive(), "{estimate}");
    assert_eq!((estimate.capacity, estimate.rounds, estimate.seconds.len()), (mbit(90.0), 1, 30));
    assert!(
        lab.log.contains(&"stop 1 at 32.000000 s".to_string()),
        "30 seconds after a lead of two"
    );
}

#[test]
fn a_limiting_path_gets_more_sockets_until_the_relay_is_the_limit() {
    // 8 sockets carry 36 Mbit/s, as over 100 ms with 0.1 % loss.
    let mut lab = over(90.0, 4.5);
    let estimate = estimate(lab.run(&mut far(90.0, 8, 12)));
    assert!(estimate.is_conclusive(), "{estimate}");
    assert_eq!(estimate.capacity, mbit(90.0));
    // 8 sockets carry twice as much as 4. Then 32, of which 16 carry 72. Then 64.
    assert_eq!(estimate.rounds, 3);
    assert_eq!(sockets(&lab), 3);
}

#[test]
fn the_best_result_counts_even_if_more_sockets_slow_the_relay_down() {
    // Half of 16 sockets carry 84.8 of 90 Mbit/s, so the next round has 32, which slow the relay down to 74.
    let mut lab = over(90.0, 10.6);
    lab.slowed_per_socket = mbit(1.0).as_byte_per_s();
    let estimate = estimate(lab.run(&mut far(90.0, 16, 2)));
    assert_eq!(estimate.rounds, 2, "{estimate}");
    assert!(estimate.capacity >= mbit(84.8), "{estimate}");
    let last = estimate.seconds.iter().map(|second| second.total()).min();
    assert_eq!(last, Some(mbit(74.0).as_byte_per_s()), "the seconds are those of the last round");
}

#[test]
fn a_round_with_more_sockets_gives_most_of_them_to_the_more_distant_measurer() {
    let path = PathParams { first_sockets: 16, lead_s: 2, probes: true, few_circuits_s: 0 };
    let params = Params { path, ..quiet() };
    let mut measurement = measurement_with(params, Mode::Transit, 90.0, &[5000.0; 2]);
    let mut lab = over(90.0, 4.5);
    lab.rtt = Some(Duration::from_millis(20));
    lab.farther = Some((1, Duration::from_millis(180)));
    let estimate = estimate(lab.run(&mut measurement));
    assert!(estimate.is_conclusive(), "{estimate}");
    let rounds = measurement.course().rounds;
    let sockets = |round: usize| -> Vec<u32> {
        rounds[round].allocation.assignments.iter().map(|assignment| assignment.sockets).collect()
    };
    assert_eq!(sockets(0), [8, 8], "distances are not known yet");
    assert_eq!(sockets(1), [8, 56], "of 64, two each, and the rest in a ratio of one to nine");
}

#[test]
fn a_path_that_limits_all_sockets_gives_a_lower_bound_with_this_reason() {
    let mut lab = over(250.0, 0.3);
    let estimate = estimate(lab.run(&mut far(90.0, 8, 12)));
    let Some(Inconclusive::PathLimited { growth_percent, sockets, next }) = estimate.inconclusive
    else {
        panic!("{estimate}");
    };
    assert_eq!((growth_percent, sockets, next), (100, 160, None));
    assert!(estimate.capacity <= mbit(48.0));
    assert!(estimate.to_string().contains("with all 160 sockets 100 % more came back"));
}

#[test]
fn flows_that_slow_down_after_slow_start_are_not_taken_for_a_relays_limit() {
    let settling = |capacity, per_socket| Lab { is_settling: true, ..over(capacity, per_socket) };
    let estimate = |lab: &mut Lab| estimate(lab.run(&mut far(90.0, 8, 12)));
    let found = estimate(&mut settling(90.0, 2.0));
    assert!(found.is_conclusive(), "{found}");
    assert!((mbit(87.0)..=mbit(90.0)).contains(&found.capacity), "{found}");
    let lost = estimate(&mut settling(90.0, 0.2));
    let reason = lost.inconclusive.expect("a lower bound");
    assert!(matches!(reason, Inconclusive::PathSettling { next: None, .. }), "{reason}");
    assert!(reason.to_string().contains("had not settled"), "{reason}");
}

#[test]
fn a_relay_without_another_round_keeps_a_lower_bound() {
    let estimate = estimate(over(90.0, 4.5).run(&mut far(90.0, 8, 1)));
    let reason = estimate.inconclusive.expect("a lower bound");
    assert!(matches!(reason, Inconclusive::PathLimited { next: None, .. }), "{reason}");
}

#[test]
fn a_turn_limited_by_the_path_is_followed_by_one_with_more_sockets_even_for_the_whole_team() {
    let path = PathParams { first_sockets: 8, lead_s: 0, probes: true, few_circuits_s: 0 };
    let params = Params { path, ..quiet() };
    let turn = Attempt::first(mbit(90.0), 12);
    let mut campaign = crate::Campaign::new(params.excess_factor(), 160, vec![mbit(200.0)]);
    let relay = crate::RelayIndex(3);
    campaign.add(relay, crate::Priority::Known, turn.guess, 12);
    let launch = campaign.poll_launch().expect("there is room");
    assert!(launch.is_whole_team);
    let mut measurement = Measurement::of_turn(
        Instant::ORIGIN,
        params,
        Mode::Transit,
        launch.turn,
        true,
        vec![mbit(200.0)],
    )
    .unwrap();
    let outcome = over(60.0, 4.5).run(&mut measurement);
    let next =
        estimate(outcome.clone()).inconclusive.and_then(|inconclusive| inconclusive.next_turn());
    assert_eq!(next.map(|turn| (turn.round, turn.widening)), Some((2, 4)));
    assert!(!campaign.handle_outcome(relay, &outcome).is_over);
    assert_eq!(campaign.poll_launch().map(|launch| launch.turn), next);
}

#[test]
fn if_a_measurer_turns_out_to_be_distant_another_round_tests_the_path() {
    // The coordinator is near, and its parameters are for that distance.
    let path = PathParams { first_sockets: 8, lead_s: 0, probes: false, few_circuits_s: 0 };
    let params = Params { path, max_rounds: 12, ..quiet() };
    for (rtt_ms, per_socket, rounds) in [(1, 4.5, 1), (100, 40.0, 2), (100, 4.5, 3)] {
        let mut measurement = measurement_with(params, Mode::Transit, 90.0, &[5000.0]);
        let mut lab = over(90.0, per_socket);
        lab.rtt = Some(Duration::from_millis(rtt_ms));
        let estimate = estimate(lab.run(&mut measurement));
        assert_eq!((estimate.is_conclusive(), estimate.rounds), (true, rounds), "{estimate}");
        if rtt_ms > 1 {
            assert_eq!(estimate.capacity, mbit(90.0));
        }
    }
    let mut lab = over(90.0, 4.5);
    lab.rtt = Some(Duration::from_millis(100));
    let params = Params { max_rounds: 1, ..params };
    let mut measurement = measurement_with(params, Mode::Transit, 90.0, &[5000.0]);
    let reason = estimate(lab.run(&mut measurement)).inconclusive;
    assert_eq!(reason, Some(Inconclusive::PathUnknown { rtt_ms: 100, next: None }));
}

#[test]
fn a_round_that_is_too_short_for_halves_is_not_repeated() {
    let path = PathParams { first_sockets: 8, lead_s: 4, probes: true, few_circuits_s: 0 };
    let params = Params { seconds: 3, path, ..quiet() };
    let mut measurement = measurement_with(params, Mode::Transit, 90.0, &[5000.0]);
    let mut lab = over(90.0, 40.0);
    lab.rtt = Some(Duration::from_millis(300));
    let estimate = estimate(lab.run(&mut measurement));
    let reason = Some(Inconclusive::PathUnknown { rtt_ms: 300, next: None });
    assert_eq!((estimate.inconclusive, estimate.rounds), (reason, 1));
}

#[test]
fn measurers_get_two_sockets_each_so_that_there_are_halves() {
    let path = PathParams { first_sockets: 7, lead_s: 2, probes: true, few_circuits_s: 0 };
    for (sockets, is_conclusive) in [(160, true), (7, false)] {
        let params = Params { path, sockets, ..quiet() };
        let mut measurement = measurement_with(params, Mode::Transit, 90.0, &[40.0; 7]);
        // Seven sockets carry 31 Mbit/s.
        let mut lab = over(90.0, 4.5);
        lab.rtt = Some(Duration::from_millis(100));
        let estimate = estimate(lab.run(&mut measurement));
        assert_eq!(estimate.is_conclusive(), is_conclusive, "{estimate}");
        if is_conclusive {
            assert!(estimate.capacity > mbit(89.9), "seven shares are rounded down: {estimate}");
        } else {
            let reason = Some(Inconclusive::PathUnknown { rtt_ms: 100, next: None });
            assert_eq!(estimate.inconclusive, reason, "at most seven sockets");
        }
    }
}

#[test]
fn a_relay_that_serves_half_of_the_seconds_gets_its_mean_as_a_lower_bound() {
    let bytes = mbit(100.0).as_byte_per_s();
    let mut lab = Lab::new(move |second| if second < 16 { bytes } else { 0 });
    let estimate = estimate(lab.run(&mut measurement(Mode::Echo, 100.0, &[1000.0])));
    assert!(matches!(estimate.inconclusive, Some(Inconclusive::Unsteady { .. })), "{estimate}");
    assert_eq!(estimate.capacity.as_byte_per_s(), (bytes * 16).div_ceil(30));
}

proptest::proptest! {
    /// A host that is limited on average gets at most 4/3 of its mean, however it distributes its traffic over the
    /// seconds and whatever it reports about its clients.
    #[test]
    fn no_distribution_over_seconds_gains_more_than_the_papers_bound(
        shares in proptest::collection::vec(0u64..1000, 30),
    ) {
        let served = shares.clone();
        let mut lab = Lab::new(move |second| served[second as usize] * 10_000);
        lab.client_report = Some(u64::MAX);
        let outcome = lab.run(&mut measurement(Mode::Echo, 300.0, &[5000.0]));
        if let Some(estimate) = outcome.estimate() {
            let mean = shares.iter().sum::<u64>() * 10_000 / 30;
            let most = mean * 4 / 3 + 4;
            proptest::prop_assert!(estimate.capacity.as_byte_per_s() <= most, "{estimate}");
        }
    }
}
