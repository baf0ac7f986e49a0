//! One round: a measurement in which somebody may be killed.

use super::cast::Processes;
use super::plan::{Blow, Fate, Victim};
use super::traces::Sockets;
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

/// How often we look.
const STEP: Duration = Duration::from_millis(10);

/// What survivors may be late by.
pub(super) const TOLERANCE: Duration = Duration::from_secs(4);

/// A process that is later than that is watched for this time, to know how late.
const PATIENCE: Duration = Duration::from_secs(15);

/// A process and its keys take so long to come to be, at most, before its first deadline runs.
const START_UP: Duration = Duration::from_secs(3);

/// What it takes the coordinator to reach its measurers, at most (`control`'s limit).
const CONNECTING: Duration = Duration::from_secs(8);

/// A session whose other end does not answer is lost after so long, at most (`control`'s limits).
const SESSION_LOST: Duration = Duration::from_secs(12);

/// From the order to start to the start.
const START_DELAY: Duration = Duration::from_millis(500);

/// What happened in a round. Times count from its beginning.
#[derive(Debug)]
pub(super) struct CrashRound {
    pub(super) fate: Fate,
    pub(super) blow: Blow,
    /// When the victim was killed, and in which phase; `None` if nobody was.
    pub(super) kill: Option<(Duration, Phase)>,
    /// The round's deadline, by what was known when the victim was killed or the coordinator ended.
    pub(super) deadline: Duration,
    /// The patience for the relay, which has limits of its own.
    pub(super) target_deadline: Duration,
    /// When each survivor had ended its part; `None` if it had not when we lost patience.
    pub(super) ends: BTreeMap<Victim, Option<Duration>>,
    /// What the coordinator left, if it ended by itself.
    pub(super) verdict: Option<Verdict>,
    /// What the measurers' sockets got in each second of the measurement, by the kernel.
    pub(super) got: Vec<Rate>,
    /// Orders and proofs that the relay refused.
    pub(super) refusals: Vec<String>,
    /// What is left of the round.
    pub(super) remains: Vec<String>,
    /// Where the victim listened.
    pub(super) address: Option<std::net::SocketAddr>,
}

/// How far a round had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The relay had not accepted it yet.
    Beginning,
    /// It had, and less than a second was measured.
    Opening,
    /// So many seconds were over.
    Measuring(usize),
    /// The coordinator had ended.
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

/// What is seen of a round that is on.
struct Watch<'c> {
    cast: &'c mut Processes,
    coordinator: OwnProcess,
    clock: Clock,
    params: Params,
    begun: Instant,
    /// When the relay accepted it, and reported its first second.
    accepted: Option<Instant>,
    first_second: Option<Instant>,
    /// When the relay has told of each second.
    told: Vec<Instant>,
    is_measured: bool,
    refusals: Vec<String>,
    /// The coordinator's last word, and how it ended.
    last: Value,
    ended: Option<ExitStatus>,
    is_coordinator_lost: bool,
    /// When somebody was frozen.
    frozen: Option<Instant>,
}

/// Plays a round of which `length` is expected. `None` if it was interrupted.
pub(super) fn play(
    cast: &mut Processes,
    fate: Fate,
    blow: Blow,
    params: Params,
    length: Duration,
    clock: Clock,
    interrupt: &Interrupt,
) -> Result<Option<CrashRound>> {
    let address = cast.address(fate.victim);
    let witness = cast.witness()?;
    let begun = clock.now();
    let coordinator = cast.coordinator(params.seconds)?;
    let mut watch = Watch {
        cast,
        coordinator,
        clock,
        params,
        begun,
        accepted: None,
        first_second: None,
        told: Vec::new(),
        is_measured: false,
        refusals: Vec::new(),
        last: Value::Null,
        ended: None,
        is_coordinator_lost: false,
        frozen: None,
    };
    let mut kill = None;
    if fate.victim != Victim::Nobody {
        let at = begun + length.mul_f64(fate.at);
        while clock.now() < at {
            if interrupt.wait(STEP.min(at - clock.now())) {
                return Ok(None);
            }
            watch.look();
        }
        watch.look();
        let phase = watch.phase();
        if !(fate.victim == Victim::Coordinator && phase == Phase::Over) {
            watch.strike(fate.victim, blow);
            kill = Some((clock.now() - begun, phase));
        }
    }
    let Some((ends, deadline)) = watch.until_over(fate.victim, blow, interrupt) else {
        return Ok(None);
    };
    let target_deadline = watch.target_deadline(fate.victim, blow) - begun;
    if kill.is_some() {
        // What was frozen is not to be left.
        watch.strike(fate.victim, Blow::Kill);
    }
    let verdict = watch.verdict(fate.victim, kill.is_some());
    let Watch { told, refusals, coordinator, .. } = watch;
    // Also one that hangs.
    drop(coordinator);
    let ends = ends.into_iter().map(|(who, at)| (who, at.map(|at| at - begun))).collect();
    let dead = if kill.is_some() { fate.victim } else { Victim::Nobody };
    let mut remains = cast.remains(dead);
    // The others may just be hearing of the end.
    let patience = clock.now() + TOLERANCE;
    while !remains.is_empty() && clock.now() < patience && !interrupt.wait(STEP) {
        remains = cast.remains(dead);
    }
    let deadline = deadline - begun;
    if let Some(problem) = witness.problem() {
        return Err(Error::Witness(problem));
    }
    let got = trial::round_start(told.iter().copied()).map_or_else(Vec::new, |began| {
        let count = u32::try_from(told.len()).unwrap_or(u32::MAX);
        witness.seconds_from(0, began, count).into_iter().map(Rate::from_mbit_per_s).collect()
    });
    Ok(Some(CrashRound {
        fate,
        blow,
        kill,
        deadline,
        target_deadline,
        ends,
        verdict,
        got,
        refusals,
        remains,
        address,
    }))
}

impl Watch<'_> {
    /// Takes in what has been said.
    fn look(&mut self) {
        let now = self.clock.now();
        while let Some((_, value)) = self.coordinator.next_output(now) {
            self.last = value;
        }
        if self.ended.is_none() {
            self.ended = self.coordinator.end();
        }
        while let Some((at, value)) = self.cast.relay().process.next_output(now) {
            match value["type"].as_str() {
                Some("accepted") => {
                    self.accepted.get_or_insert(at);
                    self.is_measured = true;
                }
                Some("second") => {
                    self.first_second.get_or_insert(at);
                    self.told.push(at);
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
            (None, _, Some(_)) => Phase::Measuring(self.told.len()),
            (None, Some(_), None) => Phase::Opening,
            (None, None, None) => Phase::Beginning,
        }
    }

    fn strike(&mut self, victim: Victim, blow: Blow) {
        match (victim, blow) {
            (Victim::Coordinator, Blow::Kill) => self.coordinator.kill(),
            (Victim::Coordinator, Blow::Freeze) => self.coordinator.freeze(),
            (_, Blow::Kill) => self.cast.kill(victim),
            (_, Blow::Freeze) => self.cast.freeze(victim),
        }
        if blow == Blow::Freeze {
            self.frozen = Some(self.clock.now());
        }
        self.is_coordinator_lost |= victim == Victim::Coordinator;
    }

    /// When the relay must be free again. Without a coordinator that answers, and without a cell, that
    /// is when its operator has had enough (`FFMaxMeasurementDuration`).
    fn target_deadline(&self, victim: Victim, blow: Blow) -> Instant {
        match (victim, blow, self.accepted, self.first_second) {
            (Victim::Coordinator, Blow::Freeze, Some(at), None) => at + OwnRelay::MEASUREMENT_MAX,
            _ => self.deadline(),
        }
    }

    /// When all must be over, by what is known: each phase has its time.
    fn deadline(&self) -> Instant {
        let Params { seconds, setup_timeout, report_grace, .. } = self.params;
        let measuring = Duration::from_secs(u64::from(seconds)) + report_grace;
        let noticed = self.frozen.map_or(Instant::ORIGIN, |at| at + SESSION_LOST);
        let deadline = match (self.accepted, self.first_second) {
            (_, Some(at)) => at + measuring.saturating_sub(Duration::from_secs(1)),
            (Some(at), None) => at + setup_timeout + START_DELAY + measuring,
            (None, None) => {
                self.begun + START_UP + CONNECTING + setup_timeout + START_DELAY + measuring
            }
        };
        deadline.max(noticed)
    }

    /// Whether it has a part in the round still.
    fn is_busy(&self, who: Victim) -> bool {
        match who {
            Victim::Coordinator => self.ended.is_none() && !self.is_coordinator_lost,
            // The link to a coordinator that is frozen is closed as any that nobody uses: after minutes.
            Victim::Target if self.is_coordinator_lost && self.frozen.is_some() => self.is_measured,
            Victim::Target => {
                self.is_measured
                    || self.cast.sockets(who) != Sockets { listening: 1, connections: 0 }
            }
            Victim::Measurer(_) => {
                self.cast.sockets(who) != Sockets { listening: 1, connections: 0 }
            }
            Victim::Nobody => false,
        }
    }

    /// Waits for the end of all survivors' parts; says when each came, and the deadline.
    fn until_over(
        &mut self,
        dead: Victim,
        blow: Blow,
        interrupt: &Interrupt,
    ) -> Option<(BTreeMap<Victim, Option<Instant>>, Instant)> {
        let survivors =
            || Processes::lasting().chain([Victim::Coordinator]).filter(|who| *who != dead);
        let mut ends: BTreeMap<Victim, Option<Instant>> =
            survivors().map(|who| (who, None)).collect();
        loop {
            self.look();
            let mut is_over = true;
            for who in survivors() {
                // The clock is read first: it was idle then, or a moment later.
                let now = self.clock.now();
                let end = (!self.is_busy(who)).then_some(now);
                let known = ends.entry(who).or_default();
                // Over only if it was already when we looked last: nobody is between two sockets then.
                is_over &= known.is_some() && end.is_some();
                *known = end.and(known.or(end));
            }
            let deadline = self.deadline();
            // A survivor that is idle may have its part before it, as long as there is a coordinator.
            let is_ended = self.ended.is_some() || self.is_coordinator_lost;
            let last = deadline.max(self.target_deadline(dead, blow));
            if (is_over && is_ended) || self.clock.now() > last + TOLERANCE + PATIENCE {
                return Some((ends, deadline));
            }
            if interrupt.wait(STEP) {
                return None;
            }
        }
    }

    /// What the coordinator came to by itself.
    fn verdict(&mut self, victim: Victim, was_killed: bool) -> Option<Verdict> {
        if victim == Victim::Coordinator && was_killed {
            return None;
        }
        let status = self.ended?;
        // What it said last may still be under way to us; its output ends with it.
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
