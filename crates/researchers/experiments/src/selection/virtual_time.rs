//! `flashflow-lab experiment selection --simulated`: the paper's tables at its samples, in virtual time.

use super::claims::UserLoad;
use super::scene::{Scene, USERS_DEFAULT};
use super::strategies::NamedStrategy;
use super::survey::{Measuring, Runs};
use super::{Options, RULES, judge, model, tables};
use crate::common::Session;
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::{claim_holds, parameter};
use client::path::{Need, select_probe_path};
use client::probe::Probed;
use client::strategy::{Strategy, Uniform};
use netdoc::RsaId;
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use report::experiment::ExperimentReport;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Part of the experiment. Each is a run of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// Circuits of two to four hops: tables I and II, figure 4.
    Lengths,
    /// Strategies by bandwidth and measurements: table III, figures 5 and 6.
    Strategies,
    /// Rules of geography: table IV, figure 7.
    Geography,
    /// Headers of pages: table V.
    Pages,
}

/// A run.
#[derive(Clone, Copy, Serialize)]
struct Cell {
    part: Part,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.part {
            Part::Lengths => "lengths",
            Part::Strategies => "strategies",
            Part::Geography => "geography",
            Part::Pages => "pages",
        })
    }
}

/// The samples of the paper by default.
struct VirtualTime {
    users: u32,
    /// Circuits of each length.
    lengths: u32,
    /// Circuits of each strategy, and half of that by each rule of geography.
    circuits: u32,
    learning: u32,
    headers: u32,
    bytes: u32,
    seed: u64,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let circuits = session.or(options.circuits, 40, 600);
    let runs = VirtualTime {
        users: options.users.unwrap_or(USERS_DEFAULT),
        lengths: options.lengths.unwrap_or(circuits),
        circuits,
        // With 600 uniform and 600 weighted circuits, the 1,530 of figures 5 and 6.
        learning: session.or(options.learning, 40, 330),
        headers: session.or(None, 100, 10_000),
        bytes: u32::try_from(options.bytes.unwrap_or(100_000)).unwrap_or(u32::MAX),
        seed: options.seed,
    };
    grid::run(&runs, GridOptions { shard: options.simulated.runs.shard }, session)
}

impl Grid for VirtualTime {
    type Cell = Cell;
    type Setup = Scene;
    const NAME: &'static str = "selection-simulated";
    const TEXT: &'static str = judge::TEXT;
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Cell> {
        let parts = [Part::Lengths, Part::Strategies, Part::Geography, Part::Pages];
        parts.into_iter().map(|part| Cell { part }).collect()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("users", self.users),
            parameter("circuits of each length", self.lengths),
            parameter("circuits of each strategy", self.circuits),
            parameter("circuits of each rule of geography", self.circuits / 2),
            parameter("circuits to learn from", self.learning),
            parameter("headers of pages", self.headers),
            parameter("a download", format!("{} bytes", self.bytes)),
            parameter("seed", self.seed),
        ]
    }

    fn start(&self, _: &Cell, _: Session<'_>) -> Result<Option<Scene>> {
        Scene::new(self.users).map(Some)
    }

    fn run(&self, scene: &mut Scene, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let runs = Runs { scene, seed: self.seed, session: run.session };
        match run.cell.part {
            Part::Lengths => self.lengths(&runs),
            Part::Strategies => self.strategies(&runs),
            Part::Geography => self.geography(&runs),
            Part::Pages => {
                let Some([tor, direct]) = runs.headers(self.headers)? else { return Ok(None) };
                Ok(Some(Row { cases: tables::pages(&tor, &direct), ..Row::default() }))
            }
        }
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        report.answer = judge::answer(report);
        report.promise = Self::promise(rows.are_complete() && claim_holds(&report.cases));
    }
}

/// The circuits of each strategy or length.
type Groups = Vec<(&'static str, Vec<Probed>)>;

impl VirtualTime {
    fn rng(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    fn lengths(&self, runs: &Runs<'_>) -> Result<Option<Row>> {
        let lengths = [("2 hops", 2), ("3 hops", 3), ("4 hops", 4)];
        let draw = |hops, rng: &mut StdRng| path(runs.scene, &Uniform, hops, rng);
        let mut rng = self.rng();
        let paths = alternate(self.lengths, &lengths, |(_, hops)| draw(*hops, &mut rng))?;
        let how = Measuring { rounds: 5, only_last: true, bytes: 0 };
        let Some(measured) = runs.measure("lengths", &paths, how)? else { return Ok(None) };
        let groups = grouped(lengths.map(|(name, _)| name), measured.circuits);
        let figures = vec![tables::figure_4(&groups)];
        let mut cases = tables::lengths(&groups);
        cases.push(tables::load("lengths", measured.load));
        Ok(Some(Row { cases, figures, ..Row::default() }))
    }

    fn strategies(&self, runs: &Runs<'_>) -> Result<Option<Row>> {
        let mut rng = self.rng();
        let uniform =
            alternate(self.learning, &[()], |()| path(runs.scene, &Uniform, 3, &mut rng))?;
        let how = Measuring { rounds: 3, only_last: false, bytes: self.bytes };
        let Some(learning) = runs.measure("learning", &uniform, how)? else { return Ok(None) };
        let learning = learning.circuits;
        let model = Arc::new(model(&learning, 0));
        let strategies = NamedStrategy::without_geography(&runs.scene.claims(), &model);
        let draw =
            |named: &NamedStrategy, rng: &mut StdRng| path(runs.scene, &*named.strategy, 3, rng);
        let paths = alternate(self.circuits, &strategies, |named| draw(named, &mut rng))?;
        let how = Measuring { rounds: 5, only_last: true, bytes: self.bytes };
        let Some(measured) = runs.measure("strategies", &paths, how)? else { return Ok(None) };
        let groups = grouped(strategies.iter().map(|named| named.name), measured.circuits);
        let figures = tables::figures_5_and_6(&groups, &learning);
        let load = match self.users {
            0 => UserLoad::None,
            _ => UserLoad::from_shares(measured.load.slow, measured.load.fast),
        };
        let mut cases = tables::strategies(&groups, &learning, load);
        cases.push(tables::load("strategies", measured.load));
        Ok(Some(Row { cases, figures, ..Row::default() }))
    }

    fn geography(&self, runs: &Runs<'_>) -> Result<Option<Row>> {
        let mut rules = vec![NamedStrategy::new("uniform", Uniform)];
        rules.extend(NamedStrategy::geographic(&runs.scene.countries)?);
        let mut rng = self.rng();
        let draw =
            |named: &NamedStrategy, rng: &mut StdRng| path(runs.scene, &*named.strategy, 3, rng);
        let paths = alternate(self.circuits / 2, &rules, |named| draw(named, &mut rng))?;
        let how = Measuring { rounds: 5, only_last: true, bytes: 0 };
        let Some(measured) = runs.measure("geography", &paths, how)? else { return Ok(None) };
        let groups = grouped(rules.iter().map(|named| named.name), measured.circuits);
        let figures = vec![tables::figure_7(&groups)];
        let mut cases = tables::geography(&groups);
        cases.push(tables::load("geography", measured.load));
        Ok(Some(Row { cases, figures, ..Row::default() }))
    }
}

fn path(
    scene: &Scene,
    strategy: &dyn Strategy,
    hops: usize,
    rng: &mut StdRng,
) -> Result<Vec<RsaId>> {
    let need = Some(Need::Port { port: 443, is_ipv6: false });
    let path = select_probe_path(&scene.view, strategy, RULES, need, hops, rng);
    let path = path.map_err(|error| Error::Failed(format!("{}: {error}", strategy.name())))?;
    Ok(path.into_iter().map(|relay| relay.fingerprint).collect())
}

/// This number of paths of each group, in turn, so that all groups meet the same load.
fn alternate<T>(
    count: u32,
    groups: &[T],
    draw: impl FnMut(&T) -> Result<Vec<RsaId>>,
) -> Result<Vec<Vec<RsaId>>> {
    (0..count).flat_map(|_| groups).map(draw).collect()
}

/// Circuits that [`alternate`] by group.
fn grouped(names: impl IntoIterator<Item = &'static str>, all: Vec<Probed>) -> Groups {
    let mut groups: Groups = names.into_iter().map(|name| (name, Vec::new())).collect();
    let count = groups.len();
    for (place, probed) in all.into_iter().enumerate() {
        groups[place % count].1.push(probed);
    }
    groups
}
