//! `flashflow-lab experiment downloads`: a C tor client downloads through our relays in every position.

mod network;
mod plan;
mod results;

use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::Result;
use crate::grid::{self, CellRun, Grid, GridOptions, Row, Rows};
use crate::reporting::parameter;
use clap::Args;
use lab::{Content, Download, download};
use network::{Cost, DownloadNetwork};
use plan::{Placement, sizes};
use report::experiment::ExperimentReport;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use terminal::Interrupt;

/// The timeout of a download without progress.
const PATIENCE: Duration = Duration::from_secs(120);

/// Do our relays serve C tor clients as guard, middle, exit, and all three?
///
/// Three of our relays are part of a private network of C tor. A C tor client with pinned relays downloads content from an HTTP server on
/// loopback. Each download uses a separate circuit, and its SHA-256 is verified. Further downloads through C tor relays alone serve for
/// comparison.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment downloads --quick --out results")]
pub(super) struct Options {
    /// Downloads through our relays; 100 by default, 16 if --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    count: Option<u32>,
    /// Size of the largest download in bytes; 100 MiB by default, 10 MiB if --quick. The smallest has 1 KiB.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1024..))]
    largest: Option<u64>,
    /// Simultaneous downloads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
    #[command(flatten)]
    grid: GridOptions,
}

/// A finished download.
struct Done {
    content: Content,
    result: io::Result<Download>,
}

struct DownloadsGrid {
    count: u32,
    largest: u64,
    at_once: u32,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let grid = DownloadsGrid {
        count: session.or(options.count, 16, 100),
        largest: session.or(options.largest, 10 << 20, 100 << 20),
        at_once: options.at_once,
    };
    grid::run(&grid, options.grid, session)
}

impl Grid for DownloadsGrid {
    type Cell = Placement;
    type Setup = DownloadNetwork;
    const NAME: &'static str = "downloads";
    const TEXT: &'static str = include_str!("../../../../docs/experiments/downloads.md");
    const PAUSE: Duration = Duration::ZERO;

    fn cells(&self) -> Vec<Placement> {
        Placement::ALL.into()
    }

    fn parameters(&self) -> Vec<(String, String)> {
        vec![
            parameter("downloads through ours", self.count),
            parameter("at once", self.at_once),
            parameter("smallest", results::size(1024)),
            parameter("largest", results::size(self.largest)),
        ]
    }

    fn start(&self, _: &Placement, session: Session<'_>) -> Result<Option<DownloadNetwork>> {
        DownloadNetwork::start(session.output).map(Some)
    }

    fn run(
        &self,
        network: &mut DownloadNetwork,
        run: CellRun<'_, Placement>,
    ) -> Result<Option<Row>> {
        let Session { output, interrupt, .. } = run.session;
        let placement = *run.cell;
        let lens = sizes(placement.share_of(self.count), self.largest);
        let contents = (1..).zip(lens).map(|(seed, len)| Content { len, seed });
        let path = network.pin(placement)?;
        let before = network.costs();
        let ends = Endpoints { socks: network.socks(), server: network.server() };
        let mut cases = Vec::new();
        download_all(ends, placement, contents.collect(), self.at_once, interrupt, &mut |done| {
            cases.push(results::case(placement, done));
            output.doing(format!("{placement}: {} downloads", cases.len()));
        });
        if interrupt.is_requested() {
            return Ok(None);
        }
        let used = network.used_paths()?;
        cases.extend(results::path_case(placement, path, &used, cases.len()));
        let costs = network.costs().into_iter().zip(before).map(|(now, then)| now.since(&then));
        let costs: Vec<Cost> = costs.collect();
        Ok(Some(Row { cases, ..Row::default() }.with_data(&costs)?))
    }

    fn conclude(&self, rows: Rows<'_, Placement>, report: &mut ExperimentReport) {
        results::conclude(&rows, report);
    }
}

/// Downloads all contents, some at a time, and reports each when it ends.
fn download_all(
    Endpoints { socks, server }: Endpoints,
    placement: Placement,
    contents: VecDeque<Content>,
    at_once: u32,
    interrupt: &Interrupt,
    report: &mut dyn FnMut(Done),
) {
    // No thread panics while it holds the lock. The large ones start first, so that the last ones to end are short.
    let left = Mutex::new(contents);
    let next = || left.lock().ok()?.pop_back().filter(|_| !interrupt.is_requested());
    let (sender, done) = channel();
    thread::scope(|scope| {
        for _ in 0..at_once {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(content) = next() {
                    let isolation = format!("{placement} {}", content.seed);
                    let from = (&*server.ip().to_string(), server.port());
                    let result = download(socks, from, content, &isolation, PATIENCE);
                    if sender.send(Done { content, result }).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        done.iter().for_each(report);
    });
}
