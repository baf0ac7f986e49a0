use super::super::plan::{Fault, PlannedRound};
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

/// A round in which `victim` was killed after 2 s and all others ended at 2.1 s. The deadline is at 9 s.
fn round(victim: Victim, verdict: Option<Verdict>) -> CrashRound {
    let all = [Victim::Measurer(0), Victim::Measurer(1), Victim::Coordinator, Victim::Target];
    let ends = all.into_iter().filter(|who| *who != victim).map(|who| (who, Some(secs(2.1))));
    CrashRound {
        plan: PlannedRound { number: 5, victim, at: 0.5 },
        fault: Fault::Kill,
        kill: (victim != Victim::Nobody).then(|| (secs(2.0), Phase::Measuring(1))),
        deadline: secs(9.0),
        target_deadline: secs(9.0),
        ends: BTreeMap::from_iter(ends),
        verdict,
        received: Vec::new(),
        refusals: Vec::new(),
        leftovers: Vec::new(),
        address: Some(([127, 0, 0, 1], 7100).into()),
    }
}

fn judged(round: &CrashRound) -> (CaseVerdict, String) {
    let case = round.case(Rate::from_mbit_per_s(LIMIT));
    (case.verdict, case.detail)
}

const LOST: &str = "failed in round 1, second 1, measurer 0: the measurer was lost: the session with \
                    the measurer at 127.0.0.1:7100 is lost: it ended the session";

#[test]
fn a_failure_must_name_the_victim() {
    let measurer = Victim::Measurer(0);
    let killed = round(measurer, Some(verdict(1, None, Some(LOST))));
    assert_eq!(judged(&killed).0, CaseVerdict::Refused);
    assert_eq!(killed.took().map(|took| took.as_millis()), Some(100));
    for blamed in [
        "failed in round 1, measurer 1: the measurer was lost: 127.0.0.1:7101",
        "failed in round 1: the relay closed the connection: gone",
    ] {
        let (verdict, detail) = judged(&round(measurer, Some(verdict(1, None, Some(blamed)))));
        assert_eq!(verdict, CaseVerdict::Missed);
        assert!(detail.contains("does not name the measurer 0 as lost"), "{detail}");
    }
    let closed = "failed in round 1, measurer 1: the relay closed the connection: gone";
    let killed = round(Victim::Target, Some(verdict(1, None, Some(closed))));
    assert_eq!(judged(&killed).0, CaseVerdict::Refused);
    let killed = round(Victim::Target, Some(verdict(1, None, Some(LOST))));
    assert_eq!(judged(&killed).0, CaseVerdict::Missed);
    assert_eq!(judged(&round(Victim::Coordinator, None)).0, CaseVerdict::Held);
}

#[test]
fn an_estimate_must_be_correct_unless_it_is_marked_as_a_lower_bound() {
    let received = |mbit: &[f64]| mbit.iter().copied().map(Rate::from_mbit_per_s).collect();
    let finished = |code, estimate, seconds: &[f64]| CrashRound {
        received: received(seconds),
        ..round(Victim::Nobody, Some(verdict(code, Some(estimate), None)))
    };
    for (code, estimate, seconds, expected) in [
        (0, 29.0, [60.0, 29.0, 29.0], CaseVerdict::Held),
        (0, 26.0, [26.0; 3], CaseVerdict::Missed),
        (3, 26.0, [26.0; 3], CaseVerdict::Held),
        (1, 29.0, [29.0; 3], CaseVerdict::Missed),
        // Within the limit, but not what was received.
        (0, 29.0, [20.0; 3], CaseVerdict::Missed),
        (0, 29.0, [33.0; 3], CaseVerdict::Missed),
        (3, 32.0, [29.0; 3], CaseVerdict::Missed),
        (0, 29.0, [0.0; 3], CaseVerdict::Missed),
        // The burst after a pause affects the median.
        (0, 37.0, [40.5, 40.5, 30.0], CaseVerdict::Held),
        (3, 37.0, [40.5, 40.5, 30.0], CaseVerdict::Held),
        // One of three seconds was slow, so the mean is below the median.
        (3, 26.0, [30.0, 30.0, 18.0], CaseVerdict::Held),
    ] {
        let judged = judged(&finished(code, estimate, &seconds));
        assert_eq!(judged.0, expected, "{code} {estimate} {seconds:?}: {}", judged.1);
    }
    assert!(judged(&finished(0, 37.0, &[40.5, 40.5, 30.0])).1.contains("burst"));
    // A relay that exceeds its limit is a miss, with any estimate or none.
    for seconds in
        [&[60.0; 5][..], &[78.0, 39.0, 39.0, 39.0, 39.0], &[66.0, 33.0, 33.0, 33.0, 33.0]]
    {
        let (verdict, detail) = judged(&finished(0, seconds[1], seconds));
        assert_eq!(verdict, CaseVerdict::Missed, "{seconds:?}");
        assert!(detail.contains("what its limit allows"), "{detail}");
        let without =
            CrashRound { received: received(seconds), ..round(Victim::Coordinator, None) };
        assert_eq!(judged(&without).0, CaseVerdict::Missed, "{seconds:?}");
    }
    // A control may not fail.
    let (verdict, detail) = judged(&round(Victim::Nobody, Some(verdict(1, None, Some(LOST)))));
    assert_eq!(verdict, CaseVerdict::Missed);
    assert!(detail.starts_with("failed, though nobody was killed"), "{detail}");
}

#[test]
fn a_process_that_hangs_or_is_late_and_leftovers_are_reported() {
    let well = || round(Victim::Coordinator, None);
    let hangs = CrashRound { ends: BTreeMap::from([(Victim::Target, None)]), ..well() };
    assert_eq!(judged(&hangs), (CaseVerdict::Missed, "target did not end".to_owned()));
    assert_eq!(hangs.took(), None);
    let at =
        |at| CrashRound { ends: BTreeMap::from([(Victim::Measurer(1), Some(secs(at)))]), ..well() };
    assert_eq!(judged(&at(13.0)).0, CaseVerdict::Held);
    let late = "measurer 1 ended 4.50 s after the deadline".to_owned();
    assert_eq!(judged(&at(13.5)), (CaseVerdict::Missed, late));
    let leftovers = CrashRound { leftovers: vec!["process 7 is left".to_owned()], ..well() };
    assert_eq!(judged(&leftovers), (CaseVerdict::Missed, "process 7 is left".to_owned()));
    let refused = CrashRound { refusals: vec!["busy".to_owned()], ..well() };
    assert_eq!(judged(&refused), (CaseVerdict::Missed, "the relay refused: busy".to_owned()));
}

#[test]
fn a_coordinator_that_panics_is_a_miss() {
    let panicked = Verdict { status: ExitStatus::from_raw(101 << 8), ..verdict(1, None, None) };
    for victim in [Victim::Target, Victim::Nobody] {
        let (verdict, detail) = judged(&round(victim, Some(panicked.clone())));
        assert_eq!(verdict, CaseVerdict::Missed);
        assert!(detail.contains("101") && detail.contains("without a result"), "{detail}");
    }
}
