//! What happens to packets from one host to another: what is asked for.

use onion::{Duration, Rate};

/// What may wait before a narrow place; the packet that is being sent counts. A packet that finds the
/// queue too full is dropped, one that finds it empty never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// So many bytes.
    Bytes(u64),
    /// As much as is sent in this time.
    Time(Duration),
}

/// A place that sends one packet after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrow {
    /// How fast, in bytes of IP packets.
    pub rate: Rate,
    /// What may wait there.
    pub queue: Queue,
}

/// Which packets are lost by chance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each with this probability, whatever became of those before it.
    Random {
        /// From 0 to 1.
        share: f64,
    },
    /// In bursts (Gilbert's model): what is lost in the long run, and how many packets in a row.
    Bursts {
        /// From 0 to less than 1.
        share: f64,
        /// At least 1, and at least `share / (1 - share)`.
        mean_packets: f64,
    },
}

impl Loss {
    /// Nothing is lost.
    pub const NONE: Self = Self::Random { share: 0.0 };

    /// Probabilities that a good packet is followed by a lost one, and a lost one by a good one.
    pub(super) fn turns(self) -> (f64, f64) {
        match self {
            Self::Random { share } => (share, 1.0 - share),
            Self::Bursts { share, mean_packets } => {
                let recovers = 1.0 / mean_packets;
                (recovers * share / (1.0 - share), recovers)
            }
        }
    }

    fn problem(self) -> Option<String> {
        match self {
            Self::Random { share } => is_no_share(share).then(|| format!("a loss of {share}")),
            Self::Bursts { share, mean_packets } => {
                let (falls, recovers) = self.turns();
                let is_possible = (0.0..1.0).contains(&share)
                    && (0.0..=1.0).contains(&falls)
                    && recovers > 0.0
                    && recovers <= 1.0;
                (!is_possible)
                    .then(|| format!("a loss of {share} in bursts of {mean_packets} packets"))
            }
        }
    }
}

/// How delays differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// At most so much is added to the latency, half of it on average.
    pub up_to: Duration,
    /// If set, each packet draws a delay of its own, and so packets overtake each other. If not, the delay
    /// wanders: it goes from one drawn value to the next, slowly enough that all stays in order.
    pub reorders: bool,
}

/// Packets that others overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordering {
    /// Which share of them, from 0 to 1.
    pub share: f64,
    /// For how long they are held back.
    pub held_back: Duration,
}

/// What happens to packets from one host to another, in this order: blackhole, loss, the narrow place, latency
/// and jitter, reordering, duplication.
///
/// The default is a perfect way: no latency, no loss, no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// How long each packet takes, at the least.
    pub latency: Duration,
    /// What is added to that.
    pub jitter: Jitter,
    /// What is lost by chance.
    pub loss: Loss,
    /// A narrow place, if there is one.
    pub narrow: Option<Narrow>,
    /// Packets that are held back.
    pub reordering: Reordering,
    /// Share of packets that arrive twice, from 0 to 1.
    pub duplicate_share: f64,
    /// Nothing arrives, and nobody is told.
    pub is_blackhole: bool,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Jitter { up_to: Duration::ZERO, reorders: false },
            loss: Loss::NONE,
            narrow: None,
            reordering: Reordering { share: 0.0, held_back: Duration::ZERO },
            duplicate_share: 0.0,
            is_blackhole: false,
        }
    }
}

impl Way {
    /// A way with this latency, and nothing else.
    #[must_use]
    pub fn with_latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// The same, losing each packet with this probability.
    #[must_use]
    pub fn losing(self, share: f64) -> Self {
        Self { loss: Loss::Random { share }, ..self }
    }

    /// The same, losing this share in bursts of so many packets on average.
    #[must_use]
    pub fn losing_in_bursts(self, share: f64, mean_packets: f64) -> Self {
        Self { loss: Loss::Bursts { share, mean_packets }, ..self }
    }

    /// The same, with a narrow place.
    #[must_use]
    pub fn narrowed_to(self, rate: Rate, queue: Queue) -> Self {
        Self { narrow: Some(Narrow { rate, queue }), ..self }
    }

    /// The same, on which nothing arrives.
    #[must_use]
    pub fn broken(self) -> Self {
        Self { is_blackhole: true, ..self }
    }

    /// What is asked for that cannot be.
    pub(super) fn problem(&self) -> Option<String> {
        /// Longer than any packet lives.
        const LONGEST: Duration = Duration::from_secs(60);
        let Self { latency, jitter, loss, narrow, reordering, duplicate_share, .. } = *self;
        if let Some(problem) = loss.problem() {
            return Some(problem);
        }
        if is_no_share(reordering.share) {
            return Some(format!("a share of {} held back", reordering.share));
        }
        if is_no_share(duplicate_share) {
            return Some(format!("a share of {duplicate_share} duplicated"));
        }
        let delays = [latency, jitter.up_to, reordering.held_back];
        if let Some(delay) = delays.into_iter().find(|&delay| delay > LONGEST) {
            return Some(format!("a delay of {delay:?}, more than {LONGEST:?}"));
        }
        narrow.and_then(|narrow| narrow.problem())
    }
}

impl Narrow {
    pub(super) fn problem(self) -> Option<String> {
        (self.rate.as_byte_per_s() == 0).then(|| "a narrow place without a rate".to_owned())
    }
}

fn is_no_share(share: f64) -> bool {
    !(0.0..=1.0).contains(&share)
}
