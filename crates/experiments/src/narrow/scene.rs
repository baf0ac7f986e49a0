//! Two measurers and a relay, each at a host of its own.

use super::place::{Place, Plan};
use crate::distant::{Relays, enter, measurer_at};
use crate::error::Error;
use crate::mode::Mode;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use lab::wan::{Congestion, HostSpec, Wan, WanSpec, Way};
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

/// The places of the measurers on the stage. All but the first are at the second one's host: the slow one takes part in its
/// stead, and the third beside it.
const AT_FIRST: usize = 0;
const AT_SECOND: usize = 1;
const SLOW: usize = 2;
const BESIDE_SECOND: usize = 3;

/// With this it gets a seventieth of a processor beside a thread that wants all of it: loading a relay with
/// 100 Mbit/s takes a twentieth.
const NICE: i32 = 19;

/// A star of three hosts, the relay and the measurers.
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
        let hosts = [FIRST, SECOND, RELAY].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()))?;
        // This thread goes from host to host: processes and threads that it starts stay where it was. The
        // coordinator is at the first measurer's.
        enter(wan.host(FIRST)?)?;
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
    ) -> Result<Option<Tried>, Error> {
        let way = Way::with_latency(Duration::from_micros(u64::from(rtt_ms) * 500));
        for measurer in [FIRST, SECOND] {
            self.wan.set_way(measurer, RELAY, way)?;
            self.wan.set_way(RELAY, measurer, way)?;
        }
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
        let shares = measurers.into_iter().map(|it| (it, plan.capacity()));
        enter(host)?;
        let (request, pid, mut said) = self.relays.subject(0, plan.limit, &self.stage)?;
        enter(self.wan.host(FIRST)?)?;
        let team = &mut self.stage.team_of(shares, plan.params())?;
        let name =
            format!("{}, {}, {rtt_ms} ms, {}", self.mode.word(), place.words(), self.congestion);
        let trial = Trial { name: &name, team, request, pid, said: &mut said };
        if place == Place::Processor {
            beside_a_busy_thread(|| trial.run(output, interrupt))
        } else {
            trial.run(output, interrupt)
        }
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.relays.stop()
    }
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
