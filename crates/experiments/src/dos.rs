//! `flashflow-lab experiment dos`: our relays and C tor's under the same attacks.

mod honest;
mod judge;
mod name_leak;
mod plan;
mod ports;
mod scene;
pub(super) mod soak;
mod watch;

use crate::background_downloads::{BackgroundDownloads, PARALLEL};
use crate::common::{Session, mbit};
use crate::error::Result;
use crate::reporting::{self, parameter, print_case};
use clap::{Args, ValueEnum};
use honest::{Circuits, DOWNLOAD, Watched};
use judge::Finding;
use lab::attacks::{self, Assault, Kind, Reader, Spent};
use lab::processors::{Load, Reading};
use name_leak::NameLeak;
use onion::{Duration, Rate};
use plan::{Plan, Side};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Promise, Role, Series,
};
use scene::{FRESH, Scene};
use std::collections::BTreeSet;
use std::sync::Arc;
use watch::{Memory, Witness};

/// Does our relay withstand attacks better than C tor?
///
/// One private network with a relay for each case: of ours and stock tor, with the same bound on memory and the defences
/// of the public network's consensus. Stock clients download through it, and build circuits through it, for some seconds in peace
/// and for some more under attack. Attacks come from addresses of their own (127.66.0.0/16) and send no more than --rate. What
/// honest clients keep is reported as a share of their service before the attack; memory and processor time of the relay are
/// the kernel's word. All of it stays on loopback, and attacks accept no other place.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment dos --quick --attacks sniper-wide,create2-flood --out results

An attack is held if honest downloads keep 80 % of their rate, 99 % of honest circuits live (those that stood, and those asked for
meanwhile), 95 % of honest directory requests are answered, and the relay's memory grows by no more than its bound.")]
pub(super) struct Options {
    /// Attacks to be played; all by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ATTACK,…")]
    attacks: Vec<Kind>,
    /// Relays to be attacked.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "RELAY,…",
        default_values_t = [Side::Ours, Side::Tor])]
    relays: Vec<Side>,
    /// Length of each attack in seconds, 3 to 600; 30 by default, 6 if --quick. Some attacks need longer, and last longer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: Option<u32>,
    #[command(flatten)]
    force: Force,
}

/// How much attackers and honest clients do, and what relays may hold.
#[derive(Debug, Args)]
struct Force {
    /// What an attacker sends at most, in Mbit/s.
    #[arg(long, default_value_t = 50.0, value_parser = mbit, value_name = "MBIT")]
    rate: f64,
    /// What honest downloads take at most, in Mbit/s: less than relay and machine can, so that they lack nothing in peace.
    #[arg(long, default_value_t = 20.0, value_parser = mbit, value_name = "MBIT")]
    demand: f64,
    /// What peers may have each relay hold in memory (MaxMemInQueues), in MiB: little, so that attacks come to it. Stock tor
    /// takes what compressing a consensus needs from it, and with less than 256 it destroys circuits in peace.
    #[arg(long, default_value_t = 256, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(64..=8192))]
    memory: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    link::raise_descriptor_limit();
    let plan = plan(options, session.common.quick);
    let mut report = begin(&plan);
    let Some(mut scene) = Scene::start(&plan, session)? else { return Ok(report) };
    let mut findings: Vec<Finding> = Vec::new();
    while !scene.subjects.is_empty() && !interrupt.is_requested() {
        let (kind, side) = (scene.subjects[0].kind, scene.subjects[0].side);
        let found = play(&mut scene, &plan, session);
        if interrupt.is_requested() {
            break;
        }
        scene.subjects.remove(0).end();
        let case = match found {
            Ok(finding) => {
                findings.push(finding);
                findings[findings.len() - 1].case()
            }
            // What cannot be played is a case that failed; the others are played all the same.
            Err(error) => {
                let name = format!("{} on {}", kind.word(), side.word());
                let case = Case::named(name)
                    .column("attack", kind.word())
                    .column("relay", side.word())
                    .column("held", false);
                case.ended(CaseVerdict::Failed, error.to_string())
            }
        };
        print_case(&case, output);
        report.cases.push(case);
    }
    conclude(&mut report, &plan, &findings);
    Ok(report)
}

fn plan(options: &Options, is_quick: bool) -> Plan {
    let unique: BTreeSet<Kind> = options.attacks.iter().copied().collect();
    let attacks = if unique.is_empty() {
        Kind::value_variants().to_vec()
    } else {
        unique.into_iter().collect()
    };
    let sides: BTreeSet<Side> = options.relays.iter().copied().collect();
    let seconds = options.seconds.unwrap_or(if is_quick { 6 } else { 30 });
    Plan {
        attacks,
        sides: sides.into_iter().collect(),
        peace_s: if is_quick { 4.min(seconds) } else { seconds.min(15) },
        seconds,
        rate: Rate::from_mbit_per_s(options.force.rate),
        demand: Rate::from_mbit_per_s(options.force.demand),
        memory_mib: options.force.memory,
        standing: 20,
        is_soak: false,
    }
}

const TEXT: &str = include_str!("../../../docs/experiments/dos.md");

fn begin(plan: &Plan) -> ExperimentReport {
    let report = reporting::report("dos", TEXT);
    ExperimentReport {
        parameters: vec![
            parameter("attacker's rate", plan.rate),
            parameter("honest downloads take", plan.demand),
            parameter("peace before each attack", format!("{} s", plan.peace_s)),
            parameter("length of each attack", format!("{} s", plan.seconds)),
            parameter("bound on memory of either relay", format!("{} MiB", plan.memory_mib)),
            parameter("parameters of the consensus", scene::PARAMETERS.to_owned()),
        ],
        ..report
    }
}

/// Attacks the first of the relays that are left.
fn play(scene: &mut Scene, plan: &Plan, session: Session<'_>) -> Result<Finding> {
    let prey = scene.prey(0, plan)?;
    // It leaves the scene while the scene works for it.
    let subject = scene.subjects.remove(0);
    let found = play_attack(scene, &subject, subject.kind, prey, plan, session);
    scene.subjects.insert(0, subject);
    found
}

/// Peace, then an attack, with all that is seen meanwhile.
fn play_attack(
    scene: &mut Scene,
    subject: &scene::Subject,
    kind: Kind,
    prey: attacks::Prey,
    plan: &Plan,
    session: Session<'_>,
) -> Result<Finding> {
    let Session { output, interrupt, .. } = session;
    let (side, pid, clock) = (subject.side, subject.pid, scene.clock);
    let name = format!("{} on {}", kind.word(), side.word());
    output.doing(format!("{name}: honest clients begin"));
    scene.pin(subject)?;
    let downloads = BackgroundDownloads::start(scene.downloads(), &name, DOWNLOAD)?;
    let mut circuits = Circuits::default();
    // Where links to new relays matter, these are left for later.
    if !kind.is_on_dials() {
        circuits.stand(scene, subject, plan, interrupt)?;
    }
    downloads.wait_until_completed(PARALLEL / 2, clock, interrupt)?;
    let watchlist = scene.watchlist(kind);
    let prey = match &watchlist {
        Some(watchlist) => {
            scene.ask_for(watchlist, &name)?;
            prey.watching(Arc::clone(watchlist))
        }
        None => prey,
    };
    output.doing(format!("{name}: peace"));
    let reader = Reader::start(prey.clone(), clock)?;
    let mut wait = || interrupt.wait(Duration::from_millis(50));
    let peace_from = clock.now();
    let cpu = || lab::cpu_time(pid).unwrap_or_default();
    let (in_peace, under_attack) =
        if kind.is_on_dials() { (0..2, 2..FRESH) } else { (0..FRESH, 0..FRESH) };
    let mut used = cpu();
    let mut peace_cpu = Duration::ZERO;
    let mut on_end = || peace_cpu = cpu().saturating_sub(used);
    let watched = Watched { subject, paths: in_peace, seconds: plan.peace_s };
    let peace = circuits.watch(scene, watched, &downloads, &mut on_end, interrupt)?;
    let reads_peace = reader.reads(peace_from, clock.now(), &mut wait);
    let memory = Memory::of(pid)?;
    output.doing(format!("{name}: under attack"));
    let witness = Witness::start(pid)?;
    let began = clock.now();
    used = cpu();
    let assault = Assault::start(kind, prey, plan.rate, clock)?;
    let (mut attacked_cpu, mut spent) = (Duration::ZERO, Spent::default());
    let (before, mut load) = (Reading::take(pid, began), Load::default());
    let mut ended = began;
    let mut on_end = || {
        (attacked_cpu, spent) = (cpu().saturating_sub(used), assault.spent());
        load = Reading::take(pid, clock.now()).since(&before);
        ended = clock.now();
    };
    let watched = Watched { subject, paths: under_attack, seconds: plan.seconds_of(kind) };
    let mut attacked = circuits.watch(scene, watched, &downloads, &mut on_end, interrupt)?;
    let reads = reader.reads(began, ended, &mut wait);
    let (witnessed_bytes, witnessed_connections) = witness.seen(pid);
    let (stood, losses) = circuits.alive_of_before(began);
    for (why, count) in losses {
        *attacked.losses.entry(format!("{why} of those that stood")).or_default() += count;
    }
    drop(assault);
    let peak_mib = Memory::of(pid)?.peak_mib;
    drop((witness, downloads, reader));
    circuits.close(scene);
    let told = watchlist.map(|watchlist| NameLeak::of(&watchlist.heard()));
    let (before_mib, bound_mib) = (memory.now_mib, f64::from(plan.memory_mib));
    Ok(Finding {
        kind,
        side,
        peace,
        attacked,
        reads_peace,
        reads,
        stood,
        before_mib,
        peak_mib,
        bound_mib,
        peace_cpu,
        attacked_cpu,
        load,
        spent,
        witnessed_bytes,
        witnessed_connections,
        told,
    })
}

/// The answer, the figures, and where ours is worse.
fn conclude(report: &mut ExperimentReport, plan: &Plan, findings: &[Finding]) {
    let of = |kind: Kind, side: Side| {
        findings.iter().find(|finding| (finding.kind, finding.side) == (kind, side))
    };
    for kind in &plan.attacks {
        let both: Vec<&Finding> = plan.sides.iter().filter_map(|side| of(*kind, *side)).collect();
        if !both.is_empty() {
            report.figures.push(figure(*kind, plan, &both));
        }
        let Some((ours, tor)) = of(*kind, Side::Ours).zip(of(*kind, Side::Tor)) else { continue };
        let worse = ours.worse_than(tor);
        if !worse.is_empty() {
            report.notes.push(format!(
                "{}: ours is worse than stock tor in {}.",
                kind.word(),
                worse.join(", ")
            ));
        }
        if let Some(case) = report.cases.iter_mut().find(|case| case.name == ours.name()) {
            case.columns.push(("worse_than_tor_in".to_owned(), worse.into()));
        }
    }
    // What is asked is how ours does; stock tor is there to be compared with.
    let (ours, others): (Vec<&Case>, Vec<&Case>) = report
        .cases
        .iter()
        .partition(|case| case.name.ends_with(&format!(" on {}", Side::Ours.word())));
    let held = |cases: &[&Case]| cases.iter().filter(|it| it.verdict == CaseVerdict::Held).count();
    let answer = format!(
        "Ours held {} of {} attacks, stock tor {} of {}.",
        held(&ours),
        ours.len(),
        held(&others),
        others.len()
    );
    let misses = others.iter().filter(|case| case.verdict == CaseVerdict::Missed);
    let misses = misses.map(|case| Miss {
        case: case.name.clone(),
        explanation: "Stock tor, for comparison.".to_owned(),
    });
    report.misses = misses.collect();
    let is_held = held(&ours) == ours.len() && !report.cases.is_empty();
    report.promise = Promise::Decided { held: is_held, rule: reporting::rule(TEXT) };
    report.answer = answer;
    report.notes.extend([
        "Attackers, honest clients, all relays and the server share this machine's processors: what the attacker's \
         program itself uses is lost to the others. Honest clients' address is that of relays of the consensus, which the \
         defences exempt; attackers' addresses are not."
            .to_owned(),
        "The attacker's Mbit/s are what he hands to TCP, TLS included, and 200 bytes for each connection. What the relay's \
         sockets received of it is the kernel's count, looked at every 0.4 s: a lower bound."
            .to_owned(),
    ]);
    report
        .notes
        .extend(plan.attacks.iter().map(|kind| format!("{}: {}", kind.word(), kind.help())));
}

/// Honest downloads over time, of all relays under one attack.
fn figure(kind: Kind, plan: &Plan, findings: &[&Finding]) -> ExperimentFigure {
    let word = kind.word();
    let figure = ExperimentFigure::new(
        &word,
        &format!("Honest downloads: {word}"),
        Axis::new("seconds since the attack began"),
        Axis::new("Mbit/s"),
    )
    .mark(On::X, 0.0, "attack", Role::Truth)
    .caption(kind.help());
    findings.iter().enumerate().fold(figure, |figure, (nth, finding)| {
        let begin = -f64::from(plan.peace_s);
        let all = finding.peace.mbit.iter().map(|mbit| (true, mbit));
        let all = all.chain(finding.attacked.mbit.iter().map(|mbit| (false, mbit)));
        let (mut peace, mut attacked) = (begin, 0.0);
        let points = all.map(|(is_peace, mbit)| {
            let at = if is_peace { &mut peace } else { &mut attacked };
            *at += 1.0;
            (*at, *mbit)
        });
        figure.with(Series::line(finding.side.word(), Role::Nth(nth), points.collect()))
    })
}
