//! Downloads in Shadow beside ours, of the same network.
//!
//! ```sh
//! flashflow sim export --network scenario.toml --shadow out --seconds 600
//! (cd out && shadow --parallelism 2 shadow.config.yaml > ../shadow.log)
//! flashflow sim run --network scenario.toml --seconds 600 --out ours
//! cargo run --release -p tornet --example beside_shadow -- out/shadow.data ours/transfers.csv
//! ```
//!
//! Prints median times to the first and the last byte for each size of download, in Shadow by TGen's own log, and how far ours are from them: of all that began, on
//! both sides, as in docs/simulation.md under "Results". Those that were given up never come, and of those that were under way at the end it is known for how long. (When
//! the first byte of those has come, TGen does not tell: they are left out of Shadow's first bytes.)
//!
//! The first folder may also be one of tornettools' results, `tornet.plot.data`, or as `tor/data/shadowtor-0.05-1-classic` of netsim-atc2022: with
//! `time_to_first_byte_recv.json` and `time_to_last_byte_recv.json`. Those are of downloads that came whole, and so are ours then; they count from the request on, and
//! ours have one of their two round trips until the first byte taken off, and begin so many seconds (a third argument) after the start at the earliest.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tornet::results::Waits;

/// Downloads of one size: seconds to the first and to the last byte, infinitely many if it never came; or for how long it has not come.
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

/// By the size asked for.
type Times = BTreeMap<u64, Downloads>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([shadow, ours], from) = (&arguments[..2], arguments.get(2)) else {
        panic!("FOLDER-OF-SHADOW TRANSFERS.CSV [SECOND] please")
    };
    let from_s: u64 = from.map_or(0, |it| it.parse().unwrap());
    let shadow = Path::new(shadow);
    let are_results = shadow.join("time_to_last_byte_recv.json").is_file();
    let mut ours = in_ours(Path::new(ours), from_s, are_results);
    let shadow = if are_results { in_results(shadow) } else { in_shadow(shadow) };
    println!("| bytes | downloads | first byte, s | last byte, s | ours over Shadow |");
    println!("|---|---|---|---|---|");
    for (bytes, theirs) in shadow {
        let Some(ours) = ours.remove(&bytes) else { continue };
        let counts = format!("{} and {}", ours.count(), theirs.count());
        let median = |(over, longer)| Waits::new(over, longer).median().unwrap_or(f64::NAN);
        let first = [ours.first, theirs.first].map(median);
        let last = [ours.last, theirs.last].map(median);
        println!(
            "| {bytes} | {counts} | {:.3} and {:.3} | {:.3} and {:.3} | {:.2}, {:.2} |",
            first[0],
            first[1],
            last[0],
            last[1],
            first[0] / first[1],
            last[0] / last[1],
        );
    }
}

/// By the lines in which TGen tells how streams are.
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

/// What TGen tells of a stream while it is under way. When it began, and when its first byte came, is told at its end only: until then the first line of it is all there is.
struct Stream<'a> {
    seen_s: f64,
    last_line: &'a str,
}

/// What one TGen tells.
fn read_log(text: &str, times: &mut Times) {
    let number = |line: &str, name: &str| -> Option<u64> {
        let (_, rest) = line.split_once(&format!("{name}="))?;
        rest.split([',', ']']).next()?.parse().ok()
    };
    let mut streams: BTreeMap<u64, Stream<'_>> = BTreeMap::new();
    let mut end_s = 0.0_f64;
    for line in text.lines() {
        let at_s: f64 = line.split(' ').nth(2).and_then(|it| it.parse().ok()).unwrap_or(0.0);
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
            // Of what was given up it is the last byte that came at all.
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

/// As tornettools has gathered them: lists of seconds by size.
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

/// `are_results`: only what came whole, from the request on.
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
