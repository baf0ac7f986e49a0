//! Parallel probers: under load, probing all circuits in sequence would take hours.

use crate::error::Result;
use client::NetDir;
use client::probe::{self, ProbePlan, Probed, Subject};
use std::sync::mpsc::channel;
use std::thread;

/// Probes these circuits with `probers` parallel probers in the network of this thread, and reports the number of finished ones. Each
/// prober takes every `probers`-th circuit.
///
/// Returns the results with their indices among the subjects, in order. Some are missing if `is_over` ended the probers.
pub(super) fn probe(
    plan: &ProbePlan,
    subjects: Vec<Subject>,
    view: &NetDir,
    probers: usize,
    mut done: impl FnMut(usize),
    is_over: impl Fn() -> bool + Sync,
) -> Result<Vec<(usize, Probed)>> {
    let probers = probers.clamp(1, subjects.len().max(1));
    let mut split = vec![Vec::new(); probers];
    for (place, subject) in subjects.into_iter().enumerate() {
        split[place % probers].push(subject);
    }
    let mut all = Vec::new();
    let is_over = &is_over;
    thread::scope(|scope| -> Result<()> {
        let (sender, receiver) = channel();
        let start = |(prober, subjects): (usize, Vec<Subject>)| {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut places = (prober..).step_by(probers);
                let each = |probed| {
                    let place = places.next().unwrap_or(prober);
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
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => Ok(ended?),
            Err(panic) => std::panic::resume_unwind(panic),
        })
    })?;
    all.sort_by_key(|(place, _)| *place);
    Ok(all)
}
