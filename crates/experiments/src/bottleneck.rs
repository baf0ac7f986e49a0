//! `flashflow-lab experiment bottleneck`: a narrow place at the relay, and at one of two measurers.

mod judge;
mod place;
mod scene;

use crate::common::{Common, mbit, or};
use crate::error::Error;
use crate::mode::Mode;
use crate::telling::{report, tell, unplayed};
use clap::Args;
use lab::wan::Congestion;
use onion::{Duration, Rate};
use place::{Place, Plan};
use report::experiment::{Case, ExperimentReport};
use scene::Scene;
use terminal::{Interrupt, Output};

/// Between two runs: the relay's token bucket is full again, and the path is empty.
const PAUSE: Duration = Duration::from_millis(1500);

/// Is a narrow place told apart that is not the relay's?
///
/// A relay is measured by two measurers, each a process on a host of its own, with a narrow place nowhere, on
/// the relay's own link (a token bucket filter, as tc makes it), on the link of one measurer (with a queue, without one, and
/// on the way back only), on the link of a host with two of three measurers, and with a measurer whose processor others have. The
/// relay's own narrow place is its capacity. In all other cases the relay must be measured truly by the other measurer, and a link
/// with a queue and a processor be named. Where a measurer's path breaks, or carries nothing, its measurement must fail by that measurer,
/// and the relay be measured truly without it; where the paths of all measurers break, or the coordinator's own to a relay that takes part, it must not
/// be put down to the relay. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment bottleneck --quick --out results
  flashflow-lab experiment bottleneck --rtts-ms 40,200 --congestions reno --modes echo --link 50")]
pub(super) struct Options {
    /// Length of a measurement in seconds, 8 to 60; 30 by default, 12 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Round trips; 40,200 by default, 40 if --quick.
    #[arg(long, value_delimiter = ',', value_name = "MS,…",
        value_parser = clap::value_parser!(u32).range(0..=2000))]
    rtts_ms: Vec<u32>,
    /// Congestion control of all hosts; bbr,reno by default, reno if --quick.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    congestions: Vec<Congestion>,
    /// How to measure; both by default, echo if --quick.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Where something is narrow; all by default. What the relay carries otherwise is found out in any case.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PLACE,…")]
    places: Vec<Place>,
    /// The relay's rate limit in Mbit/s.
    #[arg(long, default_value_t = 200.0, value_name = "MBIT", value_parser = mbit)]
    limit: f64,
    /// What the relay's own link lets through in Mbit/s, where that is narrow.
    #[arg(long, default_value_t = 50.0, value_name = "MBIT", value_parser = mbit)]
    link: f64,
    /// What a measurer's link lets through in Mbit/s, where that is narrow.
    #[arg(long, default_value_t = 20.0, value_name = "MBIT", value_parser = mbit)]
    measurer: f64,
}

fn plan(options: &Options, is_quick: bool) -> Plan {
    let congestions = [Congestion::Reno, Congestion::Bbr];
    let modes = [Mode::Echo, Mode::Transit];
    let rate = Rate::from_mbit_per_s;
    let mut places = or(&options.places, is_quick, &Place::ALL, &Place::ALL);
    // The first tells what the relay carries.
    places.retain(|it| *it != Place::Nowhere);
    places.insert(0, Place::Nowhere);
    Plan {
        seconds: options.seconds.unwrap_or(if is_quick { 12 } else { 30 }),
        rtts_ms: or(&options.rtts_ms, is_quick, &[40], &[40, 200]),
        congestions: or(&options.congestions, is_quick, &congestions[..1], &congestions),
        modes: or(&options.modes, is_quick, &modes[..1], &modes),
        places,
        limit: rate(options.limit),
        link: rate(options.link),
        measurer: rate(options.measurer),
    }
}

pub(super) fn run(
    options: &Options,
    common: &Common,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<ExperimentReport, Error> {
    let plan = plan(options, common.quick);
    if let Some(place) = plan.place_without_mode().filter(|_| !options.places.is_empty()) {
        return Err(Error::Usage(format!(
            "--places: there is nothing like {} in these --modes: a coordinator has a path of its own only to relays that take part (echo)",
            place.words()
        )));
    }
    output.step(format!("{} runs of {} s each", plan.runs(), plan.seconds));
    let mut cases = Vec::new();
    for congestion in plan.congestions.iter().copied() {
        for mode in plan.modes.iter().copied() {
            output.doing(format!("starting relay and measurers: {}, {congestion}", mode.word()));
            let scene = match Scene::start(&plan, mode, congestion, output) {
                Ok(scene) => scene,
                Err(error) if cases.is_empty() => return Err(error),
                Err(error) => {
                    cases.push(unplayed(format!("{}, {congestion}", mode.word()), &error));
                    continue;
                }
            };
            let all_played = of_scene(&plan, &scene, &mut cases, output, interrupt);
            scene.stop()?;
            if !all_played {
                return Ok(judge::report(&plan, cases, base()));
            }
        }
    }
    Ok(judge::report(&plan, cases, base()))
}

fn base() -> ExperimentReport {
    report("bottleneck", judge::TITLE, judge::QUESTION)
}

/// All runs with this relay; whether the user let them all be played.
fn of_scene(
    plan: &Plan,
    scene: &Scene,
    cases: &mut Vec<Case>,
    output: &Output,
    interrupt: &Interrupt,
) -> bool {
    for rtt_ms in plan.rtts_ms.iter().copied() {
        // What the relay carries where nothing is narrow.
        let mut carried = None;
        for place in plan.places_of(scene.mode) {
            if interrupt.wait(PAUSE) {
                return false;
            }
            let tried = scene.measure(plan, place, rtt_ms, output, interrupt);
            let Some(tried) = tried.transpose() else { return false };
            if place == Place::Nowhere {
                carried = tried.as_ref().ok().and_then(|it| it.tried.sent_mbit());
            }
            let case = judge::case(plan, scene, place, rtt_ms, carried, tried.as_ref());
            tell(&case, output);
            cases.push(case);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn planned(arguments: &str) -> Plan {
        let command = Options::augment_args(Command::new("bottleneck").no_binary_name(true));
        let matches = command.try_get_matches_from(arguments.split_whitespace()).expect("right");
        plan(&Options::from_arg_matches(&matches).expect("options"), true)
    }

    #[test]
    fn a_place_that_is_in_none_of_the_modes_is_not_passed_over_in_silence() {
        for (arguments, place, runs) in [
            ("--modes transit --places coordinator", Some(Place::Coordinator), 1),
            ("--modes echo,transit --places coordinator", None, 3),
            ("--modes transit --places all", None, 2),
            ("", None, Place::ALL.len()),
        ] {
            let plan = planned(arguments);
            assert_eq!((plan.place_without_mode(), plan.runs()), (place, runs), "{arguments}");
        }
    }
}
