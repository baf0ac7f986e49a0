//! One round: a measurement during which a process may be killed.

use super::plan::{Fault, PlannedRound, Victim};
use super::processes::Processes;
use crate::error::{Error, Result};
use crate::trial;
use coordinator::Params;
use lab::{OwnProcess, OwnRelay};
use link::Clock;
use onion::{Duration, Instant, Rate};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitStatus;
use terminal::Interrupt;

/// The polling interval.
const STEP: Duration = Duration::from_millis(10);

/// The tolerated delay of survivors after the deadline.
pub(super) const TOLERANCE: Duration = Duration::from_secs(4);

/// How long a process is watched beyond the tolerance, to report how late it is.
const PATIENCE: Duration = Duration::from_secs(15);

/// The maximum time to start a process and generate its keys, before its first deadline runs.
const START_UP: Duration = Duration::from_secs(3);

/// The maximum time in which the coordinator connects to its measurers (limit of `control`).
const CONNECTING: Duration = Duration::from_secs(8);

/// The maximum time after which a session is lost whose peer does not answer (limits of `control`).
const SESSION_LOST: Duration = Duration::from_secs(12);

/// The time from the order to start until the start.
const START_DELAY: Duration = Duration::from_millis(500);

/// The course of a round. Times count from its start.
#[derive(Debug)]
pub(super) struct CrashRound {
    pub(super) plan: PlannedRound,
    pub(super) fault: Fault,
    /// When the victim was killed, and in which phase; `None` in a control.
    pub(super) kill: Option<(Duration, Phase)>,
    /// The round's deadline, by the progress when the victim was killed or the coordinator ended.
    pub(super) deadline: Duration,
    /// The deadline of the relay, which has limits of its own.
    pub(super) target_deadline: Duration,
    /// When each survivor ended its part; `None` if it did not end in time.
    pub(super) ends: BTreeMap<Victim, Option<Duration>>,
    /// The coordinator's result, unless it was the victim.
    pub(super) verdict: Option<Verdict>,
    /// What the measurers' sockets received in each second of the measurement, by the kernel.
    pub(super) received: Vec<Rate>,
    /// Orders and proofs that the relay refused.
    pub(super) refusals: Vec<String>,
    /// Processes, sockets and files that should not exist.
    pub(super) leftovers: Vec<String>,
    /// The listening address of the victim.
    pub(super) address: Option<std::net::SocketAddr>,
}

/// The progress of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The relay has not accepted the order.
    Beginning,
    /// The relay has accepted the order; less than a second has been measured.
    Opening,
    /// This number of seconds has been measured.
    Measuring(usize),
    /// The coordinator has ended.
    Over,
}

/// The coordinator's result.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) status: ExitStatus,
    pub(super) estimate_mbit_per_s: Option<f64>,
    pub(super) is_conclusive: bool,
    pub(super) error: Option<String>,
}

/// Observes a running round.
struct Observer<'c> {
    processes: &'c mut Processes,
    coordinator: OwnProcess,
    clock: Clock,
    params: Params,
    started: Instant,
    /// When the relay accepted the order, and when it reported the first second.
    accepted: Option<Instant>,
    first_second: Option<Instant>,
    /// When the relay reported each second.
    second_reports: Vec<Instant>,
    is_measured: bool,
    refusals: Vec<String>,
    /// The last message of the coordinator, and its exit status.
    last: Value,
    ended: Option<ExitStatus>,
    is_coordinator_lost: bool,
    /// When the victim was frozen.
    frozen: Option<Instant>,
}

/// Runs a round with this expected duration. `None` if the user has interrupted.
pub(super) fn run(
    processes: &mut Processes,
    plan: PlannedRound,
    fault: Fault,
    params: Params,
    length: Duration,
    clock: Clock,
    interrupt: &Interrupt,
) -> Result<Option<CrashRound>> {
    let address = processes.address(plan.victim);
    let witness = processes.witness()?;
    let started = clock.now();
    let coordinator = processes.coordinator(params.seconds)?;
    let mut observer = Observer {
        processes,
        coordinator,
        clock,
        params,
        started,
        accepted: None,
        first_second: None,
        second_reports: Vec::new(),
        is_measured: false,
        refusals: Vec::new(),
        last: Value::Null,
        ended: None,
        is_coordinator_lost: false,
        frozen: None,
    };
    let mut kill = None;
    if plan.victim != Victim::Nobody {
        let at = started + length.mul_f64(plan.at);
        while clock.now() < at {
            if interrupt.wait(STEP.min(at - clock.now())) {
                return Ok(None);
            }
            observer.update();
        }
        observer.update();
        let phase = observer.phase();
        if !(plan.victim == Victim::Coordinator && phase == Phase::Over) {
            observer.inject(plan.victim, fault);
            kill = Some((clock.now() - started, phase));
        }
    }
    let Some((ends, deadline)) = observer.until_over(plan.victim, fault, interrupt) else {
        return Ok(None);
    };
    let target_deadline = observer.target_deadline(plan.victim, fault) - started;
    if kill.is_some() {
        // A frozen process must not remain.
        observer.inject(plan.victim, Fault::Kill);
    }
    let verdict = observer.verdict(plan.victim, kill.is_some());
    let Observer { second_reports, refusals, coordinator, .. } = observer;
    // Ends a coordinator that hangs.
    drop(coordinator);
    let ends = ends.into_iter().map(|(who, at)| (who, at.map(|at| at - started))).collect();
    let dead = if kill.is_some() { plan.victim } else { Victim::Nobody };
    let mut leftovers = processes.leftovers(dead);
    // The survivors may not have noticed the end yet.
    let patience = clock.now() + TOLERANCE;
    while !leftovers.is_empty() && clock.now() < patience && !interrupt.wait(STEP) {
        leftovers = processes.leftovers(dead);
    }
    let deadline = deadline - started;
    if let Some(problem) = witness.problem() {
        return Err(Error::Witness(problem));
    }
    let received =
        trial::round_start(second_reports.iter().copied()).map_or_else(Vec::new, |began| {
            let count = u32::try_from(second_reports.len()).unwrap_or(u32::MAX);
            witness.seconds_from(0, began, count).into_iter().map(Rate::from_mbit_per_s).collect()
        });
    Ok(Some(CrashRound {
        plan,
        fault,
        kill,
        deadline,
        target_deadline,
        ends,
        verdict,
        received,
        refusals,
        leftovers,
        address,
    }))
}

impl Observer<'_> {
    /// Processes all pending messages.
    fn update(&mut self) {
        let now = self.clock.now();
        while let Some((_, value)) = self.coordinator.next_output(now) {
            self.last = value;
        }
        if self.ended.is_none() {
            self.ended = self.coordinator.end();
        }
        while let Some((at, value)) = self.processes.relay().process.next_output(now) {
            match value["type"].as_str() {
                Some("accepted") => {
                    self.accepted.get_or_insert(at);
                    self.is_measured = true;
                }
                Some("second") => {
                    self.first_second.get_or_insert(at);
                    self.second_reports.push(at);
                }
                Some("over") => self.is_measured = false,
                Some("refused") => {
                    let reason = value["reason"].as_str().unwrap_or("no reason").to_owned();
                    self.refusals.push(reason);
                }
                _ => {}
            }
        }
    }

    fn phase(&self) -> Phase {
        match (self.ended, self.accepted, self.first_second) {
            (Some(_), ..) => Phase::Over,
            (None, _, Some(_)) => Phase::Measuring(self.second_reports.len()),
            (None, Some(_), None) => Phase::Opening,
            (None, None, None) => Phase::Beginning,
        }
    }

    /// Kills or freezes the victim.
    fn inject(&mut self, victim: Victim, fault: Fault) {
        match (victim, fault) {
            (Victim::Coordinator, Fault::Kill) => self.coordinator.kill(),
            (Victim::Coordinator, Fault::Freeze) => self.coordinator.freeze(),
            (_, Fault::Kill) => self.processes.kill(victim),
            (_, Fault::Freeze) => self.processes.freeze(victim),
        }
        if fault == Fault::Freeze {
            self.frozen = Some(self.clock.now());
        }
        self.is_coordinator_lost |= victim == Victim::Coordinator;
    }

    /// When the relay must be idle again. If the coordinator is frozen before the first cell, that is after the relay's own limit
    /// (`FFMaxMeasurementDuration`).
    fn target_deadline(&self, victim: Victim, fault: Fault) -> Instant {
        match (victim, fault, self.accepted, self.first_second) {
            (Victim::Coordinator, Fault::Freeze, Some(at), None) => at + OwnRelay::MEASUREMENT_MAX,
            _ => self.deadline(),
        }
    }

    /// When the round must be over, by its progress.
    fn deadline(&self) -> Instant {
        let Params { seconds, setup_timeout, report_grace, .. } = self.params;
        let measuring = Duration::from_secs(u64::from(seconds)) + report_grace;
        let noticed = self.frozen.map_or(Instant::ORIGIN, |at| at + SESSION_LOST);
        let deadline = match (self.accepted, self.first_second) {
            (_, Some(at)) => at + measuring.saturating_sub(Duration::from_secs(1)),
            (Some(at), None) => at + setup_timeout + START_DELAY + measuring,
            (None, None) => {
                self.started + START_UP + CONNECTING + setup_timeout + START_DELAY + measuring
            }
        };
        deadline.max(noticed)
    }

    /// Whether a process still takes part in the round.
    fn is_busy(&self, who: Victim) -> bool {
        match who {
            Victim::Coordinator => self.ended.is_none() && !self.is_coordinator_lost,
            // The relay closes the link to a frozen coordinator only after minutes, like any unused link.
            Victim::Target if self.is_coordinator_lost && self.frozen.is_some() => self.is_measured,
            Victim::Target => self.is_measured || !self.processes.is_idle(who),
            Victim::Measurer(_) => !self.processes.is_idle(who),
            Victim::Nobody => false,
        }
    }

    /// Waits until all survivors have ended their parts. Returns when each did, and the deadline.
    fn until_over(
        &mut self,
        dead: Victim,
        fault: Fault,
        interrupt: &Interrupt,
    ) -> Option<(BTreeMap<Victim, Option<Instant>>, Instant)> {
        let survivors =
            || Processes::permanent().chain([Victim::Coordinator]).filter(|who| *who != dead);
        let mut ends: BTreeMap<Victim, Option<Instant>> =
            survivors().map(|who| (who, None)).collect();
        loop {
            self.update();
            let mut is_over = true;
            for who in survivors() {
                // Read before the check, so that the end is not dated too late.
                let now = self.clock.now();
                let end = (!self.is_busy(who)).then_some(now);
                let known = ends.entry(who).or_default();
                // It must be idle at two polls in a row: between two sockets, a process is idle for a moment.
                is_over &= known.is_some() && end.is_some();
                *known = end.and(known.or(end));
            }
            let deadline = self.deadline();
            // While there is a coordinator, the part of an idle survivor may not have begun.
            let is_ended = self.ended.is_some() || self.is_coordinator_lost;
            let last = deadline.max(self.target_deadline(dead, fault));
            if (is_over && is_ended) || self.clock.now() > last + TOLERANCE + PATIENCE {
                return Some((ends, deadline));
            }
            if interrupt.wait(STEP) {
                return None;
            }
        }
    }

    /// The coordinator's result, unless it was killed.
    fn verdict(&mut self, victim: Victim, was_killed: bool) -> Option<Verdict> {
        if victim == Victim::Coordinator && was_killed {
            return None;
        }
        let status = self.ended?;
        // Its last message may still be in the pipe, which closes with the process.
        while let Some((_, value)) = self.coordinator.next_output(self.clock.now() + TOLERANCE) {
            self.last = value;
        }
        Some(Verdict {
            status,
            estimate_mbit_per_s: self.last["estimate_mbit_per_s"].as_f64(),
            is_conclusive: self.last["conclusive"] == true,
            error: self.last["error"].as_str().map(str::to_owned),
        })
    }
}
