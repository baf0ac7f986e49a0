//! The figures of each scene, which `flashflow-lab sim truth` compares.

use super::{World, downloads, measurement, queueing};
use crate::error::{Error, Result};
use crate::reporting::median;
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use std::sync::atomic::AtomicBool;

/// A scene of a Tor network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// [`downloads`] of this size in bytes.
    Downloads {
        /// The size of each download.
        bytes: u32,
    },
    /// [`queueing`] with Vanilla in all relays.
    Vanilla,
    /// [`queueing`] with KIST in all relays, at an interval of ten milliseconds.
    Kist,
    /// [`measurement`].
    FlashFlow,
}

/// One figure of a scene.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name, with the unit.
    pub name: &'static str,
    /// The value.
    pub value: f64,
}

impl Scene {
    /// All scenes, in the order of the documentation's table.
    pub const ALL: [Self; 5] = [
        Self::Downloads { bytes: 51_200 },
        Self::Downloads { bytes: 1 << 20 },
        Self::Vanilla,
        Self::Kist,
        Self::FlashFlow,
    ];

    /// The name in the documentation's table.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Downloads { bytes } => format!("{} KiB through three relays", bytes / 1024),
            Self::Vanilla => "Vanilla before 8 Mbit/s".into(),
            Self::Kist => "KIST before 8 Mbit/s".into(),
            Self::FlashFlow => "FlashFlow, a relay of 20 Mbit/s".into(),
        }
    }

    /// Runs the scene. Returns the same figures in the same order each time, and the maximum delay of packets
    /// ([`Observed::late`](super::Observed::late)).
    ///
    /// # Errors
    /// Those of the world, and if there is no value for a figure.
    pub fn run(
        self,
        world: &dyn World,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<(Vec<Figure>, Duration)> {
        let scheduler = match self {
            Self::Downloads { bytes } => {
                let seen = downloads(world, bytes, seed, stop)?;
                let first = ("to the first byte, ms", median_ms(&seen.first_byte_s)?);
                let last = ("to the last byte, ms", median_ms(&seen.last_byte_s)?);
                return Ok((figures(&[first, last]), seen.late));
            }
            Self::FlashFlow => {
                let seen = measurement(world, seed, stop)?;
                let rate = seen.estimate.ok_or_else(|| missing(seen.doubt.as_deref()))?;
                let conclusive = f64::from(u8::from(seen.doubt.is_none()));
                let estimate = ("estimate, Mbit/s", rate.as_mbit_per_s());
                return Ok((figures(&[estimate, ("conclusive, 1 if so", conclusive)]), seen.late));
            }
            Self::Vanilla => SchedulerConfig::vanilla(),
            Self::Kist => SchedulerConfig::kist(Duration::from_millis(10)),
        };
        let seen = queueing(world, scheduler, seed, stop)?;
        let all = [
            ("first byte of 5 kB, ms", median_ms(&seen.first_byte_s)?),
            ("a cell's wait in the relay, ms", seen.wait_s * 1e3),
            ("bulk, Mbit/s", seen.bulk_mbit_per_s),
        ];
        Ok((figures(&all), seen.late))
    }
}

fn figures(all: &[(&'static str, f64)]) -> Vec<Figure> {
    all.iter().map(|&(name, value)| Figure { name, value }).collect()
}

fn median_ms(seconds: &[f64]) -> Result<f64> {
    median(seconds.iter().map(|second| second * 1e3))
        .ok_or_else(|| missing(Some("nothing completed")))
}

fn missing(why: Option<&str>) -> Error {
    Error::Failed(format!("the scene has no figure: {}", why.unwrap_or("for an unknown reason")))
}
