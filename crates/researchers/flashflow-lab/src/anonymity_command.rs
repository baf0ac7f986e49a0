//! `flashflow-lab anonymity`: the anonymity of path selection strategies, computed over a consensus.

use crate::choosing::{Choosing, StrategyName, share};
use clap::Args;
use cli::Error;
use client::NetDir;
use client::anonymity::{Adversary, Anonymity, Choice, Study, Weights};
use client::countries::Country;
use client::path::{Need, PathRules};
use documents::{consensus, newest, read};
use link::unix_time_s;
use netdoc::RsaId;
use rand::SeedableRng;
use rand::rngs::StdRng;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use terminal::{Exit, Output};

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// One strategy.
    Anonymity {
        /// Its name.
        strategy: &'a str,
        /// Circuits that are linked into one tunnel.
        legs: u8,
        /// Entropy of paths.
        path_bits: f64,
        /// Its standard error, as paths are drawn.
        path_bits_error: f64,
        /// The first relay.
        guard: ChoiceFigures,
        /// The second relay.
        middle: ChoiceFigures,
        /// The last relay.
        exit: ChoiceFigures,
        /// The adversaries.
        adversaries: Vec<Share>,
        /// Share of guards from which no path could be built.
        stuck_share: f64,
    },
}

/// The choice of one relay of a path.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChoiceFigures {
    /// Relays that can be chosen.
    relays: usize,
    /// Entropy of the choice.
    entropy_bits: f64,
    /// Entropy if all were equally likely.
    most_bits: f64,
    /// The first divided by the second.
    degree: f64,
    /// Probability of the likeliest relay.
    largest_share: f64,
}

/// An adversary.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// Its name.
    adversary: String,
    /// Number of its relays, the mean of its draws.
    relays: f64,
    /// Share of tunnels of which it has both ends: the exit, and the first relay of at least one leg.
    compromised_share: f64,
    /// Share of tunnels of which it has the first relay of at least one leg.
    observed_share: f64,
}

/// Compute the anonymity of path selection strategies over a consensus. No traffic is sent.
///
/// Prints for each strategy the entropy, in bits, of the choice of guard, middle, exit and whole path, and the share of paths whose
/// ends are both controlled by an adversary.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab anonymity --consensus cached-consensus
  flashflow-lab anonymity --consensus cached-consensus --strategy ranking \\
      --descriptors cached-descriptors --influence 0.5
  flashflow-lab anonymity --consensus cached-consensus --strategy uniform \\
      --geo country=DE --adversary-country DE
  flashflow-lab anonymity --consensus cached-consensus --adversary-weight 0.05 \\
      --adversary-relays 0.01 --json

With --json: one line for each strategy and number of legs, `type` anonymity. The share of a random adversary is the mean of
ten draws. FILE may be `-`, which is standard input, and may be
compressed with gzip or zlib.

Exit status: 0 computed; 1 a file cannot be used, or there is no path; 2 wrong arguments.")]
pub(crate) struct AnonymityOptions {
    /// Consensus of either flavour.
    #[arg(long, value_name = "FILE")]
    consensus: PathBuf,
    /// Strategy; may be repeated. By default weighted and uniform.
    #[arg(long = "strategy", value_enum)]
    strategies: Vec<StrategyName>,
    #[command(flatten)]
    choosing: Choosing,
    /// Destination port of the paths.
    #[arg(long, default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Allow two relays of one /16 network in a path.
    #[arg(long)]
    same_subnets: bool,
    /// Adversary with this share of the relays, chosen at random; may be repeated.
    #[arg(long, value_name = "0..1", value_parser = share)]
    adversary_relays: Vec<f64>,
    /// Adversary with this share of the consensus weight, chosen at random; may be repeated.
    #[arg(long, value_name = "0..1", value_parser = share)]
    adversary_weight: Vec<f64>,
    /// Adversary with the largest relays, up to this share of the weight; may be repeated. Default: 0.1, if no adversary is given.
    #[arg(long, value_name = "0..1", value_parser = share)]
    adversary_largest: Vec<f64>,
    /// Adversary that observes all relays of a country, according to --countries; may be repeated.
    #[arg(long, value_name = "CC")]
    adversary_country: Vec<Country>,
    /// Adversary with these relays.
    #[arg(long, value_name = "FP,...", value_delimiter = ',')]
    adversary_fingerprints: Vec<RsaId>,
    /// Numbers of circuits that are linked into one tunnel, 1 to 4. Each has its own first relay, drawn independently; entropies are those of
    /// one circuit.
    #[arg(long, value_name = "LEGS,...", value_delimiter = ',', default_values_t = [1],
        value_parser = clap::value_parser!(u8).range(1..=4))]
    legs: Vec<u8>,
    /// Maximum number of guard-exit pairs for which middles are computed. If there are more, a random sample is used.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pairs: u32,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Draws of a random adversary.
const DRAWS: usize = 10;

/// An adversary and its draws: [`DRAWS`] of a random one, else one.
struct Party {
    name: String,
    draws: Vec<Adversary>,
}

pub(crate) fn run(options: &AnonymityOptions, output: &Output) -> Result<Exit, Error> {
    let consensus = consensus(&options.consensus, unix_time_s())?;
    let descriptors = match &options.choosing.descriptors {
        Some(path) => Some((path, read(path, "read the descriptors")?)),
        None => None,
    };
    // Relays whose descriptors cannot be read declare no family.
    let descriptors = match &descriptors {
        Some((path, text)) => newest(path, text)?.descriptors,
        None => Vec::new(),
    };
    let view = NetDir::for_study(&consensus, &descriptors);
    if view.relays().iter().all(|relay| relay.weight_kb_s == 0) {
        output.step(
            "all relays weigh 0 in the consensus: strategies by weight choose uniformly, as tor does",
        );
    }
    let parties = options.parties(&view)?;
    let adversaries: Vec<Adversary> =
        parties.iter().flat_map(|party| party.draws.iter().cloned()).collect();
    let strategies = match options.strategies.as_slice() {
        [] => &[StrategyName::Weighted, StrategyName::Uniform],
        some => some,
    };
    for name in strategies {
        let strategy = options.choosing.strategy(*name, 3, &[])?;
        output.doing(format!("{}: {} relays", name.word(), view.relays().len()));
        for legs in options.legs.iter().copied() {
            let study = Study {
                netdir: &view,
                strategy: &*strategy,
                rules: PathRules { distinct_subnets: !options.same_subnets },
                need: Need::Port { port: options.port, is_ipv6: false },
                legs,
                pairs: usize::try_from(options.pairs).unwrap_or(usize::MAX),
            };
            let found = study.run(&adversaries, &mut StdRng::seed_from_u64(options.seed));
            let found =
                found.map_err(|error| Error::Failed(format!("{}: {error}", name.word())))?;
            let shares = means(&parties, &found);
            output.quiet();
            let text = in_words(name.word(), legs, &found, &shares);
            output.result(text, || line(name.word(), legs, &found, shares));
        }
    }
    Ok(Exit::Done)
}

impl AnonymityOptions {
    fn parties(&self, view: &NetDir) -> Result<Vec<Party>, Error> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut parties: Vec<Party> = Vec::new();
        let mut add = |draws: Vec<Adversary>| {
            let name = draws.first().map(|draw| draw.name.clone()).unwrap_or_default();
            parties.push(Party { name, draws });
        };
        for share in &self.adversary_relays {
            add((0..DRAWS).map(|_| Adversary::with_relays(view, *share, &mut rng)).collect());
        }
        for share in &self.adversary_weight {
            let draw = |_| Adversary::with_weight(view, *share, Weights::Random, &mut rng);
            add((0..DRAWS).map(draw).collect());
        }
        for share in &self.adversary_largest {
            add(vec![Adversary::with_weight(view, *share, Weights::Largest, &mut rng)]);
        }
        if !self.adversary_country.is_empty() {
            let table = self.choosing.table()?;
            for country in &self.adversary_country {
                add(vec![Adversary::in_country(view, *country, &table)]);
            }
        }
        if !self.adversary_fingerprints.is_empty() {
            let known = self.adversary_fingerprints.iter().copied();
            add(vec![Adversary::new("the relays that were named", known)]);
        }
        if parties.is_empty() {
            let draws = vec![Adversary::with_weight(view, 0.1, Weights::Largest, &mut rng)];
            parties.push(Party { name: draws[0].name.clone(), draws });
        }
        Ok(parties)
    }
}

/// The means of the draws of each party.
fn means(parties: &[Party], found: &Anonymity) -> Vec<Share> {
    let (mut compromised, mut observed) = (found.compromised.iter(), found.observed.iter());
    let mean = |party: &Party| {
        let draws = party.draws.len();
        let count = draws.max(1) as f64;
        Share {
            adversary: party.name.clone(),
            relays: party.draws.iter().map(|draw| draw.len() as f64).sum::<f64>() / count,
            compromised_share: compromised.by_ref().take(draws).sum::<f64>() / count,
            observed_share: observed.by_ref().take(draws).sum::<f64>() / count,
        }
    };
    parties.iter().map(mean).collect()
}

fn in_words(name: &str, legs: u8, found: &Anonymity, shares: &[Share]) -> String {
    let choice = |word: &str, choice: Choice| {
        format!(
            "\n  {word:<7} {:6.2} bits of {:.2} ({}, the likeliest {:.2} %)",
            // The computed entropy of a single relay is -0.0.
            choice.entropy_bits.max(0.0) + 0.0,
            choice.most_bits(),
            report::plural(choice.relays as u64, "relay"),
            choice.largest_share * 100.0
        )
    };
    let mut text = match legs {
        1 => format!("{name}: paths {:.2} bits", found.path_bits),
        _ => format!("{name}, {legs} legs: paths {:.2} bits", found.path_bits),
    };
    if found.path_bits_error > 0.0 {
        text += &format!(" (± {:.3})", 1.96 * found.path_bits_error);
    }
    text += &choice("guard", found.guard);
    text += &choice("middle", found.middle);
    text += &choice("exit", found.exit);
    for Share { adversary, relays, compromised_share, observed_share } in shares {
        text += &format!(
            "\n  {adversary} ({relays:.0} relays): both ends of {:.4} % of paths",
            compromised_share * 100.0
        );
        if legs > 1 {
            text += &format!(", a first relay of {:.4} %", observed_share * 100.0);
        }
    }
    text
}

fn line<'a>(strategy: &'a str, legs: u8, found: &Anonymity, adversaries: Vec<Share>) -> Line<'a> {
    let figures = |choice: Choice| ChoiceFigures {
        relays: choice.relays,
        entropy_bits: choice.entropy_bits,
        most_bits: choice.most_bits(),
        degree: choice.degree(),
        largest_share: choice.largest_share,
    };
    Line::Anonymity {
        strategy,
        legs,
        path_bits: found.path_bits,
        path_bits_error: found.path_bits_error,
        guard: figures(found.guard),
        middle: figures(found.middle),
        exit: figures(found.exit),
        adversaries,
        stuck_share: found.stuck,
    }
}
