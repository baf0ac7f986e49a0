//! Two measurers, a coordinator and a relay, each at a host of its own.

use super::place::{Place, Plan};
use crate::distant::{Relays, enter, measurer_at};
use crate::error::Error;
use crate::midway::midway;
use crate::mode::Mode;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use coordinator::Outcome;
use lab::wan::{Congestion, HostSpec, Wan, WanSpec, Way};
use measurer::Progress;
use onion::Duration;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{hint, thread};
use terminal::{Interrupt, Output};

const FIRST: &str = "first";
const SECOND: &str = "second";
const RELAY: &str = "relay";
const COORDINATOR: &str = "coordinator";

/// The places of the measurers on the stage. All but the first are at the second one's host: the slow one takes part in its
/// stead, and the third beside it.
const AT_FIRST: usize = 0;
const AT_SECOND: usize = 1;
const SLOW: usize = 2;
const BESIDE_SECOND: usize = 3;

/// With this it gets a seventieth of a processor beside a thread that wants all of it: loading a relay with
/// 100 Mbit/s takes a twentieth.
const NICE: i32 = 19;

/// What came of a relay.
pub(super) struct Measured {
    /// The measurement that counts.
    pub(super) tried: Tried,
    /// The one before it, where one had to fail: with the measurer that can't do its part, or since the paths of all measurers, or the coordinator's, broke.
    pub(super) failed: Option<Outcome>,
}

/// A star of four hosts, the relay and the measurers.
pub(super) struct Scene {
    pub(super) mode: Mode,
    pub(super) congestion: Congestion,
    // In this order: what runs at the hosts ends before they do.
    relays: Relays,
    stage: Stage,
    wan: Wan,
}

impl Scene {
    pub(super) fn start(
        plan: &Plan,
        mode: Mode,
        congestion: Congestion,
        output: &Output,
    ) -> Result<Self, Error> {
        let hosts = [FIRST, SECOND, RELAY, COORDINATOR].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()))?;
        // This thread goes from host to host: processes and threads that it starts stay where it was.
        enter(wan.host(COORDINATOR)?)?;
        let mut stage = Stage::new()?;
        let all = [(FIRST, false), (SECOND, false), (SECOND, true), (SECOND, false)];
        for (name, is_slow) in all {
            // A process is as slow as the thread that starts it.
            let prepare = || if is_slow { slow_down() } else { Ok(()) };
            measurer_at(wan.host(name)?, &mut stage, plan.capacity(), prepare)?;
        }
        let relays = Relays::start(mode, &[plan.limit], wan.host(RELAY)?, &stage, output)?;
        Ok(Self { mode, congestion, relays, stage, wan })
    }

    /// Measures the relay with the right guess, at this round trip and with this narrow place; `None` if the
    /// user has asked for the end.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        place: Place,
        rtt_ms: u32,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Measured>, Error> {
        let way = Way::with_latency(Duration::from_micros(u64::from(rtt_ms) * 500));
        let hosts = [FIRST, SECOND, COORDINATOR];
        let mend = || hosts.iter().try_for_each(|host| set_ways(&self.wan, host, way));
        mend()?;
        let host = self.wan.host(RELAY)?;
        if place == Place::Relay {
            host.shape(plan.link, plan.link_queue_bytes())?;
        } else {
            host.unshape()?;
        }
        self.wan.set_access(SECOND, plan.access(place))?;
        let measurers = match place {
            Place::Processor => vec![AT_FIRST, SLOW],
            // In this order: who knows nothing of hosts takes the first two.
            Place::Host => vec![AT_SECOND, BESIDE_SECOND, AT_FIRST],
            _ => vec![AT_FIRST, AT_SECOND],
        };
        enter(host)?;
        let (request, pid, mut said) = self.relays.subject(0, plan.limit, &self.stage)?;
        enter(self.wan.host(COORDINATOR)?)?;
        let name =
            format!("{}, {}, {rtt_ms} ms, {}", self.mode.word(), place.words(), self.congestion);
        let team_of = |measurers: &[usize]| {
            let shares = measurers.iter().map(|it| (*it, plan.capacity()));
            self.stage.team_of(shares, plan.params())
        };
        let team = &mut team_of(&measurers)?;
        let trial = Trial { name: &name, team, request, pid, said: &mut said };
        let tried = match place {
            Place::Processor => beside_a_busy_thread(|| trial.run(output, interrupt)),
            Place::Breaks | Place::All | Place::Coordinator => {
                let whose: &[&str] = match place {
                    Place::Breaks => &[SECOND],
                    Place::All => &[FIRST, SECOND],
                    _ => &[COORDINATOR],
                };
                let run =
                    |told: &mut dyn FnMut(&Progress)| trial.run_telling(output, interrupt, told);
                self.while_they_break(plan, whose, way, run)
            }
            Place::Gone => {
                set_ways(&self.wan, SECOND, way.broken())?;
                trial.run(output, interrupt)
            }
            _ => trial.run(output, interrupt),
        };
        let Some(tried) = tried? else { return Ok(None) };
        if !place.fails() {
            return Ok(Some(Measured { tried, failed: None }));
        }
        // As a coordinator does.
        let still_there = if place.is_lost() {
            &measurers[..1]
        } else {
            mend()?;
            &measurers
        };
        let team = &mut team_of(still_there)?;
        let again = Trial { name: &name, team, request, pid, said: &mut said };
        let failed = Some(tried.outcome);
        Ok(again.run(output, interrupt)?.map(|tried| Measured { tried, failed }))
    }

    /// Does something during which somebody's paths break, after a quarter of the seconds: the silence must be long enough to be told before
    /// the round is over.
    ///
    /// # Errors
    /// Also where it was over before that: how it ended says nothing then.
    fn while_they_break(
        &self,
        plan: &Plan,
        whose: &[&str],
        way: Way,
        body: impl FnOnce(&mut dyn FnMut(&Progress)) -> Result<Option<Tried>, Error>,
    ) -> Result<Option<Tried>, Error> {
        let breaks_at = plan.seconds / 4;
        let has_come = |told: &Progress| matches!(told, Progress::Second { index, .. } if *index + 1 >= breaks_at);
        let acts = vec![(Duration::ZERO, way.broken())];
        let wan = &self.wan;
        let set = |way| whose.iter().try_for_each(|host| set_ways(wan, host, way));
        match midway(self.stage.clock(), has_come, acts, set, body)? {
            (Some(tried), None) => Err(Error::Failed(format!(
                "the measurement was over before the path broke: {}",
                tried.outcome
            ))),
            (tried, _) => Ok(tried),
        }
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.relays.stop()
    }
}

/// Changes a host's path to the relay, both ways.
fn set_ways(wan: &Wan, host: &str, way: Way) -> Result<(), Error> {
    wan.set_way(host, RELAY, way)?;
    Ok(wan.set_way(RELAY, host, way)?)
}

/// The processor that the slow measurer shares: the last that this thread may use.
fn shared_processor() -> Result<CpuSet, Error> {
    let mine = sched_getaffinity(None).map_err(refused)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| mine.is_set(*cpu));
    let mut set = CpuSet::new();
    set.set(last.unwrap_or_default());
    Ok(set)
}

/// Lets this thread, and what it starts, have little of one processor if others want it.
fn slow_down() -> Result<(), Error> {
    sched_setaffinity(None, &shared_processor()?).map_err(refused)?;
    setpriority_process(None, NICE).map_err(refused)
}

/// Does something while a thread wants all of that processor.
fn beside_a_busy_thread<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let set = shared_processor()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let spin = || {
            sched_setaffinity(None, &set).map_err(refused)?;
            while !is_over.load(Ordering::Relaxed) {
                hint::spin_loop();
            }
            Ok::<(), Error>(())
        };
        let busy = scope.spawn(spin);
        let spinning = Spinning(&is_over);
        let done = body();
        drop(spinning);
        busy.join().map_err(|_| stopped())??;
        done
    })
}

/// Ends a busy thread, also when what is done meanwhile panics.
struct Spinning<'a>(&'a AtomicBool);

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn refused(error: rustix::io::Errno) -> Error {
    Error::Network(format!("a processor cannot be shared: {error}"))
}

fn stopped() -> Error {
    Error::Network("the thread that keeps a processor busy has stopped".to_owned())
}
