use super::super::plan::{Blow, Fate};
use super::*;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

const LIMIT: f64 = 30.0;

fn secs(secs: f64) -> Duration {
    Duration::from_secs_f64(secs)
}

fn verdict(code: i32, estimate: Option<f64>, error: Option<&str>) -> Verdict {
    Verdict {
        status: ExitStatus::from_raw(code << 8),
        estimate_mbit_per_s: estimate,
        is_conclusive: code == 0,
        error: error.map(str::to_owned),
    }
}

/// A round in which `victim` was killed after 2 s, and all others ended at 2.1 s, before a deadline
/// at 9 s.
fn round(victim: Victim, verdict: Option<Verdict>) -> CrashRound {
    let all = [Victim::Measurer(0), Victim::Measurer(1), Victim::Coordinator, Victim::Target];
    let ends = all.into_iter().filter(|who| *who != victim).map(|who| (who, Some(secs(2.1))));
    CrashRound {
        fate: Fate { number: 5, victim, at: 0.5 },
        blow: Blow::Kill,
        kill: (victim != Victim::Nobody).then(|| (secs(2.0), Phase::Measuring(1))),
        deadline: secs(9.0),
        target_deadline: secs(9.0),
        ends: BTreeMap::from_iter(ends),
        verdict,
        got: Vec::new(),
        refusals: Vec::new(),
        remains: Vec::new(),
        address: Some(([127, 0, 0, 1], 7100).into()),
    }
}

fn judged(played: &CrashRound) -> (CaseVerdict, String) {
    let case = played.case(Rate::from_mbit_per_s(LIMIT));
    (case.verdict, case.detail)
}

const LOST: &str = "failed in round 1, second 1, measurer 0: the measurer was lost: the session with \
                    the measurer at 127.0.0.1:7100 is lost: it ended the session";

#[test]
fn a_failure_that_names_the_victim_is_as_it_should_be() {
    let measurer = Victim::Measurer(0);
    let played = round(measurer, Some(verdict(1, None, Some(LOST))));
    assert_eq!(judged(&played).0, CaseVerdict::Refused);
    assert_eq!(played.took().map(|took| took.as_millis()), Some(100));
    for blamed in [
        "failed in round 1, measurer 1: the measurer was lost: 127.0.0.1:7101",
        "failed in round 1: the relay closed the connection: gone",
    ] {
        let (verdict, detail) = judged(&round(measurer, Some(verdict(1, None, Some(blamed)))));
        assert_eq!(verdict, CaseVerdict::Missed);
        assert!(detail.contains("does not say that the measurer 0 was lost"), "{detail}");
    }
    let closed = "failed in round 1, measurer 1: the relay closed the connection: gone";
    let played = round(Victim::Target, Some(verdict(1, None, Some(closed))));
    assert_eq!(judged(&played).0, CaseVerdict::Refused);
    let played = round(Victim::Target, Some(verdict(1, None, Some(LOST))));
    assert_eq!(judged(&played).0, CaseVerdict::Missed);
    assert_eq!(judged(&round(Victim::Coordinator, None)).0, CaseVerdict::Held);
}

#[test]
fn a_number_must_be_right_unless_it_says_that_it_is_a_lower_bound() {
    let got = |mbit: &[f64]| mbit.iter().copied().map(Rate::from_mbit_per_s).collect();
    let played = |code, estimate, seconds: &[f64]| CrashRound {
        got: got(seconds),
        ..round(Victim::Nobody, Some(verdict(code, Some(estimate), None)))
    };
    for (code, estimate, seconds, expected) in [
        (0, 29.0, [60.0, 29.0, 29.0], CaseVerdict::Held),
        (0, 26.0, [26.0; 3], CaseVerdict::Missed),
        (3, 26.0, [26.0; 3], CaseVerdict::Held),
        (1, 29.0, [29.0; 3], CaseVerdict::Missed),
        // It is not what was received, whatever the limit is.
        (0, 29.0, [20.0; 3], CaseVerdict::Missed),
        (0, 29.0, [33.0; 3], CaseVerdict::Missed),
        (3, 32.0, [29.0; 3], CaseVerdict::Missed),
        (0, 29.0, [0.0; 3], CaseVerdict::Missed),
        // The burst after a pause has reached into the median.
        (0, 37.0, [40.5, 40.5, 30.0], CaseVerdict::Held),
        (3, 37.0, [40.5, 40.5, 30.0], CaseVerdict::Held),
        // One second of three that was slow: the estimate is the mean then, and so is what was received.
        (3, 26.0, [30.0, 30.0, 18.0], CaseVerdict::Held),
    ] {
        let judged = judged(&played(code, estimate, &seconds));
        assert_eq!(judged.0, expected, "{code} {estimate} {seconds:?}: {}", judged.1);
    }
    assert!(judged(&played(0, 37.0, &[40.5, 40.5, 30.0])).1.contains("burst"));
    // A relay whose rate limit is broken is found out, whatever it and the estimate say, and also if there
    // is none.
    for seconds in
        [&[60.0; 5][..], &[78.0, 39.0, 39.0, 39.0, 39.0], &[66.0, 33.0, 33.0, 33.0, 33.0]]
    {
        let (verdict, detail) = judged(&played(0, seconds[1], seconds));
        assert_eq!(verdict, CaseVerdict::Missed, "{seconds:?}");
        assert!(detail.contains("as its limit allows"), "{detail}");
        let without = CrashRound { got: got(seconds), ..round(Victim::Coordinator, None) };
        assert_eq!(judged(&without).0, CaseVerdict::Missed, "{seconds:?}");
    }
    // Nobody was killed, so nothing may fail.
    let (verdict, detail) = judged(&round(Victim::Nobody, Some(verdict(1, None, Some(LOST)))));
    assert_eq!(verdict, CaseVerdict::Missed);
    assert!(detail.starts_with("failed, though nobody was killed"), "{detail}");
}

#[test]
fn who_hangs_is_late_or_leaves_something_is_named() {
    let well = || round(Victim::Coordinator, None);
    let hangs = CrashRound { ends: BTreeMap::from([(Victim::Target, None)]), ..well() };
    assert_eq!(judged(&hangs), (CaseVerdict::Missed, "target did not end".to_owned()));
    assert_eq!(hangs.took(), None);
    let at =
        |at| CrashRound { ends: BTreeMap::from([(Victim::Measurer(1), Some(secs(at)))]), ..well() };
    assert_eq!(judged(&at(13.0)).0, CaseVerdict::Held);
    let late = "measurer 1 ended 4.50 s after the deadline".to_owned();
    assert_eq!(judged(&at(13.5)), (CaseVerdict::Missed, late));
    let remains = CrashRound { remains: vec!["process 7 is left".to_owned()], ..well() };
    assert_eq!(judged(&remains), (CaseVerdict::Missed, "process 7 is left".to_owned()));
    let refuses = CrashRound { refusals: vec!["busy".to_owned()], ..well() };
    assert_eq!(judged(&refuses), (CaseVerdict::Missed, "the relay refused: busy".to_owned()));
}

#[test]
fn a_coordinator_that_breaks_down_has_no_excuse() {
    let panicked = Verdict { status: ExitStatus::from_raw(101 << 8), ..verdict(1, None, None) };
    for victim in [Victim::Target, Victim::Nobody] {
        let (verdict, detail) = judged(&round(victim, Some(panicked.clone())));
        assert_eq!(verdict, CaseVerdict::Missed);
        assert!(detail.contains("101") && detail.contains("without a result"), "{detail}");
    }
}
