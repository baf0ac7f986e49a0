//! TorFlow and sbws: relays' observed bandwidth times the speed of downloads through them.

use super::{Balancer, Conditions, SCANNER_COUNTRY, Weighing};
use crate::build::id;
use crate::error::Error;
use crate::network::{Network, Relay, Site};
use crate::run::Plan;
use crate::survey::Survey;
use onion::{Duration, Rate};
use sim::world::{Ending, HostFigures, Probe, Record, Scan, SplitMix64};
use std::sync::Arc;

/// Seconds over which a relay averages its traffic; the maximum is its observed bandwidth (dir-spec §2.1.1).
const OBSERVED_S: usize = 10;

/// The maximum share of one relay in all weight, in the public network with this number of relays. In a smaller
/// sample large relays have a larger share.
const CAP: (f64, f64) = (0.05, 6500.0);

/// TorFlow's and sbws' method, in one pass.
///
/// While users are active on the network with its current weights, a scanner downloads a file over circuits of
/// two hops, several times through each relay: 5 MiB through relays in the upper half by weight, 1 MiB through
/// the others (the sizes of the benchmarks; sbws chooses a size that takes 5 to 10 s). The other relay of a
/// circuit has at least twice the weight, if there is one. Meanwhile each relay observes its own traffic: its
/// best ten seconds are its observed bandwidth, like tor's best ten of the last five days. [`scale_as_torflow`]
/// computes the weights from both.
#[derive(Clone, Copy, Debug)]
pub struct TorFlow {
    /// Downloads through each relay.
    pub downloads: u32,
    /// Simultaneous downloads per hundred relays: the length of a pass and its load do not depend on the size
    /// of the network.
    pub at_once_per_100_relays: u16,
}

impl Default for TorFlow {
    fn default() -> Self {
        Self { downloads: 5, at_once_per_100_relays: 30 }
    }
}

/// The measurements of a relay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scanned {
    /// Its observed bandwidth, at most its own limit, in bytes per second.
    pub observed_byte_per_s: f64,
    /// The speeds of downloads through it, in bytes per second.
    pub downloads_byte_per_s: Vec<f64>,
}

/// Weights in kilobytes per second as scaled by sbws (`bw_torflow_scale`) and TorFlow: the observed bandwidth
/// times the larger of two ratios, of a relay's mean download to the mean of all relays', and of the mean of
/// its downloads that are at least its own mean; at most `cap` of the sum; rounded to two digits. `None` for a
/// relay without downloads.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "weights are positive and far below 2⁵³"
)]
pub fn scale_as_torflow(relays: &[Scanned], cap: f64) -> Vec<Option<u64>> {
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let rates = |relay: &Scanned| {
        let all = &relay.downloads_byte_per_s;
        let usual = (!all.is_empty()).then(|| mean(all))?;
        let upper: Vec<f64> = all.iter().copied().filter(|rate| *rate >= usual).collect();
        // The mean of equal numbers may be slightly more than each.
        Some((usual, if upper.is_empty() { usual } else { mean(&upper) }))
    };
    let rates: Vec<Option<(f64, f64)>> = relays.iter().map(rates).collect();
    let (usual, upper): (Vec<f64>, Vec<f64>) = rates.iter().flatten().copied().unzip();
    let (mu, muf) = (mean(&usual), mean(&upper));
    let scaled = |(relay, rates): (&Scanned, &Option<(f64, f64)>)| {
        let (usual, upper) = (*rates)?;
        Some(relay.observed_byte_per_s * (usual / mu).max(upper / muf) / 1000.0)
    };
    let scaled: Vec<Option<f64>> = relays.iter().zip(&rates).map(scaled).collect();
    let most = scaled.iter().flatten().sum::<f64>() * cap;
    scaled.into_iter().map(|weight| Some((two_digits(weight?.min(most)) as u64).max(1))).collect()
}

fn two_digits(number: f64) -> f64 {
    if number < 1.0 {
        return number.round();
    }
    let unit = 10f64.powf((number.log10().floor() - 1.0).max(0.0));
    (number / unit).round() * unit
}

impl Balancer for TorFlow {
    fn name(&self) -> &'static str {
        "torflow"
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers of relays")]
    fn weigh(&self, network: &Network, how: &Conditions<'_>) -> Result<Weighing, Error> {
        let probes = self.probes(network, &mut SplitMix64::of(how.seed, 5));
        let site = Site::new("scanner", SCANNER_COUNTRY, Rate::from_bit_per_s(1_000_000_000));
        let scan = Scan {
            probes: probes.iter().map(|probe| probe.1.clone()).collect(),
            at_once: self.at_once(network.relays.len()),
        };
        let survey = Survey { scanners: vec![(site, Arc::new(scan))], direct: Vec::new() };
        let plan =
            Plan { seconds: how.seconds_max, warm_up_s: 0, threads: how.threads, seed: how.seed };
        let outcome = survey.run(network, &plan, how.stop, how.progress)?;
        if how.stop.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let scanned: Vec<Scanned> = network
            .relays
            .iter()
            .zip(&outcome.figures)
            .map(|(relay, seen)| observed(relay, seen))
            .collect();
        let scanned = with_downloads(scanned, &probes, &outcome.records);
        let (cap, of_relays) = CAP;
        let cap = (cap * of_relays / network.relays.len() as f64).clamp(cap, 1.0);
        let scaled = scale_as_torflow(&scanned, cap);
        let not_measured = scaled.iter().filter(|weight| weight.is_none()).count();
        let done = outcome
            .records
            .iter()
            .filter(|record| record.probe.is_some() && record.ending != Ending::UnderWay);
        let complete = done.clone().filter(|record| record.ending == Ending::Complete).count();
        Ok(Weighing {
            balancer: self.name().into(),
            weights: scaled
                .into_iter()
                .zip(&network.relays)
                .map(|(weight, relay)| weight.unwrap_or(relay.weight))
                .collect(),
            estimates_bit_per_s: None,
            simulated_s: outcome.simulated_s,
            not_measured,
            notes: vec![format!(
                "{complete} of {} downloads completed, {} had not begun or not ended.",
                probes.len(),
                probes.len() - done.count(),
            )],
        })
    }
}

impl TorFlow {
    /// Simultaneous downloads in a network of this many relays, at least one.
    fn at_once(&self, relays: usize) -> u16 {
        let at_once = relays * usize::from(self.at_once_per_100_relays) / 100;
        u16::try_from(at_once).unwrap_or(u16::MAX).max(1)
    }

    /// All downloads, and the relay that each measures. Relays alternate, so that each is measured at several
    /// times.
    fn probes(&self, network: &Network, rng: &mut SplitMix64) -> Vec<(usize, Probe)> {
        let mut weights: Vec<u64> = network.relays.iter().map(|relay| relay.weight).collect();
        weights.sort_unstable();
        let middle = weights.get(weights.len() / 2).copied().unwrap_or(0);
        let mut probes = Vec::new();
        for _ in 0..self.downloads {
            for (place, relay) in network.relays.iter().enumerate() {
                let Some(helper) = helper(network, place, rng) else { continue };
                let path = if relay.is_exit { [helper, place] } else { [place, helper] };
                let (bytes, timeout_s) =
                    if relay.weight >= middle { (5 << 20, 120) } else { (1 << 20, 60) };
                let timeout = Duration::from_secs(timeout_s);
                let path = path.map(id).into();
                probes.push((place, Probe { path, round_trips: Vec::new(), bytes, timeout }));
            }
        }
        probes
    }
}

/// The other relay of a circuit: an exit unless this one is. With at least twice the weight; otherwise one of
/// the heaviest ten.
fn helper(network: &Network, place: usize, rng: &mut SplitMix64) -> Option<usize> {
    let relay = &network.relays[place];
    let may = |(other, candidate): &(usize, &Relay)| {
        *other != place && candidate.is_exit != relay.is_exit
    };
    let mut others: Vec<(usize, &Relay)> = network
        .relays
        .iter()
        .enumerate()
        .filter(may)
        .filter(|(_, candidate)| candidate.weight > 0)
        .collect();
    others.sort_by_key(|(_, candidate)| std::cmp::Reverse(candidate.weight));
    let twice = others.iter().filter(|(_, candidate)| candidate.weight >= 2 * relay.weight).count();
    let among = if twice > 0 { twice } else { others.len().min(10) };
    let chosen = usize::try_from(rng.below(among.max(1) as u64)).ok()?;
    others.get(chosen).map(|(other, _)| *other)
}

/// The best ten seconds of a relay.
#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2⁵³")]
fn observed(relay: &Relay, figures: &HostFigures) -> Scanned {
    let windows = figures.sent_bytes.windows(OBSERVED_S);
    let best = windows.map(|window| window.iter().sum::<u64>()).max().unwrap_or(0) as f64;
    let limit = relay.limit.map_or(f64::INFINITY, |limit| limit.as_byte_per_s() as f64);
    Scanned {
        observed_byte_per_s: (best / OBSERVED_S as f64).min(limit),
        downloads_byte_per_s: Vec::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes are far below 2⁵³")]
fn with_downloads(
    mut scanned: Vec<Scanned>,
    probes: &[(usize, Probe)],
    records: &[Record],
) -> Vec<Scanned> {
    for record in records.iter().filter(|record| record.ending == Ending::Complete) {
        let probe = record.probe.and_then(|number| probes.get(number as usize));
        let (Some((place, _)), Some(time)) = (probe, record.last_byte) else { continue };
        if let Some(relay) = scanned.get_mut(*place) {
            relay.downloads_byte_per_s.push(record.bytes as f64 / time.as_secs_f64().max(1e-3));
        }
    }
    scanned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(observed: f64, downloads: &[f64]) -> Scanned {
        Scanned { observed_byte_per_s: observed, downloads_byte_per_s: downloads.into() }
    }

    #[test]
    fn a_relay_twice_as_fast_as_others_gets_more_than_it_observed() {
        let relays = [relay(1e6, &[100.0, 100.0]), relay(1e6, &[200.0, 200.0])];
        // The mean is 150: 1,000 kB/s times 2/3 and 4/3.
        assert_eq!(scale_as_torflow(&relays, 1.0), [Some(670), Some(1300)]);
    }

    /// The filtered mean of the first, 300 of a mean of 200, is better than its plain one.
    #[test]
    fn the_better_of_the_two_ratios_counts() {
        let relays = [relay(1e6, &[100.0, 300.0]), relay(1e6, &[200.0, 200.0])];
        // Plain: 200/200 both. Filtered: 300 and 200 of 250.
        assert_eq!(scale_as_torflow(&relays, 1.0), [Some(1200), Some(1000)]);
    }

    #[test]
    fn weights_are_capped_and_relays_without_downloads_have_none() {
        let relays = [relay(9e6, &[100.0]), relay(1e6, &[100.0]), relay(1e6, &[])];
        assert_eq!(scale_as_torflow(&relays, 0.5), [Some(5000), Some(1000), None]);
        assert_eq!(scale_as_torflow(&[relay(0.0, &[1.0])], 1.0), [Some(1)], "never none at all");
    }

    #[test]
    fn simultaneous_downloads_are_in_proportion_to_the_network() {
        let at_once = |relays| TorFlow::default().at_once(relays);
        assert_eq!([1, 34, 346, 7000, 1_000_000].map(at_once), [1, 10, 103, 2100, u16::MAX]);
    }

    #[test]
    fn observed_bandwidth_is_the_best_ten_seconds() {
        let mut sent_bytes = vec![100; 30];
        sent_bytes[12..22].fill(700);
        let figures = HostFigures { sent_bytes, ..HostFigures::default() };
        let site = Site::new("", "DE", Rate::from_byte_per_s(1000));
        let mut relay = Relay { site, weight: 1, is_guard: true, is_exit: false, limit: None };
        assert!((observed(&relay, &figures).observed_byte_per_s - 700.0).abs() < 1e-9);
        relay.limit = Some(Rate::from_byte_per_s(500));
        assert!((observed(&relay, &figures).observed_byte_per_s - 500.0).abs() < 1e-9);
    }
}
