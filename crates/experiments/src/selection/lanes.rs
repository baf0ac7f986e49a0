//! Several probers side by side: where users make relays slow, one after the other takes hours.

use crate::error::Result;
use client::NetDir;
use client::probe::{self, ProbePlan, Probed, Subject};
use std::sync::mpsc::channel;
use std::thread;

/// Probes these circuits, `lanes` at a time, and reports how many are done. Each lane takes every `lanes`-th: `lanes` and the number of
/// strategies that take turns should have no common divisor. The probers are in the network of this thread.
///
/// What comes back is in the order of the subjects, with their places in it: where `is_over` said so, some are missing.
pub(super) fn play(
    plan: &ProbePlan,
    subjects: Vec<Subject>,
    view: &NetDir,
    lanes: usize,
    mut done: impl FnMut(usize),
    is_over: impl Fn() -> bool + Sync,
) -> Result<Vec<(usize, Probed)>> {
    let lanes = lanes.clamp(1, subjects.len().max(1));
    let mut split = vec![Vec::new(); lanes];
    for (place, subject) in subjects.into_iter().enumerate() {
        split[place % lanes].push(subject);
    }
    let mut all = Vec::new();
    let is_over = &is_over;
    thread::scope(|scope| -> Result<()> {
        let (sender, receiver) = channel();
        let start = |(lane, subjects): (usize, Vec<Subject>)| {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut places = (lane..).step_by(lanes);
                let each = |probed| {
                    let place = places.next().unwrap_or(lane);
                    sender.send((place, probed)).is_ok()
                };
                probe::run(plan.clone(), subjects, view, each, is_over)
            })
        };
        let threads: Vec<_> = split.into_iter().enumerate().map(start).collect();
        drop(sender);
        for probed in receiver {
            all.push(probed);
            done(all.len());
        }
        threads.into_iter().try_for_each(|it| match it.join() {
            Ok(ended) => Ok(ended?),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    all.sort_by_key(|(place, _)| *place);
    Ok(all)
}
