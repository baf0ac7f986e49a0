//! Users of the network: clients that always download over uniformly chosen paths.
//!
//! Slow relays get as many circuits as fast ones. So slow relays are overloaded and fast ones are almost idle, as in the network that the
//! paper measured.

use super::network::SelectionNetwork;
use super::uniform;
use crate::error::Result;
use crate::prober_pool::{PoolHandle, ProberPool};
use client::NetDir;
use client::probe::{ProbePlan, Probed};
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::SocketAddr;

/// The size of a user's download: a page with its images.
pub(super) const BYTES: u64 = 150_000;
/// The maximum time to wait until users load the network. A download through the slowest relay takes half a minute.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of paths in a batch.
const BATCH: u32 = 200;

/// Running users.
pub(super) struct Users {
    pool: ProberPool,
    count: u32,
}

/// The downloads of users.
pub(super) struct UserDownloads {
    pub(super) users: u32,
    pub(super) circuits: Vec<Probed>,
    pub(super) lasted: Duration,
}

impl Users {
    /// Starts this number of users, on the hosts of the relays in turn. Waits until half that number of downloads has completed, up to
    /// [`PATIENCE`].
    pub(super) fn start(
        network: &SelectionNetwork,
        count: u32,
        seed: u64,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Self> {
        let mut pool = ProberPool::new();
        for number in 0..count {
            let (view, server) = (network.shared_view(), network.server());
            let rng = StdRng::seed_from_u64(seed ^ (u64::from(number) + 1).rotate_left(32));
            let user = move |handle: &PoolHandle| download(&view, server, rng, handle);
            network.at_place(number as usize, || pool.spawn(user))??;
        }
        pool.wait_for(count as usize / 2, PATIENCE, is_interrupted);
        Ok(Self { pool, count })
    }

    /// Ends the users, and returns their downloads.
    pub(super) fn stop(self) -> Result<UserDownloads> {
        let (circuits, lasted) = self.pool.stop()?;
        Ok(UserDownloads { users: self.count, circuits, lasted })
    }
}

/// Downloads until the pool ends.
fn download(view: &NetDir, server: SocketAddr, mut rng: StdRng, handle: &PoolHandle) -> Result<()> {
    let plan = ProbePlan {
        rounds: 0,
        pause: Duration::from_millis(100),
        download: Some((server, BYTES)),
        // Relays are slow: only a transfer without progress fails.
        download_max: Duration::from_secs(180),
        ..ProbePlan::default()
    };
    handle.repeat(&plan, view, || uniform(view, 3, BATCH, &mut rng))
}
