use link::Traffic;
use onion::Duration;
use serde::{Deserialize, Serialize};

/// How much of its processors a measurer needed while it was sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLoad {
    /// Its threads' processor time.
    pub cpu: Duration,
    /// The time its threads were ready to run and had to wait for a processor.
    pub waited: Duration,
    /// Both, of the busiest of its threads alone.
    pub busiest: Duration,
    /// The time it was sending.
    pub wall: Duration,
    /// What went over its links in that time.
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

    /// What was added since `before`, by one thread.
    pub(crate) fn since(self, before: &Self) -> Self {
        let (now, then) = (self.traffic, before.traffic);
        let traffic = Traffic {
            sent_bytes: now.sent_bytes - then.sent_bytes,
            sent_records: now.sent_records - then.sent_records,
            received_bytes: now.received_bytes - then.received_bytes,
            received_records: now.received_records - then.received_records,
        };
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            waited: self.waited.saturating_sub(before.waited),
            busiest: self.busiest.saturating_sub(before.busiest),
            wall: self.wall.saturating_sub(before.wall),
            traffic,
        }
    }

    /// The load of two threads at the same time.
    pub(crate) fn beside(self, other: &Self) -> Self {
        let (one, two) = (self.traffic, other.traffic);
        let traffic = Traffic {
            sent_bytes: one.sent_bytes + two.sent_bytes,
            sent_records: one.sent_records + two.sent_records,
            received_bytes: one.received_bytes + two.received_bytes,
            received_records: one.received_records + two.received_records,
        };
        Self {
            cpu: self.cpu + other.cpu,
            waited: self.waited + other.waited,
            busiest: self.busiest.max(other.busiest),
            wall: self.wall.max(other.wall),
            traffic,
        }
    }
}
