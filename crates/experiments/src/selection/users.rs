//! Users of the network: clients that download, circuit after circuit, on paths that they choose uniformly.
//!
//! Each has one download under way at any time. So slow relays, which get as many circuits as fast ones, have more than they can carry, and
//! fast ones have nothing to do: as in the network that the paper measured.

use super::scene::Scene;
use super::uniform;
use crate::error::Error;
use client::View;
use client::probe::{self, ProbeError, ProbePlan, Probed};
use link::Clock;
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder, JoinHandle};

/// Of a user's download: a page with its pictures.
pub(super) const BYTES: u64 = 150_000;
/// More than the network needs to fill: a download takes half a minute at its slowest relay.
const PATIENCE: Duration = Duration::from_secs(60);
/// Paths that a user draws at once.
const PATHS: u32 = 200;

/// Users that live until they are stopped.
pub(super) struct Users {
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Probed>>>,
    threads: Vec<JoinHandle<Result<(), Error>>>,
    clock: Clock,
    began: Instant,
}

/// What users had.
pub(super) struct Used {
    pub(super) users: u32,
    pub(super) circuits: Vec<Probed>,
    pub(super) lasted: Duration,
}

impl Users {
    /// Starts so many, at the hosts of the relays in turn. Returns once half as many downloads have been whole, or none in time.
    pub(super) fn start(
        scene: &Scene,
        count: u32,
        seed: u64,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let clock = Clock::start();
        let began = clock.now();
        let mut users = Self {
            is_over: Arc::default(),
            seen: Arc::default(),
            threads: Vec::new(),
            clock,
            began,
        };
        for number in 0..count {
            let (is_over, seen) = (Arc::clone(&users.is_over), Arc::clone(&users.seen));
            let (view, server) = (scene.shared_view(), scene.server());
            let rng = StdRng::seed_from_u64(seed ^ (u64::from(number) + 1).rotate_left(32));
            let body = move || live(&view, server, rng, &is_over, &seen);
            let spawn = || Builder::new().name(format!("user{number}")).spawn(body);
            let thread = scene.at_place(number as usize, spawn)?;
            users.threads.push(thread.map_err(|it| ProbeError::Machine(it.to_string()))?);
        }
        let deadline = clock.now() + PATIENCE;
        let is_whole = |it: &&Probed| it.failure.is_none();
        while clock.now() < deadline && !is_interrupted() {
            let whole = users.seen().iter().filter(is_whole).count();
            if whole >= count as usize / 2 {
                break;
            }
            thread::park_timeout(Duration::from_millis(100));
        }
        Ok(users)
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<Probed>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends them, and tells what they had.
    pub(super) fn stop(mut self) -> Result<Used, Error> {
        let lasted = self.clock.now() - self.began;
        self.is_over.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        let users = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        for thread in threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let circuits = std::mem::take(&mut *self.seen());
        Ok(Used { users, circuits, lasted })
    }
}

impl Drop for Users {
    /// What fails elsewhere leaves no users behind.
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic has been told of where it happened.
            let _ = thread.join();
        }
    }
}

/// A user's life.
fn live(
    view: &View,
    server: SocketAddr,
    mut rng: StdRng,
    is_over: &AtomicBool,
    seen: &Mutex<Vec<Probed>>,
) -> Result<(), Error> {
    let plan = ProbePlan {
        rounds: 0,
        pause: Duration::from_millis(100),
        download: Some((server, BYTES)),
        // Slow is what they are; only what stands still for long is given up.
        download_max: Duration::from_secs(180),
        ..ProbePlan::default()
    };
    let is_ended = || is_over.load(Ordering::Relaxed);
    while !is_ended() {
        let subjects = uniform(view, 3, PATHS, &mut rng)?;
        let each = |probed| {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(probed);
            !is_ended()
        };
        probe::run(plan.clone(), subjects, view, each, is_ended)?;
    }
    Ok(())
}
