//! Timeouts, lost connections, and cancelled orders.

use super::world::{ACCEPT_TIMEOUT, RELAY, Tls, World, plan};
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::node::{CloseCause, Node};
use onion::{Duration, Instant};

/// Just too short.
fn almost() -> Duration {
    ACCEPT_TIMEOUT.saturating_sub(Duration::from_millis(1))
}

const REST: Duration = Duration::from_millis(1);

/// It ends like this when its time is over, and not before.
#[track_caller]
fn assert_times_out(mut world: World, failure: OrderFailure) {
    let deadline = world.now + ACCEPT_TIMEOUT;
    assert_eq!(world.link.poll_timeout(), Some(deadline));
    assert_eq!(world.waits(almost()), []);
    assert_eq!((world.link.is_over(), world.link.poll_timeout()), (false, Some(deadline)));
    assert_eq!(world.waits(REST), [OrderEvent::Failed(failure)]);
    assert_eq!((world.link.is_over(), world.link.poll_timeout()), (true, None));
    assert_eq!(world.closed, 1);
    assert_eq!(world.waits(REST), [], "once");
}

#[test]
fn whoever_does_not_answer_in_time_is_given_up_and_the_reason_is_how_far_it_came() {
    assert_times_out(World::dialled(&RELAY), OrderFailure::LinkTimedOut);
    assert_times_out(World::mute(), OrderFailure::LinkTimedOut);
    assert_times_out(World::ordered(), OrderFailure::NotAnswered);
}

#[test]
fn once_it_is_accepted_others_decide_how_long_it_takes() {
    for mut world in [World::accepted(), World::finished()] {
        assert_eq!(world.link.poll_timeout(), None);
        assert_eq!(world.waits(Duration::from_secs(1_000_000)), []);
        assert_eq!((world.link.is_over(), world.closed), (false, 0));
    }
}

#[test]
fn a_lost_connection_is_told_by_how_far_it_came_and_is_not_closed_again() {
    let reset = || CloseCause::Reset;
    let closed = |was_accepted| OrderFailure::Closed { was_accepted, cause: reset() };
    let no_link = OrderFailure::NoLink { problem: reset().to_string() };
    for (mut world, failure) in [
        (World::dialled(&RELAY), no_link.clone()),
        (World::mute(), no_link),
        (World::ordered(), closed(false)),
        (World::accepted(), closed(true)),
    ] {
        assert_eq!(world.loses(reset()), [OrderEvent::Failed(failure)]);
        assert_eq!((world.link.is_over(), world.closed), (true, 0));
        assert_eq!(world.link.poll_dial(world.now), None, "nobody tries again");
    }
}

#[test]
fn a_relay_may_close_when_all_is_said() {
    let mut world = World::finished();
    assert_eq!(world.events(), []);
    assert_eq!(world.loses(CloseCause::ByPeer), []);
    assert_eq!((world.link.is_over(), world.closed), (true, 0));
}

#[test]
fn an_order_that_is_taken_back_closes_the_link_once_and_tells_nothing() {
    for mut world in [World::dialled(&RELAY), World::ordered(), World::accepted()] {
        for _again in 0..2 {
            world.link.stop();
            world.exchange();
            assert_eq!((world.link.is_over(), world.closed, world.events()), (true, 1, Vec::new()));
        }
        assert_eq!(world.waits(ACCEPT_TIMEOUT), []);
        assert_eq!(world.loses(CloseCause::ByPeer), []);
        assert_eq!(world.closed, 1);
    }
}

#[test]
fn an_order_that_is_taken_back_at_once_is_not_even_dialled() {
    let mut link = plan();
    link.stop();
    assert_eq!(link.poll_dial(Instant::from_millis(1000)), None);
    assert_eq!((link.poll_close(), link.poll_event(), link.is_over()), (None, None, true));
}

#[test]
fn a_connection_that_comes_to_be_when_its_order_was_taken_back_says_nothing() {
    let mut world = World::dialled(&RELAY);
    world.link.stop();
    world.connect(&Tls::new(true));
    assert!(world.link.is_over() && world.link.poll_timeout().is_none());
    assert_eq!((world.closed, world.heard.len(), world.events()), (1, 0, Vec::new()));
}

#[test]
fn a_session_that_cannot_export_keys_is_no_link() {
    let mut world = World::dialled(&RELAY);
    world.connect(&Tls::new(false));
    let events = world.events();
    let [OrderEvent::Failed(OrderFailure::NoLink { problem })] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(problem.contains("keying material"), "{problem}");
    assert_eq!((world.closed, world.heard.len()), (1, 0));
}
