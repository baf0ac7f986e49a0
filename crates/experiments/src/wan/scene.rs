//! Relays at one end of a distance, a measurer at the other.

use super::fault::{Act, Fault};
use super::plan::{Path, Plan};
use crate::distant::{Relays, enter};
use crate::error::Error;
use crate::midway::midway;
use crate::mode::Mode;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use coordinator::PathParams;
use lab::wan::{Congestion, Wan, WanSpec, Way};
use measurer::{Progress, Team, TeamOptions};
use onion::{Duration, Instant, Rate};
use rustix::process::{Pid, Signal, kill_process};
use terminal::{Interrupt, Output};

const NEAR: &str = "near";
const FAR: &str = "far";

/// Measurers of the team.
const MEASURERS: u32 = 2;

/// A distance that changes from run to run, and the relays beyond it.
pub(super) struct Scene {
    pub(super) mode: Mode,
    pub(super) congestion: Congestion,
    // In this order: the relays end before their network does.
    relays: Relays,
    /// The coordinator of those that take part.
    stage: Stage,
    wan: Wan,
}

/// A measurement, and how long it took.
pub(super) struct Timed {
    pub(super) tried: Tried,
    pub(super) took: Duration,
    /// From when the path failed for good, if it did.
    pub(super) took_since_fault: Option<Duration>,
}

impl Scene {
    pub(super) fn start(
        plan: &Plan,
        mode: Mode,
        congestion: Congestion,
        output: &Output,
    ) -> Result<Self, Error> {
        let mut spec = WanSpec::pair(Path::NONE.way()).with_seed(plan.seed);
        spec.hosts.iter_mut().for_each(|host| host.congestion = Some(congestion));
        let wan = Wan::start(&spec)?;
        let stage = Stage::new()?;
        let limits: Vec<Rate> = plan.limits.iter().map(|it| Rate::from_mbit_per_s(*it)).collect();
        let relays = Relays::start(mode, &limits, wan.host(FAR)?, &stage, output)?;
        Ok(Self { mode, congestion, relays, stage, wan })
    }

    /// Measures the relay of this number over a distance, with the right guess; `None` if the user has asked
    /// for the end.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        relay: usize,
        path: &Path,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Timed>, Error> {
        set_ways(&self.wan, [path.way(), path.way()])?;
        let limit = Rate::from_mbit_per_s(plan.limits[relay]);
        let (near, far) = (self.wan.host(NEAR)?, self.wan.host(FAR)?);
        enter(far)?;
        let (request, pid, mut said) = self.relays.subject(relay, limit, &self.stage)?;
        let options = TeamOptions {
            measurers: MEASURERS,
            pumps: Some(1),
            // Enough for a guess that has to be doubled.
            capacity: Some(limit.scaled(4.0)),
            address: Some(near.address().into()),
            params: plan.params(),
            path: path
                .sockets
                .map(|first_sockets| PathParams { first_sockets, ..PathParams::default() }),
            ..TeamOptions::default()
        };
        let name = format!(
            "{} {:?} Mbit/s, {path}, {}",
            self.mode.word(),
            plan.limits[relay],
            self.congestion
        );
        enter(near)?;
        let team = &mut Team::new(options)?;
        let clock = self.stage.clock();
        let start = clock.now();
        let trial = Trial { name: &name, team, request, pid, said: &mut said };
        let (tried, broke) = self
            .while_it_breaks(plan, path, pid, |told| trial.run_telling(output, interrupt, told))?;
        let end = clock.now();
        let since = match path.fault {
            Some(Fault::LosesAll) => Some(start),
            Some(fault) if fault.is_fatal() => broke,
            _ => None,
        };
        let took = end - start;
        let took_since_fault = since.map(|since| end - since);
        Ok(tried.map(|tried| Timed { tried, took, took_since_fault }))
    }

    /// Does something, which tells how far it is, during which the path changes, or the relay's process stops, from the plan's moment on, if they do. Says when that was.
    fn while_it_breaks<T>(
        &self,
        plan: &Plan,
        path: &Path,
        relay_pid: u32,
        body: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<T, Error>,
    ) -> Result<(T, Option<Instant>), Error> {
        let acts = path.fault.map(|it| it.acts(path.way())).unwrap_or_default();
        if acts.is_empty() {
            return Ok((body(&mut |_| ())?, None));
        }
        let lead_s = lead_s(plan, path);
        // Also where the body fails: who stands still cannot be ended in order.
        let _going_on = GoingOn(relay_pid);
        let has_come = |told: &Progress| path.fault_at.has_come(told, plan.seconds, lead_s);
        let wan = &self.wan;
        let act = |act| match act {
            Act::Ways(ways) => set_ways(wan, ways),
            Act::Stop => {
                signal(relay_pid, Signal::STOP);
                Ok(())
            }
        };
        midway(self.stage.clock(), has_come, acts, act, body)
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.relays.stop()
    }
}

/// Lets a relay's process go on when it is dropped; one that was not stopped does not notice.
struct GoingOn(u32);

impl Drop for GoingOn {
    fn drop(&mut self) {
        signal(self.0, Signal::CONT);
    }
}

/// One that has ended by itself is told of elsewhere.
fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _gone = pid.map(|pid| kill_process(pid, signal));
}

/// Seconds of load before those that count.
fn lead_s(plan: &Plan, path: &Path) -> u32 {
    let rtt = Duration::from_millis(path.rtt_ms.into());
    PathParams::at_distance(coordinator::Mode::Echo, Rate::ZERO, rtt, plan.seconds).lead_s
}

/// Changes the ways out and back.
fn set_ways(wan: &Wan, [out, back]: [Way; 2]) -> Result<(), Error> {
    wan.set_way(NEAR, FAR, out)?;
    Ok(wan.set_way(FAR, NEAR, back)?)
}
