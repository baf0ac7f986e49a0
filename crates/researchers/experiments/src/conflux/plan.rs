//! The downloads of the experiment, and their methods.

use super::Options;
use crate::common::values_or;
use clap::ValueEnum;
use onion::tunnel::conflux::{LegScheduler, schedulers};
use serde::{Deserialize, Serialize};
use std::fmt;

/// An exit's scheduler of legs.
pub(super) type Scheduler = &'static dyn LegScheduler;

/// The kind of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum ClientKind {
    /// C tor with one circuit.
    Tor,
    /// C tor with two linked circuits.
    TorLinked,
    /// Simulated: one circuit with congestion control, as in C tor since 0.4.7.
    Plain,
    /// Simulated: one circuit with fixed windows, as in C tor when the paper was written.
    Fixed,
    /// Our client.
    Ours,
    /// Simulated: our client without retransmission, whose set may end with a leg, as the paper's.
    Fragile,
}

impl ClientKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tor => "tor",
            Self::TorLinked => "tor-conflux",
            Self::Plain => "plain",
            Self::Fixed => "fixed-windows",
            Self::Ours => "ours",
            Self::Fragile => "without-retransmission",
        }
    }

    /// Whether the others are compared with this one.
    pub(super) const fn is_baseline(self) -> bool {
        matches!(self, Self::Tor | Self::Plain)
    }
}

/// The exit of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(super) enum ExitOf {
    /// Our relay.
    Ours,
    /// C tor's.
    // Published results record commands with its earlier name.
    #[value(alias = "stock")]
    Tor,
}

impl ExitOf {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Tor => "tor",
        }
    }
}

/// What all downloads of a run have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Scene {
    /// Downloads over the bridges as they are.
    Bridges,
    /// Simulated: the second bridge is slow.
    SlowBridge,
    /// Simulated: each path fails from time to time; clients build new circuits.
    FailingPaths,
    /// Simulated: uploads, which the exit reorders.
    Uploads,
}

impl Scene {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bridges => "bridges",
            Self::SlowBridge => "slow-bridge",
            Self::FailingPaths => "failing-paths",
            Self::Uploads => "uploads",
        }
    }
}

/// A method of downloading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Method {
    pub(super) who: ClientKind,
    pub(super) exit: ExitOf,
    pub(super) legs: usize,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { who, exit, legs } = self;
        let plural = if *legs == 1 { "" } else { "s" };
        match who {
            ClientKind::Plain => f.write_str("one circuit with congestion control"),
            ClientKind::Fixed => f.write_str("one circuit with fixed windows"),
            ClientKind::Tor => f.write_str("C tor, one circuit"),
            ClientKind::TorLinked => write!(f, "C tor, {legs} legs"),
            ClientKind::Ours => write!(f, "ours, {legs} leg{plural}, exit: {}", exit.name()),
            ClientKind::Fragile => write!(f, "without retransmission, {legs} legs"),
        }
    }
}

/// The figures of a complete download.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DownloadFigures {
    /// Seconds from the request to the last byte.
    pub(super) took_s: f64,
    /// Seconds from the first request to the first byte of the request that completes.
    pub(super) first_byte_s: f64,
    /// The messages that each leg carried; empty for a single circuit.
    pub(super) carried: Vec<u64>,
    /// Simulated: the most memory of the exit's queues and buffers at a time, in KiB.
    pub(super) exit_peak_kib: Option<f64>,
    /// Simulated: the most messages that the client reordered at a time.
    pub(super) client_early_peak: Option<usize>,
}

/// A download.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    pub(super) scene: Scene,
    pub(super) method: Method,
    pub(super) size_mb: f64,
    pub(super) run: u32,
    /// The total rate of its bridges in Mbit/s.
    pub(super) capacity_mbit: f64,
    /// Its figures, or the reason of its failure.
    pub(super) seen: Result<DownloadFigures, String>,
}

/// The parameters of all downloads.
#[derive(Debug)]
pub(super) struct ConfluxSettings {
    pub(super) runs: u32,
    pub(super) sizes_mb: Vec<f64>,
    pub(super) scenes: Vec<Scene>,
    /// The baseline first.
    pub(super) methods: Vec<Method>,
    pub(super) is_simulated: bool,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) seed: u64,
}

impl ConfluxSettings {
    pub(super) fn new(options: &Options, is_quick: bool) -> Self {
        let is_simulated = options.simulated;
        let default = match (is_simulated, is_quick) {
            (true, true) | (false, false) => 12,
            (true, false) => 40,
            (false, true) => 4,
        };
        let quick_mb: &[f64] = if is_simulated { &[0.4, 5.0] } else { &[0.4, 2.0] };
        let mut sizes_mb = values_or(&options.sizes, is_quick, quick_mb, &[0.4, 5.0, 10.0]);
        sizes_mb.sort_by(f64::total_cmp);
        sizes_mb.dedup();
        let mut scenes = options.scenes.clone();
        scenes.sort_unstable();
        scenes.dedup();
        let mut legs: Vec<usize> = options.legs.iter().copied().map(usize::from).collect();
        legs.sort_unstable();
        legs.dedup();
        let both = [ExitOf::Ours, ExitOf::Tor];
        let mut exits = values_or(&options.exits, is_quick, &both, &both);
        exits.sort_unstable();
        exits.dedup();
        let one = |who, exit| Method { who, exit, legs: 1 };
        let mut methods = Vec::new();
        if is_simulated {
            methods.extend([
                one(ClientKind::Plain, ExitOf::Ours),
                one(ClientKind::Fixed, ExitOf::Ours),
            ]);
            // The first of these methods is one leg.
            legs.retain(|legs| *legs > 1);
            exits = vec![ExitOf::Ours];
        } else {
            methods.push(one(ClientKind::Tor, ExitOf::Tor));
            // C tor clients link two circuits.
            if exits.contains(&ExitOf::Tor) && legs.contains(&2) {
                methods.push(Method { who: ClientKind::TorLinked, exit: ExitOf::Tor, legs: 2 });
            }
        }
        // --quick tries C tor's exit with two legs only.
        let two_at_tor = is_quick && options.exits.is_empty();
        for exit in exits {
            let is_left_out = |legs: usize| two_at_tor && exit == ExitOf::Tor && legs != 2;
            let legs = legs.iter().copied().filter(|legs| !is_left_out(*legs));
            methods.extend(legs.map(|legs| Method { who: ClientKind::Ours, exit, legs }));
        }
        Self {
            runs: options.runs.unwrap_or(default),
            sizes_mb,
            scenes,
            methods,
            is_simulated,
            scheduler: options.leg_scheduler,
            seed: options.seed,
        }
    }

    pub(super) fn downloads(&self) -> usize {
        let methods: usize = self.scenes.iter().map(|scene| self.methods_in(*scene).len()).sum();
        methods * self.sizes_mb.len() * self.runs as usize
    }

    /// The methods of a scene. Where paths fail, sets of legs are tried with and without retransmission.
    pub(super) fn methods_in(&self, scene: Scene) -> Vec<Method> {
        let mut methods = self.methods.clone();
        if scene == Scene::FailingPaths {
            let sets = self.methods.iter().filter(|method| method.legs > 1);
            methods.extend(sets.map(|method| Method { who: ClientKind::Fragile, ..*method }));
        }
        methods
    }

    /// The runs that begin with the bridge of this index, counted from one.
    pub(super) fn runs_from(&self, first: usize, bridges: usize) -> impl Iterator<Item = u32> {
        (1..=self.runs).skip(first).step_by(bridges.max(1))
    }

    /// All methods, starting with another one in each run.
    pub(super) fn in_turn(&self, run: u32) -> impl Iterator<Item = Method> {
        let count = self.methods.len();
        self.methods.iter().copied().cycle().skip(run as usize % count.max(1)).take(count)
    }
}

/// A size of a download in MB.
pub(super) fn size(text: &str) -> Result<f64, String> {
    let mb = text.parse().ok().filter(|mb| (0.01..=1000.0).contains(mb));
    mb.ok_or_else(|| "a size is 0.01 to 1000 MB".to_owned())
}

/// A scheduler by its name.
pub(super) fn scheduler(name: &str) -> Result<Scheduler, String> {
    schedulers::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = schedulers::ALL.iter().map(|scheduler| scheduler.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

/// The bytes of a size in MB (10⁶ bytes, as in the paper).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a gigabyte at most")]
pub(super) fn bytes(size_mb: f64) -> u64 {
    (size_mb * 1e6).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::GridOptions;

    fn options(simulated: bool) -> Options {
        Options {
            runs: Some(9),
            sizes: vec![5.0, 0.4, 5.0],
            legs: vec![3, 1, 2],
            exits: Vec::new(),
            simulated,
            scenes: vec![Scene::Bridges],
            leg_scheduler: None,
            seed: 1,
            grid: GridOptions::default(),
        }
    }

    #[test]
    fn each_run_has_one_first_bridge_and_each_method_once() {
        let plan = ConfluxSettings::new(&options(false), false);
        assert_eq!(plan.sizes_mb, [0.4, 5.0]);
        let quick = ConfluxSettings::new(&options(false), true);
        let of_tor_exits = quick
            .methods
            .iter()
            .filter(|method| method.who == ClientKind::Ours && method.exit == ExitOf::Tor);
        assert_eq!(of_tor_exits.map(|method| method.legs).collect::<Vec<_>>(), [2]);
        assert_eq!(plan.methods.len(), 8, "C tor twice, and three numbers of legs with each exit");
        assert!(plan.methods[0].who.is_baseline());
        let mut runs: Vec<u32> = (0..4).flat_map(|first| plan.runs_from(first, 4)).collect();
        assert_eq!(plan.runs_from(1, 4).collect::<Vec<_>>(), [2, 6]);
        runs.sort_unstable();
        assert_eq!(runs, (1..=9).collect::<Vec<_>>());
        for run in 1..=9 {
            let mut methods: Vec<Method> = plan.in_turn(run).collect();
            methods.sort_unstable();
            let mut all = plan.methods.clone();
            all.sort_unstable();
            assert_eq!(methods, all);
        }
    }

    #[test]
    fn simulations_have_no_c_tor() {
        let plan = ConfluxSettings::new(&options(true), true);
        assert_eq!(plan.methods.iter().filter(|method| method.who == ClientKind::Ours).count(), 2);
        assert!(
            plan.methods
                .iter()
                .all(|method| method.who != ClientKind::Tor && method.exit == ExitOf::Ours)
        );
        assert_eq!(plan.methods.iter().filter(|method| method.who.is_baseline()).count(), 1);
    }

    #[test]
    fn sets_without_retransmission_are_tried_where_paths_fail() {
        let plan = ConfluxSettings::new(&options(true), true);
        let of = |scene| plan.methods_in(scene).len();
        assert_eq!((of(Scene::Bridges), of(Scene::FailingPaths)), (4, 6));
        assert_eq!(plan.downloads(), 9 * 2 * 4, "nine runs of two sizes");
    }

    #[test]
    fn sizes_are_in_millions_of_bytes() {
        assert_eq!(bytes(0.4), 400_000);
        assert!(size("0").is_err() && size("x").is_err() && size("inf").is_err());
        assert!(scheduler("low-rtt").is_ok() && scheduler("none").is_err());
    }
}
