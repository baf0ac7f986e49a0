//! Paths: the impairments of packets from one host to another.

use onion::{Duration, Rate};

/// The queue of a bottleneck, including the packet that is being sent. A packet that finds the queue full is
/// dropped; one that finds it empty never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// This number of bytes.
    Bytes(u64),
    /// The bytes sent in this time.
    Time(Duration),
}

/// A bottleneck: sends one packet after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The rate, in bytes of IP packets.
    pub rate: Rate,
    /// The queue length.
    pub queue: Queue,
}

/// Random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Each packet with this probability, independently.
    Random {
        /// From 0 to 1.
        share: f64,
    },
    /// In bursts (Gilbert's model): the loss rate in the long run, and the mean burst length in packets.
    Bursts {
        /// From 0 to less than 1.
        share: f64,
        /// At least 1, and at least `share / (1 - share)`.
        mean_packets: f64,
    },
}

impl Loss {
    /// No loss.
    pub const NONE: Self = Self::Random { share: 0.0 };

    /// The transition probabilities from good to lost, and from lost to good.
    pub(super) fn transitions(self) -> (f64, f64) {
        match self {
            Self::Random { share } => (share, 1.0 - share),
            Self::Bursts { share, mean_packets } => {
                let to_good = 1.0 / mean_packets;
                (to_good * share / (1.0 - share), to_good)
            }
        }
    }

    fn problem(self) -> Option<String> {
        match self {
            Self::Random { share } => is_no_share(share).then(|| format!("a loss of {share}")),
            Self::Bursts { share, mean_packets } => {
                let (to_lost, to_good) = self.transitions();
                let is_possible = (0.0..1.0).contains(&share)
                    && (0.0..=1.0).contains(&to_lost)
                    && to_good > 0.0
                    && to_good <= 1.0;
                (!is_possible)
                    .then(|| format!("a loss of {share} in bursts of {mean_packets} packets"))
            }
        }
    }
}

/// The variation of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter {
    /// The maximum addition to the latency; its mean is half of that.
    pub up_to: Duration,
    /// If set, each packet draws its own delay, so packets overtake each other. Otherwise the delay is
    /// correlated: it moves from one drawn value to the next, slowly enough that packets stay in order.
    pub reorders: bool,
}

/// Reordering: packets that others overtake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reordering {
    /// Their share, from 0 to 1.
    pub share: f64,
    /// Their additional delay.
    pub held_back: Duration,
}

/// The impairments of packets from one host to another, in this order: blackhole, loss, bottleneck, latency and
/// jitter, reordering, duplication.
///
/// The default is perfect: no latency, no loss, no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WanPath {
    /// The minimum delay of each packet.
    pub latency: Duration,
    /// The jitter.
    pub jitter: Jitter,
    /// Random loss.
    pub loss: Loss,
    /// The bottleneck, if there is one.
    pub bottleneck: Option<Bottleneck>,
    /// Reordering.
    pub reordering: Reordering,
    /// The share of packets that are duplicated, from 0 to 1.
    pub duplicate_share: f64,
    /// A blackhole: all packets are dropped silently.
    pub is_blackhole: bool,
}

impl Default for WanPath {
    fn default() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Jitter { up_to: Duration::ZERO, reorders: false },
            loss: Loss::NONE,
            bottleneck: None,
            reordering: Reordering { share: 0.0, held_back: Duration::ZERO },
            duplicate_share: 0.0,
            is_blackhole: false,
        }
    }
}

impl WanPath {
    /// A path with this latency and no other impairment.
    #[must_use]
    pub fn with_latency(latency: Duration) -> Self {
        Self { latency, ..Self::default() }
    }

    /// Adds independent loss with this probability.
    #[must_use]
    pub fn with_loss(self, share: f64) -> Self {
        Self { loss: Loss::Random { share }, ..self }
    }

    /// Adds loss of this share in bursts of this mean length.
    #[must_use]
    pub fn with_burst_loss(self, share: f64, mean_packets: f64) -> Self {
        Self { loss: Loss::Bursts { share, mean_packets }, ..self }
    }

    /// Adds a bottleneck.
    #[must_use]
    pub fn with_bottleneck(self, rate: Rate, queue: Queue) -> Self {
        Self { bottleneck: Some(Bottleneck { rate, queue }), ..self }
    }

    /// Makes the path a blackhole.
    #[must_use]
    pub fn blackholed(self) -> Self {
        Self { is_blackhole: true, ..self }
    }

    /// Why the path is invalid.
    pub(super) fn problem(&self) -> Option<String> {
        /// Longer than any packet's lifetime.
        const LONGEST: Duration = Duration::from_secs(60);
        let Self { latency, jitter, loss, bottleneck, reordering, duplicate_share, .. } = *self;
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
        bottleneck.and_then(|bottleneck| bottleneck.problem())
    }
}

impl Bottleneck {
    pub(super) fn problem(self) -> Option<String> {
        (self.rate.as_byte_per_s() == 0).then(|| "a bottleneck without a rate".to_owned())
    }
}

fn is_no_share(share: f64) -> bool {
    !(0.0..=1.0).contains(&share)
}
