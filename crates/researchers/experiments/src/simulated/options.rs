use super::RunKey;
use crate::error::{Error, Result};
use crate::reporting::{list, parameter};
use clap::Args;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tornet::network::Network;

/// Options for a simulated network and its runs.
#[derive(Debug, Args)]
pub(crate) struct SimulatedOptions {
    /// A scenario (TOML), or the folder of a network that tornettools made for Shadow. See
    /// simulation.md (in the documentation).
    #[arg(long, value_name = "PATH")]
    pub(crate) network: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) runs: RunsOptions,
}

/// Options for the runs of a simulated network.
#[derive(Debug, Args)]
pub(crate) struct RunsOptions {
    /// Multiply the number of relays and clients by FACTOR, 0.01 to 100.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Multiply the number of clients that fetch at a fixed pace by FACTOR, 0 to 100: more downloads to compare, in shorter runs.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    benchmarks: f64,
    /// Simulated seconds of each run, 20 to 100000; 300 by default, 90 with --quick. The first third is
    /// warm-up.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(20..=100_000))]
    run_seconds: Option<u32>,
    /// Activity of modelled users, in percent of the network's own setting; 100,115,130 by default, 100 with
    /// --quick. It does not affect clients that fetch at a fixed pace; a network of only these accepts only 100.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) loads: Vec<u32>,
    /// Runs of each network at each load, with the seeds 1, 2, …; 5 by default, 2 with --quick.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Threads of each run, 1 to 256.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Perform only this part of all runs, such as 1/4 (for batch systems). When all result files are in one
    /// folder (--out), the same command without this option reports all of them.
    #[arg(long, value_name = "PART/PARTS")]
    pub(crate) shard: Option<Shard>,
}

/// One of several parts of a batch, counted from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    part: u32,
    parts: u32,
}

impl Shard {
    /// Whether the part contains this group of runs, counted from zero.
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
        let is_valid = |shard: &Self| (1..=shard.parts).contains(&shard.part);
        numbers.filter(is_valid).ok_or_else(|| "a part is 1/4, for example, up to 4/4".to_owned())
    }
}

/// A network and the runs to perform with it.
pub(crate) struct Batch {
    pub(crate) network: Network,
    pub(crate) seconds: u32,
    pub(crate) loads: Vec<u32>,
    pub(crate) seeds: u32,
    pub(crate) threads: u16,
    shard: Option<Shard>,
    /// Text that must be equal for all runs of a folder.
    pub(crate) conditions: String,
}

impl Batch {
    /// Reads the network at `path`.
    pub(crate) fn new(options: &RunsOptions, path: &Path, is_quick: bool) -> Result<Self> {
        let scale = options.scale;
        if !(0.01..=100.0).contains(&scale) {
            return Err(Error::Usage(format!("--scale {scale}: not 0.01 to 100")));
        }
        let benchmarks = options.benchmarks;
        if !(0.0..=100.0).contains(&benchmarks) {
            return Err(Error::Usage(format!("--benchmarks {benchmarks}: not 0 to 100")));
        }
        let network = Network::read(path)?.without_authorities().scaled(scale);
        let network = network.with_benchmarks(benchmarks);
        let seconds = options.run_seconds.unwrap_or(if is_quick { 90 } else { 300 });
        // Load scales only modelled users: without them, other loads would repeat the same runs.
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

    /// The length of the warm-up, which results leave out.
    pub(crate) const fn warm_up_s(&self) -> u32 {
        self.seconds / 3
    }

    /// All runs. Those of a variant and seed are adjacent, because they share the network's weights.
    pub(crate) fn keys(&self, variants: &[&str]) -> Vec<RunKey> {
        let mut keys = Vec::new();
        for seed in 1..=u64::from(self.seeds) {
            for variant in variants.iter().copied() {
                let key =
                    |load: &u32| RunKey { variant: variant.into(), load_percent: *load, seed };
                keys.extend(self.loads.iter().map(key));
            }
        }
        keys
    }

    /// Whether this process performs the run. All loads of a variant and seed are in one part.
    pub(crate) fn is_in_shard(&self, key: &RunKey, variants: &[&str]) -> bool {
        let Some(shard) = self.shard else { return true };
        let place = variants.iter().position(|variant| *variant == key.variant).unwrap_or(0) as u64;
        let group = (key.seed - 1) * variants.len() as u64 + place;
        shard.takes(group)
    }

    /// The network with the activity of its users scaled to this load.
    pub(crate) fn at_load(&self, load_percent: u32) -> Network {
        let mut network = self.network.clone();
        network.choices.load *= f64::from(load_percent) / 100.0;
        network
    }

    /// The parameters of all runs, for the report.
    pub(crate) fn parameters(&self) -> Vec<(String, String)> {
        let network = &self.network;
        let capacity: f64 = network.capacities().iter().sum::<f64>() * 1e-9;
        let loads: Vec<String> = self.loads.iter().map(|load| format!("{load} %")).collect();
        let hosts = [network.relays.len(), network.clients.len(), network.servers.len()];
        vec![
            parameter("relays, clients, servers", list(&hosts)),
            parameter("capacity of all relays", format!("{capacity:.2} Gbit/s")),
            parameter("simulated seconds of a run", self.seconds),
            parameter("seconds of warm-up", self.warm_up_s()),
            parameter("loads", list(&loads)),
            parameter("seeds", self.seeds),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_one_of_its_parts() {
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
    fn each_run_is_in_one_shard_together_with_its_other_loads() {
        let variants = ["ideal", "torflow", "flashflow"];
        let all = batch(None).keys(&variants);
        assert_eq!(all.len(), 18);
        let mut seen = Vec::new();
        for part in 1..=4 {
            let shard = batch(Some(Shard { part, parts: 4 }));
            let ours: Vec<&RunKey> =
                all.iter().filter(|key| shard.is_in_shard(key, &variants)).collect();
            assert!(ours.len().is_multiple_of(2), "both loads: {ours:?}");
            seen.extend(ours);
        }
        assert_eq!(seen.len(), all.len());
        assert!(all.iter().all(|key| seen.contains(&key)));
    }
}
