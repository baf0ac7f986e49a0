//! `flashflow-lab experiment downloads`: a C tor client downloads through our relays in every position.

mod network;
mod plan;
mod results;

use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::Result;
use crate::reporting;
use clap::Args;
use lab::{Content, Download, download};
use network::DownloadNetwork;
use plan::{Placement, sizes};
use report::experiment::ExperimentReport;
use results::Results;
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
}

/// A finished download.
struct Done {
    content: Content,
    result: io::Result<Download>,
}

pub(super) fn run(options: &Options, session: Session<'_>) -> Result<ExperimentReport> {
    let Session { output, interrupt, .. } = session;
    let count = session.or(options.count, 16, 100);
    let largest = session.or(options.largest, 10 << 20, 100 << 20);
    let mut network = DownloadNetwork::start(output)?;
    let mut results = Results::default();
    for placement in Placement::ALL {
        let contents = sizes(placement.share_of(count), largest);
        let contents = (1..).zip(contents).map(|(seed, len)| Content { len, seed });
        let path = network.pin(placement)?;
        let mut cases = 0;
        output.doing(format!("downloading through {placement}"));
        let ends = Endpoints { socks: network.socks(), server: network.server() };
        download_all(
            ends,
            placement,
            contents.collect(),
            options.at_once,
            interrupt,
            &mut |done| {
                cases += 1;
                reporting::print_case(&results.add(placement, done), output);
            },
        );
        let used = network.used_paths()?;
        if let Some(case) = results.add_paths(placement, path, &used, cases) {
            reporting::print_case(&case, output);
        }
        if interrupt.is_requested() {
            break;
        }
    }
    Ok(results.report(options, count, largest, &network.costs()))
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
