//! Clients that compete for a relay in transit, and results far below earlier ones.

use super::lab::quiet;
use super::*;
use crate::campaign::Next;
use crate::params::PathParams;

/// A round of 10 seconds with three before it in which few circuits send.
fn params(may_have_clients: bool) -> Params {
    let path = PathParams { lead_s: 3, few_circuits_s: 3, ..PathParams::default() };
    Params { seconds: 10, may_have_clients, path, ..quiet() }
}

/// The last action after a round in which this much came back in each second, in Mbit/s.
fn run_round(mut measurement: Measurement, mbit_at: impl Fn(u32) -> f64) -> Option<Action> {
    let (mut now, who, round) = (Instant::ORIGIN, MeasurerId(0), measurement.round());
    let sockets = measurement.allocation().sockets();
    measurement.handle_ready(now, who, round, sockets);
    for second in 0..measurement.params().round_s() {
        now += Duration::from_secs(1);
        let bytes = mbit(mbit_at(second)).as_byte_per_s();
        let report = SecondReport { round, second, bytes, checked_cells: 1, account: None };
        measurement.handle_second(now, who, report);
        if measurement.mode() == Mode::Echo {
            measurement.handle_client_second(now, round, second, 0);
        }
    }
    core::iter::from_fn(|| measurement.poll_action()).last()
}

/// The outcome if this much came back in each second, in Mbit/s.
fn run(measurement: Measurement, mbit_at: impl Fn(u32) -> f64) -> Outcome {
    let action = run_round(measurement, mbit_at);
    let Some(Action::Done(outcome)) = action else { panic!("{action:?}") };
    outcome
}

fn reason(params: Params, mode: Mode, mbit_at: impl Fn(u32) -> f64) -> Option<Inconclusive> {
    let measurement = measurement_with(params, mode, 20.0, &[1000.0]);
    estimate(run(measurement, mbit_at)).inconclusive
}

#[test]
fn in_transit_a_result_is_conclusive_only_without_clients_and_no_round_follows() {
    let unknown = reason(params(true), Mode::Transit, |_| 20.0);
    assert_eq!(unknown, Some(Inconclusive::ClientsUnknown));
    assert_eq!(Inconclusive::ClientsUnknown.next_turn(), None);
    assert_eq!(reason(params(false), Mode::Transit, |_| 20.0), None);
    assert_eq!(reason(params(true), Mode::Echo, |_| 20.0), None, "the relay reports its clients");
}

/// A relay of 20 Mbit/s with *N* circuits of clients that always have cells: *k* others get *k*/(*k*+*N*) of it.
#[test]
fn what_all_circuits_add_shows_competition() {
    let (few, all) = (8.0, 128.0);
    let share = |circuits: f64, others: f64| 20.0 * circuits / (circuits + others);
    for others in [10.0, 30.0, 100.0, 400.0, 1000.0, 10_000.0] {
        let mbit_at = |second| share(if second < 3 { few } else { all }, others);
        let doubt = reason(params(false), Mode::Transit, mbit_at);
        assert!(matches!(doubt, Some(Inconclusive::Contended { .. })), "{others}: {doubt:?}");
    }
    // Of what a single circuit leaves, the measurement gets 99 %.
    let mbit_at = |second| share(if second < 3 { few } else { all }, 1.0);
    assert_eq!(reason(params(false), Mode::Transit, mbit_at), None);
}

#[test]
fn a_client_that_begins_with_the_seconds_that_count_shows_too() {
    let doubt_at = |all| {
        reason(params(false), Mode::Transit, move |second| if second < 3 { 20.0 } else { all })
    };
    assert_eq!(doubt_at(18.2), None);
    assert!(doubt_at(17.7).is_some(), "less than nine tenths of what it showed");
    let doubt = doubt_at(4.8).expect("it fell");
    assert_eq!(
        doubt.to_string(),
        "20.00 Mbit/s came back over few circuits and 4.80 Mbit/s over all of them: clients competed for the relay, or it \
         was unsteady"
    );
}

#[test]
fn the_burst_of_a_rate_limited_relay_is_no_competition() {
    let mbit_at = |second| if second == 0 { 60.0 } else { 18.0 + f64::from(second % 3) };
    assert_eq!(reason(params(false), Mode::Transit, mbit_at), None);
}

/// Rounds with halves have no seconds with few circuits: half of the sockets have half of the circuits.
#[test]
fn halves_show_competition_as_growth() {
    let path = PathParams { probes: true, lead_s: 2, few_circuits_s: 2, first_sockets: 8 };
    let params = Params { path, ..params(false) };
    let mut measurement = measurement_with(params, Mode::Transit, 20.0, &[500.0]);
    let Some(Action::Prepare { few_circuits_s, held_back_s, .. }) = measurement.poll_action()
    else {
        panic!("nothing to prepare");
    };
    assert_eq!((few_circuits_s, held_back_s), (0, Some(7)));
    // Growth is tried again with more sockets.
    let next = run_round(measurement, |second| if second < 7 { 12.0 } else { 20.0 });
    assert!(matches!(next, Some(Action::Prepare { round: 2, .. })), "{next:?}");
    assert_eq!(reason(params, Mode::Transit, |_| 20.0), None);
}

fn confirmed(recent: f64, results: &[f64]) -> (Vec<Option<Attempt>>, Rate) {
    let mut turn = Attempt::first(mbit(20.0), 12).with_recent(mbit(recent));
    let (mut follow, mut capacity) = (Vec::new(), Rate::ZERO);
    for result in results {
        let measurement = Measurement::of_turn(
            Instant::ORIGIN,
            params(true),
            Mode::Transit,
            turn,
            true,
            std::vec![mbit(100.0)],
        );
        let outcome = run(measurement.expect("valid"), |_| *result);
        capacity = outcome.estimate().expect("an estimate").capacity;
        let next = match Next::after(&outcome) {
            Next::Enlarged(next) => Some(next),
            _ => None,
        };
        follow.push(next);
        turn = next.unwrap_or(turn);
    }
    (follow, capacity)
}

#[test]
fn a_fall_by_more_than_a_third_is_confirmed_and_the_largest_result_is_used() {
    let (follow, capacity) = confirmed(20.0, &[5.0, 19.0]);
    assert!(follow[0].is_some() && follow[1].is_none(), "{follow:?}");
    assert_eq!(capacity, mbit(19.0));
    // A relay that has fallen is believed after three measurements, which count as one.
    let (follow, capacity) = confirmed(20.0, &[6.0, 5.0, 4.0]);
    assert_eq!(follow.iter().filter(|turn| turn.is_some()).count(), 2, "{follow:?}");
    assert_eq!(capacity, mbit(6.0), "the largest");
    assert_eq!(follow[1].expect("another").guess, mbit(20.0), "no larger load follows");
}

#[test]
fn a_smaller_fall_and_a_relay_without_recent_results_are_not_confirmed() {
    assert_eq!(confirmed(20.0, &[14.0]).0, [None]);
    assert_eq!(confirmed(0.0, &[1.0]).0, [None]);
}
