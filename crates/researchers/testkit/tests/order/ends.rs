//! Timeouts, lost connections, and cancelled orders.

use super::world::{ACCEPT_TIMEOUT, RELAY, Tls, World, order_link};
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::node::{CloseCause, Node};
use onion::{Duration, Instant};

/// Just less than the timeout.
fn almost() -> Duration {
    ACCEPT_TIMEOUT.saturating_sub(Duration::from_millis(1))
}

const REST: Duration = Duration::from_millis(1);

/// Asserts that the link fails like this at the timeout, and not before.
#[track_caller]
fn assert_times_out(mut world: World, failure: OrderFailure) {
    let deadline = world.now + ACCEPT_TIMEOUT;
    assert_eq!(world.link.poll_timeout(), Some(deadline));
    assert_eq!(world.advance(almost()), []);
    assert_eq!((world.link.is_over(), world.link.poll_timeout()), (false, Some(deadline)));
    assert_eq!(world.advance(REST), [OrderEvent::Failed(failure)]);
    assert_eq!((world.link.is_over(), world.link.poll_timeout()), (true, None));
    assert_eq!(world.closed, 1);
    assert_eq!(world.advance(REST), [], "the failure is reported once");
}

#[test]
fn the_reason_of_a_timeout_names_the_stage_reached() {
    assert_times_out(World::dialled(&RELAY), OrderFailure::LinkTimedOut);
    assert_times_out(World::mute(), OrderFailure::LinkTimedOut);
    assert_times_out(World::ordered(), OrderFailure::NotAnswered);
}

#[test]
fn an_accepted_order_has_no_timeout() {
    for mut world in [World::accepted(), World::finished()] {
        assert_eq!(world.link.poll_timeout(), None);
        assert_eq!(world.advance(Duration::from_secs(1_000_000)), []);
        assert_eq!((world.link.is_over(), world.closed), (false, 0));
    }
}

#[test]
fn a_lost_connection_is_reported_with_its_stage_and_not_closed_again() {
    let reset = || CloseCause::Reset;
    let closed = |was_accepted| OrderFailure::Closed { was_accepted, cause: reset() };
    let no_link = OrderFailure::NoLink { problem: reset().to_string() };
    for (mut world, failure) in [
        (World::dialled(&RELAY), no_link.clone()),
        (World::mute(), no_link),
        (World::ordered(), closed(false)),
        (World::accepted(), closed(true)),
    ] {
        assert_eq!(world.close(reset()), [OrderEvent::Failed(failure)]);
        assert_eq!((world.link.is_over(), world.closed), (true, 0));
        assert_eq!(world.link.poll_dial(world.now), None, "no second dial");
    }
}

#[test]
fn a_relay_may_close_after_its_last_report() {
    let mut world = World::finished();
    assert_eq!(world.events(), []);
    assert_eq!(world.close(CloseCause::ByPeer), []);
    assert_eq!((world.link.is_over(), world.closed), (true, 0));
}

#[test]
fn cancelling_an_order_closes_the_link_once_without_events() {
    for mut world in [World::dialled(&RELAY), World::ordered(), World::accepted()] {
        for _again in 0..2 {
            world.link.stop();
            world.exchange();
            assert_eq!((world.link.is_over(), world.closed, world.events()), (true, 1, Vec::new()));
        }
        assert_eq!(world.advance(ACCEPT_TIMEOUT), []);
        assert_eq!(world.close(CloseCause::ByPeer), []);
        assert_eq!(world.closed, 1);
    }
}

#[test]
fn an_order_that_is_cancelled_at_once_is_not_dialled() {
    let mut link = order_link();
    link.stop();
    assert_eq!(link.poll_dial(Instant::from_millis(1000)), None);
    assert_eq!((link.poll_close(), link.poll_event(), link.is_over()), (None, None, true));
}

#[test]
fn nothing_is_sent_if_the_order_is_cancelled_before_the_connection_opens() {
    let mut world = World::dialled(&RELAY);
    world.link.stop();
    world.connect(&Tls::new(true));
    assert!(world.link.is_over() && world.link.poll_timeout().is_none());
    assert_eq!((world.closed, world.received.len(), world.events()), (1, 0, Vec::new()));
}

#[test]
fn a_session_that_cannot_export_keys_fails() {
    let mut world = World::dialled(&RELAY);
    world.connect(&Tls::new(false));
    let events = world.events();
    let [OrderEvent::Failed(OrderFailure::NoLink { problem })] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(problem.contains("keying material"), "{problem}");
    assert_eq!((world.closed, world.received.len()), (1, 0));
}
