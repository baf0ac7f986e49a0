//! Measures how fast consensuses and server descriptors are parsed.
//!
//! ```sh
//! cargo run --release -p flashflow-netdoc --example parse_speed -- CONSENSUS… DESCRIPTORS…
//! ```
//!
//! The kind of each file is detected from its first lines. Every file is parsed for about a second
//! on one core; the best and the median run are printed. Consensuses are parsed as a whole, and then with the parser for archives.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use flashflow_netdoc::{Consensus, descriptor};

/// Long enough for a steady median.
const AT_LEAST: Duration = Duration::from_secs(1);

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what this program is for"
)]
fn main() -> ExitCode {
    let paths: Vec<String> = std::env::args().skip(1).collect();
    if paths.is_empty() {
        eprintln!("usage: parse_speed FILE…  (consensuses, or files of server descriptors)");
        return ExitCode::from(2);
    }
    for path in &paths {
        match std::fs::read(path).map_err(|e| e.to_string()).and_then(|bytes| measure(&bytes)) {
            Ok(report) => println!("{path}: {report}"),
            Err(error) => {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn measure(bytes: &[u8]) -> Result<String, String> {
    let is_descriptors =
        bytes.starts_with(b"router ") || bytes.starts_with(b"@type server-descriptor");
    if is_descriptors {
        let (good, bad) = descriptor::parse_all(bytes);
        if let Some(first) = bad.first() {
            return Err(format!("{} bad descriptors; the first: {first}", bad.len()));
        }
        let times = time(|| {
            black_box(descriptor::parse_all(black_box(bytes)));
        });
        return Ok(report(bytes, "descriptors", good.len(), times));
    }
    let relays = Consensus::parse(bytes).map_err(|e| e.to_string())?.routers().len();
    let whole = time(|| {
        let _ = black_box(Consensus::parse(black_box(bytes)));
    });
    let archived = time(|| {
        let _ = black_box(Consensus::parse_archived(black_box(bytes)));
    });
    let [whole, archived] = [whole, archived].map(|times| report(bytes, "relays", relays, times));
    Ok(format!("{whole}\n  as in an archive: {archived}"))
}

fn report(bytes: &[u8], kind: &str, count: usize, (best, median): (f64, f64)) -> String {
    #[expect(clippy::cast_precision_loss, reason = "sizes of files are far below 2^52")]
    let (count_f, size) = (count as f64, bytes.len() as f64);
    format!(
        "{count} {kind}, {:.2} MB: best {:.2} ms, median {:.2} ms ({:.0} {kind}/s, {:.0} MB/s)",
        size / 1e6,
        best * 1e3,
        median * 1e3,
        count_f / median,
        size / median / 1e6,
    )
}

/// The best and the median time of a run, in seconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark has to read the clock")]
fn time(mut run: impl FnMut()) -> (f64, f64) {
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed() < AT_LEAST {
        let one = Instant::now();
        run();
        times.push(one.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}
