//! A measurer's processor load.

use onion::Duration;
use onion::measure::Traffic;
use serde::{Deserialize, Serialize};

/// The processor time that a measurer needed while it was sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Its threads' processor time.
    pub cpu: Duration,
    /// The time its threads were ready to run and waited for a processor.
    pub waited: Duration,
    /// Both, of the busiest of its threads alone.
    pub busiest: Duration,
    /// The time it was sending.
    pub wall: Duration,
    /// The bytes on its links in that time.
    pub traffic: Traffic,
}

impl WorkerLoad {
    /// Share of the time that its busiest thread ran or wanted to run, from zero to one.
    #[must_use]
    pub fn busy(&self) -> f64 {
        if self.wall.is_zero() {
            return 0.0;
        }
        self.busiest.as_secs_f64() / self.wall.as_secs_f64()
    }

    /// The increase since `before`, by one thread.
    #[must_use]
    pub fn since(self, before: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            waited: self.waited.saturating_sub(before.waited),
            busiest: self.busiest.saturating_sub(before.busiest),
            wall: self.wall.saturating_sub(before.wall),
            traffic: self.traffic - before.traffic,
        }
    }

    /// The load of two threads that ran at the same time.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            waited: self.waited + other.waited,
            busiest: self.busiest.max(other.busiest),
            wall: self.wall.max(other.wall),
            traffic: self.traffic + other.traffic,
        }
    }
}
