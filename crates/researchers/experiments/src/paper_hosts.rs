//! `flashflow-lab experiment paper-hosts`: the paper's experiments over the paper's distances.

mod plan;

use crate::columns::rounded;
use crate::common::{Session, mbit, percent};
use crate::error::{Error, Result};
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::mode::Mode;
use crate::reporting::{list, parameter};
use crate::testbed::Testbed;
use crate::trial::TrialResult;
use crate::wan_site::{Measurement, Site, enter, measurer_at, path_with_rtt};
use authority::one_relay::Request;
use authority::shell::Team;
use clap::Args;
use lab::wan::{Congestion, HostSpec, SocketBuffer, Wan, WanSpec};
use onion::Rate;
use plan::{Cell, Vary};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Value};
use std::net::Ipv4Addr;

pub(crate) use plan::{HOSTS, Host, US_SW};

/// The host of the relays. US-SW is next to it.
const RELAYS: &str = "relays";

/// The receive and send buffers of the paper's default kernels. Since 6.17, Linux has 32 MiB to receive.
const USUAL: [SocketBuffer; 2] = [
    SocketBuffer { min: 4096, initial: 131_072, max: 6 << 20 },
    SocketBuffer { min: 4096, initial: 16_384, max: 4 << 20 },
];

/// Those of its tuned kernels.
const TUNED: [SocketBuffer; 2] =
    [SocketBuffer { max: 64 << 20, ..USUAL[0] }, SocketBuffer { max: 64 << 20, ..USUAL[1] }];

/// How do the paper's parameters perform over the paper's distances?
///
/// The paper's hosts (table 1) measure a relay: US-NW 40 ms away, US-E 62, NL 137, IN 210, with the rates of their
/// links; US-SW is next to the relay. One parameter at a time varies: the team (all subsets of the four hosts), the sockets s,
/// the multiplier m, the seconds t, and the largest size of the kernels' socket buffers. If the sockets are given, all begin at once.
/// First US-SW measures the relay: what its process then sends, according to the kernel's counters of its sockets, is the
/// truth. The paper's §6, appendices D and E. Needs root for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab experiment paper-hosts --vary team --limits 250 --out results
  flashflow-lab experiment paper-hosts --quick --vary sockets,seconds --modes transit
  flashflow-lab experiment paper-hosts --vary team --sockets 160")]
pub(super) struct Options {
    /// What to vary; all by default. With --quick, what is named varies at all hosts. If nothing is named, all vary at the
    /// nearest and farthest host only.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "WHAT,…")]
    vary: Vec<Vary>,
    /// Length of a measurement in seconds where that is not varied, 8 to 60; 30 by default, 10 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=60))]
    seconds: Option<u32>,
    /// Rate limits of the relays in Mbit/s; 10,100,250 by default, 90 with --quick. Sockets and buffers vary for
    /// the last one only.
    #[arg(long, value_delimiter = ',', value_name = "MBIT,…", value_parser = mbit)]
    limits: Vec<f64>,
    /// Kinds of measurement; both by default, transit with --quick.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "MODE,…")]
    modes: Vec<Mode>,
    /// Sockets of a measurement where that is not varied, all at once and in one round, such as the paper's 160. By default,
    /// the number depends on distance and rate, and grows in later rounds. With --vary buffers alone, there may be several numbers.
    #[arg(long, value_delimiter = ',', value_name = "COUNT,…",
        value_parser = clap::value_parser!(u32).range(1..=300))]
    sockets: Vec<u32>,
    /// Congestion control of all hosts.
    #[arg(long, default_value = "cubic", value_name = "NAME")]
    congestion: Congestion,
    /// Packet loss in each direction. The losses of the paper's paths are not known.
    #[arg(long, default_value_t = 0.01, value_name = "PERCENT", value_parser = percent)]
    loss_percent: f64,
    /// Seed of the packet losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    grid: GridOptions,
}

/// The paper's results for each.
const PAPER: [(Vary, &str); 5] = [
    (
        Vary::Team,
        "Paper, §6.2: of 7 runs with each team and limit all but one (99.8 %) were within −20 % and +5 %, 95 % within 11 %.",
    ),
    (
        Vary::Sockets,
        "Paper, E.1: each host has its highest rate at a different number of sockets, and less beyond it; IN, the slowest, at 160.",
    ),
    (
        Vary::Multiplier,
        "Paper, E.2: 2.25 is the least of 1.5, 1.75, 2, 2.25 and 2.5 without a median below 0.8 of the truth.",
    ),
    (
        Vary::Seconds,
        "Paper, E.3: of 10, 20, 30 and 60 seconds 30 has the smallest range, 0.84 to 1.01 of the truth.",
    ),
    (
        Vary::Buffers,
        "Paper, D.1: at all round trips a single socket is faster where the kernels' buffers may grow to 64 MiB.",
    ),
];

struct PaperHostsGrid {
    seconds: u32,
    limits: Vec<f64>,
    congestion: Congestion,
    loss_percent: f64,
    seed: u64,
    /// Sockets where they are not varied; by distance and rate if empty.
    sockets: Vec<u32>,
    cells: Vec<Cell>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    if options.sockets.len() > 1 && options.vary != [Vary::Buffers] {
        let problem = "several numbers of --sockets require --vary buffers, and nothing else";
        return Err(Error::Usage(problem.to_owned()));
    }
    let grid = PaperHostsGrid {
        seconds: plan::seconds(options, session.common.quick),
        limits: plan::limits(options, session.common.quick),
        congestion: options.congestion,
        loss_percent: options.loss_percent,
        seed: options.seed,
        sockets: options.sockets.clone(),
        cells: plan::cells(options, session.common.quick),
    };
    grid::run(&grid, options.grid, session)
}

impl PaperHostsGrid {
    /// Measures a relay with a right guess; `None` if the user has interrupted.
    fn measure(
        &self,
        site: &Site,
        cell: &Cell,
        session: Session<'_>,
    ) -> Result<Option<TrialResult>> {
        let team = |testbed: &Testbed| {
            let shares = cell.hosts.0.iter().map(|host| (*host, HOSTS[*host].rate()));
            Ok(Box::new(testbed.team_of(shares)) as Box<dyn Team>)
        };
        let measurement = Measurement {
            name: cell.to_string(),
            relay: cell.relay,
            guess: Rate::from_mbit_per_s(cell.limit_mbit_per_s),
            from: HOSTS[US_SW].name,
            params: cell.params(),
            team: &team,
            adjust: &|request| {
                // The hosts are known to be far away.
                let measurers_min = if cell.sockets.is_none() { 2 } else { 1 };
                Request { path: cell.path(), measurers_min, ..request }
            },
        };
        site.measure(&measurement, |trial| trial.run(session))
    }
}

/// The estimate with default kernels over that with tuned ones, which is of `case`.
fn default_over_tuned(cell: &Cell, case: &Case, earlier: Rows<'_, Cell>) -> Option<f64> {
    let is_default = |other: &Cell| {
        let key = |cell: &Cell| (cell.mode, cell.vary, cell.relay, cell.sockets);
        !other.tuned && other.hosts == cell.hosts && key(other) == key(cell)
    };
    let mut defaults = earlier.cases().filter(|(other, _)| is_default(other));
    rounded(defaults.next()?.1.estimate_mbit_per_s? / case.estimate_mbit_per_s?, 3)
}

impl Grid for PaperHostsGrid {
    type Cell = Cell;
    type Setup = Site;
    const NAME: &'static str = "paper-hosts";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/paper-hosts.md");

    fn cells(&self) -> Vec<Cell> {
        self.cells.clone()
    }

    fn conditions(&self) -> String {
        let Self { congestion, loss_percent, seed, .. } = self;
        let sockets = match &self.sockets[..] {
            [] => String::new(),
            sockets => format!("{} sockets, ", list(sockets)),
        };
        let seconds = self.seconds;
        format!("t = {seconds} s, {sockets}{congestion}, {loss_percent} % lost, seed {seed}")
    }

    fn setup(&self, cell: &Cell) -> String {
        let tuned = if cell.tuned { ", tuned kernels" } else { "" };
        format!("relays and measurers: {}{tuned}", cell.mode.name())
    }

    /// Later runs use what the relay carried in earlier ones.
    fn group(&self, cell: &Cell) -> String {
        self.setup(cell)
    }

    fn start(&self, cell: &Cell, session: Session<'_>) -> Result<Option<Site>> {
        let spec = |name, at| {
            let [tcp_rmem, tcp_wmem] = if cell.tuned { TUNED } else { USUAL }.map(Some);
            let spec = HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
            HostSpec { tcp_rmem, tcp_wmem, ..spec.with_congestion(self.congestion) }
        };
        let hosts =
            HOSTS.iter().zip(2..).map(|(host, at)| spec(host.name, at).with_access(host.access()));
        let mut wan = WanSpec::new(hosts.chain([spec(RELAYS, 1)]).collect()).with_seed(self.seed);
        for host in &HOSTS {
            let loss_percent = if host.rtt_ms == 0 { 0.0 } else { self.loss_percent };
            let path = path_with_rtt(host.rtt_ms, loss_percent);
            wan = wan.with_path(host.name, RELAYS, path).with_path(RELAYS, host.name, path);
        }
        let wan = Wan::start(&wan)?;
        // The coordinator is next to the relay, so that its messages take no time.
        enter(wan.host(HOSTS[US_SW].name)?)?;
        let mut testbed = Testbed::new()?;
        for host in &HOSTS {
            measurer_at(wan.host(host.name)?, &mut testbed, host.rate(), || Ok(()))?;
        }
        let limits: Vec<Rate> =
            self.limits.iter().map(|limit| Rate::from_mbit_per_s(*limit)).collect();
        Site::start(cell.mode, &limits, wan, RELAYS, testbed, session.output).map(Some)
    }

    fn run(&self, site: &mut Site, run: CellRun<'_, Cell>) -> Result<Option<Row>> {
        let CellRun { cell, earlier, session } = run;
        let is_same =
            |other: &Cell| self.setup(other) == self.setup(cell) && other.relay == cell.relay;
        let known = earlier.cases().filter(|(other, _)| is_same(other));
        let mut truth = known.filter_map(|(_, case)| case.truth_mbit_per_s).next();
        if truth.is_none() {
            match self.measure(site, &cell.truth(self.seconds), session) {
                Ok(Some(result)) => truth = result.sent_mbit(),
                Ok(None) => return Ok(None),
                Err(error) => session.output.step(format!("no truth for {cell}: {error}")),
            }
        }
        let Some(result) = self.measure(site, cell, session)? else { return Ok(None) };
        let estimate = result.estimate();
        let verdict = CaseVerdict::Inconclusive;
        let case = result
            .case(cell.to_string(), truth, verdict, verdict)
            .column("sockets_in_the_end", result.sockets)
            .column("conclusive", estimate.is_some_and(|estimate| estimate.is_conclusive()))
            .column("rounds", estimate.map(|estimate| estimate.rounds))
            .column("sent_mbit_per_s", result.sent_mbit());
        let over_tuned = cell.tuned.then(|| default_over_tuned(cell, &case, earlier));
        let case = match over_tuned {
            Some(ratio) => case.column("default_over_tuned", ratio),
            None => case,
        };
        Ok(Some(result.with_loads(case).into()))
    }

    fn stop(&self, site: Site) -> Result<()> {
        site.stop()
    }

    fn conclude(&self, rows: Rows<'_, Cell>, report: &mut ExperimentReport) {
        let is_conclusive = |case: &&Case| case.value("conclusive") == Some(&Value::Bool(true));
        let all: Vec<&Case> = report.cases.iter().filter(is_conclusive).collect();
        let wrong = all.iter().filter(|case| case.verdict != CaseVerdict::Held).count();
        let (conclusive, runs) = (all.len(), report.cases.len());
        report.answer = format!(
            "{wrong} of {conclusive} conclusive estimates were wrong; {} of {runs} runs had a lower bound or failed.",
            runs - conclusive,
        );
        let sockets = match &self.sockets[..] {
            [] => "by distance and rate".to_owned(),
            sockets => list(sockets),
        };
        report.parameters = vec![
            parameter("seconds t, where not varied", self.seconds),
            parameter("limits, Mbit/s", list(&self.limits)),
            parameter("congestion control", self.congestion.to_string()),
            parameter("lost in each direction, %", self.loss_percent),
            parameter("sockets, where not varied", sockets),
            parameter("seed", self.seed),
        ];
        let of_paper =
            PAPER.iter().filter(|(vary, _)| rows.iter().any(|(cell, _)| cell.vary == *vary));
        let of_paper = of_paper.map(|(_, text)| (*text).to_owned());
        report.notes.splice(0..0, of_paper);
        report.promise = Self::promise(wrong == 0 && conclusive > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::parse_options;
    use crate::grid::Row;

    #[test]
    fn tuned_kernels_are_compared_with_default_ones_over_as_many_sockets() {
        let options = "--vary buffers --sockets 1,20 --modes echo --limits 100";
        let cells = plan::cells(&parse_options(options), false);
        let case = |mbit| Case::new("run", Some(100.0), Some(mbit));
        // 40 Mbit/s over one socket of each host, 90 over 20.
        let rate = |cell: &Cell| if cell.sockets == Some(1) { 40.0 } else { 90.0 };
        let rows: Vec<Option<Row>> =
            cells.iter().map(|cell| (!cell.tuned).then(|| case(rate(cell)).into())).collect();
        let over = |cell: &Cell| default_over_tuned(cell, &case(100.0), Rows::new(&cells, &rows));
        let tuned: Vec<&Cell> = cells.iter().filter(|cell| cell.tuned).collect();
        assert_eq!(tuned.len(), 4 * 2);
        for cell in tuned {
            assert_eq!(over(cell), Some(rate(cell) / 100.0), "{cell}");
        }
    }
}
