//! Simulates a speed test of a modelled network, hour by hour. Relays compute and publish observed bandwidth like tor, and bandwidth
//! authorities derive weights from it.
//!
//! The capacity of a relay is constant. Clients choose relays by weight, so the mean load of a relay is its weight's share of all traffic, at
//! most its capacity. Its best ten seconds of an hour exceed the mean by a random part. The relay's observed bandwidth and descriptors
//! follow from that (`ObservedBandwidth`). A bandwidth authority measures each relay again after some days. As with TorFlow and sbws, the
//! weight is the advertised bandwidth times the ratio of the relay's speed to the mean, with an error.
//!
//! The speed test loads each relay once to its capacity. Nothing else changes at that time, so all later changes are its effect.

use super::{Change, Hour, SpeedTest, weight_error};
use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::observed::{DESCRIPTOR_AGE_S, INTERVAL_S as DAY, ObservedBandwidth};
use crate::rows::{Campaign, Relays, Staged};
use crate::synth::{capacity_byte_per_s, normal};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use report::experiment::ExperimentReport;

/// Hours before the reported ones, in which relays collect five days of history, and weights settle.
const WARM_UP_HOURS: u64 = 21 * 24;
/// Amplitude of the daily variation of traffic around its mean.
const DAILY_SWING: f64 = 0.1;
/// Below this share of the mean utilisation, circuit windows and other relays limit the downloads of bandwidth authorities.
const IDLE_PART: f64 = 0.5;

/// The network and its test.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulationOptions {
    /// Number of reported hours.
    pub hours: u32,
    /// The hour in which the test begins.
    pub begins_at_hour: u32,
    /// Duration of the test.
    pub test_hours: u32,
    /// Share of relays that the test measures; the others time out.
    pub measured_share: f64,
    /// All traffic, as a share of all capacity.
    pub load: f64,
    /// Mean excess of the best ten seconds of an hour over its mean, as a share of the mean load. It is exponentially distributed.
    pub burst: f64,
    /// Standard deviation of the logarithm of a weight's constant error, such as that of a relay far from bandwidth authorities.
    pub weight_bias: f64,
    /// Standard deviation of the logarithm of the error of each measurement.
    pub weight_noise: f64,
    /// The mean time after which a bandwidth authority measures a relay again.
    pub weight_hours: u32,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for SimulationOptions {
    /// Two weeks with a test as long as in the paper. Before the test the network resembles Tor in 2019: traffic is 35 % of the capacity,
    /// relays advertise two thirds of it, and the network weight error is 14 %.
    fn default() -> Self {
        Self {
            hours: 14 * 24,
            begins_at_hour: 5 * 24,
            test_hours: 51,
            measured_share: 0.7,
            load: 0.35,
            burst: 0.1,
            weight_bias: 0.65,
            weight_noise: 0.3,
            weight_hours: 48,
            seed: 1,
        }
    }
}

struct Relay {
    capacity_byte_per_s: f64,
    observed: ObservedBandwidth,
    /// Consensus weight in an arbitrary unit, which is the same for all relays.
    weight: f64,
    /// The constant error of its weight.
    bias: f64,
    weighs_at_hour: u64,
    /// Hour in which the speed test measures the relay.
    tested_at_hour: Option<u64>,
    /// Sums and maxima of the five days before the test and after its beginning.
    windows: [Window; 2],
}

#[derive(Clone, Copy, Default)]
struct Window {
    weight_shares: f64,
    hours: f64,
    advertised_byte_per_s: u32,
}

/// Capacities of a synthetic network.
#[must_use]
pub fn synthetic_capacities(relays: u32, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..relays).map(|_| capacity_byte_per_s(&mut rng)).collect()
}

/// Capacities of a dataset's network: the larger bandwidth before and after the authors' speed test, or else those of a staged network.
///
/// # Errors
/// The dataset has neither, or cannot be read.
pub fn capacities_of(dataset: &Dataset) -> Result<Vec<f64>, ArchiveError> {
    let campaign: Vec<Campaign> = dataset.read_all(&mut Relays::default())?;
    let larger = |row: &Campaign| {
        row.advertised_before_byte_per_s.max(row.advertised_after_byte_per_s).map(f64::from)
    };
    let mut found: Vec<f64> = campaign.iter().filter_map(larger).collect();
    if found.is_empty() {
        let staged: Vec<Staged> = dataset.read_all(&mut Relays::default())?;
        found = staged.iter().map(Staged::limited_byte_per_s).collect();
    }
    found.retain(|capacity| *capacity >= 1.0);
    if found.is_empty() {
        let problem = "the dataset has neither the authors' speed test nor a staged network; import one of them, or simulate without a dataset";
        return Err(ArchiveError::Missing(problem.to_owned()));
    }
    Ok(found)
}

/// Simulates relays of these capacities, in byte/s. Times are hours since the first reported one.
#[must_use]
pub fn simulate(capacities_byte_per_s: &[f64], options: &SimulationOptions) -> SpeedTest {
    let mut network = Network::new(capacities_byte_per_s, options);
    let mut hours = Vec::new();
    let until = WARM_UP_HOURS + u64::from(options.hours);
    for hour in 0..until {
        network.hour(hour);
        if let Some(reported) = hour.checked_sub(WARM_UP_HOURS) {
            hours.push(network.report(reported));
        }
    }
    let changes: Vec<Change> = network.relays.iter().map(Relay::change).collect();
    let at = |hour: u32| i64::from(hour) * 3600;
    SpeedTest {
        from_unix_s: at(options.begins_at_hour),
        until_unix_s: at(options.begins_at_hour + options.test_hours),
        measured_relays: changes.iter().filter(|change| change.is_measured).count(),
        changes,
        hours,
        notes: Vec::new(),
    }
}

/// Figure 5 of a simulated test, and its parameters.
#[must_use]
pub fn report(test: &SpeedTest, options: &SimulationOptions) -> ExperimentReport {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let pair = |name: &str, value: String| (name.to_owned(), value);
    ExperimentReport {
        name: "simulated-speedtest".into(),
        title: "A simulated speed test".into(),
        parameters: vec![
            pair("relays", test.changes.len().to_string()),
            pair("beginning", format!("hour {}", options.begins_at_hour)),
            pair("length", format!("{} hours", options.test_hours)),
            pair("relays that it measures", percent(options.measured_share)),
            pair("traffic over capacity", percent(options.load)),
            pair("mean excess of an hour's best ten seconds", percent(options.burst)),
            pair(
                "error of a weight, as a standard deviation of its logarithm",
                format!("{}", options.weight_noise),
            ),
            pair(
                "mean time between measurements of a weight",
                format!("{} hours", options.weight_hours),
            ),
            pair("seed", options.seed.to_string()),
        ],
        ..test.report()
    }
}

struct Network<'a> {
    options: &'a SimulationOptions,
    rng: ChaCha8Rng,
    relays: Vec<Relay>,
    capacity_byte_per_s: f64,
}

impl<'a> Network<'a> {
    fn new(capacities_byte_per_s: &[f64], options: &'a SimulationOptions) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let begin = WARM_UP_HOURS + u64::from(options.begins_at_hour);
        let relays = capacities_byte_per_s.iter().map(|capacity_byte_per_s| {
            // Relays started at all times of a day, before the model begins.
            let mut observed = ObservedBandwidth::started(rng.random_range(0..DAY));
            // A relay makes descriptors for other reasons as well, so their times are independent of its start.
            observed.poll_descriptor(2 * DAY - rng.random_range(0..DESCRIPTOR_AGE_S));
            let tested = rng.random_bool(options.measured_share.clamp(0.0, 1.0));
            let within = u64::from(options.test_hours.max(1));
            Relay {
                capacity_byte_per_s: *capacity_byte_per_s,
                observed,
                // Each relay starts with a weight without errors; measurements add them.
                weight: *capacity_byte_per_s,
                bias: libm::exp(options.weight_bias * normal(&mut rng)),
                weighs_at_hour: 48 + rng.random_range(0..u64::from(options.weight_hours.max(1))),
                tested_at_hour: tested.then(|| begin + rng.random_range(0..within)),
                windows: [Window::default(); 2],
            }
        });
        let relays: Vec<Relay> = relays.collect();
        let capacity_byte_per_s = relays.iter().map(|relay| relay.capacity_byte_per_s).sum();
        Self { options, rng, relays, capacity_byte_per_s }
    }

    fn hour(&mut self, hour: u64) {
        let options = self.options;
        let now_s = 2 * DAY + hour * 3600;
        let weights: f64 = self.relays.iter().map(|relay| relay.weight).sum();
        let day = std::f64::consts::TAU * (hour % 24) as f64 / 24.0;
        let traffic =
            options.load * self.capacity_byte_per_s * (1.0 + DAILY_SWING * libm::sin(day));
        // A download gets a fair share among the relay's streams, whose number grows with its utilisation.
        let download = |relay: &Relay| {
            let utilisation = traffic * relay.weight / weights / relay.capacity_byte_per_s;
            1.0 / utilisation.clamp(IDLE_PART * options.load, 1.0)
        };
        let mean_download =
            self.relays.iter().map(download).sum::<f64>() / self.relays.len().max(1) as f64;
        let begin = WARM_UP_HOURS + u64::from(options.begins_at_hour);
        let window = match hour {
            now if now < begin && now + 120 >= begin => Some(0),
            now if now >= begin && now < begin + 120 => Some(1),
            _ => None,
        };
        for relay in &mut self.relays {
            let share = relay.weight / weights;
            let download = download(relay);
            let burst = -libm::log(1.0 - self.rng.random::<f64>()) * options.burst;
            let is_tested = relay.tested_at_hour == Some(hour);
            let best = match is_tested {
                true => relay.capacity_byte_per_s,
                false => (traffic * share * (1.0 + burst)).min(relay.capacity_byte_per_s),
            };
            #[expect(clippy::cast_possible_truncation, reason = "casts from floats saturate")]
            relay.observed.note(now_s, best as u32);
            relay.observed.poll_descriptor(now_s);
            let published = relay.observed.published_byte_per_s();
            if hour >= relay.weighs_at_hour {
                let noise = libm::exp(options.weight_noise * normal(&mut self.rng));
                let ratio = download / mean_download * relay.bias * noise;
                relay.weight = f64::from(published.max(1)) * ratio;
                let most = 2 * u64::from(options.weight_hours.max(1));
                relay.weighs_at_hour = hour + 1 + self.rng.random_range(0..most);
            }
            if let Some(window) = window.and_then(|window| relay.windows.get_mut(window)) {
                window.weight_shares += share;
                window.hours += 1.0;
                window.advertised_byte_per_s = window.advertised_byte_per_s.max(published);
            }
        }
    }

    fn report(&self, hour: u64) -> Hour {
        let sum = |relays: &mut dyn Iterator<Item = &Relay>| {
            let published = relays.map(|relay| f64::from(relay.observed.published_byte_per_s()));
            published.sum::<f64>() * super::GBIT_PER_BYTE
        };
        let error = |capacity: fn(&Relay) -> f64| {
            weight_error(self.relays.iter().map(|relay| (Some(relay.weight), capacity(relay))))
        };
        Hour {
            unix_s: i64::try_from(hour * 3600).unwrap_or(i64::MAX),
            total_gbit_per_s: sum(&mut self.relays.iter()),
            measured_gbit_per_s: Some(sum(&mut self
                .relays
                .iter()
                .filter(|relay| relay.tested_at_hour.is_some()))),
            weight_error: error(|relay| f64::from(relay.observed.published_byte_per_s())),
            true_weight_error: error(|relay| relay.capacity_byte_per_s),
        }
    }
}

impl Relay {
    fn change(&self) -> Change {
        let [before, after] = self.windows;
        let share = |window: Window| window.weight_shares / window.hours.max(1.0);
        Change {
            is_measured: self.tested_at_hour.is_some(),
            weight_share: (Some(share(before)), Some(share(after))),
            advertised_byte_per_s: (
                before.advertised_byte_per_s.into(),
                after.advertised_byte_per_s.into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests;
