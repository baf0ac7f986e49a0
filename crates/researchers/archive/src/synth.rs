//! Generates a synthetic archive for tests and capacity planning. Relays join and leave, and advertise less than their capacity.
//!
//! The capacity of a relay is log-normal and constant. Its load is a share of the capacity that reverts to a mean. Every 18 hours it
//! publishes the maximum load since its last descriptor, so it underestimates itself as real relays do. Its weight is the published
//! value times a constant error.

use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Descriptor, Origin, Relays, Status};
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of rows in memory before they are written.
const PENDING_MAX: usize = 6_000_000;

/// Options of the archive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SynthOptions {
    /// Number of relays that run at the same time.
    pub relays: u32,
    /// Number of hourly consensuses.
    pub hours: u32,
    /// The first consensus, in Unix seconds.
    pub from_unix_s: u32,
    /// Mean lifetime of a relay, in hours.
    pub mean_life_hours: f64,
    /// Mean load, as a share of the capacity.
    pub mean_load: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for SynthOptions {
    /// A month of 1,000 relays from 2020 on.
    fn default() -> Self {
        Self {
            relays: 1000,
            hours: 720,
            from_unix_s: 1_577_836_800,
            mean_life_hours: 2000.0,
            mean_load: 0.4,
            seed: 1,
        }
    }
}

struct Relay {
    fingerprint: RsaId,
    capacity_byte_per_s: f64,
    /// Factor of the error of its weight.
    bias: f64,
    load: f64,
    /// The maximum load since it last published.
    most_byte_per_s: f64,
    published_byte_per_s: u32,
    publishes_in_hours: u32,
    ends_at_hour: u32,
    is_guard: bool,
    is_exit: bool,
}

/// Adds a synthetic archive to a dataset. Returns the number of new rows. `progress` gets the number of completed hours.
///
/// # Errors
/// The dataset cannot be written.
pub fn synthesize(
    dataset: &Dataset,
    options: &SynthOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u32),
) -> Result<u64, ArchiveError> {
    let mut waits = || !stop.load(Ordering::Relaxed);
    let Some(mut writer) = dataset.writer(&mut waits)? else { return Ok(0) };
    let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
    let mut known = Relays::default();
    let mut relays: Vec<Relay> =
        (0..options.relays).map(|_| Relay::new(&mut rng, options, 0)).collect();
    let (mut statuses, mut descriptors): (Vec<Status>, Vec<Descriptor>) = (Vec::new(), Vec::new());
    let mut new = 0;
    for hour in 0..options.hours {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let now = options.from_unix_s.saturating_add(hour * 3600);
        for relay in &mut relays {
            if hour >= relay.ends_at_hour {
                *relay = Relay::new(&mut rng, options, hour);
            }
            let id = known.id(relay.fingerprint);
            if let Some(advertised_byte_per_s) = relay.hour(&mut rng, options) {
                descriptors.push(Descriptor {
                    relay: id,
                    published_unix_s: now - rng.random_range(0..3600),
                    origin: Origin::Synthetic,
                    advertised_byte_per_s,
                    rate_byte_per_s: Some(1 << 30),
                    burst_byte_per_s: Some(1 << 30),
                    observed_byte_per_s: Some(advertised_byte_per_s),
                });
            }
            let mut flags = Flags::from_iter([Flag::Running, Flag::Valid]);
            if relay.is_guard {
                flags.insert(Flag::Guard);
            }
            if relay.is_exit {
                flags.insert(Flag::Exit);
            }
            statuses.push(Status {
                weight_kb_per_s: Some(relay.weight_kb_per_s()),
                ..Status::new(id, now, Origin::Synthetic, flags)
            });
        }
        let is_month_end =
            crate::times::month(i64::from(now)) != crate::times::month(i64::from(now) + 3600);
        if is_month_end || statuses.len() + descriptors.len() >= PENDING_MAX {
            new += writer.add(std::mem::take(&mut statuses), &mut known)?;
            new += writer.add(std::mem::take(&mut descriptors), &mut known)?;
            progress(hour + 1);
        }
    }
    new += writer.add(statuses, &mut known)?;
    new += writer.add(descriptors, &mut known)?;
    Ok(new)
}

impl Relay {
    fn new(rng: &mut ChaCha8Rng, options: &SynthOptions, hour: u32) -> Self {
        let capacity_byte_per_s = capacity_byte_per_s(rng);
        let life = -libm::log(1.0 - rng.random::<f64>()) * options.mean_life_hours;
        #[expect(clippy::cast_possible_truncation, reason = "casts from floats saturate")]
        let life = (life as u32).max(1);
        Self {
            fingerprint: RsaId(rng.random()),
            capacity_byte_per_s,
            bias: libm::exp(0.4 * normal(rng)),
            load: options.mean_load,
            most_byte_per_s: 0.0,
            published_byte_per_s: 0,
            publishes_in_hours: 0,
            ends_at_hour: hour.saturating_add(life),
            is_guard: rng.random_bool(0.4),
            is_exit: rng.random_bool(0.2),
        }
    }

    /// Advances the relay by an hour. Returns the bandwidth that it publishes.
    fn hour(&mut self, rng: &mut ChaCha8Rng, options: &SynthOptions) -> Option<u32> {
        let drift = 0.1 * (options.mean_load - self.load) + 0.05 * (rng.random::<f64>() - 0.5);
        self.load = (self.load + drift).clamp(0.01, 1.0);
        self.most_byte_per_s = self.most_byte_per_s.max(self.load * self.capacity_byte_per_s);
        if self.publishes_in_hours > 0 {
            self.publishes_in_hours -= 1;
            return None;
        }
        self.publishes_in_hours = 17;
        #[expect(clippy::cast_possible_truncation, reason = "capacities are clamped")]
        let published = self.most_byte_per_s as u32;
        self.published_byte_per_s = published;
        self.most_byte_per_s = 0.0;
        Some(published)
    }

    fn weight_kb_per_s(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "capacities are clamped")]
        let weight = (f64::from(self.published_byte_per_s) * self.bias / 1000.0) as u32;
        weight.max(1)
    }
}

/// A random capacity. As in Tor, a third of the relays has less than 4 Mbit/s, and a tenth more than 200.
pub(crate) fn capacity_byte_per_s(rng: &mut ChaCha8Rng) -> f64 {
    libm::exp(14.5 + 1.8 * normal(rng)).clamp(2e4, 1.2e8)
}

/// A standard normal number, by the method of Box and Muller.
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * libm::log(1.0 - rng.random::<f64>())).sqrt();
    radius * libm::cos(std::f64::consts::TAU * rng.random::<f64>())
}
