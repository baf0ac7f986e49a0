//! Downloads in Shadow beside ours, of the same network.
//!
//! ```sh
//! flashflow sim export --network scenario.toml --shadow out --seconds 600
//! (cd out && shadow --parallelism 2 shadow.config.yaml > ../shadow.log)
//! flashflow sim run --network scenario.toml --seconds 600 --out ours
//! cargo run --release -p tornet --example beside_shadow -- out/shadow.data ours/transfers.csv
//! ```
//!
//! Prints median times to the first and the last byte for each size of download, in Shadow by TGen's own log, and how far ours are from them.
//!
//! The first folder may also be one of tornettools' results, `tornet.plot.data`, or as `tor/data/shadowtor-0.05-1-classic` of netsim-atc2022: with
//! `time_to_first_byte_recv.json` and `time_to_last_byte_recv.json`. Those count from the request on. Ours then have one of their two round trips until the first
//! byte taken off, and begin so many seconds (a third argument) after the start at the earliest.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for developers")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Seconds to the first and to the last byte, by the size asked for.
type Times = BTreeMap<u64, Vec<(f64, f64)>>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([shadow, ours], from) = (&arguments[..2], arguments.get(2)) else {
        panic!("FOLDER-OF-SHADOW TRANSFERS.CSV [SECOND] please")
    };
    let from_s: u64 = from.map_or(0, |it| it.parse().unwrap());
    let (shadow, mut ours) = (Path::new(shadow), in_ours(Path::new(ours), from_s));
    let shadow = if shadow.join("time_to_last_byte_recv.json").is_file() {
        for (first, last) in ours.values_mut().flatten() {
            *first /= 2.0;
            *last -= *first;
        }
        in_results(shadow)
    } else {
        in_shadow(shadow)
    };
    println!("| bytes | downloads | first byte, s | last byte, s | ours over Shadow |");
    println!("|---|---|---|---|---|");
    for (bytes, theirs) in &shadow {
        let Some(ours) = ours.get(bytes) else { continue };
        let of = |times: &[(f64, f64)], which: fn(&(f64, f64)) -> f64| {
            let mut times: Vec<f64> = times.iter().map(which).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let first = [of(ours, |it| it.0), of(theirs, |it| it.0)];
        let last = [of(ours, |it| it.1), of(theirs, |it| it.1)];
        println!(
            "| {bytes} | {} and {} | {:.3} and {:.3} | {:.3} and {:.3} | {:.2}, {:.2} |",
            ours.len(),
            theirs.len(),
            first[0],
            first[1],
            last[0],
            last[1],
            first[0] / first[1],
            last[0] / last[1],
        );
    }
}

/// By the lines in which TGen tells of a stream that has ended well.
fn in_shadow(folder: &Path) -> Times {
    let mut times = Times::new();
    for host in fs::read_dir(folder.join("hosts")).unwrap() {
        for file in fs::read_dir(host.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with("tgen.") || !name.ends_with(".stdout") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for line in text.lines().filter(|line| line.contains("[stream-success]")) {
                let number = |name: &str| -> Option<u64> {
                    let (_, rest) = line.split_once(&format!("{name}="))?;
                    rest.split([',', ']']).next()?.parse().ok()
                };
                let times_us =
                    (number("usecs-to-first-byte-recv"), number("usecs-to-last-byte-recv"));
                if let (Some(bytes), (Some(first), Some(last))) = (number("recvsize"), times_us) {
                    // Servers log their ends of streams, too, which receive next to nothing.
                    times.entry(bytes).or_default().push((first as f64 / 1e6, last as f64 / 1e6));
                }
            }
        }
    }
    times
}

/// As tornettools has gathered them: lists of seconds by size.
fn in_results(folder: &Path) -> Times {
    let read = |name: &str| -> BTreeMap<String, Vec<f64>> {
        serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let firsts = read("time_to_first_byte_recv.json");
    let lasts = read("time_to_last_byte_recv.json");
    let sizes = lasts.iter().filter_map(|(size, lasts)| Some((size.parse().ok()?, size, lasts)));
    // Only their medians are asked for: which first byte is of which download does not matter.
    let pairs = |size: &str, lasts: &[f64]| {
        firsts[size].iter().copied().zip(lasts.iter().copied()).collect::<Vec<_>>()
    };
    sizes.map(|(bytes, size, lasts)| (bytes, pairs(size, lasts))).collect()
}

fn in_ours(path: &Path, from_s: u64) -> Times {
    let mut times = Times::new();
    for row in csv::Reader::from_path(path).unwrap().deserialize() {
        let row: BTreeMap<String, String> = row.unwrap();
        if row["begun_ns"].parse::<u64>().unwrap() < from_s * 1_000_000_000 {
            continue;
        }
        let seconds = |name: &str| row[name].parse::<u64>().map(|ns| ns as f64 / 1e9);
        if let (Ok(bytes), Ok(first), Ok(last), "complete") = (
            row["asked_bytes"].parse(),
            seconds("first_byte_ns"),
            seconds("last_byte_ns"),
            row["ending"].as_str(),
        ) {
            times.entry(bytes).or_default().push((first, last));
        }
    }
    times
}
