//! Users of the network: clients that download, circuit after circuit, on paths that they choose uniformly.
//!
//! Each has one download under way at any time. So slow relays, which get as many circuits as fast ones, have more than they can carry, and
//! fast ones have nothing to do: as in the network that the paper measured.

use super::scene::SelectionNetwork;
use super::uniform;
use crate::error::Result;
use crate::prober_pool::{PoolHandle, ProberPool};
use client::NetDir;
use client::probe::{self, ProbePlan, Probed};
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::SocketAddr;

/// Of a user's download: a page with its pictures.
pub(super) const BYTES: u64 = 150_000;
/// More than the network needs to fill: a download takes half a minute at its slowest relay.
const PATIENCE: Duration = Duration::from_secs(60);
/// Paths that a user draws at once.
const PATHS: u32 = 200;

/// Users that live until they are stopped.
pub(super) struct Users {
    pool: ProberPool,
    count: u32,
}

/// What users had.
pub(super) struct Used {
    pub(super) users: u32,
    pub(super) circuits: Vec<Probed>,
    pub(super) lasted: Duration,
}

impl Users {
    /// Starts this number of users, at the hosts of the relays in turn. Returns once half as many downloads have completed, or none in time.
    pub(super) fn start(
        scene: &SelectionNetwork,
        count: u32,
        seed: u64,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Self> {
        let mut pool = ProberPool::new();
        for number in 0..count {
            let (view, server) = (scene.shared_view(), scene.server());
            let rng = StdRng::seed_from_u64(seed ^ (u64::from(number) + 1).rotate_left(32));
            let life = move |handle: &PoolHandle| live(&view, server, rng, handle);
            scene.at_place(number as usize, || pool.spawn(life))??;
        }
        pool.wait_for(count as usize / 2, PATIENCE, is_interrupted);
        Ok(Self { pool, count })
    }

    /// Ends them, and returns what they downloaded.
    pub(super) fn stop(self) -> Result<Used> {
        let (circuits, lasted) = self.pool.stop()?;
        Ok(Used { users: self.count, circuits, lasted })
    }
}

/// A user's life.
fn live(view: &NetDir, server: SocketAddr, mut rng: StdRng, handle: &PoolHandle) -> Result<()> {
    let plan = ProbePlan {
        rounds: 0,
        pause: Duration::from_millis(100),
        download: Some((server, BYTES)),
        // They are slow; only a transfer without progress is given up.
        download_max: Duration::from_secs(180),
        ..ProbePlan::default()
    };
    while !handle.must_stop() {
        let subjects = uniform(view, 3, PATHS, &mut rng)?;
        probe::run(
            plan.clone(),
            subjects,
            view,
            |probed| handle.record(probed),
            || handle.must_stop(),
        )?;
    }
    Ok(())
}
