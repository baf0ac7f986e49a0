//! `flashflow-lab experiment dos`: our relay and C tor under the same attacks.

mod honest;
mod judge;
mod name_leak;
mod plan;
mod ports;
mod scene;
pub(super) mod soak;
mod watch;

use crate::background_downloads::{BackgroundDownloads, PARALLEL};
use crate::common::{Session, mbit, values_or_all};
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::parameter;
use clap::Args;
use honest::{Circuits, DOWNLOAD, Watched};
use judge::Finding;
use lab::attacks::{AttackTarget, Kind, Reader, RunningAttack};
use lab::processors::Reading;
use name_leak::NameLeak;
use onion::{Duration, Rate};
use plan::{Cell, Plan, Side};
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, ExperimentReport, Miss, On, Role, Series,
};
use scene::{FRESH, Scene, Subject};
use std::collections::BTreeSet;
use std::sync::Arc;
use watch::{Witness, memory};

/// Does our relay withstand attacks better than C tor?
///
/// A private network has a separate relay of each kind (FlashFlow, C tor) for each attack, with the same memory limit and the DoS defences
/// of the public network's consensus. C tor clients download and build circuits through it, first undisturbed and then during the attack.
/// The attacker uses separate addresses (127.66.0.0/16) and sends at most --rate. The result is the share of their service that honest
/// clients keep. The kernel reports the relay's memory and CPU time. All traffic stays on loopback; attacks accept no other address.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab experiment dos --quick --attacks sniper-wide,create2-flood --out results

A relay withstands an attack if honest downloads keep 80 % of their rate, 99 % of honest circuits survive (open ones and those requested
during the attack), 95 % of honest directory requests are answered, and its memory grows by at most its memory limit. In dns-probing, the TTLs
of its answers must not classify more than 75 % of names correctly as requested before or not.")]
pub(super) struct Options {
    /// Attacks to run; all by default.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ATTACK,…")]
    attacks: Vec<Kind>,
    /// Relays to attack.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "RELAY,…",
        default_values_t = [Side::Ours, Side::Tor])]
    relays: Vec<Side>,
    /// Duration of each attack in seconds, 3 to 600; 30 by default, 6 if --quick. Some attacks need more time and last longer.
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=600))]
    seconds: Option<u32>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    grid: GridOptions,
}

/// Limits of the attacker, of honest downloads, and of the relay.
#[derive(Debug, Args)]
struct Limits {
    /// Maximum rate of the attacker, in Mbit/s.
    #[arg(long, default_value_t = 50.0, value_parser = mbit, value_name = "MBIT")]
    rate: f64,
    /// Maximum rate of honest downloads, in Mbit/s. Choose less than the relay and the machine can carry.
    #[arg(long, default_value_t = 20.0, value_parser = mbit, value_name = "MBIT")]
    demand: f64,
    /// Memory limit of each relay for queues (MaxMemInQueues), in MiB. A small limit makes attacks reach it. C tor counts the
    /// memory for compressing a consensus, so with less than 256 it destroys circuits even without an attack.
    #[arg(long, default_value_t = 256, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(64..=8192))]
    memory: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    link::raise_descriptor_limit();
    grid::run(&plan(options, session), options.grid, session)
}

impl Grid for Plan {
    type Cell = Cell;
    type Setup = Scene;
    const NAME: &'static str = "dos";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/dos.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        self.cases().collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("attacker's rate", self.rate),
            parameter("honest downloads take", self.demand),
            parameter("quiet time before each attack", format!("{} s", self.undisturbed_s)),
            parameter("length of each attack", format!("{} s", self.seconds)),
            parameter("bound on memory of either relay", format!("{} MiB", self.memory_mib)),
        ]
    }

    fn start(&self, _: &Cell, session: Session<'_>) -> Result<Option<Scene>> {
        Scene::start(self, session)
    }

    fn run(&self, scene: &mut Scene, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, session, .. } = run;
        let subject = scene.take(*cell)?;
        let found = scene
            .target(&subject, self)
            .and_then(|target| attack(scene, &subject, cell.kind, target, self, session));
        subject.end();
        let finding = found?;
        Ok(Some(Row::from(finding.case()).with_data(&finding.points(self))?))
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.parameters.push(parameter("parameters of the consensus", scene::PARAMETERS));
        conclude(self, &rows, report);
    }
}

fn plan(options: &Options, session: Session<'_>) -> Plan {
    let attacks: BTreeSet<Kind> = values_or_all(&options.attacks).into_iter().collect();
    let sides: BTreeSet<Side> = options.relays.iter().copied().collect();
    let seconds = session.or(options.seconds, 6, 30);
    Plan {
        attacks: attacks.into_iter().collect(),
        sides: sides.into_iter().collect(),
        undisturbed_s: seconds.min(session.or(None, 4, 15)),
        seconds,
        rate: Rate::from_mbit_per_s(options.limits.rate),
        demand: Rate::from_mbit_per_s(options.limits.demand),
        memory_mib: options.limits.memory,
        open_circuits: 20,
        is_soak: false,
    }
}

/// Observes honest clients of a relay before and during an attack.
fn attack(
    scene: &mut Scene,
    subject: &Subject,
    kind: Kind,
    target: AttackTarget,
    plan: &Plan,
    session: Session<'_>,
) -> Result<Finding> {
    let Session { output, interrupt, .. } = session;
    let (side, pid, clock) = (subject.side, subject.pid, scene.clock);
    let name = Cell { kind, side }.to_string();
    output.doing(format!("{name}: starting honest clients"));
    scene.pin(subject)?;
    let downloads = BackgroundDownloads::start(scene.downloads(), &name, DOWNLOAD)?;
    let mut circuits = Circuits::default();
    // If the attack is on new links, no circuit may have opened them before.
    if !kind.targets_dials() {
        circuits.open(scene, subject, plan.open_circuits, interrupt)?;
    }
    downloads.wait_until_completed(PARALLEL / 2, clock, interrupt)?;
    let watchlist = scene.watchlist(kind);
    let target = match &watchlist {
        Some(watchlist) => {
            scene.request_names(watchlist, &name)?;
            target.with_watchlist(Arc::clone(watchlist))
        }
        None => target,
    };
    output.doing(format!("{name}: before the attack"));
    let reader = Reader::start(target.clone(), clock)?;
    let mut wait = || interrupt.wait(Duration::from_millis(50));
    let undisturbed_from = clock.now();
    let cpu = || lab::cpu_time(pid).unwrap_or_default();
    let (before_attack, under_attack) =
        if kind.targets_dials() { (0..2, 2..FRESH) } else { (0..FRESH, 0..FRESH) };
    let cpu_before = cpu();
    let watched = Watched { subject, paths: before_attack, seconds: plan.undisturbed_s };
    let interval = circuits.watch(scene, watched, &downloads, interrupt)?;
    let cpu_while_undisturbed = cpu().saturating_sub(cpu_before);
    let undisturbed = circuits.settle(scene, interval, interrupt);
    let reads_before = reader.reads(undisturbed_from, clock.now(), &mut wait);
    let before_mib = memory(pid)?.now_mib;
    output.doing(format!("{name}: under attack"));
    let witness = Witness::start(pid)?;
    let (started, cpu_before) = (clock.now(), cpu());
    let running = RunningAttack::start(kind, target, plan.rate, clock)?;
    let before = Reading::take(pid, started);
    let watched = Watched { subject, paths: under_attack, seconds: plan.seconds_of(kind) };
    let interval = circuits.watch(scene, watched, &downloads, interrupt)?;
    let (attacked_cpu, spent) = (cpu().saturating_sub(cpu_before), running.spent());
    let load = Reading::take(pid, clock.now()).since(&before);
    let ended = clock.now();
    let mut attacked = circuits.settle(scene, interval, interrupt);
    let reads = reader.reads(started, ended, &mut wait);
    let (witnessed_bytes, witnessed_connections) = witness.counts(pid);
    let (open_before, losses) = circuits.survivors(started);
    for (reason, count) in losses {
        *attacked.losses.entry(format!("{reason} of those open before")).or_default() += count;
    }
    drop(running);
    let peak_mib = memory(pid)?.peak_mib;
    drop((witness, downloads, reader));
    circuits.close(scene);
    Ok(Finding {
        kind,
        side,
        undisturbed,
        attacked,
        reads_before,
        reads,
        open_before,
        before_mib,
        peak_mib,
        limit_mib: f64::from(plan.memory_mib),
        cpu_while_undisturbed,
        attacked_cpu,
        load,
        spent,
        witnessed_bytes,
        witnessed_connections,
        leak: watchlist.map(|watchlist| NameLeak::from_probes(&watchlist.probes())),
    })
}

/// Adds the answer, the figures, and the columns in which our relay is worse than C tor.
fn conclude(plan: &Plan, rows: &Rows<'_, Cell>, report: &mut ExperimentReport) {
    let points: Vec<(&Cell, Vec<(f64, f64)>)> = rows.data().collect();
    for kind in &plan.attacks {
        let of_kind = points.iter().filter(|(cell, _)| cell.kind == *kind);
        let series = of_kind.map(|(cell, points)| (cell.side, points.clone())).collect::<Vec<_>>();
        if !series.is_empty() {
            report.figures.push(figure(*kind, series));
        }
        let of = |side| rows.cases().find(|(cell, _)| (cell.kind, cell.side) == (*kind, side));
        let Some(((ours, case), (_, tor))) = of(Side::Ours).zip(of(Side::Tor)) else { continue };
        let Some(worse) = judge::worse_than(case, tor) else { continue };
        let worse = worse.join(", ");
        if !worse.is_empty() {
            report
                .notes
                .push(format!("{}: our relay is worse than C tor in {worse}.", kind.word()));
        }
        if let Some(case) = report.cases.iter_mut().find(|case| case.name == ours.to_string()) {
            case.columns.push(("worse_than_tor_in".to_owned(), worse.into()));
        }
    }
    // The promise is about our relay only.
    let suffix = format!(" on {}", Side::Ours.word());
    let (ours, others): (Vec<&Case>, Vec<&Case>) =
        report.cases.iter().partition(|case| case.name.ends_with(&suffix));
    let held =
        |cases: &[&Case]| cases.iter().filter(|case| case.verdict == CaseVerdict::Held).count();
    report.answer = format!(
        "Our relay withstood {} of {} attacks, C tor {} of {}.",
        held(&ours),
        ours.len(),
        held(&others),
        others.len()
    );
    let is_held = held(&ours) == ours.len() && !report.cases.is_empty();
    let misses = others.iter().filter(|case| case.verdict == CaseVerdict::Missed);
    let misses = misses.map(|case| Miss {
        case: case.name.clone(),
        explanation: "C tor, for comparison.".to_owned(),
    });
    report.misses = misses.collect();
    report.promise = Plan::promise(is_held);
    report.notes.extend([
        "The attacker, honest clients, all relays and the server share the processors of this machine, so the attacker's own CPU \
         time is lost to the others. Honest clients have the address of relays in the consensus, which the defences exempt; the \
         attacker's addresses are not exempt."
            .to_owned(),
        "The attacker's rate counts the bytes given to TCP, including TLS, and 200 bytes for each connection. The received bytes are \
         those that the kernel counted at the relay's sockets every 0.4 s, which is a lower bound."
            .to_owned(),
    ]);
    let help = plan.attacks.iter().map(|kind| format!("{}: {}", kind.word(), kind.help()));
    report.notes.extend(help);
}

/// Honest downloads over time, for all relays under one attack.
fn figure(kind: Kind, series: Vec<(Side, Vec<(f64, f64)>)>) -> ExperimentFigure {
    let word = kind.word();
    let figure = ExperimentFigure::new(
        &word,
        &format!("Honest downloads: {word}"),
        Axis::new("seconds since the start of the attack"),
        Axis::new("Mbit/s"),
    )
    .mark(On::X, 0.0, "attack", Role::Truth)
    .caption(kind.help());
    series.into_iter().enumerate().fold(figure, |figure, (nth, (side, points))| {
        figure.with(Series::line(side.word(), Role::Nth(nth), points))
    })
}
