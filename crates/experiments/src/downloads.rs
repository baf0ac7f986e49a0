//! `flashflow-lab experiment downloads`: a C tor client downloads through our relays in every position.

mod plan;
mod results;
mod stage;

use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::Result;
use crate::reporting;
use clap::Args;
use lab::{Content, Download, download};
use plan::{Placement, sizes};
use report::experiment::ExperimentReport;
use results::Results;
use stage::DownloadNetwork;
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use terminal::Interrupt;

/// Downloads, if not said otherwise.
const COUNT: u32 = 100;
const COUNT_QUICK: u32 = 16;

/// A byte has to come at least this often.
const PATIENCE: Duration = Duration::from_secs(120);

/// Do our relays serve C tor clients as guard, middle, exit, and all three?
///
/// A private network of C tor, with three relays of our own, each a process. A C tor client, whose
/// configuration pins the relays at each place of its circuits, downloads content from an HTTP server on
/// loopback. Each download has a circuit of its own and is compared by its SHA-256. As many again go
/// through stock relays alone, to compare with.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  flashflow-lab experiment downloads --quick --out results")]
pub(super) struct Options {
    /// Downloads through ours; 100, or 16 with --quick.
    #[arg(long, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    count: Option<u32>,
    /// The largest one in bytes; 100 MiB, or 10 MiB with --quick. The smallest has 1 KiB.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1024..))]
    largest: Option<u64>,
    /// Downloads at the same time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: u32,
}

/// One download, and how it ended.
struct Done {
    content: Content,
    result: io::Result<Download>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let count = session.or(options.count, COUNT_QUICK, COUNT);
    let largest = session.or(options.largest, 10 << 20, 100 << 20);
    let mut stage = DownloadNetwork::start(output)?;
    let mut results = Results::default();
    for placement in Placement::ALL {
        let contents = sizes(placement.share_of(count), largest);
        let contents = (1..).zip(contents).map(|(seed, len)| Content { len, seed });
        let path = stage.pin(placement)?;
        let mut cases = 0;
        output.doing(format!("downloading through {placement}"));
        let ends = Endpoints { socks: stage.socks(), server: stage.server() };
        all(ends, placement, contents.collect(), options.at_once, interrupt, &mut |done| {
            cases += 1;
            reporting::print_case(&results.add(placement, done), output);
        });
        let used = stage.used_paths()?;
        if let Some(case) = results.add_paths(placement, path, &used, cases) {
            reporting::print_case(&case, output);
        }
        if interrupt.is_requested() {
            break;
        }
    }
    Ok(results.report(options, count, largest, &stage.costs()))
}

/// Downloads all, some at a time, and reports each as it ends.
fn all(
    Endpoints { socks, server }: Endpoints,
    placement: Placement,
    contents: VecDeque<Content>,
    at_once: u32,
    interrupt: &Interrupt,
    report: &mut dyn FnMut(Done),
) {
    // Nobody panics while holding it. The large ones come first, so that they don't end alone.
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
