use super::Point;
use crate::error::{Error, Result};
use crate::reporting::parameter;
use clap::Args;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tornet::network::Network;

/// Which network, how long, how often.
#[derive(Debug, Args)]
pub(crate) struct SimulatedOptions {
    /// A scenario (TOML), or a folder with a sample that tornettools made for Shadow. See
    /// simulation.md (in the documentation).
    #[arg(long, value_name = "PATH")]
    pub(crate) network: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsOptions,
}

/// How large, how long, how often.
#[derive(Debug, Args)]
pub(crate) struct RunsOptions {
    /// Multiply the number of relays and clients by FACTOR, 0.01 to 100.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Simulated seconds of each run, 20 to 100000; 300 by default, 90 if --quick. The first third does not
    /// count.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(20..=100_000))]
    run_seconds: Option<u32>,
    /// How much users by models do, in percent of what the network says; 100,115,130 by default, 100 if --quick.
    /// Clients that fetch keep their pace; a network that has no others takes 100 only.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loads: Vec<u32>,
    /// Runs of each, with the seeds 1, 2, …; 5 by default, 2 if --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Threads of each run, 1 to 256.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Play only this part of all runs, such as 1/4: for batch systems. With all files in one folder
    /// (--out), the same command without this option reports all of them.
    #[arg(long, value_name = "PART/PARTS")]
    shard: Option<Shard>,
}

/// One of several parts, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    part: u32,
    parts: u32,
}

impl Shard {
    /// Whether it has this group, of all that are counted from zero.
    pub(crate) fn takes(self, group: u64) -> bool {
        group % u64::from(self.parts) == u64::from(self.part - 1)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(part, parts)| {
            Some(Self { part: part.parse().ok()?, parts: parts.parse().ok()? })
        });
        let sound = |it: &Self| (1..=it.parts).contains(&it.part);
        numbers.filter(sound).ok_or_else(|| "a part is such as 1/4, to 4/4".to_owned())
    }
}

/// What is to be run.
pub(crate) struct Batch {
    pub(crate) network: Network,
    pub(crate) seconds: u32,
    pub(crate) loads: Vec<u32>,
    pub(crate) seeds: u32,
    pub(crate) threads: u16,
    shard: Option<Shard>,
    /// What all runs of a folder must have in common, for people to read.
    pub(crate) conditions: String,
}

impl Batch {
    /// `path` is the network's.
    pub(crate) fn new(options: &RunsOptions, path: &Path, is_quick: bool) -> Result<Self> {
        let scale = options.scale;
        if !(0.01..=100.0).contains(&scale) {
            return Err(Error::Usage(format!("--scale {scale}: from 0.01 to 100 please")));
        }
        let network = Network::read(path)?.without_authorities().scaled(scale);
        let seconds = options.run_seconds.unwrap_or(if is_quick { 90 } else { 300 });
        // Where all clients fetch, other loads would be the same runs under other names.
        let defaults: &[u32] = if network.has_users() { &[100, 115, 130] } else { &[100] };
        let loads = crate::common::values_or(&options.loads, is_quick, &[100], defaults);
        for load in &loads {
            let loaded = network.clone().loaded(f64::from(*load) / 100.0);
            loaded.map_err(|error| Error::Usage(format!("--loads {load}: {error}")))?;
        }
        Ok(Self {
            conditions: format!(
                "{} relays and {} clients, {seconds} s, network {} scaled by {scale}, digest {}",
                network.relays.len(),
                network.clients.len(),
                path.display(),
                network.digest(),
            ),
            network,
            seconds,
            loads,
            seeds: options.seeds.unwrap_or(if is_quick { 2 } else { 5 }),
            threads: options.threads,
            shard: options.shard,
        })
    }

    /// What does not count at the beginning of a run.
    pub(crate) const fn warm_up_s(&self) -> u32 {
        self.seconds / 3
    }

    /// All runs, those of a variant and seed together: they have the same weights.
    pub(crate) fn points(&self, variants: &[&str]) -> Vec<Point> {
        let seeds = 1..=u64::from(self.seeds);
        let groups = seeds.flat_map(|seed| variants.iter().map(move |it| (seed, *it)));
        let loads = |(seed, variant): (u64, &str)| {
            let point =
                |load: &u32| Point { variant: variant.to_owned(), load_percent: *load, seed };
            self.loads.iter().map(point).collect::<Vec<_>>()
        };
        groups.flat_map(loads).collect()
    }

    /// Whether this process is to play it. All loads of a variant and seed are in one part.
    pub(crate) fn is_ours(&self, point: &Point, variants: &[&str]) -> bool {
        let Some(shard) = self.shard else { return true };
        let place = variants.iter().position(|it| *it == point.variant).unwrap_or(0) as u64;
        let group = (point.seed - 1) * variants.len() as u64 + place;
        shard.takes(group)
    }

    /// The network at a load.
    pub(crate) fn at_load(&self, load_percent: u32) -> Network {
        let mut network = self.network.clone();
        network.choices.load *= f64::from(load_percent) / 100.0;
        network
    }

    /// What is the same for all runs, for the report.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let network = &self.network;
        let capacity: f64 = network.capacities().iter().sum::<f64>() * 1e-9;
        let loads: Vec<String> = self.loads.iter().map(|it| format!("{it} %")).collect();
        vec![
            parameter(
                "relays, clients, servers",
                format!(
                    "{}, {}, {}",
                    network.relays.len(),
                    network.clients.len(),
                    network.servers.len()
                ),
            ),
            parameter("what relays can carry, all together", format!("{capacity:.2} Gbit/s")),
            parameter(
                "simulated seconds of a run, of which count",
                format!("{}, {}", self.seconds, self.seconds - self.warm_up_s()),
            ),
            parameter("loads", loads.join(", ")),
            parameter("seeds", self.seeds.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_its_parts() {
        assert_eq!("2/3".parse(), Ok(Shard { part: 2, parts: 3 }));
        for text in ["0/3", "4/3", "1", "1/0", "a/b", "-1/2", ""] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    fn batch(shard: Option<Shard>) -> Batch {
        Batch {
            network: Network::default(),
            seconds: 90,
            loads: vec![100, 115],
            seeds: 3,
            threads: 1,
            shard,
            conditions: String::new(),
        }
    }

    #[test]
    fn shards_together_are_all_runs_each_once_and_loads_stay_together() {
        let variants = ["ideal", "torflow", "flashflow"];
        let all = batch(None).points(&variants);
        assert_eq!(all.len(), 18);
        let mut seen = Vec::new();
        for part in 1..=4 {
            let shard = batch(Some(Shard { part, parts: 4 }));
            let ours: Vec<&Point> = all.iter().filter(|it| shard.is_ours(it, &variants)).collect();
            assert!(ours.len().is_multiple_of(2), "both loads: {ours:?}");
            seen.extend(ours);
        }
        assert_eq!(seen.len(), all.len());
        assert!(all.iter().all(|it| seen.contains(&it)));
    }
}
