//! Downloads in Shadow compared with downloads in this simulator, of the same network.
//!
//! ```sh
//! flashflow-lab sim export --network scenario.toml --shadow out --seconds 600
//! (cd out && shadow --parallelism 2 shadow.config.yaml > ../shadow.log)
//! flashflow-lab sim run --network scenario.toml --seconds 600 --out ours
//! cargo run --release -p tornet --example beside_shadow -- out/shadow.data ours/transfers.csv
//! ```
//!
//! Prints median times to the first and the last byte for each size of download, and deciles of the latter, in
//! Shadow by TGen's log, and the deviation of this simulator: of all downloads that began, on both sides, in
//! one run or, with commas between folders and files, in several together, as in docs/simulation.md under
//! "Results". Downloads that were given up never complete; for those that were running at the end the elapsed
//! time is known. (TGen does not report when the first byte of those arrived: they are omitted from Shadow's
//! first bytes.)
//!
//! The first folder may also be one of tornettools' results, `tornet.plot.data`, or
//! `tor/data/shadowtor-0.05-1-classic` of netsim-atc2022: with `time_to_first_byte_recv.json` and
//! `time_to_last_byte_recv.json`. Those contain completed downloads only, so the same filter applies to this
//! simulator; they count from the request on, so one of the two round trips until the first byte is subtracted,
//! and only downloads count that begin this number of seconds (a third argument) after the start.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tornet::results::Waits;

/// Downloads of one size: seconds to the first and to the last byte, infinite if it never arrived; or the
/// elapsed time without it.
#[derive(Default)]
struct Downloads {
    first: (Vec<f64>, Vec<f64>),
    last: (Vec<f64>, Vec<f64>),
}

impl Downloads {
    fn add(&mut self, first: Option<f64>, last: Option<f64>, ending: Ending) {
        let add = |(over, longer): &mut (Vec<f64>, Vec<f64>), seconds| match (seconds, ending) {
            (Some(seconds), _) => over.push(seconds),
            (None, Ending::Over) => over.push(f64::INFINITY),
            (None, Ending::UnderWayFor(seconds)) => longer.push(seconds),
        };
        add(&mut self.first, first);
        add(&mut self.last, last);
    }

    fn count(&self) -> usize {
        self.last.0.len() + self.last.1.len()
    }
}

#[derive(Clone, Copy)]
enum Ending {
    Over,
    UnderWayFor(f64),
}

/// By the requested size.
type Times = BTreeMap<u64, Downloads>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([shadow, ours], from) = (&arguments[..2], arguments.get(2)) else {
        panic!("FOLDER-OF-SHADOW[,...] TRANSFERS.CSV[,...] [SECOND] please")
    };
    let from_s: u64 = from.map_or(0, |text| text.parse().unwrap());
    let are_results =
        |folder: &str| Path::new(folder).join("time_to_last_byte_recv.json").is_file();
    let of_shadow = |folder: &str| {
        let path = Path::new(folder);
        if are_results(folder) { in_results(path) } else { in_shadow(path) }
    };
    let wholes_only = shadow.split(',').any(are_results);
    assert!(!wholes_only || shadow.split(',').all(are_results), "folders of one kind, please");
    let shadow: Vec<Times> = shadow.split(',').map(of_shadow).collect();
    let ours: Vec<Times> =
        ours.split(',').map(|path| in_ours(Path::new(path), from_s, wholes_only)).collect();
    println!("Shadow, ours and ours over Shadow; in brackets the medians of single runs.\n");
    println!(
        "| bytes | downloads | first byte, s | last byte, s | the fastest tenth | the slowest |"
    );
    println!("|---|---|---|---|---|---|");
    let sizes: BTreeSet<u64> = shadow.iter().flat_map(BTreeMap::keys).copied().collect();
    for bytes in sizes {
        let sides = [&shadow, &ours].map(|runs| Side::new(runs, bytes));
        let [theirs, own] = &sides;
        if own.count == 0 {
            continue;
        }
        let beside = |of: &dyn Fn(&Side) -> f64| {
            let (theirs, own) = (of(theirs), of(own));
            format!("{theirs:.3} and {own:.3} ({:.2})", own / theirs)
        };
        let last = |share: f64| beside(&|side: &Side| quantile(&side.last, share));
        println!(
            "| {bytes} | {} and {} | {} | {} [{} and {}] | {} | {} |",
            theirs.count,
            own.count,
            beside(&|side: &Side| quantile(&side.first, 0.5)),
            last(0.5),
            theirs.single,
            own.single,
            last(0.1),
            last(0.9),
        );
    }
}

/// Downloads of a size in all runs of Shadow, or of this simulator.
struct Side {
    count: usize,
    first: Waits,
    last: Waits,
    /// Medians of the seconds to the last byte, run by run.
    single: String,
}

impl Side {
    fn new(runs: &[Times], bytes: u64) -> Self {
        let none = Downloads::default();
        let of_size: Vec<&Downloads> =
            runs.iter().map(|run| run.get(&bytes).unwrap_or(&none)).collect();
        let waits =
            |(over, longer): &(Vec<f64>, Vec<f64>)| Waits::new(over.clone(), longer.clone());
        let single = of_size
            .iter()
            .map(|downloads| format!("{:.2}", quantile(&waits(&downloads.last), 0.5)));
        Self {
            count: of_size.iter().map(|downloads| downloads.count()).sum(),
            single: single.collect::<Vec<_>>().join(" "),
            first: Waits::together(of_size.iter().map(|downloads| waits(&downloads.first))),
            last: Waits::together(of_size.iter().map(|downloads| waits(&downloads.last))),
        }
    }
}

fn quantile(waits: &Waits, share: f64) -> f64 {
    waits.quantile(share).unwrap_or(f64::NAN)
}

/// From the lines in which TGen logs the state of streams.
fn in_shadow(folder: &Path) -> Times {
    let mut times = Times::new();
    for host in fs::read_dir(folder.join("hosts")).unwrap() {
        let host = host.unwrap();
        // Servers log their ends of streams, too.
        if host.file_name().to_string_lossy().starts_with("server") {
            continue;
        }
        for file in fs::read_dir(host.path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with("tgen.") && name.ends_with(".stdout") {
                read_log(&fs::read_to_string(&path).unwrap(), &mut times);
            }
        }
    }
    times
}

/// TGen's state of a running stream. When it began and when its first byte arrived is logged at its end only:
/// until then only the time of its first line is known.
struct Stream<'a> {
    seen_s: f64,
    last_line: &'a str,
}

/// The log of one TGen.
fn read_log(text: &str, times: &mut Times) {
    let number = |line: &str, name: &str| -> Option<u64> {
        let (_, rest) = line.split_once(&format!("{name}="))?;
        rest.split([',', ']']).next()?.parse().ok()
    };
    let mut streams: BTreeMap<u64, Stream<'_>> = BTreeMap::new();
    let mut end_s = 0.0_f64;
    for line in text.lines() {
        let at_s: f64 = line.split(' ').nth(2).and_then(|word| word.parse().ok()).unwrap_or(0.0);
        end_s = end_s.max(at_s);
        let Some(id) = number(line, "stream [id").filter(|_| line.contains("[stream-")) else {
            continue;
        };
        let new = Stream { seen_s: at_s, last_line: line };
        streams.entry(id).or_insert(new).last_line = line;
    }
    for Stream { seen_s, last_line: line } in streams.into_values() {
        let Some(bytes) = number(line, "recvsize") else { continue };
        let seconds = |name| number(line, name).map(|us| us as f64 / 1e6);
        let of_size = times.entry(bytes).or_default();
        if line.contains("[stream-success]") || line.contains("[stream-error]") {
            // For a stream that was given up it is the last byte received.
            let last = seconds("usecs-to-last-byte-recv");
            let last = last.filter(|_| line.contains("[stream-success]"));
            of_size.add(seconds("usecs-to-first-byte-recv"), last, Ending::Over);
        } else {
            of_size.last.1.push(end_s - seen_s);
            if number(line, "payload-bytes-recv") == Some(0) {
                of_size.first.1.push(end_s - seen_s);
            }
        }
    }
}

/// As collected by tornettools: lists of seconds by size.
fn in_results(folder: &Path) -> Times {
    let read = |name: &str| -> BTreeMap<String, Vec<f64>> {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let firsts = read("time_to_first_byte_recv.json");
    let lasts = read("time_to_last_byte_recv.json");
    let sizes = lasts.into_iter().filter_map(|(size, lasts)| {
        let first = (firsts.get(&size)?.clone(), Vec::new());
        Some((size.parse().ok()?, Downloads { first, last: (lasts, Vec::new()) }))
    });
    sizes.collect()
}

/// `are_results`: only completed downloads, from the request on.
fn in_ours(path: &Path, from_s: u64, are_results: bool) -> Times {
    let rows = |path: &Path| -> Vec<BTreeMap<String, String>> {
        csv::Reader::from_path(path).unwrap().deserialize().map(Result::unwrap).collect()
    };
    let seconds = rows(&path.with_file_name("seconds.csv"));
    let end_s = seconds.iter().map(|row| row["second"].parse::<u64>().unwrap()).max();
    let end_ns = end_s.unwrap() * 1_000_000_000;
    let mut times = Times::new();
    for row in rows(path) {
        let number = |name: &str| row[name].parse::<u64>().ok();
        let (bytes, begun_ns) = (number("asked_bytes"), number("begun_ns").unwrap());
        if begun_ns < from_s * 1_000_000_000 {
            continue;
        }
        let seconds = |name: &str| number(name).map(|ns| ns as f64 / 1e9);
        let ending = match row["ending"].as_str() {
            "under way" => Ending::UnderWayFor(end_ns.saturating_sub(begun_ns) as f64 / 1e9),
            _ => Ending::Over,
        };
        if let Some(bytes) = bytes {
            let is_whole = row["ending"] == "complete";
            let last = seconds("last_byte_ns").filter(|_| is_whole);
            let of_size = times.entry(bytes).or_default();
            match (seconds("first_byte_ns"), last) {
                (Some(first), Some(last)) if are_results => {
                    of_size.add(Some(first / 2.0), Some(last - first / 2.0), ending);
                }
                _ if are_results => {}
                (first, last) => of_size.add(first, last, ending),
            }
        }
    }
    times
}
