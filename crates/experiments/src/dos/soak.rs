//! `flashflow-lab experiment soak`: our relay through all attacks, again and again.

use super::Force;
use super::judge::Finding;
use super::plan::{Plan, Side};
use super::scene::{Scene, Subject};
use super::watch::{Memory, Sampler};
use crate::common::Session;
use crate::error::Result;
use crate::reporting::{self, parameter, print_case};
use clap::{Args, ValueEnum};
use lab::attacks::Kind;
use onion::{Duration, Instant, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, On, Promise, Role, Series,
};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::time::UNIX_EPOCH;

/// A relay's memory after the last round may be larger than after the first by this factor,
const GROWTH_MAX: f64 = 1.1;
/// and by this amount: pages that the allocator keeps.
const GROWTH_SLACK_MIB: f64 = 8.0;

/// Rest after each round, in lengths of an attack. Circuits and buffers of those who are gone are given back within it.
const REST: u32 = 2;

/// Older than an onion key gets, whatever the consensus says.
const KEY_AGE: Duration = Duration::from_secs(100 * 24 * 3600);

/// Where the relay stands in honest circuits: as where it is attacked as an exit that looks names up.
const POSITION: Kind = Kind::DnsProbing;

/// Does our relay last? All attacks of `dos`, round after round, on one and the same relay.
///
/// Our relay in a private network is the exit of C tor clients' downloads and circuits, which come and go. In each round it
/// suffers each attack once, in a random order, with seconds of peace between; SIGHUP makes it read its configuration again after
/// each. In each round its onion key is replaced, and the authorities change a parameter of the consensus, which the relay must follow. Its
/// memory is plotted over time. All traffic stays on loopback.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment soak --rounds 10 --seconds 20 --out results

It has lasted if each attack of each round is held by the rules of `dos`, and its memory at rest after the last round is at most a tenth
and 8 MiB more than after the first.")]
pub(crate) struct Options {
    /// Attacks of a round; all by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ATTACK,…")]
    attacks: Vec<Kind>,
    /// Rounds, 2 to 1000; 4 by default, 2 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: Option<u32>,
    /// Length of each attack in seconds, 3 to 600; 10 by default, 4 if --quick. Peace before it is half as long.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: Option<u32>,
    #[command(flatten)]
    force: Force,
    /// Draws the order of attacks.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    link::raise_descriptor_limit();
    let rounds = session.or(options.rounds, 2, 4);
    let seconds = session.or(options.seconds, 4, 10);
    let plan = Plan {
        attacks: vec![POSITION],
        sides: vec![Side::Ours],
        peace_s: seconds.div_ceil(2),
        seconds,
        rate: Rate::from_mbit_per_s(options.force.rate),
        demand: Rate::from_mbit_per_s(options.force.demand),
        memory_mib: options.force.memory,
        // From attack to attack: stock relays on the way grant an address two new circuits a second in the long run.
        standing: 4,
        is_soak: true,
    };
    let mut report = begin(&plan, rounds, options.seed);
    let Some(mut scene) = Scene::start(&plan, session)? else { return Ok(report) };
    let subject = scene.subjects.remove(0);
    let sampler = Sampler::start(subject.pid, scene.clock)?;
    let mut soak = Soak { scene, subject, plan, seen: Seen::default() };
    let mut attacks = match &options.attacks[..] {
        [] => Kind::value_variants().to_vec(),
        chosen => chosen.to_vec(),
    };
    let mut rng = StdRng::seed_from_u64(options.seed);
    'rounds: for round in 1..=rounds {
        attacks.shuffle(&mut rng);
        soak.outdate_onion_key(round);
        soak.scene.change_parameter(round)?;
        for kind in &attacks {
            let case = soak.suffer(*kind, round, session);
            if interrupt.is_requested() {
                break 'rounds;
            }
            print_case(&case, output);
            report.cases.push(case);
        }
        output.doing(format!("round {round} is over: at rest"));
        if interrupt.wait(Duration::from_secs((REST * seconds).into())) {
            break;
        }
        soak.note_onion_key();
        match soak.scene.wait_for_parameter(&soak.subject, round) {
            Ok(()) => soak.seen.consensuses += 1,
            Err(error) => report.notes.push(format!("round {round}: no new consensus: {error}")),
        }
        let memory = Memory::of(soak.subject.pid)?.now_mib;
        output.step(format!("at rest after round {round}: {memory:.1} MiB"));
        soak.seen.at_rest_mib.push(memory);
    }
    report.figures = soak.seen.figures(&sampler.taken());
    conclude(&mut report, &soak.seen, rounds);
    Ok(report)
}

const TEXT: &str = include_str!("../../../../docs/experiments/soak.md");

fn begin(plan: &Plan, rounds: u32, seed: u64) -> ExperimentReport {
    let report = reporting::report("soak", TEXT);
    ExperimentReport {
        parameters: vec![
            parameter("rounds", rounds),
            parameter("seed", seed),
            parameter("attacker's rate", plan.rate),
            parameter("honest downloads take", plan.demand),
            parameter("peace before each attack", format!("{} s", plan.peace_s)),
            parameter("length of each attack", format!("{} s", plan.seconds)),
            parameter("bound on memory", format!("{} MiB", plan.memory_mib)),
        ],
        ..report
    }
}

/// One relay, and all that happens to it.
struct Soak {
    scene: Scene,
    subject: Subject,
    plan: Plan,
    seen: Seen,
}

impl Soak {
    /// Backdates the file of the onion key, so that the relay replaces the key when it next reads its configuration. The contact
    /// changes as well. Otherwise C tor's authorities would refuse the new descriptor for hours, as only cosmetically different, and
    /// after a second replacement clients would have no valid onion key of the relay.
    fn outdate_onion_key(&mut self, round: u32) {
        self.note_onion_key();
        let Some(path) = self.subject.onion_key() else { return };
        if let Some(file) = self.subject.configuration() {
            let text = fs::read_to_string(&file).unwrap_or_default();
            let others = text.lines().filter(|line| !line.starts_with("contact ="));
            let others = others.collect::<Vec<_>>().join("\n");
            // If this fails, the keys that are counted show it.
            let _next_time = fs::write(&file, format!("contact = \"round {round}\"\n{others}\n"));
        }
        let now = UNIX_EPOCH + Duration::from_secs(link::unix_time_s());
        let long_ago = now - KEY_AGE;
        let file = fs::File::options().write(true).open(path);
        let _next_time = file.and_then(|file| file.set_modified(long_ago));
    }

    fn note_onion_key(&mut self) {
        let key = self.subject.onion_key().and_then(|path| fs::read(path).ok());
        self.seen.onion_keys.extend(key);
    }

    /// One attack, and peace before it.
    fn suffer(&mut self, kind: Kind, round: u32, session: Session<'_>) -> Case {
        let Self { scene, subject, plan, seen } = self;
        // Its peak is to be this attack's. Where the kernel refuses, it is that of all so far, which is more.
        let _refused = fs::write(format!("/proc/{}/clear_refs", subject.pid), "5");
        // By another relay than honest circuits come: what that one suffers is not ours.
        let found = scene
            .prey_by(subject, kind, 1, plan)
            .and_then(|prey| super::play_attack(scene, subject, kind, prey, plan, session));
        // As its operator would.
        let pid = i32::try_from(subject.pid).ok().and_then(Pid::from_raw);
        let _gone = pid.map(|pid| kill_process(pid, Signal::HUP));
        let name = format!("round {round}: {}", kind.word());
        match found {
            Ok(finding) => {
                seen.note((scene.clock.now() - Instant::ORIGIN).as_secs_f64(), &finding);
                Case { name, ..finding.case() }
            }
            Err(error) => reporting::failed_case(name, &error),
        }
        .column("round", round)
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Seen {
    /// Moments at which attacks began, in seconds of the clock.
    begun: Vec<(f64, Kind)>,
    /// Honest downloads in each second, in Mbit/s.
    mbit: Vec<(f64, f64)>,
    /// Median times to build a circuit, in milliseconds.
    build_ms: Vec<(f64, f64)>,
    at_rest_mib: Vec<f64>,
    /// All that it had.
    onion_keys: BTreeSet<Vec<u8>>,
    /// Rounds in which the relay used the changed consensus.
    consensuses: u32,
}

impl Seen {
    /// Puts what was found into its place in time: it is over now.
    fn note(&mut self, now_s: f64, finding: &Finding) {
        let (peace, attacked) = (&finding.peace, &finding.attacked);
        let attacked_at = now_s - attacked.seconds;
        self.begun.push((attacked_at, finding.kind));
        for (stretch, from) in [(peace, attacked_at - peace.seconds), (attacked, attacked_at)] {
            let seconds = (1..).map(f64::from).map(|second| from + second);
            self.mbit.extend(seconds.zip(stretch.mbit.iter().copied()));
            let middle = from + stretch.seconds / 2.0;
            self.build_ms.extend(stretch.median_build_ms().map(|ms| (middle, ms)));
        }
    }

    /// Whether memory stayed; the reason if not.
    fn growth(&self) -> Result<(), String> {
        let [first, .., last] = self.at_rest_mib[..] else {
            return Err("fewer than two rounds were played".to_owned());
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
            self.begun.iter().fold(figure, |figure, (at_s, kind)| {
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

fn conclude(report: &mut ExperimentReport, seen: &Seen, rounds: u32) {
    let held = report.cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    let all = report.cases.len();
    let growth = seen.growth();
    // The first onion key, and another one in each round.
    let has_changed_keys = seen.onion_keys.len() == rounds as usize + 1;
    let has_followed = has_changed_keys && seen.consensuses == rounds;
    let is_whole = seen.at_rest_mib.len() == rounds as usize && has_followed;
    let at_rest: Vec<String> = seen.at_rest_mib.iter().map(|mib| format!("{mib:.1}")).collect();
    report.answer = format!(
        "It held {held} of {all} attacks in {} of {rounds} rounds; memory at rest after each round: {} MiB; {} onion keys; \
         it followed {} changes of the consensus.",
        seen.at_rest_mib.len(),
        at_rest.join(", "),
        seen.onion_keys.len(),
        seen.consensuses,
    );
    report.promise = Promise::Decided {
        held: held == all && all > 0 && is_whole && growth.is_ok(),
        rule: reporting::rule(TEXT),
    };
    report.notes.extend(growth.err());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_from_round_to_round_is_no_lasting() {
        let grown = |at_rest_mib: &[f64]| {
            Seen { at_rest_mib: at_rest_mib.to_vec(), ..Seen::default() }.growth()
        };
        assert!(grown(&[40.0, 300.0, 52.0]).is_ok(), "in between it may");
        let error = grown(&[40.0, 45.0, 52.1]).expect_err("a tenth and 8 MiB");
        assert_eq!(error, "memory at rest grew from 40.0 to 52.1 MiB");
        assert!(grown(&[40.0]).is_err(), "one round shows nothing");
    }
}
