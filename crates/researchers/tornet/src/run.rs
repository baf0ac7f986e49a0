//! One run on several threads.

use crate::build::{Built, Guests, build};
use crate::error::Error;
use crate::network::Network;
use sim::world::{CircuitTimes, HostFigures, HostId, Mail, Part, Record, TeamOrder, TeamReport};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Simulated seconds.
    pub seconds: u32,
    /// The warm-up in seconds, which does not count for the speed.
    pub warm_up_s: u32,
    /// Threads: the result does not depend on their number.
    pub threads: u16,
    /// The random seed.
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The hosts' names.
    pub names: Vec<String>,
    /// Transfers that have ended, by client and time; after those of each client, its transfers that were
    /// running at the end.
    pub records: Vec<Record>,
    /// The circuits that scanners have measured, by scanner and time.
    pub probed: Vec<CircuitTimes>,
    /// The statistics of each host, in order.
    pub figures: Vec<HostFigures>,
    /// Simulated seconds: fewer than planned if the run was interrupted.
    pub simulated_s: f64,
    /// Real time in all.
    pub wall: Duration,
    /// Real time, and simulated seconds, after the warm-up.
    pub after_warm_up: Option<(Duration, f64)>,
}

/// A progress report: simulated seconds, their planned number, and the real time so far.
pub type Progress<'a> = &'a (dyn Fn(u32, Duration) + Sync);

/// Gives orders to a team according to its reports: between two windows, so that the world does not depend on
/// the number of threads.
pub(crate) trait Director: Send {
    /// Handles the reports of the window that has just been run, by host, and the number of scanners' probes
    /// that have ended in the last second, if one has. Orders take effect immediately.
    fn direct(&mut self, now_ns: u64, news: News, orders: &mut Vec<(HostId, TeamOrder)>);

    /// Nothing is left to do: the run ends.
    fn is_over(&self) -> bool;
}

/// What a [`Director`] is informed of.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) reports: Vec<TeamReport>,
    pub(crate) ended_probes: u64,
}

/// A director, and the reports and orders exchanged with it.
#[derive(Default)]
struct SharedBalance<'d> {
    director: Option<&'d mut (dyn Director + 'd)>,
    news: News,
    orders: Vec<(HostId, TeamOrder)>,
}

struct Shared<'a, 'd> {
    balance: Mutex<SharedBalance<'d>>,
    has_director: bool,
    barrier: Barrier,
    /// Mail to each part from the others.
    boxes: Vec<Mutex<Vec<Mail>>>,
    part_of: Vec<usize>,
    windows: u64,
    /// The window before which all threads stop.
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
/// If the network cannot work.
pub fn run(
    network: &Network,
    plan: &Plan,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    run_with(network, plan, &Guests::default(), None, stop, progress)
}

/// Runs a network with guests and their director.
pub(crate) fn run_with<'d>(
    network: &Network,
    plan: &Plan,
    guests: &Guests,
    director: Option<&'d mut (dyn Director + 'd)>,
    stop: &AtomicBool,
    progress: Progress<'_>,
) -> Result<Outcome, Error> {
    let built = build(network, guests, plan.seed)?;
    let threads = usize::from(plan.threads.max(1)).min(built.hosts.len());
    let part_of = distribute(&built.loads, threads);
    let window_ns = built.net.window_ns();
    let shared = Shared {
        has_director: director.is_some(),
        balance: Mutex::new(SharedBalance { director, ..SharedBalance::default() }),
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
        let join = |worker: thread::ScopedJoinHandle<'_, Ended>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect::<Vec<Ended>>()
    });
    Ok(gather(built, ended, shared.began))
}

impl<'d> Shared<'_, 'd> {
    fn balance(&self) -> MutexGuard<'_, SharedBalance<'d>> {
        self.balance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All threads collect their hosts' reports; one calls the director; all give the orders to their hosts.
    fn direct(&self, number: usize, window: u64, part: &mut Part) {
        self.balance().news.reports.append(&mut part.take_reports());
        self.barrier.wait();
        if number == 0 {
            let mut balance = self.balance();
            let SharedBalance { director, news, orders } = &mut *balance;
            let mut news = std::mem::take(news);
            // Stable: the reports of a host stay in order.
            news.reports.sort_by_key(|report| (report.at_ns, report.from));
            orders.clear();
            if let Some(director) = director {
                director.direct(part.now_ns(), news, orders);
                if director.is_over() {
                    self.stop_at.fetch_min(window + 1, Ordering::AcqRel);
                }
            }
        }
        self.barrier.wait();
        for (host, order) in &self.balance().orders {
            part.order(*host, order.clone());
        }
        // No thread collects the next reports before all have their orders: a window with its barrier is in
        // between.
    }
}

struct Ended {
    records: Vec<Record>,
    probed: Vec<CircuitTimes>,
    figures: Vec<HostFigures>,
    now_ns: u64,
    warm_at: Option<(Instant, u64)>,
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gather(built: Built, ended: Vec<Ended>, began: Instant) -> Outcome {
    let wall = began.elapsed();
    let now_ns = ended.first().map_or(0, |part| part.now_ns);
    let warm_at = ended.first().and_then(|part| part.warm_at);
    let (mut records, mut probed, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    for part in ended {
        records.extend(part.records);
        probed.extend(part.probed);
        figures.extend(part.figures);
    }
    figures.sort_by_key(|figure| figure.host);
    // Stable: the transfers of a client stay in order.
    records.sort_by_key(|record| record.client);
    probed.sort_by_key(|circuit| circuit.client);
    Outcome {
        names: built.names,
        records,
        probed,
        figures,
        simulated_s: now_ns as f64 * 1e-9,
        wall,
        after_warm_up: warm_at.map(|(at, warm_ns)| {
            let wall = wall.saturating_sub(at.saturating_duration_since(began));
            (wall, (now_ns - warm_ns) as f64 * 1e-9)
        }),
    }
}

/// The part of each host: the next busiest host goes to the part with the least work.
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

fn work(number: usize, built: &Built, seed: u64, shared: &Shared<'_, '_>) -> Ended {
    let is_here = |host: &usize| shared.part_of[*host] == number;
    let id = |host: usize| HostId(u32::try_from(host).unwrap_or(u32::MAX));
    let here: Vec<HostId> = (0..built.hosts.len()).filter(is_here).map(id).collect();
    let mut part = Part::new(&built.hosts, &here, &built.net, &built.paths, seed);
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
            // All mail is for this window or the next.
            shared.stop_at.fetch_min(window + 2, Ordering::AcqRel);
        }
        // A faster thread may send mail for later windows before others have taken theirs: that is harmless.
        shared.barrier.wait();
        std::mem::swap(&mut inbox, &mut lock(number));
        inbox.drain(..).for_each(|mail| part.take(mail));
        let now_s = u32::try_from(part.now_ns() / 1_000_000_000).unwrap_or(u32::MAX);
        if now_s > second {
            second = now_s;
            let mut ended = part.take_records();
            let probes = ended.iter().filter(|record| record.probe.is_some()).count();
            if probes > 0 && shared.has_director {
                shared.balance().news.ended_probes += probes as u64;
            }
            records.append(&mut ended);
            if number == 0 {
                if second >= shared.warm_up_s && warm_at.is_none() {
                    warm_at = Some((real_time(), part.now_ns()));
                }
                (shared.progress)(second, shared.began.elapsed());
            }
        }
        if shared.has_director {
            shared.direct(number, window, &mut part);
        }
    }
    records.append(&mut part.take_records());
    records.extend(part.under_way());
    let probed = part.take_circuit_times();
    Ended { records, probed, figures: part.figures().collect(), now_ns: part.now_ns(), warm_at }
}
