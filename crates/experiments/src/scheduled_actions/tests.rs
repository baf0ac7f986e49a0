use super::*;
use crate::error::Error;
use std::sync::mpsc::Receiver;

const NEVER: Duration = Duration::from_secs(3600);

/// What has been done, by its number, and when all was over.
fn play(
    acts: Vec<(Duration, u32)>,
    body: impl FnOnce(&mut dyn FnMut(&u32), &Receiver<u32>) -> Result<(), Error>,
) -> (Result<Option<Instant>, Error>, Vec<u32>) {
    let (doing, done) = channel();
    let act = move |number| {
        doing.send(number).expect("somebody listens");
        Ok(())
    };
    let ended =
        with_actions(Clock::start(), |word| *word >= 10, acts, act, |report| body(report, &done));
    (ended.map(|((), first)| first), done.try_iter().collect())
}

fn at_once(number: u32) -> (Duration, u32) {
    (Duration::ZERO, number)
}

#[test]
fn acts_come_one_after_the_other_from_the_moment_on_and_the_body_goes_on() {
    let (first, later) = play(vec![at_once(1), at_once(2)], |report, done| {
        report(&9);
        assert!(done.try_recv().is_err(), "it has not come yet");
        report(&10);
        assert_eq!((done.recv(), done.recv()), (Ok(1), Ok(2)), "while the body goes on");
        report(&11);
        Ok(())
    });
    assert!(first.expect("no error").is_some());
    assert!(later.is_empty(), "once each");
}

#[test]
fn nothing_is_done_where_the_moment_does_not_come() {
    let (first, done) = play(vec![at_once(1)], |report, _| {
        report(&9);
        Ok(())
    });
    assert_eq!((first.expect("no error"), done), (None, vec![]));
}

#[test]
fn what_is_over_does_not_wait_for_later_acts() {
    let (first, done) = play(vec![at_once(1), (NEVER, 2)], |report, done| {
        report(&10);
        assert_eq!(done.recv(), Ok(1));
        Ok(())
    });
    assert!(first.expect("no error").is_some());
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn a_body_that_fails_fails_and_waits_for_nothing() {
    let (ended, done) = play(vec![(NEVER, 1)], |report, _| {
        report(&10);
        Err(Error::Network("the body's".to_owned()))
    });
    assert!(ended.expect_err("it failed").to_string().contains("the body's"));
    assert!(done.is_empty(), "{done:?}");
}

#[test]
fn an_act_that_fails_fails_all() {
    let (doing, done) = channel();
    let act = |number: u32| {
        doing.send(number).expect("somebody listens");
        Err(Error::Network("the act's".to_owned()))
    };
    let body = |report: &mut dyn FnMut(&u32)| {
        report(&10);
        assert_eq!(done.recv(), Ok(1));
        Ok(())
    };
    let ended =
        with_actions(Clock::start(), |word| *word >= 10, vec![at_once(1), at_once(2)], act, body);
    assert!(ended.expect_err("it failed").to_string().contains("the act's"));
    assert!(done.try_recv().is_err(), "none after it");
}
