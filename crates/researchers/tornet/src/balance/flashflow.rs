//! FlashFlow: a team floods relays to saturation, in addition to their clients' traffic (paper §4).

mod director;

use super::{Balancer, Conditions, Weighing, kilobytes};
use crate::build::{Guests, id};
use crate::error::Error;
use crate::host_paths::HostPaths;
use crate::network::{Network, Site};
use crate::run::{Director, Plan, run_with};
use coordinator::{Params, Record, Verdict};
use director::{Job, Team};
use onion::{Duration, Rate};
use std::sync::atomic::Ordering;

/// FlashFlow, as a team of measurers in the network.
///
/// All decisions are those of the coordinator's own [`Period`](coordinator::period::Period), with its journal in memory.
/// Orders, proofs and reports are messages of the protocol, on links through the network. Relays handle them as
/// `flashflow relay` does, and limit their clients' traffic to the ratio. Cells pass hosts, paths, TCP, buckets and
/// schedulers like all others.
///
/// Simplifications: the coordinator and the measurers communicate without delay; each socket has one circuit; contents
/// are not checked; and no kernel reports why its sockets send less, so that neither a queue nor losses on a measurer's
/// own path are found. As after an earlier period, the round-trip time of each measurer to each relay is known, and the
/// last estimate of a relay is its weight in the network.
#[derive(Clone, Debug)]
pub struct FlashFlow {
    /// The parameters of each measurement.
    pub params: Params,
    /// The location of each measurer, and its capacity in each direction.
    pub measurers: Vec<(String, Rate)>,
    /// Times after the start of measuring at which the coordinator is killed. It starts again after ten seconds, and
    /// continues from its journal.
    pub coordinator_killed_after: Vec<Duration>,
}

impl FlashFlow {
    /// Increased whenever the estimates in the same network by the same seed change: weights of two methods must not be mixed.
    pub const METHOD: u32 = 2;
}

impl Default for FlashFlow {
    /// The paper's: three measurers of 1 Gbit/s each.
    fn default() -> Self {
        let rate = Rate::from_bit_per_s(1_000_000_000);
        Self {
            params: Params::default(),
            measurers: ["US", "NL", "DE"].map(|country| (country.to_string(), rate)).into(),
            coordinator_killed_after: Vec::new(),
        }
    }
}

impl Balancer for FlashFlow {
    fn name(&self) -> &'static str {
        "flashflow"
    }

    fn weigh(&self, network: &Network, how: &Conditions<'_>) -> Result<Weighing, Error> {
        let members = self.measurers.iter().enumerate();
        let members = members.map(|(n, (at, rate))| Site::new(format!("measurer-{n}"), at, *rate));
        let coordinator = Site::new("coordinator", "US", Rate::from_bit_per_s(100_000_000));
        let guests = Guests {
            team: std::iter::once(coordinator).chain(members).collect(),
            ..Guests::default()
        };
        let hosts: Vec<_> =
            (0..guests.team.len()).map(|number| guests.member(network, number)).collect();
        let rtts = round_trips(network, &guests.team[1..])?;
        let jobs = network.relays.iter().zip(rtts).enumerate().map(|(place, (relay, rtts))| Job {
            target: id(place),
            guess: Rate::from_byte_per_s(relay.weight * 1000),
            rtts,
        });
        let begins_ns = u64::try_from(network.choices.ramp.as_nanos()).unwrap_or(u64::MAX);
        let Some((coordinator, members)) = hosts.split_first() else {
            return Err(Error::Interrupted);
        };
        let rates = self.measurers.iter().map(|(_, rate)| *rate);
        let members = members.iter().copied().zip(rates).collect();
        let team = Team::new(self.params, *coordinator, members, jobs.collect(), begins_ns);
        let mut team = team.killed_after(&self.coordinator_killed_after);
        let plan =
            Plan { seconds: how.seconds_max, warm_up_s: 0, threads: how.threads, seed: how.seed };
        let director = Some(&mut team as &mut dyn Director);
        let outcome = run_with(network, &plan, &guests, director, how.stop, how.progress)?;
        if how.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        Ok(self.conclude(network, &team, outcome.simulated_s))
    }
}

impl FlashFlow {
    fn conclude(&self, network: &Network, team: &Team, simulated_s: f64) -> Weighing {
        let records = team.records();
        let estimate = |record: &Option<Record>| {
            record.as_ref().and_then(Record::capacity).map(Rate::as_bit_per_s)
        };
        let estimates: Vec<Option<u64>> = records.iter().map(estimate).collect();
        let weight = |(relay, estimate): (&crate::network::Relay, &Option<u64>)| {
            estimate.map_or(relay.weight, kilobytes)
        };
        let is_bound = |record: &&Record| matches!(record.verdict(), Verdict::LowerBound(_));
        let inconclusive = records.iter().flatten().filter(is_bound).count();
        let mut notes = vec![format!(
            "{} rounds of {} s for {} relays; {inconclusive} estimates are lower bounds.",
            team.rounds(),
            self.params.seconds,
            estimates.len(),
        )];
        for (relay, record) in network.relays.iter().zip(&records) {
            let name = &relay.site.name;
            let Some(record) = record else {
                notes.push(format!("{name}: not measured before the end."));
                continue;
            };
            match record.verdict() {
                Verdict::Failed(_) => notes.push(format!("{name}: {record}.")),
                Verdict::LowerBound(reason) => {
                    let rounds = record.rounds.len();
                    notes.push(format!("{name}: a lower bound after round {rounds}: {reason}."));
                }
                Verdict::Conclusive => {}
            }
        }
        Weighing {
            balancer: self.name().into(),
            weights: network.relays.iter().zip(&estimates).map(weight).collect(),
            not_measured: estimates.iter().filter(|estimate| estimate.is_none()).count(),
            estimates_bit_per_s: Some(estimates),
            simulated_s,
            notes,
        }
    }
}

/// The round-trip times of each relay to these sites.
fn round_trips(network: &Network, from: &[Site]) -> Result<Vec<Vec<Duration>>, Error> {
    let relays = network.relays.iter().map(|relay| &relay.site);
    let sites: Vec<&Site> = relays.chain(from).collect();
    let paths = HostPaths::new(network, &sites)?;
    let (relays, from) = paths.place_of().split_at(network.relays.len());
    let latency = |from: u16, to: u16| paths.between(from, to).latency;
    let rtts = |relay: &u16| {
        from.iter()
            .map(|measurer| latency(*measurer, *relay) + latency(*relay, *measurer))
            .collect()
    };
    Ok(relays.iter().map(rtts).collect())
}
