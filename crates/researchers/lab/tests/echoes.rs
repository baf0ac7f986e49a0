//! A relay that takes part in its measurement is measured, or detected as lying.
//!
//! Everything in virtual time, with the coordinator's link, load generators and the router of `onion`.

use crate::common::echoes::{self, Scenario};
use crate::common::measurer_result::MeasurerResult;
use onion::cell::BODY_LEN;
use onion::crypto::Keystream;
use onion::measure::Mismatch;
use onion::measure::load::{LoadFailure, ReturnPath};
use onion::measure::order::{OrderEvent, OrderFailure, OrderViolation};
use onion::measure::protocol::{ClientSecond, ErrorCode};
use onion::router::{Behavior, Honest};
use onion::{Duration, Rate};
use proptest::prelude::*;
use rand_chacha::rand_core::Rng;

#[test]
fn an_honest_relay_is_measured_and_reports_every_second() {
    let report = Scenario::default().run(Honest);
    for found in &report.measurers {
        assert_eq!((found.ready, &found.result), (Some((2, 4)), &Some(Ok(()))));
        assert_eq!(found.seconds.len(), 2);
        for second in &found.seconds {
            assert!(second.bytes > 0 && second.checked_cells > 0, "{second:?}");
            assert_eq!(second.bytes % 514, 0);
        }
    }
    let [accepted, seconds @ .., finished] = &report.order[..] else { panic!("no events") };
    assert_eq!((accepted, finished), (&OrderEvent::Accepted, &OrderEvent::Finished));
    let mut sent_back = [0; 2];
    for (event, second) in seconds.iter().zip(0..) {
        let OrderEvent::ClientSecond(reported, to_each) = event else { panic!("{event:?}") };
        assert_eq!(*reported, ClientSecond { second, ..ClientSecond::default() });
        assert_eq!(to_each.len(), 2, "one for each measurer of the order");
        sent_back.iter_mut().zip(to_each).for_each(|(sum, returned)| *sum += returned.bytes);
    }
    // The returned bytes that it reports have arrived, except for those in flight.
    for (sent, found) in sent_back.into_iter().zip(&report.measurers) {
        let got: u64 = found.seconds.iter().map(|second| second.bytes).sum();
        assert!(got <= sent && got + got / 5 >= sent, "{got} of {sent}");
    }
}

#[test]
fn measurers_receive_at_the_rate_limit_of_the_relay() {
    let limit = Rate::from_mbit_per_s(8.0);
    let scenario = Scenario { limit: Some(limit), seconds: (4, 4), ..Scenario::default() };
    let report = scenario.run(Honest);
    for second in 1..4 {
        let bytes: u64 = report.measurers.iter().map(|found| found.seconds[second].bytes).sum();
        let sent = limit.as_byte_per_s();
        assert!(bytes <= sent + 16_384 && bytes >= sent - sent / 50, "{bytes} of {sent}");
    }
}

#[test]
fn measurers_that_begin_at_different_times_all_finish() {
    let lags = vec![Duration::ZERO, Duration::from_millis(300)];
    let report = Scenario { lags, ..Scenario::default() }.run(Honest);
    for found in &report.measurers {
        assert_eq!((&found.result, found.seconds.len()), (&Some(Ok(())), 2));
    }
}

#[test]
fn a_relay_that_ends_early_has_no_result() {
    let report = Scenario { seconds: (3, 2), ..Scenario::default() }.run(Honest);
    let LoadFailure::TooFewOpen { open: 0, last_problem, .. } = report.failure(0) else {
        panic!("another failure: {:?}", report.failure(0))
    };
    assert!(last_problem.contains("closed by the peer"), "{last_problem}");
}

#[test]
fn a_measurer_that_the_order_does_not_name_is_refused() {
    let report = Scenario { named: 1, ..Scenario::default() }.run(Honest);
    let failure = report.failure(1);
    assert!(
        matches!(failure, LoadFailure::Refused { code: ErrorCode::UNKNOWN_MEASURER, .. }),
        "{failure}"
    );
    assert!(failure.to_string().contains("does not name this measurer (error 13)"), "{failure}");
}

#[test]
fn the_measurement_ends_for_all_when_the_coordinator_leaves() {
    let scenario = Scenario { seconds: (5, 5), stop_after: Some(2), ..Scenario::default() };
    let report = scenario.run(Honest);
    for number in 0..2 {
        let failure = report.failure(number);
        assert!(
            matches!(failure, LoadFailure::Refused { code: ErrorCode::CALLED_OFF, .. }),
            "{failure}"
        );
    }
    assert_eq!(report.order.len(), 3, "accepted, two seconds, and nothing after the stop");
}

/// A relay without the measurement protocol, like C tor.
struct WithoutProtocol;

impl Behavior for WithoutProtocol {
    fn understands_measurements(&self) -> bool {
        false
    }
}

#[test]
fn a_relay_without_the_measurement_protocol_is_reported_as_such() {
    let report = Scenario::default().run(WithoutProtocol);
    assert_eq!(report.order, [OrderEvent::Failed(OrderFailure::NotAnswered)]);
    assert!(OrderFailure::NotAnswered.to_string().contains("does not speak FlashFlow"));
}

/// Answers with a function of the received and of the honest cell.
struct Lies<F>(F);

impl<F: FnMut([u8; BODY_LEN], [u8; BODY_LEN]) -> [u8; BODY_LEN]> Behavior for Lies<F> {
    fn answer(&mut self, _: &mut impl Rng, keystream: &mut Keystream, cell: &mut [u8; BODY_LEN]) {
        let received = *cell;
        keystream.apply(cell);
        *cell = (self.0)(received, *cell);
    }
}

#[track_caller]
fn reported_mismatch(scenario: &Scenario, behavior: impl Behavior + 'static) -> Mismatch {
    let report = scenario.run(behavior);
    let failed = report.measurers.iter().find_map(|found| match &found.result {
        Some(Err(LoadFailure::CheckFailed { mismatch, .. })) => Some(*mismatch),
        _ => None,
    });
    failed.unwrap_or_else(|| panic!("not detected: {report:?}"))
}

#[test]
fn a_failed_check_names_the_kind_of_mismatch() {
    let one = Scenario {
        lags: vec![Duration::ZERO],
        sockets: 1,
        circuits_per_socket: 1,
        check_one_in: 1,
        ..Scenario::default()
    };
    assert_eq!(reported_mismatch(&one, Lies(|received, _| received)), Mismatch::NotDecrypted);
    let altered = |_, mut honest: [u8; BODY_LEN]| {
        honest[508] ^= 1;
        honest
    };
    assert_eq!(reported_mismatch(&one, Lies(altered)), Mismatch::Forged);
    let (mut seen, mut last) = (0, [0; BODY_LEN]);
    let replayed = move |_, honest| {
        seen += 1;
        let before = std::mem::replace(&mut last, honest);
        if seen == 100 { before } else { honest }
    };
    assert_eq!(reported_mismatch(&one, Lies(replayed)), Mismatch::Displaced { found: 98 });
}

/// Fabricates answers before it has received cells.
struct AnswersAhead(u32);

impl Behavior for AnswersAhead {
    fn fabricated_answers(&self) -> u32 {
        self.0
    }
}

#[test]
fn a_relay_that_answers_ahead_of_time_is_detected_without_a_check() {
    let scenario = Scenario { check_one_in: u32::MAX, ..Scenario::default() };
    let report = scenario.run(AnswersAhead(1));
    let early = |found: &MeasurerResult| {
        matches!(found.result, Some(Err(LoadFailure::AnsweredEarly { sent: 0, .. })))
    };
    assert!(report.measurers.iter().any(early), "{report:?}");
}

/// Falsifies its reports about clients.
struct Reports<F>(F);

impl<F: FnMut(ClientSecond) -> ClientSecond> Behavior for Reports<F> {
    fn report(&mut self, honest: ClientSecond, _: u64) -> ClientSecond {
        (self.0)(honest)
    }
}

#[test]
fn repeated_and_missing_seconds_are_violations() {
    type Falsify = fn(u16) -> u16;
    let wrong: [(Falsify, u32, u32); 3] =
        [(|_| 0, 1, 0), (|second| second + 1, 0, 1), (|second| second * 2, 1, 2)];
    for (falsify, expected, found) in wrong {
        let report = Scenario { seconds: (3, 3), ..Scenario::default() }.run(Reports(
            move |honest: ClientSecond| ClientSecond { second: falsify(honest.second), ..honest },
        ));
        let violation = OrderViolation::WrongSecond { expected, found };
        let failure = OrderEvent::Failed(OrderFailure::Violation(violation));
        assert_eq!(report.order.last(), Some(&failure));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Honest relays are never blamed, for any segmentation and any team of measurers.
    #[test]
    fn honest_relays_pass(
        seed: u64,
        piece in proptest::option::of(50usize..5000),
        measurers in 1u8..4,
        sockets in 1u32..4,
        circuits_per_socket in 1u32..5,
        mbit in 1.0..20.0,
        limit in proptest::option::of(1.0..20.0),
    ) {
        let scenario = Scenario {
            seed,
            piece_max_bytes: piece,
            lags: vec![Duration::ZERO; usize::from(measurers)],
            named: measurers,
            sockets,
            circuits_per_socket,
            rate: Rate::from_mbit_per_s(mbit),
            limit: limit.map(Rate::from_mbit_per_s),
            check_one_in: 1,
            ..Scenario::default()
        };
        let report = scenario.run(Honest);
        for found in &report.measurers {
            prop_assert_eq!(&found.result, &Some(Ok(())));
            prop_assert!(found.seconds.iter().all(|second| second.bytes == 514 * second.checked_cells));
        }
        prop_assert_eq!(report.order.last(), Some(&OrderEvent::Finished));
        prop_assert_eq!(&scenario.run(Honest), &report, "the same seed gives the same run");
    }
}

#[test]
fn debug_output_hides_the_seed_of_a_key() {
    let (nonce, key_seed) = (echoes::NONCE, echoes::measurer_seed(0));
    let shown = format!("{:?}", ReturnPath::Echo { nonce, key_seed });
    assert!(shown.contains("0909") && !shown.contains("100"), "{shown}");
}
