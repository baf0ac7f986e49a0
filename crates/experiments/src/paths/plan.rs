//! The grid.

use super::{Mode, Options};
use coordinator::Params;
use lab::wan::Congestion;
use measurer::TeamOptions;

/// A distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) rtt_ms: u32,
    /// Of the packets of each of its two ways.
    pub(super) loss_percent: f64,
}

impl Path {
    /// What tells the truth: neither length nor loss.
    pub(super) const NONE: Self = Self { rtt_ms: 0, loss_percent: 0.0 };
}

pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) rtts_ms: Vec<u32>,
    pub(super) losses_percent: Vec<f64>,
    pub(super) congestions: Vec<Congestion>,
    pub(super) limits: Vec<f64>,
    pub(super) modes: Vec<Mode>,
    pub(super) seed: u64,
}

/// What was asked for, or else what there is for haste, or the whole.
fn or<T: Clone>(asked: &[T], is_quick: bool, quick: &[T], all: &[T]) -> Vec<T> {
    let default = if is_quick { quick } else { all };
    if asked.is_empty() { default.to_vec() } else { asked.to_vec() }
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
            seed: options.seed,
        }
    }

    pub(super) fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = Path> {
        self.rtts_ms.iter().flat_map(|rtt_ms| {
            self.losses_percent
                .iter()
                .map(|loss_percent| Path { rtt_ms: *rtt_ms, loss_percent: *loss_percent })
        })
    }

    /// Runs in all, without those that tell the truth.
    pub(super) fn runs(&self) -> usize {
        self.paths().count() * self.congestions.len() * self.limits.len() * self.modes.len()
    }
}
