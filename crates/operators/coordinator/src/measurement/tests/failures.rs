//! Failures are reported with their reasons, never as low estimates.

use super::*;
use crate::Account;
use std::string::String;

/// The text and blame of a failure.
fn text_and_blame(outcome: &Outcome) -> (String, Option<Blame>) {
    assert_eq!(outcome.estimate(), None);
    (outcome.to_string(), outcome.blame())
}

/// The text and blame of the failure with which a measurement has ended.
fn ended(measurement: &mut Measurement) -> (String, Option<Blame>) {
    assert_eq!(measurement.poll_timeout(), None);
    let actions: Vec<Action> = core::iter::from_fn(|| measurement.poll_action()).collect();
    let [.., Action::Stop { .. }, Action::Done(outcome)] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    text_and_blame(outcome)
}

/// A measurement in round 1, with both measurers sending since the origin.
fn running() -> Measurement {
    let mut measurement = measurement(Mode::Transit, 100.0, &[200.0, 200.0, 10.0]);
    for measurer in 0..2 {
        measurement.handle_ready(Instant::ORIGIN, MeasurerId(measurer), 1, 80);
    }
    assert_eq!(measurement.poll_timeout(), Some(Instant::from_millis(6000)));
    measurement
}

fn report(second: u32) -> SecondReport {
    SecondReport { round: 1, second, bytes: 1000, checked_cells: 0, account: None }
}

#[test]
fn a_failed_content_check_ends_the_measurement_at_once() {
    let mut measurement = running();
    let failure = Failure::ContentCheck { detail: "cell 17 of circuit 3".to_string() };
    measurement.handle_failure(Instant::from_millis(4200), Some(MeasurerId(1)), failure);
    let text = "failed in round 1, second 4, measurer 1: the relay returned wrong content: cell 17 \
                of circuit 3";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Relay)));
}

/// The failure of a preparation by two measurers, and the measurer concerned. `reports` are their numbers, in order, and
/// whether each reached the relay.
fn prepared(reports: &[(usize, bool)]) -> Option<(Failure, Option<MeasurerId>)> {
    let mut measurement = measurement(Mode::Transit, 100.0, &[200.0, 200.0, 10.0]);
    for (measurer, reaches) in reports {
        let (at, now) = (MeasurerId(*measurer), Instant::from_millis(10));
        if *reaches {
            measurement.handle_ready(now, at, 1, 80);
        } else {
            let detail = alloc::format!("refused to {measurer}");
            let failure = Failure::RelayUnreachable { detail };
            measurement.handle_failure(now, Some(at), failure);
        }
    }
    if !measurement.is_done() {
        let deadline = measurement.poll_timeout().expect("always one");
        measurement.handle_timeout(deadline);
    }
    let actions: Vec<Action> = core::iter::from_fn(|| measurement.poll_action()).collect();
    match actions.into_iter().last() {
        Some(Action::Done(Outcome::Failed { reason, measurer, .. })) => Some((reason, measurer)),
        _ => None,
    }
}

#[test]
fn if_one_measurer_cannot_reach_a_relay_that_another_reaches_the_relay_is_not_to_blame() {
    let path = |detail: &str, at| {
        let failure = Failure::OutOfReach { detail: detail.to_string() };
        assert_eq!((failure.blame(), failure.is_about_relay()), (Blame::Measurer, false));
        Some((failure, Some(MeasurerId(at))))
    };
    let relay = |detail: &str, at| {
        let failure = Failure::RelayUnreachable { detail: detail.to_string() };
        assert_eq!((failure.blame(), failure.is_about_relay()), (Blame::Relay, true));
        Some((failure, Some(MeasurerId(at))))
    };
    assert_eq!(prepared(&[(0, true), (1, false)]), path("refused to 1", 1));
    assert_eq!(
        prepared(&[(1, false), (0, true)]),
        path("refused to 1", 1),
        "the measurement waits for the other"
    );
    assert_eq!(prepared(&[(0, false), (1, true)]), path("refused to 0", 0));
    assert_eq!(prepared(&[(0, false), (1, false)]), relay("refused to 1", 1), "neither reaches it");
    assert_eq!(
        prepared(&[(0, false), (0, false)]),
        relay("refused to 0", 0),
        "the other is silent"
    );
    assert_eq!(prepared(&[(1, false)]), relay("refused to 1", 1), "the other is silent");
}

/// An account 2.5 s after anything came back: cells are at the relay, all sent data is acknowledged, and new
/// connections are not answered.
fn taken() -> Account {
    Account {
        elapsed: Duration::from_secs(1),
        outstanding_bytes: 10_000,
        silent: Duration::from_millis(2500),
        ..Account::default()
    }
}

/// An account in which the relay's host has answered new connections since this time in the silence.
fn answered_after(after_ms: u64) -> Account {
    Account { answered_after: Some(Duration::from_millis(after_ms)), ..taken() }
}

/// An account in which the host answered the first connection.
fn answered() -> Account {
    answered_after(520)
}

/// The result of a round by two measurers, in transit, with these returned bytes in each second and these accounts,
/// after the report that nothing comes back to the first.
fn silenced(reports: [(&[u64], Option<Account>); 2]) -> (String, Option<Blame>) {
    let mut measurement = running();
    let mut now = Instant::ORIGIN;
    for (measurer, (seconds, account)) in reports.into_iter().enumerate() {
        now = Instant::from_millis(1000 * seconds.len() as u64);
        for (second, bytes) in (0..).zip(seconds) {
            let report = SecondReport { bytes: *bytes, account, ..report(second) };
            measurement.handle_second(now, MeasurerId(measurer), report);
        }
    }
    stalled(measurement, now)
}

/// The result after the first measurer reports that nothing comes back.
fn stalled(mut measurement: Measurement, now: Instant) -> (String, Option<Blame>) {
    let failure = Failure::LoadStopped { detail: "no cell for 5000 ms".to_string() };
    measurement.handle_failure(now, Some(MeasurerId(0)), failure);
    ended(&mut measurement)
}

#[test]
fn silence_is_blamed_on_the_relay_only_if_it_had_data_to_return_and_its_host_answers() {
    let silent = |account: Option<Account>, bytes: u64| {
        let seconds = [1000, bytes, bytes, bytes];
        silenced([(&seconds, account), (&[1000, 0, 0, 0], None)])
    };
    let by_relay =
        "failed in round 1, second 4, measurer 0: the relay stalled: no cell for 5000 ms";
    for account in [answered(), answered_after(1000)] {
        assert_eq!(silent(Some(account), 0), (by_relay.to_string(), Some(Blame::Relay)));
    }
    let others = [
        (None, 0),
        // All data is acknowledged, possibly before the path broke.
        (Some(taken()), 0),
        (Some(Account { unsent_bytes: 5000, ..taken() }), 0),
        // The path to the relay is broken.
        (Some(Account { unacked_bytes: 1000, ..taken() }), 0),
        // The relay has no data to return.
        (Some(Account { outstanding_bytes: 0, ..answered() }), 0),
        (Some(Account { unacked_bytes: 10_000, ..answered() }), 0),
        // It was unreachable before, and lost data may not have been retransmitted yet.
        (Some(answered_after(1010)), 0),
        (Some(answered_after(2400)), 0),
        // The measurer's machine was suspended.
        (Some(Account { elapsed: Duration::from_secs(3), ..answered() }), 0),
    ];
    let by_team = "failed in round 1, second 4: the load stopped: the path to the relay broke, or the measurers' \
                   machine was suspended, since no measurer shows that the relay was reachable and had data to send back: \
                   no cell for 5000 ms";
    for (account, bytes) in others {
        assert_eq!(silent(account, bytes), (by_team.to_string(), Some(Blame::Measurer)));
    }
}

#[test]
fn the_report_of_the_second_before_a_pump_gives_up_is_enough() {
    let silent = |bytes: [u64; 4], accounts: [Option<Account>; 4]| {
        let mut measurement = running();
        let now = Instant::from_millis(4010);
        for (second, (bytes, account)) in (0..).zip(bytes.into_iter().zip(accounts)) {
            let report = SecondReport { bytes, account, ..report(second) };
            measurement.handle_second(now, MeasurerId(0), report);
        }
        stalled(measurement, now).1
    };
    let (answered, relay, team) = (Some(answered()), Some(Blame::Relay), Some(Blame::Measurer));
    assert_eq!(silent([1000, 0, 0, 0], [answered, answered, answered, None]), relay);
    assert_eq!(silent([1000, 0, 0, 0], [answered, answered, Some(taken()), None]), team);
    assert_eq!(
        silent([1000, 0, 0, 9], [answered, answered, answered, None]),
        team,
        "some bytes came back"
    );
    assert_eq!(silent([1000, 0, 0, 0], [answered, answered, None, None]), team, "too long ago");
    // The first of several seconds that are reported at once has the whole interval.
    let late = Some(Account { elapsed: Duration::from_secs(3), ..answered.expect("some") });
    assert_eq!(silent([1000, 0, 0, 0], [answered, late, None, None]), team);
    assert_eq!(silent([1000, 0, 0, 0], [answered, None, late, None]), team);
}

#[test]
fn if_one_measurer_gets_nothing_and_no_answer_while_others_are_served_its_path_is_broken() {
    let served: &[u64] = &[1000, 1000, 1000, 1000];
    let silent: &[u64] = &[1000, 0, 0, 0];
    let by_path = "failed in round 1, second 4, measurer 0: another measurer reaches the relay, and this one does not: \
                   no cell for 5000 ms";
    let failure = silenced([(silent, Some(taken())), (served, Some(answered()))]);
    assert_eq!(failure, (by_path.to_string(), Some(Blame::Measurer)));
    // A reachable relay that serves only one of them is to blame.
    let failure = silenced([(silent, Some(answered())), (served, Some(answered()))]);
    assert_eq!(failure.1, Some(Blame::Relay), "{failure:?}");
    // Bytes that the other got back earlier show nothing.
    let failure = silenced([(silent, Some(taken())), (silent, Some(taken()))]);
    assert!(failure.0.contains("the load stopped"), "{failure:?}");
}

#[test]
fn a_relay_that_is_cut_off_is_not_blamed_for_a_missing_client_report() {
    // The relay reports second 0 only; the returned traffic ends with it, or continues.
    let silent = |[next, then]: [u64; 2], account: Option<Account>| {
        let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
        measurement.handle_ready(Instant::ORIGIN, MeasurerId(0), 1, 160);
        for second in 0..4 {
            let bytes = [1000, 1000, next, then][second as usize];
            let report = SecondReport { bytes, account, ..report(second) };
            let now = Instant::from_millis(1000 * (u64::from(second) + 1));
            measurement.handle_second(now, MeasurerId(0), report);
            if second == 0 {
                measurement.handle_client_second(now, 1, second, 0);
            }
        }
        let now = Instant::from_millis(7000);
        let client_report_overdue = measurement.client_report_overdue(now);
        measurement.handle_timeout(now);
        let (text, blame) = ended(&mut measurement);
        assert_eq!(client_report_overdue, blame == Some(Blame::Relay), "{text}");
        (text, blame)
    };
    let (text, blame) = silent([0, 0], Some(taken()));
    assert_eq!(blame, Some(Blame::Measurer), "{text}");
    assert!(text.contains("the relay's report on second 1 did not arrive"), "{text}");
    assert_eq!(silent([0, 0], None).1, Some(Blame::Measurer), "the cause is unknown");
    assert_eq!(
        silent([10, 0], Some(taken())).1,
        Some(Blame::Measurer),
        "bytes that were in flight"
    );
    let hides =
        "failed in round 1, second 7: the relay did not report its client traffic of second 1";
    assert_eq!(
        silent([1000, 1000], Some(taken())),
        (hides.to_string(), Some(Blame::Relay)),
        "it still serves measurers"
    );
    assert_eq!(silent([0, 0], Some(answered())).1, Some(Blame::Relay), "its kernel answers");
}

#[test]
fn a_coordinator_that_is_cut_off_does_not_blame_the_relay() {
    let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
    measurement.handle_ready(Instant::ORIGIN, MeasurerId(0), 1, 160);
    measurement.handle_second(Instant::from_millis(1000), MeasurerId(0), report(0));
    let failure = Failure::CutOff { detail: "no answer".to_string() };
    assert!(!failure.is_about_relay());
    measurement.handle_failure(Instant::from_millis(6000), None, failure);
    let text = "failed in round 1, second 6: the coordinator can no longer reach the relay, but the measurers can: \
                no answer";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Us)));
}

#[test]
fn a_measurer_that_is_not_ready_in_time_is_named() {
    let mut lab = relay(100.0);
    lab.never_ready = Some(1);
    let outcome = lab.run(&mut measurement(Mode::Echo, 100.0, &[200.0, 200.0]));
    let text = "failed in round 1, measurer 1: the measurer was not ready within 30s";
    assert_eq!(text_and_blame(&outcome), (text.to_string(), Some(Blame::Measurer)));
}

#[test]
fn a_second_that_is_not_reported_is_never_counted_as_zero() {
    let mut lab = relay(100.0);
    lab.unreported = Some((1, 5));
    let outcome = lab.run(&mut measurement(Mode::Echo, 100.0, &[200.0, 200.0]));
    let text = "failed in round 1, second 11, measurer 1: the measurer did not report second 5";
    assert_eq!(text_and_blame(&outcome), (text.to_string(), Some(Blame::Measurer)));
}

#[test]
fn a_relay_that_hides_its_client_traffic_is_not_estimated() {
    let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
    measurement.handle_ready(Instant::ORIGIN, MeasurerId(0), 1, 160);
    measurement.handle_second(Instant::from_millis(1000), MeasurerId(0), report(0));
    let early = Instant::from_millis(5999);
    measurement.handle_timeout(early);
    assert!(!measurement.is_done() && !measurement.client_report_overdue(early), "not yet");
    assert!(measurement.client_report_overdue(Instant::from_millis(6000)));
    measurement.handle_timeout(Instant::from_millis(6000));
    let text = "failed in round 1, second 6: the relay did not report its client traffic of \
                second 0";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Relay)));
}

#[test]
fn under_half_of_the_sockets_is_a_failure_and_half_is_not() {
    let mut lab = relay(100.0);
    lab.open_percent = 49;
    let outcome = lab.run(&mut measurement(Mode::Echo, 100.0, &[200.0, 200.0]));
    let text = "failed in round 1, measurer 1: only 78 of 160 sockets are open, under half";
    assert_eq!(text_and_blame(&outcome).0, text);
    lab.open_percent = 50;
    estimate(lab.run(&mut measurement(Mode::Echo, 100.0, &[200.0, 200.0])));
}

#[test]
fn sockets_that_are_lost_later_count_over_all_measurers() {
    let mut measurement = running();
    let now = Instant::from_millis(500);
    measurement.handle_sockets(now, MeasurerId(0), 1, 0);
    assert!(!measurement.is_done(), "80 of 160");
    measurement.handle_sockets(now, MeasurerId(1), 1, 79);
    let text = "failed in round 1, second 0, measurer 1: only 79 of 160 sockets are open, under \
                half";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Relay)));
}

#[test]
fn a_relay_that_relays_nothing_has_no_estimate() {
    let outcome = relay(0.0).run(&mut measurement(Mode::Echo, 100.0, &[1000.0]));
    let text = "failed in round 1, second 29: the relay relayed nothing in 30 of 30 seconds";
    assert_eq!(text_and_blame(&outcome), (text.to_string(), Some(Blame::Relay)));
    // 14 busy seconds of 30 have a median of zero too.
    let mut lab = Lab::new(|second| if second < 14 { 1_000_000 } else { 0 });
    let outcome = lab.run(&mut measurement(Mode::Echo, 100.0, &[1000.0]));
    assert!(text_and_blame(&outcome).0.ends_with("nothing in 16 of 30 seconds"));
}

#[test]
fn a_relay_that_relays_nothing_is_to_blame_only_if_it_was_reachable_half_of_that_time() {
    let nothing = |in_reach: u32| {
        let mut measurement = running();
        let now = Instant::from_millis(30_010);
        for second in 0..30 {
            let account = (second < in_reach).then(lab::in_reach);
            for measurer in [0, 1] {
                let bytes = if second < 10 { 1000 } else { 0 };
                let account = account.filter(|_| measurer == 1);
                let report = SecondReport { bytes, account, ..report(second) };
                measurement.handle_second(now, MeasurerId(measurer), report);
            }
        }
        ended(&mut measurement)
    };
    let relay = "failed in round 1, second 29: the relay relayed nothing in 20 of 30 seconds";
    assert_eq!(nothing(20), (relay.to_string(), Some(Blame::Relay)));
    let (text, blame) = nothing(19);
    assert_eq!(blame, Some(Blame::Measurer), "{text}");
    assert!(text.contains("the load stopped") && text.ends_with("nothing in 20 of 30 seconds"));
    assert_eq!(nothing(0).1, Some(Blame::Measurer));
}

#[test]
fn a_relays_report_that_nothing_arrives_is_compared_with_the_returned_bytes() {
    let failure = |seconds: &[u64], account: Option<Account>| {
        let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
        let mut now = Instant::ORIGIN;
        if !seconds.is_empty() {
            measurement.handle_ready(now, MeasurerId(0), 1, 160);
        }
        for (second, bytes) in (0..).zip(seconds) {
            now = Instant::from_millis(1000 * (u64::from(second) + 1));
            let report = SecondReport { bytes: *bytes, account, ..report(second) };
            measurement.handle_second(now, MeasurerId(0), report);
            measurement.handle_client_second(now, 1, second, 0);
        }
        let failure = Failure::NothingReceived { detail: "error 20".to_string() };
        measurement.handle_failure(now + Duration::from_millis(100), None, failure);
        ended(&mut measurement)
    };
    let (text, blame) = failure(&[1000; 5], None);
    assert_eq!(blame, Some(Blame::Relay), "{text}");
    assert!(text.ends_with("the relay broke the rules: error 20; but cells still come back"));
    let (text, blame) = failure(&[1000, 1000, 0, 0, 0], None);
    assert_eq!(blame, Some(Blame::Measurer), "the path may have broken: {text}");
    let (text, blame) = failure(&[1000, 1000, 0, 0, 0], Some(answered()));
    assert_eq!(blame, Some(Blame::Relay), "its host was reachable: {text}");
    let (text, blame) = failure(&[], None);
    assert_eq!(blame, Some(Blame::Relay), "{text}");
    assert!(text.ends_with("error 20; and nothing has been sent to it yet"), "{text}");
}

#[test]
fn one_stalled_pump_of_several_is_enough() {
    let mut measurement = running();
    let now = Instant::from_millis(6100);
    for second in 0..6 {
        for measurer in [0, 1] {
            measurement.handle_second(now, MeasurerId(measurer), report(second));
        }
    }
    // That pump's own account shows it, though its measurer's other pumps are served.
    let failure = Failure::RelayStalled { detail: "no cell for 5000 ms".to_string() };
    measurement.handle_failure(now, Some(MeasurerId(0)), failure);
    assert_eq!(ended(&mut measurement).1, Some(Blame::Relay));

    // A measurer's own earlier bytes are not evidence of another measurer.
    let mut measurement = self::measurement(Mode::Transit, 100.0, &[1000.0]);
    measurement.handle_ready(Instant::ORIGIN, MeasurerId(0), 1, 160);
    for second in 0..6 {
        measurement.handle_second(now, MeasurerId(0), report(second));
    }
    let (text, blame) = stalled(measurement, now);
    assert_eq!(blame, Some(Blame::Measurer));
    assert!(text.contains("the load stopped"), "{text}");
}

#[test]
fn the_timeout_for_a_client_report_is_extended_once() {
    let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
    measurement.handle_ready(Instant::ORIGIN, MeasurerId(0), 1, 160);
    for second in 0..3 {
        let now = Instant::from_millis(1000 * (u64::from(second) + 1));
        measurement.handle_second(now, MeasurerId(0), report(second));
    }
    let due = measurement.poll_timeout().expect("the report on second 0");
    assert_eq!(due, Instant::from_millis(6000));
    assert!(measurement.client_report_overdue(due) && measurement.extend_report_deadline());
    assert!(!measurement.client_report_overdue(due));
    assert_eq!(measurement.poll_timeout(), Some(Instant::from_millis(11_000)));
    for second in 0..3 {
        measurement.handle_client_second(Instant::from_millis(6200), 1, second, 0);
    }
    // The timeout for measurers is unchanged.
    assert_eq!(measurement.poll_timeout(), Some(Instant::from_millis(9000)));
    assert!(!measurement.extend_report_deadline(), "only once");
}

/// The share of a measurer that gets nothing back is no load. If it counted, a relay of 1000 Mbit/s that got only
/// 100 Mbit/s would look conclusively slow.
#[test]
fn a_measurer_that_gets_nothing_back_does_not_make_the_relay_look_slow() {
    let mut lab = relay(1000.0);
    lab.deaf = Some(0);
    let outcome = lab.run(&mut measurement(Mode::Echo, 1000.0, &[900.0, 100.0]));
    let text = "failed in round 1, second 29, measurer 0: the measurer got nothing back, and the \
                others are too few without it";
    assert_eq!(text_and_blame(&outcome), (text.to_string(), Some(Blame::Measurer)));
    lab.deaf = Some(1);
    let outcome = lab.run(&mut measurement(Mode::Echo, 10.0, &[900.0, 100.0]));
    assert!(outcome.estimate().is_some_and(|estimate| !estimate.is_conclusive()));
}

#[test]
fn a_measurer_that_gets_nothing_back_and_is_not_needed_has_no_effect() {
    let mut lab = relay(10.0);
    lab.deaf = Some(1);
    let estimate = estimate(lab.run(&mut measurement(Mode::Echo, 1000.0, &[900.0, 100.0])));
    assert!(estimate.is_conclusive());
    assert_eq!(estimate.capacity, mbit(10.0));
}

#[test]
fn a_cancelled_measurement_stops_the_measurers() {
    let mut measurement = running();
    measurement.cancel(Instant::from_millis(100));
    measurement.cancel(Instant::from_millis(100));
    let text = "failed in round 1, second 0: the measurement was cancelled";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Us)));
    assert_eq!(measurement.poll_action(), None, "done once");
}

#[test]
fn refused_consent_is_blamed_on_the_configuration() {
    let mut measurement = measurement(Mode::Transit, 100.0, &[1000.0]);
    let failure = Failure::ConsentRefused { detail: "add it to the opt-in list".to_string() };
    measurement.handle_failure(Instant::ORIGIN, None, failure);
    let text = "failed in round 1: measuring this relay is not permitted: add it to the opt-in \
                list";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Configuration)));
}

#[test]
fn not_now_is_blamed_on_the_configuration() {
    let mut measurement = measurement(Mode::Echo, 100.0, &[1000.0]);
    let failure = Failure::RelayNotNow { detail: "2 in 24 hours".to_string() };
    measurement.handle_failure(Instant::ORIGIN, None, failure);
    let text = "failed in round 1: the relay is not to be measured now: 2 in 24 hours";
    assert_eq!(ended(&mut measurement), (text.to_string(), Some(Blame::Configuration)));
}

#[test]
fn a_measurer_lost_while_idle_is_only_excluded_from_later_rounds() {
    let lost = || Failure::MeasurerLost { detail: "connection reset".to_string() };
    let mut small = measurement(Mode::Echo, 10.0, &[100.0, 60.0, 50.0]);
    small.handle_failure(Instant::ORIGIN, Some(MeasurerId(1)), lost());
    let estimate = estimate(relay(1000.0).run(&mut small));
    assert_eq!(estimate.allocated, mbit(150.0), "without measurer 1");
    assert!(estimate.rounds > 1 && !estimate.is_conclusive());
    let mut other = running();
    let failure = Failure::RelayClosed { detail: "x".to_string() };
    other.handle_failure(Instant::ORIGIN, Some(MeasurerId(2)), failure);
    assert!(other.is_done(), "only the measurer's own failure is ignored");
    let mut measurement = running();
    measurement.handle_failure(Instant::ORIGIN, Some(MeasurerId(1)), lost());
    assert!(ended(&mut measurement).0.ends_with("the measurer was lost: connection reset"));
}

#[test]
fn an_invalid_report_is_attributed_to_its_sender() {
    type Report = fn(&mut Measurement);
    let now = Instant::from_millis(1000);
    let cases: [(Report, &str); 8] = [
        (|m| m.handle_second(NOW, MeasurerId(0), report(0)), "reported second 0 twice"),
        (|m| m.handle_second(NOW, MeasurerId(0), report(2)), "reported second 2 before it began"),
        (
            |m| m.handle_second(NOW + Duration::from_secs(60), MeasurerId(0), report(30)),
            "reported second 30 of a round of 30 seconds",
        ),
        (
            |m| m.handle_second(NOW, MeasurerId(2), report(0)),
            "reported on a round in which it has no part",
        ),
        (|m| m.handle_ready(NOW, MeasurerId(0), 1, 80), "reported twice that it is ready"),
        (|m| m.handle_ready(NOW, MeasurerId(0), 2, 80), "reported on round 2 during round 1"),
        (
            |m| m.handle_sockets(NOW, MeasurerId(0), 1, 81),
            "opened 81 sockets where 80 were assigned",
        ),
        (|m| m.handle_second(NOW, MeasurerId(3), report(0)), "a measurer that is not in the team"),
    ];
    const NOW: Instant = Instant::from_millis(1000);
    for (send_report, text) in cases {
        let mut measurement = running();
        measurement.handle_second(now, MeasurerId(0), report(0));
        send_report(&mut measurement);
        let (failure, blame) = ended(&mut measurement);
        assert!(failure.contains("measurer ") && failure.ends_with(text), "{failure}");
        assert!(matches!(blame, Some(Blame::Measurer | Blame::Us)));
    }
}

/// Measurers of 25,000,000 bytes per second each, with 80 sockets.
#[test]
fn a_measurer_that_got_back_more_than_it_was_assigned_is_named() {
    let report_second = |measurement: &mut Measurement, second: u32, bytes: u64| {
        let now = Instant::from_millis(1000 * u64::from(second + 1));
        let report = SecondReport { round: 1, second, bytes, checked_cells: 0, account: None };
        measurement.handle_second(now, MeasurerId(1), report);
    };
    let mut wild = running();
    report_second(&mut wild, 0, u64::MAX);
    let (text, blame) = ended(&mut wild);
    assert!(
        text.contains("measurer 1: the measurer got 18446744073709551615 bytes back"),
        "{text}"
    );
    assert_eq!(blame, Some(Blame::Measurer));

    let assigned = running().allocation().assignments[1];
    let rate = assigned.rate.as_byte_per_s();
    let mut careful = running();
    let mut second = 0;
    // A tenth more than assigned, each second.
    while !careful.is_done() && second < 29 {
        report_second(&mut careful, second, rate + rate / 10);
        second += 1;
    }
    assert!(ended(&mut careful).0.contains("that it may have sent"));
    assert!(second < 10, "detected after {second} seconds");

    // Bytes that a relay delayed return all at once: no one is to blame.
    let mut held = running();
    (0..9).for_each(|second| report_second(&mut held, second, 0));
    report_second(&mut held, 9, 10 * rate);
    assert!(!held.is_done());
    report_second(&mut held, 10, 2 * rate);
    assert!(held.is_done());
}

#[test]
fn a_report_before_the_start_is_premature() {
    let mut measurement = measurement(Mode::Transit, 100.0, &[1000.0]);
    measurement.handle_second(Instant::ORIGIN, MeasurerId(0), report(0));
    assert!(ended(&mut measurement).0.ends_with("reported second 0 before it began"));
}

#[test]
fn client_traffic_in_transit_mode_is_a_bug_of_the_shell() {
    let mut measurement = running();
    measurement.handle_client_second(Instant::from_millis(1000), 1, 0, 5);
    assert_eq!(ended(&mut measurement).1, Some(Blame::Us));
}
