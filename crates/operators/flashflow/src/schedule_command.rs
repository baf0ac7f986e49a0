//! `flashflow schedule`: plans when a team measures the relays of a consensus.

mod network;
mod newcomers;
mod picture;
mod settings;

use authority::shell;
use clap::Args;
use cli::Error;
use coordinator::plan::{Machine, Plan, Seed, TeamRoom};
use files::Access;
use link::Clock;
use network::Network;
use newcomers::{Newcomers, NewcomersLine};
use onion::Rate;
use schemars::JsonSchema;
use serde::Serialize;
use settings::Settings;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terminal::{Exit, Output};

/// Plan when each relay of a consensus is measured, and by which team.
///
/// For each team, every relay gets a slot at random among those with room, the fastest relays first (FlashFlow, section 4.3). The
/// defaults are those of the coordinator, so the plan shows whether a team is large enough. The seed determines the plan; a
/// coordinator keeps its own seed secret. With --greedy, the plan is the shortest one instead (section 7). Nothing is measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow schedule --config coordinator.toml
  flashflow schedule --consensus cached-consensus --team 1000,1000,1000
  flashflow schedule --consensus cached-consensus --team 1000,1000,1000 --greedy
  flashflow schedule --consensus cached-consensus --team 1000,1000 --team 2500 --svg filled.svg
  flashflow schedule --consensus 10-00-consensus --next 11-00-consensus --team 3000 --json

Capacities are the weights of the consensus. For relays in --descriptors they are the largest observed throughput, at most the
relay's own rate limit, as in the paper (section 7).

Exit status: 0 each relay has a slot, and the teams are large enough; 1 some have no slot, or a file cannot be used; 2 wrong
arguments; 3 each relay has a slot, but some need more than a team has: their results would be lower bounds.")]
pub(crate) struct ScheduleOptions {
    /// Plan with the settings of a coordinator: its team, consensus, relays, families, slots and period. Options override them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["greedy", "apart", "excess", "families"])]
    config: Option<PathBuf>,
    /// Consensus. Authorities and relays that are down are left out.
    #[arg(long, value_name = "FILE", required_unless_present = "config")]
    consensus: Option<PathBuf>,
    /// Server descriptors, for capacities and families.
    #[arg(long, value_name = "FILE")]
    descriptors: Option<PathBuf>,
    /// Capacities of a team's measurers, in Mbit/s; repeated for each team.
    #[arg(long, value_name = "MBIT,MBIT,...", required_unless_present = "config")]
    team: Vec<TeamArgument>,
    /// The seed of the period, 64 hexadecimal digits. By default a new one is drawn and printed.
    #[arg(long, value_name = "HEX", conflicts_with = "greedy")]
    seed: Option<SeedArgument>,
    /// Make the shortest plan. It is predictable.
    #[arg(long)]
    greedy: bool,
    /// Scale all capacities to this sum.
    #[arg(long, value_name = "GBIT")]
    total_gbit_per_s: Option<f64>,
    /// Limit the capacity of each relay.
    #[arg(long, value_name = "MBIT")]
    max_mbit_per_s: Option<f64>,
    /// Excess factor f: allocated measurer capacity, relative to the expected capacity of a relay. By default 2.95.
    #[arg(long, value_name = "FACTOR")]
    excess: Option<f64>,
    /// Length of a slot. By default 33 s, as for the coordinator: the load of a measurement, of which 30 s count. The paper plans slots of 30 s.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    slot_s: Option<u32>,
    /// Length of the period. By default a day.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=31 * 86_400))]
    period_s: Option<u32>,
    /// Maximum number of relays that a team measures at the same time. By default 64, the limit of a measurer.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// Measure relays of one family at the same time, like relays at one address. Relays are of one family if their descriptors name
    /// each other or have certificates by the same family key.
    #[arg(long, requires = "descriptors")]
    families: bool,
    /// Measure each relay separately, even if several share an address, as in section 7 of the paper.
    #[arg(long, conflicts_with = "families")]
    apart: bool,
    /// Share of relays, 0 to 1, that decline to be measured. They are drawn by their fingerprints, and left out.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    declines: f64,
    /// Share of measurements, 0 to 1, that are followed by another one with twice the load. It counts for the sufficient team and for
    /// the traffic.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    second_turns: f64,
    /// A later consensus. New relays in it get the first slots with room. The command prints how long they wait.
    #[arg(long, value_name = "FILE")]
    next: Option<PathBuf>,
    /// Write a chart of the utilization of the slots to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A relay's slot.
    Measurement {
        /// The team, counted from 0.
        team: usize,
        /// The slot, counted from 0.
        slot: u32,
        /// When it begins, from the start of the period.
        start_s: u64,
        /// The relay.
        fingerprint: String,
        /// Its nickname.
        nickname: Option<&'a str>,
        /// Its expected capacity.
        capacity_mbit_per_s: Option<f64>,
        /// The first relay of its machine. Relays of one machine are measured together.
        machine: String,
    },
    /// With `--next`: how long new relays wait.
    Newcomers(NewcomersLine),
    /// The whole plan.
    Summary(Summary),
}

/// The whole plan.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summary {
    /// `greedy` or `randomised`.
    plan: &'static str,
    /// The number of relays.
    relays: usize,
    /// The number of machines.
    machines: usize,
    /// The number of machines with several relays.
    shared_machines: usize,
    /// The number of machines that need more than the smallest team has.
    short_machines: usize,
    /// The number of their relays, whose results would be lower bounds.
    lower_bound_relays: usize,
    /// What the largest machine needs.
    largest_need_mbit_per_s: f64,
    /// What the smallest team has.
    smallest_team_mbit_per_s: f64,
    /// The maximum number of relays that a team measures at the same time.
    at_once: u32,
    /// The capacity of all relays.
    capacity_gbit_per_s: f64,
    /// The number of teams.
    teams: usize,
    /// The excess factor *f*.
    excess: f64,
    /// The number of slots in which any team measures.
    used_slots: usize,
    /// The mean load of a team in these slots, as a share of its capacity.
    mean_load: f64,
    /// The number of slots up to the last one that is used.
    slots: u32,
    /// What all relays need, in slots of the smallest team.
    bound_slots: f64,
    /// `bound_slots` in hours. No plan of one measurement for each relay is shorter.
    bound_hours: f64,
    /// The capacity of the smallest team that measures all relays in the period, 1.1 times each in the mean. Absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    sufficient_team_mbit_per_s: Option<f64>,
    /// What the team sends in the period if it measures all relays as often, in 10¹² bytes. It receives as much.
    traffic_tb: f64,
    /// The length of a slot.
    slot_s: u32,
    /// The time until the end of the last slot that is used.
    hours: f64,
    /// The number of slots of the period.
    period_slots: u32,
    /// The number of measurements without a slot.
    without_slot: usize,
    /// How long planning took.
    wall_ms: f64,
    /// Equal plans have equal fingerprints.
    fingerprint: String,
    /// The seed, if it was drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
}

/// A team on the command line.
#[derive(Clone, Debug)]
struct TeamArgument(Rate);

impl FromStr for TeamArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mbit = |part: &str| {
            let mbit =
                part.trim().parse::<f64>().ok().filter(|mbit| mbit.is_finite() && *mbit > 0.0);
            mbit.map(Rate::from_mbit_per_s)
                .ok_or_else(|| format!("{part:?} is not a rate above zero"))
        };
        text.split(',').map(mbit).sum::<Result<Rate, String>>().map(Self)
    }
}

#[derive(Clone, Debug)]
struct SeedArgument(Seed);

impl FromStr for SeedArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes)
            .map_err(|_| "not 64 hexadecimal digits".to_owned())?;
        Ok(Self(Seed::from_bytes(bytes)))
    }
}

pub(crate) fn run(options: &ScheduleOptions, output: &Output) -> Result<Exit, Error> {
    let above_zero = [
        ("total-gbit-per-s", options.total_gbit_per_s),
        ("max-mbit-per-s", options.max_mbit_per_s),
        ("excess", options.excess),
    ];
    for (name, value) in above_zero {
        if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
            return Err(Error::Usage(format!("--{name} {value}: not a number above zero")));
        }
    }
    for (name, share) in [("declines", options.declines), ("second-turns", options.second_turns)] {
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::Usage(format!("--{name} {share}: not from 0 to 1")));
        }
    }
    let settings = Settings::from_options(options)?;
    // A second turn has twice the load.
    let loads_of_relay = MEASUREMENTS_OF_RELAY * 2.0_f64.mul_add(options.second_turns, 1.0);
    let network = Network::read(options, &settings)?;
    let Settings { excess, slot_s, is_greedy, .. } = settings;
    let teams = &settings.teams;
    let (seed, drawn) = match &options.seed {
        Some(seed) => (seed.0.clone(), false),
        None => (Seed::from_bytes(shell::random()?), !is_greedy),
    };
    let period = settings.slots();
    let period_slots = period.count - u32::try_from(period.closed.len()).unwrap_or(0);
    let machines = network.machines();
    let machine_count = machines.len();
    let shared = machines.iter().filter(|machine| machine.count() > 1).count();
    let short = Short::find(&network, &machines, teams, excess);
    let sufficient = sufficient_team(
        &machines,
        excess,
        settings.at_once,
        f64::from(period_slots) / loads_of_relay,
    );

    let clock = Clock::start();
    let began = clock.now();
    let mut plan = if is_greedy {
        Plan::greedy(teams, excess, machines)
    } else {
        Plan::randomised(&seed, period, teams, excess, machines)
    };
    let wall = clock.now().saturating_since(began);

    let places = plan.places();
    // Up to the end of the last slot that is used.
    let slots = plan.used_slots();
    let without_slot: usize = (0..teams.len()).map(|team| plan.without_slot(team).len()).sum();
    let fingerprint = hex::encode(plan.fingerprint());
    let bound_slots = bound(&network, teams, excess);
    for place in &places {
        output.record(|| {
            let relay = network.relay(place.relay);
            Line::Measurement {
                team: place.team,
                slot: place.slot,
                start_s: u64::from(place.slot) * u64::from(slot_s),
                fingerprint: place.relay.to_string(),
                nickname: relay.map(|relay| relay.nickname.as_str()),
                capacity_mbit_per_s: plan.guess(place.relay).map(Rate::as_mbit_per_s),
                machine: place.machine.to_string(),
            }
        });
    }
    let filled: Vec<Vec<f64>> =
        teams.iter().enumerate().map(|(team, room)| fill(&plan, team, room.capacity)).collect();
    let usage = Usage::new(&filled);
    output.text(picture::text(&filled, slot_s));
    if let Some(path) = &options.svg {
        let svg = picture::figure(&filled, slot_s, is_greedy).to_svg();
        let failed = |source| Error::File { what: "write the chart", path: path.clone(), source };
        files::replace(path, svg.as_bytes(), Access::Umask).map_err(failed)?;
    }
    let newcomers = match &options.next {
        Some(path) => Some(Newcomers::admit(&mut plan, &network, path, &settings)?),
        None => None,
    };
    if let Some(newcomers) = &newcomers {
        output.result(newcomers, || Line::Newcomers(newcomers.line()));
    }
    let in_hours = |slots: u32| f64::from(slots) * f64::from(slot_s) / 3600.0;
    let hours = in_hours(slots);
    let bound_hours = bound_slots * f64::from(slot_s) / 3600.0;
    let sufficient_words = sufficient.map_or_else(
        || "no team measures all relays in the period".to_owned(),
        |team| {
            let gbit = team.as_mbit_per_s() / 1000.0;
            format!(
                "a team of {gbit:.1} Gbit/s measures all relays in the period, {MEASUREMENTS_OF_RELAY} times each{}",
                if options.second_turns > 0.0 { " and with the second turns" } else { "" },
            )
        },
    );
    let kind = if is_greedy { "greedy" } else { "randomised" };
    let capacity: Rate = network.relays.iter().map(|relay| relay.guess).sum();
    let gbit = capacity.as_mbit_per_s() / 1000.0;
    let traffic_tb = gbit / 8000.0 * f64::from(slot_s) * loads_of_relay;
    let in_words = format!(
        "{kind}: {} on {}, {gbit:.1} Gbit/s; {}; {} without a slot\n\
         {usage} of {period_slots} slots of {} s used; the last begins after {:.1} h; the relays need {bound_slots:.1} slots of the \
         smallest team, {bound_hours:.1} h\n\
         {short}\n\
         {sufficient_words}, and sends {traffic_tb:.1} TB for that\n\
         planned in {:.1} ms; fingerprint {fingerprint}{}",
        report::plural(network.relays.len() as u64, "relay"),
        report::plural(machine_count as u64, "machine"),
        report::plural(teams.len() as u64, "team"),
        report::plural(without_slot as u64, "measurement"),
        slot_s,
        in_hours(slots.saturating_sub(1)),
        wall.as_secs_f64() * 1e3,
        if drawn { format!("\nseed {}", hex::encode(seed.as_bytes())) } else { String::new() },
    );
    let summary = Summary {
        plan: kind,
        relays: network.relays.len(),
        machines: machine_count,
        shared_machines: shared,
        short_machines: short.machines,
        lower_bound_relays: short.relays,
        largest_need_mbit_per_s: short.largest.as_mbit_per_s(),
        smallest_team_mbit_per_s: short.team.as_mbit_per_s(),
        at_once: settings.at_once,
        capacity_gbit_per_s: gbit,
        teams: teams.len(),
        excess,
        used_slots: usage.slots,
        mean_load: usage.mean_load,
        slots,
        bound_slots,
        bound_hours,
        sufficient_team_mbit_per_s: sufficient.map(Rate::as_mbit_per_s),
        traffic_tb,
        slot_s,
        hours,
        period_slots,
        without_slot,
        wall_ms: wall.as_secs_f64() * 1e3,
        fingerprint,
        seed: drawn.then(|| hex::encode(seed.as_bytes())),
    };
    output.result(in_words, || Line::Summary(summary));
    let has_room = without_slot == 0 && (!is_greedy || slots <= period_slots);
    Ok(match (has_room, short.relays) {
        (false, _) => Exit::Failed,
        (true, 0) => Exit::Done,
        (true, _) => Exit::Inconclusive,
    })
}

/// Relays that the smallest team cannot load enough in any slot, so that their results are lower bounds.
struct Short {
    relays: usize,
    machines: usize,
    /// The names of the first ones, the largest first.
    names: Vec<String>,
    /// The allocation that the machine with the largest capacity needs.
    largest: Rate,
    /// The capacity of the smallest team.
    team: Rate,
}

impl Short {
    /// The number of relays that are named.
    const NAMED: usize = 10;

    fn find(network: &Network, machines: &[Machine], teams: &[TeamRoom], excess: f64) -> Self {
        let team = teams.iter().map(|team| team.capacity).min().unwrap_or_default();
        let needs = |machine: &Machine| machine.guess().scaled(excess);
        let mut short: Vec<&Machine> =
            machines.iter().filter(|machine| needs(machine) > team).collect();
        short.sort_by_key(|machine| std::cmp::Reverse(machine.guess()));
        let names =
            short.iter().flat_map(|machine| machine.relays()).filter_map(|id| network.relay(id));
        Self {
            relays: short.iter().map(|machine| machine.count() as usize).sum(),
            machines: short.len(),
            names: names.map(|name| name.nickname.clone()).take(Self::NAMED).collect(),
            largest: machines.iter().map(needs).max().unwrap_or_default(),
            team,
        }
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [team, largest] = [self.team, self.largest].map(|rate| rate.as_mbit_per_s());
        if self.relays == 0 {
            return write!(
                f,
                "the smallest team, {team:.0} Mbit/s, has what the largest machine needs, {largest:.0} Mbit/s"
            );
        }
        let relays = report::plural(self.relays as u64, "relay");
        write!(
            f,
            "warning: {relays} will only get lower bounds: the smallest team has {team:.0} Mbit/s, the largest machine needs \
             {largest:.0} Mbit/s\nlower bounds: {}{}",
            self.names.join(", "),
            if self.relays > self.names.len() { ", …" } else { "" },
        )
    }
}

/// How much of the slots is allocated.
struct Usage {
    /// The number of slots in which any team measures.
    slots: usize,
    /// The mean load of a team in those slots, as a share of its capacity.
    mean_load: f64,
}

impl Usage {
    /// From the load of each slot, for each team.
    fn new(filled: &[Vec<f64>]) -> Self {
        let length = filled.iter().map(Vec::len).max().unwrap_or(0);
        let load = |slot: usize| -> f64 { filled.iter().filter_map(|team| team.get(slot)).sum() };
        let loads: Vec<f64> = (0..length).map(load).filter(|load| *load > 0.0).collect();
        let teams = filled.len().max(1) * loads.len().max(1);
        Self { slots: loads.len(), mean_load: loads.iter().sum::<f64>() / teams as f64 }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (load {:.0} %)", self.slots, self.mean_load * 100.0)
    }
}

/// Σ *f·c* divided by the capacity of the smallest team. If no machine needs more than that team, no plan has fewer slots.
fn bound(network: &Network, teams: &[TeamRoom], excess: f64) -> f64 {
    let sum: f64 = network.relays.iter().map(|relay| relay.guess.as_mbit_per_s()).sum();
    let of_team = |team: &TeamRoom| sum * excess / team.capacity.as_mbit_per_s();
    teams.iter().map(of_team).fold(0.0, f64::max)
}

/// The mean number of measurements of a relay in a period (`Plan::memoryless`).
const MEASUREMENTS_OF_RELAY: f64 = 1.1;

/// The capacity of the smallest team whose densest plan has at most this many slots, within a hundredth; `None` if there is none, since too
/// many relays would be measured at once. It has what the largest machine needs.
fn sufficient_team(
    machines: &[Machine],
    excess: f64,
    at_once_max: u32,
    slots_max: f64,
) -> Option<Rate> {
    let fits = |capacity: Rate| {
        let plan = Plan::greedy(&[TeamRoom { capacity, at_once_max }], excess, machines.to_vec());
        f64::from(plan.used_slots()) <= slots_max
    };
    let needs = machines.iter().map(|machine| machine.guess().scaled(excess));
    let mut low = needs.max()?;
    if fits(low) {
        return Some(low);
    }
    let sum: Rate = machines.iter().map(|machine| machine.guess().scaled(excess)).sum();
    let mut high = sum;
    if !fits(high) {
        return None;
    }
    while high.as_mbit_per_s() > 1.01 * low.as_mbit_per_s() {
        let middle = Rate::from_mbit_per_s(low.as_mbit_per_s().midpoint(high.as_mbit_per_s()));
        if middle <= low || middle >= high {
            break;
        }
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The share of each slot that is allocated.
fn fill(plan: &Plan, team: usize, capacity: Rate) -> Vec<f64> {
    let share = |used: Rate| used.as_mbit_per_s() / capacity.as_mbit_per_s();
    plan.used(team).into_iter().map(share).collect()
}
