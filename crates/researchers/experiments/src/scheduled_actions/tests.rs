use super::*;
use crate::error::Error;
use std::sync::mpsc::Receiver;

const NEVER: Duration = Duration::from_secs(3600);

/// Runs the actions during `body`. Returns the result, and the numbers of the actions that `body` did not receive.
fn run(
    actions: Vec<(Duration, u32)>,
    body: impl FnOnce(&mut dyn FnMut(&u32), &Receiver<u32>) -> Result<(), Error>,
) -> (Result<Option<Instant>, Error>, Vec<u32>) {
    let (doing, done) = channel();
    let perform = move |number| {
        doing.send(number).expect("a receiver");
        Ok(())
    };
    let is_due = |progress: &u32| *progress >= 10;
    let ended =
        with_actions(Clock::start(), is_due, actions, perform, |report| body(report, &done));
    (ended.map(|((), first)| first), done.try_iter().collect())
}

fn at_once(number: u32) -> (Duration, u32) {
    (Duration::ZERO, number)
}

#[test]
fn actions_run_in_order_while_the_body_continues() {
    let (first, later) = run(vec![at_once(1), at_once(2)], |report, done| {
        report(&9);
        assert!(done.try_recv().is_err(), "not due yet");
        report(&10);
        assert_eq!((done.recv(), done.recv()), (Ok(1), Ok(2)), "while the body runs");
        report(&11);
        Ok(())
    });
    assert!(first.expect("no error").is_some());
    assert!(later.is_empty(), "each only once");
}

#[test]
fn no_action_runs_before_it_is_due() {
    let (first, done) = run(vec![at_once(1)], |report, _| {
        report(&9);
        Ok(())
    });
    assert_eq!((first.expect("no error"), done), (None, vec![]));
}

#[test]
fn a_body_that_returns_cancels_the_remaining_actions() {
    let (first, done) = run(vec![at_once(1), (NEVER, 2)], |report, done| {
        report(&10);
        assert_eq!(done.recv(), Ok(1));
        Ok(())
    });
    assert!(first.expect("no error").is_some());
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn the_error_of_the_body_is_returned_at_once() {
    let (ended, done) = run(vec![(NEVER, 1)], |report, _| {
        report(&10);
        Err(Error::Network("the body's".to_owned()))
    });
    assert!(ended.expect_err("it failed").to_string().contains("the body's"));
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn the_error_of_an_action_is_returned() {
    let (doing, done) = channel();
    let perform = |number: u32| {
        doing.send(number).expect("a receiver");
        Err(Error::Network("the action's".to_owned()))
    };
    let body = |report: &mut dyn FnMut(&u32)| {
        report(&10);
        assert_eq!(done.recv(), Ok(1));
        Ok(())
    };
    let ended = with_actions(
        Clock::start(),
        |count| *count >= 10,
        vec![at_once(1), at_once(2)],
        perform,
        body,
    );
    assert!(ended.expect_err("it failed").to_string().contains("the action's"));
    assert!(done.try_recv().is_err(), "no action after it");
}
