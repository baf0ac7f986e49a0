//! `flashflow-lab experiment soak`: our relay under all attacks, round after round.

use super::Limits;
use super::judge::Finding;
use super::plan::{Cell, Plan, Side};
use super::scene::{Scene, Subject};
use super::watch::{Sampler, memory};
use crate::common::{Session, values_or_all};
use crate::error::Result;
use crate::grid::{self, Row, Undivided};
use crate::reporting::{self, list, parameter, rule};
use clap::Args;
use lab::attacks::Kind;
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Promise, Role, Series,
};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::time::UNIX_EPOCH;

/// Memory after the last round may exceed that after the first by this factor plus [`GROWTH_SLACK_MIB`].
const GROWTH_MAX: f64 = 1.1;
/// Pages that the allocator keeps.
const GROWTH_SLACK_MIB: f64 = 8.0;

/// The rest after each round, in durations of an attack. The relay frees the circuits and buffers of closed links within it.
const REST: u32 = 2;

/// More than the maximum age of an onion key that a consensus can set.
const KEY_AGE: Duration = Duration::from_secs(100 * 24 * 3600);

/// The attack that determines the relay's position on honest circuits: an exit that resolves names.
const POSITION: Kind = Kind::DnsProbing;

/// Is our relay stable over time? All attacks of `dos`, round after round, on the same relay.
///
/// Our relay is the exit of C tor clients' downloads and circuits in a private network. Each round runs every attack once, in random
/// order, with some seconds before each. After each attack, SIGHUP makes the relay reload its configuration. In each round the relay must
/// replace its onion key and use a consensus with a changed parameter. The report plots its memory over time. All traffic stays on loopback.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment soak --rounds 10 --seconds 20 --out results

The relay passes if it withstands each attack of each round by the rules of `dos`, and its memory at rest after the last round exceeds
that after the first by at most 10 % plus 8 MiB.")]
pub(crate) struct Options {
    /// Attacks of each round; all by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ATTACK,…")]
    attacks: Vec<Kind>,
    /// Rounds, 2 to 1000; 4 by default, 2 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: Option<u32>,
    /// Duration of each attack in seconds, 3 to 600; 10 by default, 4 if --quick. The time before each attack is half of it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: Option<u32>,
    #[command(flatten)]
    limits: Limits,
    /// Seed of the order of attacks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Not divided: the claim is about the memory of one process over all rounds.
struct SoakTest {
    plan: Plan,
    rounds: u32,
    attacks: Vec<Kind>,
    seed: u64,
}

pub(crate) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    link::raise_descriptor_limit();
    let seconds = session.or(options.seconds, 4, 10);
    let plan = Plan {
        attacks: vec![POSITION],
        sides: vec![Side::Ours],
        undisturbed_s: seconds.div_ceil(2),
        seconds,
        rate: Rate::from_mbit_per_s(options.limits.rate),
        demand: Rate::from_mbit_per_s(options.limits.demand),
        memory_mib: options.limits.memory,
        // C tor relays on the path allow an address only two new circuits a second in the long run.
        open_circuits: 4,
        is_soak: true,
    };
    let rounds = session.or(options.rounds, 2, 4);
    let attacks = values_or_all(&options.attacks);
    grid::run_whole(&SoakTest { plan, rounds, attacks, seed: options.seed }, session)
}

impl Undivided for SoakTest {
    const NAME: &'static str = "soak";
    const TEXT: &'static str = include_str!("../../../../../docs/experiments/soak.md");

    fn parameters(&self) -> Vec<(String, String)> {
        let Self { plan, rounds, attacks, seed } = self;
        vec![
            parameter("rounds", rounds),
            parameter("attacks", list(&attacks.iter().map(|kind| kind.word()).collect::<Vec<_>>())),
            parameter("seed", seed),
            parameter("attacker's rate", plan.rate),
            parameter("honest downloads take", plan.demand),
            parameter("quiet time before each attack", format!("{} s", plan.undisturbed_s)),
            parameter("length of each attack", format!("{} s", plan.seconds)),
            parameter("bound on memory", format!("{} MiB", plan.memory_mib)),
        ]
    }

    fn run(&self, session: Session<'_>) -> Result<Option<Row>> {
        self.soak(session)
    }

    fn conclude(&self, row: &Row, report: &mut ExperimentReport) {
        conclude(report, &row.data().unwrap_or_default(), self.rounds);
    }
}

impl SoakTest {
    /// Runs all rounds; those before an interrupt are a temporary row.
    fn soak(&self, session: Session<'_>) -> Result<Option<Row>> {
        let Session { output, interrupt, .. } = session;
        let plan = self.plan.clone();
        let Some(mut scene) = Scene::start(&plan, session)? else { return Ok(None) };
        let subject = scene.take(Cell { kind: POSITION, side: Side::Ours })?;
        let sampler = Sampler::start(subject.pid, scene.clock)?;
        let mut soak = Soak { scene, subject, plan, history: History::default() };
        let (mut row, mut attacks) = (Row::default(), self.attacks.clone());
        let mut rng = StdRng::seed_from_u64(self.seed);
        'rounds: for round in 1..=self.rounds {
            attacks.shuffle(&mut rng);
            soak.age_onion_key(round);
            soak.scene.change_parameter(round)?;
            for kind in &attacks {
                let case = soak.attack(*kind, round, session);
                if interrupt.is_requested() {
                    break 'rounds;
                }
                output.step(format!("{}: {}; {}", case.name, case.verdict.word(), case.detail));
                row.cases.push(case);
            }
            output.doing(format!("round {round}: at rest"));
            if interrupt.wait(Duration::from_secs((REST * self.plan.seconds).into())) {
                break;
            }
            soak.record_onion_key();
            match soak.scene.wait_for_parameter(&soak.subject, round) {
                Ok(()) => soak.history.consensuses += 1,
                Err(error) => row.notes.push(format!("round {round}: no new consensus: {error}")),
            }
            let memory = memory(soak.subject.pid)?.now_mib;
            output.step(format!("at rest after round {round}: {memory:.1} MiB"));
            soak.history.at_rest_mib.push(memory);
        }
        row.figures = soak.history.figures(&sampler.samples());
        row.is_temporary = interrupt.is_requested();
        Ok(Some(row.with_data(&soak.history)?))
    }
}

/// A relay under repeated attacks.
struct Soak {
    scene: Scene,
    subject: Subject,
    plan: Plan,
    history: History,
}

impl Soak {
    /// Backdates the file of the onion key, so that the relay replaces the key when it next reads its configuration. The contact
    /// changes as well. Otherwise C tor's authorities would refuse the new descriptor for hours, as only cosmetically different, and
    /// after a second replacement clients would have no valid onion key of the relay.
    fn age_onion_key(&mut self, round: u32) {
        self.record_onion_key();
        let Some(path) = self.subject.onion_key() else { return };
        if let Some(file) = self.subject.configuration() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let others = text.lines().filter(|line| !line.starts_with("contact ="));
            let others = others.collect::<Vec<_>>().join("\n");
            // If this fails, the number of onion keys shows it.
            let _failed = fs::write(&file, format!("contact = \"round {round}\"\n{others}\n"));
        }
        let now = UNIX_EPOCH + Duration::from_secs(link::unix_time_s());
        let long_ago = now - KEY_AGE;
        let file = fs::File::options().write(true).open(path);
        let _failed = file.and_then(|file| file.set_modified(long_ago));
    }

    fn record_onion_key(&mut self) {
        let key = self.subject.onion_key().and_then(|path| fs::read(path).ok());
        self.history.onion_keys.extend(key);
    }

    /// Runs one attack.
    fn attack(&mut self, kind: Kind, round: u32, session: Session<'_>) -> Case {
        let Self { scene, subject, plan, history } = self;
        // Resets the peak of memory. If the kernel refuses, the peak includes earlier attacks.
        let _refused = fs::write(format!("/proc/{}/clear_refs", subject.pid), "5");
        // The attack goes through a relay that is not on honest circuits, so that its load on that relay does not matter.
        let found = scene
            .target_via_authority(subject, kind, 1, plan)
            .and_then(|target| super::attack(scene, subject, kind, target, plan, session));
        let pid = i32::try_from(subject.pid).ok().and_then(Pid::from_raw);
        let _gone = pid.map(|pid| kill_process(pid, Signal::HUP));
        let name = format!("round {round}: {}", kind.word());
        match found {
            Ok(finding) => {
                history.add((scene.clock.now() - Instant::ORIGIN).as_secs_f64(), &finding);
                Case { name, ..finding.case() }
            }
            Err(error) => reporting::failed_case(name, &error),
        }
        .column("round", round)
    }
}

/// The observations of all attacks up to now.
#[derive(Default, Serialize, Deserialize)]
struct History {
    /// The start of each attack, in seconds of the clock.
    #[serde(skip)]
    attacks: Vec<(f64, Kind)>,
    /// Honest downloads in each second, in Mbit/s.
    #[serde(skip)]
    mbit: Vec<(f64, f64)>,
    /// Median times to build a circuit, in milliseconds.
    #[serde(skip)]
    build_ms: Vec<(f64, f64)>,
    /// Memory at rest after each round.
    at_rest_mib: Vec<f64>,
    /// All onion keys of the relay.
    onion_keys: BTreeSet<Vec<u8>>,
    /// The number of rounds in which the relay used the changed consensus.
    consensuses: u32,
}

impl History {
    /// Adds an attack that has just ended.
    fn add(&mut self, now_s: f64, finding: &Finding) {
        let (undisturbed, attacked) = (&finding.undisturbed, &finding.attacked);
        let attacked_at = now_s - attacked.seconds;
        self.attacks.push((attacked_at, finding.kind));
        for (service, from) in
            [(undisturbed, attacked_at - undisturbed.seconds), (attacked, attacked_at)]
        {
            let seconds = (1..).map(f64::from).map(|second| from + second);
            self.mbit.extend(seconds.zip(service.mbit.iter().copied()));
            let middle = from + service.seconds / 2.0;
            self.build_ms.extend(service.median_build_ms().map(|ms| (middle, ms)));
        }
    }

    /// Checks that memory did not grow from round to round.
    fn check_memory(&self) -> Result<(), String> {
        let [first, .., last] = self.at_rest_mib[..] else {
            return Err("fewer than two rounds have completed".to_owned());
        };
        if last <= first * GROWTH_MAX + GROWTH_SLACK_MIB {
            return Ok(());
        }
        Err(format!("memory at rest grew from {first:.1} to {last:.1} MiB"))
    }

    fn figures(&self, memory_mib: &[(f64, f64)]) -> Vec<ExperimentFigure> {
        let figure = |name: &str, title: &str, unit: &str, points: &[(f64, f64)]| {
            let empty = ExperimentFigure::new(name, title, Axis::new("minutes"), Axis::new(unit));
            let points = points.iter().map(|(at_s, value)| (at_s / 60.0, *value)).collect();
            let figure = empty.with(Series::line("ours", Role::Nth(0), points));
            self.attacks.iter().fold(figure, |figure, (at_s, kind)| {
                figure.mark(On::X, at_s / 60.0, &kind.word(), Role::Truth)
            })
        };
        vec![
            figure("memory", "Memory of the relay's process", "MiB", memory_mib),
            figure("downloads", "Honest downloads", "Mbit/s", &self.mbit),
            figure("build", "Time to build a circuit, median", "ms", &self.build_ms),
        ]
    }
}

fn conclude(report: &mut ExperimentReport, history: &History, rounds: u32) {
    let held = report.cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    let all = report.cases.len();
    let memory = history.check_memory();
    // The first onion key, and a new one in each round.
    let has_new_keys = history.onion_keys.len() == rounds as usize + 1;
    let is_complete = history.at_rest_mib.len() == rounds as usize
        && has_new_keys
        && history.consensuses == rounds;
    let at_rest: Vec<String> = history.at_rest_mib.iter().map(|mib| format!("{mib:.1}")).collect();
    report.answer = format!(
        "It withstood {held} of {all} attacks in {} of {rounds} rounds; memory at rest after each round: {} MiB; {} onion keys; \
         it followed {} changes of the consensus.",
        history.at_rest_mib.len(),
        at_rest.join(", "),
        history.onion_keys.len(),
        history.consensuses,
    );
    report.promise = Promise::Decided {
        held: held == all && all > 0 && is_complete && memory.is_ok(),
        rule: rule(SoakTest::TEXT),
    };
    report.notes.extend(memory.err());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_at_rest_must_not_grow_from_round_to_round() {
        let grown = |at_rest_mib: &[f64]| {
            History { at_rest_mib: at_rest_mib.to_vec(), ..History::default() }.check_memory()
        };
        assert!(grown(&[40.0, 300.0, 52.0]).is_ok(), "it may grow in between");
        let error = grown(&[40.0, 45.0, 52.1]).expect_err("more than 10 % plus 8 MiB");
        assert_eq!(error, "memory at rest grew from 40.0 to 52.1 MiB");
        assert!(grown(&[40.0]).is_err(), "one round shows nothing");
    }
}
