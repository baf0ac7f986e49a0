//! One run, on some threads.

use crate::build::{Built, build};
use crate::error::Error;
use crate::network::Network;
use sim::world::{HostFigures, HostId, Mail, Part, Record};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Simulated seconds.
    pub seconds: u32,
    /// Seconds at the beginning that the speed is not judged by.
    pub warm_up_s: u32,
    /// Threads: the result is the same with any number.
    pub threads: u16,
    /// Another seed gives another run.
    pub seed: u64,
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// How hosts are called.
    pub names: Vec<String>,
    /// Transfers that are over, by client and time.
    pub records: Vec<Record>,
    /// What each host has done, in order.
    pub figures: Vec<HostFigures>,
    /// Seconds that were simulated: fewer than planned if somebody has asked to stop.
    pub simulated_s: f64,
    /// Real time in all.
    pub wall: Duration,
    /// Real time, and simulated seconds, after the warm-up.
    pub after_warm_up: Option<(Duration, f64)>,
}

/// Something to tell while it runs: simulated seconds, of so many; and real time so far.
pub type Progress<'a> = &'a (dyn Fn(u32, Duration) + Sync);

struct Shared<'a> {
    barrier: Barrier,
    /// What is sent to each part by the others.
    boxes: Vec<Mutex<Vec<Mail>>>,
    part_of: Vec<usize>,
    windows: u64,
    /// The window before which all stop.
    stop_at: AtomicU64,
    stop: &'a AtomicBool,
    began: Instant,
    warm_up_s: u32,
    progress: Progress<'a>,
}

#[expect(clippy::disallowed_methods, reason = "how long a run takes is one of its results")]
fn real_time() -> Instant {
    Instant::now()
}

/// Runs a network.
///
/// # Errors
/// Where the network cannot work.
pub fn run(
    network: &Network,
    plan: &Plan,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    let built = build(network, plan.seed)?;
    let threads = usize::from(plan.threads.max(1)).min(built.hosts.len());
    let part_of = distribute(&built.loads, threads);
    let window_ns = built.net.window_ns();
    let shared = Shared {
        barrier: Barrier::new(threads),
        boxes: (0..threads).map(|_| Mutex::default()).collect(),
        part_of,
        windows: (u64::from(plan.seconds) * 1_000_000_000).div_ceil(window_ns),
        stop_at: AtomicU64::new(u64::MAX),
        stop,
        began: real_time(),
        warm_up_s: plan.warm_up_s,
        progress,
    };
    let ended = thread::scope(|scope| {
        let start = |number: usize| {
            let (shared, built) = (&shared, &built);
            scope.spawn(move || work(number, built, plan.seed, shared))
        };
        let workers: Vec<_> = (0..threads).map(start).collect();
        let join = |it: thread::ScopedJoinHandle<'_, Ended>| {
            it.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect::<Vec<Ended>>()
    });
    Ok(gather(built, ended, shared.began))
}

struct Ended {
    records: Vec<Record>,
    figures: Vec<HostFigures>,
    now_ns: u64,
    warm_at: Option<(Instant, u64)>,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gather(built: Built, ended: Vec<Ended>, began: Instant) -> Outcome {
    let wall = began.elapsed();
    let now_ns = ended.first().map_or(0, |it| it.now_ns);
    let warm_at = ended.first().and_then(|it| it.warm_at);
    let (mut records, mut figures) = (Vec::new(), Vec::new());
    for part in ended {
        records.extend(part.records);
        figures.extend(part.figures);
    }
    figures.sort_by_key(|it| it.host);
    // Stable: those of a client stay in their order.
    records.sort_by_key(|it| it.client);
    Outcome {
        names: built.names,
        records,
        figures,
        simulated_s: now_ns as f64 * 1e-9,
        wall,
        after_warm_up: warm_at.map(|(at, warm_ns)| {
            let wall = wall.saturating_sub(at.saturating_duration_since(began));
            (wall, (now_ns - warm_ns) as f64 * 1e-9)
        }),
    }
}

/// The part of each host: the next of those that have most to do comes to the part that has least.
fn distribute(loads: &[f64], parts: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by(|a, b| loads[*b].total_cmp(&loads[*a]));
    let mut sums = vec![0.0f64; parts];
    let mut part_of = vec![0; loads.len()];
    for host in order {
        let least = (0..parts).min_by(|a, b| sums[*a].total_cmp(&sums[*b])).unwrap_or(0);
        part_of[host] = least;
        sums[least] += loads[host];
    }
    part_of
}

fn work(number: usize, built: &Built, seed: u64, shared: &Shared<'_>) -> Ended {
    let is_here = |host: &usize| shared.part_of[*host] == number;
    let id = |host: usize| HostId(u32::try_from(host).unwrap_or(u32::MAX));
    let here: Vec<HostId> = (0..built.hosts.len()).filter(is_here).map(id).collect();
    let mut part = Part::new(&built.hosts, &here, (&built.net, &built.paths), seed);
    let mut out: Vec<Vec<Mail>> = shared.boxes.iter().map(|_| Vec::new()).collect();
    let mut inbox = Vec::new();
    let mut records = Vec::new();
    let mut second = 0;
    let mut warm_at = None;
    let lock = |number: usize| shared.boxes[number].lock().unwrap_or_else(PoisonError::into_inner);
    for window in 0..shared.windows {
        if window >= shared.stop_at.load(Ordering::Acquire) {
            break;
        }
        part.pass_window(|mail| out[shared.part_of[mail.to().0 as usize]].push(mail));
        for (to, mails) in out.iter_mut().enumerate().filter(|(_, mails)| !mails.is_empty()) {
            lock(to).append(mails);
        }
        if number == 0 && shared.stop.load(Ordering::Relaxed) {
            // All are in this window or the next.
            shared.stop_at.fetch_min(window + 2, Ordering::AcqRel);
        }
        // Who is first may send what is for later windows before others have taken theirs: that does no harm.
        shared.barrier.wait();
        std::mem::swap(&mut inbox, &mut lock(number));
        inbox.drain(..).for_each(|mail| part.take(mail));
        let now_s = u32::try_from(part.now_ns() / 1_000_000_000).unwrap_or(u32::MAX);
        if now_s > second {
            second = now_s;
            records.append(&mut part.take_records());
            if number == 0 {
                if second >= shared.warm_up_s && warm_at.is_none() {
                    warm_at = Some((real_time(), part.now_ns()));
                }
                (shared.progress)(second, shared.began.elapsed());
            }
        }
    }
    records.append(&mut part.take_records());
    Ended { records, figures: part.figures().collect(), now_ns: part.now_ns(), warm_at }
}
