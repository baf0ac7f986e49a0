//! Compares `netdoc::check_as_tor` with recorded votes of C tor authorities. `tests/data/README.md` describes the recording.

use crate::common::recorded_vote::{self, RecordedVote};
use netdoc::bwfile::{FileVerdict, LineVerdict};
use std::collections::BTreeSet;
use std::path::Path;

#[test]
fn the_check_agrees_with_recorded_votes_on_thousands_of_lines() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/recorded-votes.jsonl.gz");
    let all = recorded_vote::read(&path).expect("recorded");
    let wrong: Vec<String> = all.iter().flat_map(RecordedVote::differences).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let reports: Vec<_> = all.iter().map(RecordedVote::report).collect();
    let lines: usize = reports.iter().map(|report| report.lines.len()).sum();
    let voted: usize = all.iter().map(|vote| vote.measured.len()).sum();
    let left_out: usize = reports.iter().map(|report| report.skipped().count()).sum();
    let refused = reports.iter().filter(|report| report.verdict != FileVerdict::Read).count();
    // Each outcome is frequent enough to reveal mistakes.
    assert!(all.len() >= 200 && lines >= 10_000, "{} files, {lines} lines", all.len());
    assert!(voted >= 1000 && left_out >= 1000 && refused >= 5, "{voted} {left_out} {refused}");
    let verdicts = reports.iter().flat_map(|report| &report.lines);
    let reasons: BTreeSet<&str> = verdicts
        .filter_map(|(_, verdict)| match verdict {
            LineVerdict::Skipped { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert!(reasons.len() >= 5, "{reasons:?}");
}
