//! The grid.

use super::Options;
use super::fault::Fault;
use crate::common::or;
use crate::mode::Mode;
use coordinator::Params;
use lab::wan::{Congestion, Way};
use measurer::TeamOptions;
use onion::Duration;
use std::fmt;

/// A distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) rtt_ms: u32,
    /// Of the packets of each of its two ways.
    pub(super) loss_percent: f64,
    /// What else goes wrong.
    pub(super) fault: Option<Fault>,
    /// How many sockets; found out by the distance if `None`.
    pub(super) sockets: Option<u32>,
}

impl Path {
    /// Each of its two ways, before anything breaks.
    pub(super) fn way(&self) -> Way {
        let one_way = Duration::from_micros(u64::from(self.rtt_ms) * 500);
        let way = Way::with_latency(one_way).losing(self.loss_percent / 100.0);
        self.fault.map_or(way, |it| it.all_the_time(way))
    }

    /// What tells the truth: neither length nor loss.
    pub(super) const NONE: Self = Self { rtt_ms: 0, loss_percent: 0.0, fault: None, sockets: None };
}

pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) rtts_ms: Vec<u32>,
    pub(super) losses_percent: Vec<f64>,
    pub(super) congestions: Vec<Congestion>,
    pub(super) limits: Vec<f64>,
    pub(super) modes: Vec<Mode>,
    pub(super) faults: Vec<Fault>,
    pub(super) seed: u64,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {} %", self.rtt_ms, self.loss_percent)?;
        self.fault.map_or(Ok(()), |fault| write!(f, ", {}", fault.words()))
    }
}

impl Plan {
    pub(super) fn new(options: &Options, is_quick: bool) -> Self {
        let every = [Congestion::Bbr, Congestion::Reno, Congestion::Cubic];
        let modes = [Mode::Transit, Mode::Echo];
        Self {
            seconds: options.seconds.unwrap_or(if is_quick { 12 } else { 30 }),
            rtts_ms: or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200, 300]),
            losses_percent: or(
                &options.losses_percent,
                is_quick,
                &[0.0, 0.1],
                &[0.0, 0.02, 0.1, 1.0],
            ),
            congestions: or(&options.congestions, is_quick, &every[..2], &every),
            limits: or(&options.limits, is_quick, &[10.0, 90.0], &[10.0, 90.0, 250.0]),
            modes: or(&options.modes, is_quick, &modes, &modes),
            faults: options.faults.clone(),
            seed: options.seed,
        }
    }

    pub(super) fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = Path> {
        self.rtts_ms.iter().flat_map(|rtt_ms| {
            self.losses_percent.iter().map(|loss_percent| Path {
                rtt_ms: *rtt_ms,
                loss_percent: *loss_percent,
                ..Path::NONE
            })
        })
    }

    /// Those on which something goes wrong.
    pub(super) fn faulty_paths(&self) -> impl Iterator<Item = Path> {
        let rtt_ms = self.rtts_ms.first().copied().unwrap_or_default();
        self.faults.iter().map(move |it| Path { rtt_ms, fault: Some(*it), ..Path::NONE })
    }

    /// Runs in all, without those that tell the truth.
    pub(super) fn runs(&self) -> usize {
        let of_relays = self.paths().count() * self.limits.len();
        (of_relays + self.faults.len()) * self.congestions.len() * self.modes.len()
    }
}
