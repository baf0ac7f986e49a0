//! `flashflow-archive schedule`: how long a team needs to measure each network of a dataset.

use super::datasets::DatasetOptions;
use super::lines::ScheduleLine;
use super::run::write;
use archive::engine::Limits;
use archive::rows::Origin;
use archive::schedule::{self, ScheduleOptions};
use archive::staging::PARTS;
use archive::times::{self, DAY_S};
use clap::Args;
use cli::Error;
use coordinator::plan::TeamRoom;
use onion::Rate;
use std::path::PathBuf;
use terminal::{Exit, Interrupt, Output};

/// Compute how long a team needs to measure each network of a dataset, and how long new relays wait (section 7 of the FlashFlow paper).
///
/// The coordinator's scheduler plans the first consensus of each day in as few slots as possible. Then the day is replayed: old
/// relays have random slots, and new relays get the first slots with room. Networks that tornettools staged are planned as well. The
/// defaults are those of the paper. To plan one consensus with the settings of a coordinator, use `flashflow schedule`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-archive schedule tor.dataset --out schedule
  flashflow-archive schedule tor.dataset --origin membership --from 2025-07-01 --until 2025-08-01

With --json: one line of `type` staged or day for each network, one of `type` arrivals for each consensus with new relays, and one
of `type` quantity for each quantity.

Exit status: 0 planned; 1 the dataset has no networks, or cannot be read; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct ScheduleCommand {
    #[command(flatten)]
    dataset: DatasetOptions,
    /// Use the relay lists of this origin: tor, onionoo, membership or synthetic. Lists of origin membership have no bandwidths, and
    /// take them from the other origin of the dataset.
    #[arg(long, value_name = "NAME", value_parser = origin)]
    origin: Option<Origin>,
    /// Plan from this time on, UTC. Earlier relay lists only determine which relays are old.
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    from: Option<i64>,
    /// Plan before this time only.
    #[arg(long, value_name = "TIME", value_parser = times::parse)]
    until: Option<i64>,
    /// Capacity of the team, in Mbit/s.
    #[arg(long, value_name = "MBIT", default_value_t = 3000.0)]
    team: f64,
    /// Maximum number of relays that the team measures at the same time. By default unlimited.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// Excess factor f: allocated measurer capacity, relative to the expected capacity of a relay.
    #[arg(long, value_name = "FACTOR", default_value_t = 2.84)]
    excess: f64,
    /// Length of a slot, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    slot_s: u32,
    /// The capacity of a relay is the largest bandwidth that it published within this number of days before and after.
    #[arg(long, value_name = "DAYS", default_value_t = 46, value_parser = clap::value_parser!(u16).range(0..=3660))]
    around: u16,
    /// A relay is new if no list had it in this number of days.
    #[arg(long, value_name = "DAYS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=3660))]
    unseen_days: u16,
    /// Expected capacity of a new relay, in Mbit/s. By default the 75th percentile of the bandwidths that relays published in the 30
    /// days before.
    #[arg(long, value_name = "MBIT")]
    new_relay: Option<f64>,
    /// Write the page, figures and tables to this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn origin(text: &str) -> Result<Origin, String> {
    let found = Origin::ALL.into_iter().find(|origin| origin.word() == text);
    found.ok_or_else(|| "expected tor, onionoo, membership or synthetic".to_owned())
}

fn above_zero(option: &str, value: f64) -> Result<f64, Error> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    Err(Error::Usage(format!("--{option} {value}: not a number above zero")))
}

impl ScheduleCommand {
    fn options(&self) -> Result<ScheduleOptions, Error> {
        let mbit = |option, value| above_zero(option, value).map(Rate::from_mbit_per_s);
        let default = ScheduleOptions::default();
        Ok(ScheduleOptions {
            origin: self.origin,
            from_unix_s: self.from.unwrap_or(default.from_unix_s),
            until_unix_s: self.until.unwrap_or(default.until_unix_s),
            team: TeamRoom {
                capacity: mbit("team", self.team)?,
                at_once_max: self.at_once.unwrap_or(u32::MAX),
            },
            excess_factor: above_zero("excess", self.excess)?,
            slot_s: self.slot_s,
            around_s: i64::from(self.around) * DAY_S,
            unseen_s: i64::from(self.unseen_days) * DAY_S,
            new_relay: self.new_relay.map(|rate| mbit("new-relay", rate)).transpose()?,
        })
    }

    pub(super) fn run(&self, output: &Output, interrupt: &Interrupt) -> Result<Exit, Error> {
        let options = self.options()?;
        let dataset = self.dataset.open(output)?;
        interrupt.wind_up_in_order();
        dataset.verify(Limits::default().threads)?;
        let staged = schedule::staged(&dataset, &options)?;
        for parts in &staged {
            for ((name, _), network) in PARTS.iter().zip(parts) {
                let text = format!(
                    "staged {}, {name}: {} relays, {:.1} Gbit/s, largest {:.1} Mbit/s: {} slots, {:.2} h",
                    times::day(network.unix_s),
                    network.relays,
                    network.capacity_gbit_per_s,
                    network.largest_mbit_per_s,
                    network.slots,
                    network.hours,
                );
                output.result(text, || ScheduleLine::Staged { which: name, network });
            }
        }
        if !dataset.has("statuses")? && !staged.is_empty() {
            return match self.out {
                Some(_) => Err(Error::Failed(
                    "--out: the dataset has only staged networks, and a page shows series of days; omit --out".to_owned(),
                )),
                None => Ok(Exit::Done),
            };
        }
        let mut progress = |done, all| output.doing(format!("{done} of {all} months"));
        let series = schedule::series(&dataset, &options, interrupt.requested(), &mut progress)?;
        output.quiet();
        for day in &series.days {
            output.record(|| ScheduleLine::Day(day));
        }
        for arrivals in series.arrivals.iter().filter(|arrival| arrival.new_relays > 0) {
            output.record(|| ScheduleLine::Arrivals(arrivals));
        }
        let ends = series.days.first().zip(series.days.last());
        let span = ends.map(|(first, last)| {
            format!("{} to {}", times::day(first.unix_s), times::day(last.unix_s))
        });
        output.text(format!(
            "{} days, {}; {} views",
            series.days.len(),
            span.unwrap_or_default(),
            series.arrivals.len()
        ));
        output.text(format!(
            "{:<55} {:>9} {:>9} {:>9}   {:>7} {:>7} {:>7}",
            "", "minimum", "median", "maximum", "paper", "", ""
        ));
        for line in schedule::lines(&series) {
            let here = line.here.map(|value| format!("{value:.2}"));
            let paper =
                line.paper.map(|value| value.map_or_else(String::new, |value| value.to_string()));
            let text = format!(
                "{:<55} {:>9} {:>9} {:>9}   {:>7} {:>7} {:>7}",
                line.quantity, here[0], here[1], here[2], paper[0], paper[1], paper[2]
            );
            output.result(text, || ScheduleLine::Quantity(&line));
        }
        if let Some(out) = &self.out {
            write(schedule::report(&series), Some(&dataset), out, output)?;
        }
        Ok(if interrupt.is_requested() { Exit::Interrupted } else { Exit::Done })
    }
}
