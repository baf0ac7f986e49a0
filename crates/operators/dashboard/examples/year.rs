//! Measures the response times of all pages with a year of results: `cargo run --release -p
//! dashboard --example year -- FOLDER [RELAYS [DAYS]]`.
//!
//! Fills a store in the folder like a coordinator, with one measurement of each relay a day and the
//! usual retention, unless there is one already. Then it requests every page over a real socket and
//! prints the maximum and the median time of each. Before that it writes the site of all relays, and prints how long that takes. The store
//! and the site are kept.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use coordinator::{
    Allocation, Assignment, Counts, End, Failure, MeasurerId, Mode, Params, Record, RoundRecord,
    Schedule, SecondRecord, Subject,
};
use dashboard::{Options, Server, SiteOptions, write_site};
use netdoc::bwfile::{BandwidthFile, Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use store::{
    ConsensusEntry, Entry, ListedRelay, MeasurementFinished, MeasurementStarted, PeriodEntry,
    PeriodProgress, Reader, RelayQuery, Retention, Store,
};

const DAY_S: u64 = 24 * 3600;
/// The end of the last day.
const NOW: u64 = 1_799_971_200;
const SLOT_S: u64 = 71;
const ASKED: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("which folder? it takes some gigabytes")?;
    let relays: u64 = arguments.next().map_or(Ok(10_000), |argument| argument.parse())?;
    let days: u64 = arguments.next().map_or(Ok(365), |argument| argument.parse())?;
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let path = folder.join("store.db");
    let began = now();
    let mut store = Store::open(&path)?;
    println!("opened, and looked at all pages, in {} ms", began.elapsed().as_millis());
    let any = RelayQuery { most: 1, ..RelayQuery::default() };
    if store.relays(&any)?.found == 0 {
        fill(&mut store, relays, days)?;
        write_file(folder, relays)?;
    }
    let size = fs::metadata(&path)?.len();
    println!("store: {:.2} GB", size as f64 / 1e9);
    drop(store);
    suspect(&path)?;
    write_pages(folder, &path)?;
    ask_for_all(folder, &path)
}

/// Work of a coordinator once in a period, in addition to measurements.
fn suspect(path: &Path) -> Result<(), Box<dyn Error>> {
    let reader = Reader::open(path)?;
    let began = now();
    let test = reader.co_location_test(NOW, || true)?;
    let read_ms = began.elapsed().as_millis();
    let found = test.suspicions(|_, _| false).len();
    let all_ms = began.elapsed().as_millis();
    println!(
        "{found} pairs of relays move together: {read_ms} ms to read, {} to compare",
        all_ms - read_ms
    );
    Ok(())
}

/// The site, as `flashflow site` writes it.
fn write_pages(folder: &Path, store: &Path) -> Result<(), Box<dyn Error>> {
    let (file, out) = (folder.join("latest.v3bw"), folder.join("site"));
    let began = now();
    let options = SiteOptions { store, file: Some(&file), votes: &[], out: &out, now_unix_s: NOW };
    let site = write_site(&options)?;
    println!(
        "site: {} relays, {} files, {:.1} MB in {:.1} s",
        site.relays,
        site.files,
        site.bytes as f64 / 1e6,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

fn fill(store: &mut Store, relays: u64, days: u64) -> Result<(), Box<dyn Error>> {
    let began = now();
    for day in 0..days {
        let begin_unix_s = NOW - (days - day) * DAY_S;
        let seed = Some([7; 32]);
        let mut entries = vec![
            Entry::Period(PeriodEntry { begin_unix_s, length_s: DAY_S, slot_s: SLOT_S, seed }),
            Entry::Consensus(ConsensusEntry {
                valid_after_unix_s: begin_unix_s,
                at_unix_s: begin_unix_s,
                source: "an example".to_owned(),
                signers: Some(9),
                relays: (0..relays).map(sighting).collect(),
            }),
        ];
        entries.extend((0..relays).map(|relay| turn(relay, day, begin_unix_s)));
        store.write(&entries)?;
        while !store.remove_old(Retention::default(), begin_unix_s + DAY_S)?.is_all {}
        if day % 30 == 0 {
            println!("day {day}: {} s", began.elapsed().as_secs());
        }
    }
    let done = usize::try_from(relays)?;
    let counts = Counts { waiting: 0, running: 0, done, without_slot: 0 };
    let progress = PeriodProgress { at_unix_s: NOW, period_unix_s: NOW - DAY_S, counts };
    store.write([&Entry::Progress(progress)])?;
    println!("filled in {} s", began.elapsed().as_secs());
    Ok(())
}

fn ids(relay: u64) -> RelayIds {
    let mut rsa = [0; 20];
    // Distributed like real fingerprints.
    rsa[..8].copy_from_slice(&relay.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    rsa[12..].copy_from_slice(&relay.to_be_bytes());
    RelayIds { rsa: RsaId(rsa), ed25519: None }
}

fn sighting(relay: u64) -> ListedRelay {
    let [.., a, b] = relay.to_be_bytes();
    let address = ([10, 0, a, b], 9001).into();
    ListedRelay {
        ids: ids(relay),
        nickname: format!("relay{relay}"),
        address,
        weight_kb_s: Some(1000),
        left_out: None,
    }
}

fn capacity(relay: u64, day: u64) -> u64 {
    let least = 200_000 + (relay % 997) * 120_000;
    // Pseudorandom: no two relays are correlated.
    let mixed = ((relay << 20) ^ day).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    least + least * ((mixed >> 40) % 23) / 100
}

fn turn(relay: u64, day: u64, begin_unix_s: u64) -> Entry {
    let ListedRelay { ids, nickname, address, .. } = sighting(relay);
    let slots = DAY_S / SLOT_S;
    let slot = (relay * 7919 + day * 104_729) % slots;
    let started_unix_s = begin_unix_s + slot * SLOT_S;
    let begun = MeasurementStarted {
        ids,
        nickname: nickname.clone(),
        address,
        period_unix_s: begin_unix_s,
        number: 1,
        slot: u32::try_from(slot).ok(),
        started_unix_s,
    };
    let (bytes_s, is_down) = (capacity(relay, day), (relay + day).is_multiple_of(23));
    let rate = Rate::from_byte_per_s(bytes_s);
    let second = |second: u32| SecondRecord {
        second,
        // Each of three measurers has a third.
        returned_bytes: vec![Some(bytes_s / 3 + u64::from(second) * 1013 % 5000); 3],
        client_bytes: None,
        relay_reported: None,
        accounts: Vec::new(),
    };
    let assignment = |place| Assignment { measurer: MeasurerId(place), rate, sockets: 54 };
    let round = RoundRecord {
        number: 1,
        guess: rate,
        allocation: Allocation {
            assignments: (0..3).map(assignment).collect(),
            needed: rate,
            available: rate,
        },
        schedule: Schedule::PLAIN,
        started_unix_s: Some(started_unix_s + 10),
        checked_cells: 1000,
        bottlenecks: Vec::new(),
        seconds: (0..30).map(second).collect(),
    };
    let end = if is_down {
        let reason = Failure::RelayUnreachable { detail: "connection refused".to_owned() };
        End::Failed { reason, measurer: None, round: 1, second: None }
    } else {
        End::Measured { capacity: rate, round: 1, inconclusive: None }
    };
    let record = Record {
        relay: Subject { nickname, ids, address, limit: None },
        ended_unix_s: started_unix_s + 45,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: if is_down { Vec::new() } else { vec![round] },
        processor: None,
        shared: None,
        end,
    };
    Entry::Finished(Box::new(MeasurementFinished {
        begun,
        record,
        follows: None,
        is_final: true,
        paths: Vec::new(),
    }))
}

fn write_file(folder: &Path, relays: u64) -> Result<(), Box<dyn Error>> {
    let estimate = |relay: u64| -> Result<Estimate, Box<dyn Error>> {
        let outcome = Outcome::Measured {
            capacity_bytes_s: capacity(relay, 0),
            measured_at: NOW - 60,
            descriptor_avg_bytes_s: None,
        };
        let fingerprint = ids(relay).rsa;
        let nickname = format!("relay{relay}").parse()?;
        Ok(Estimate { fingerprint, ed25519: None, nickname, outcome, extra: Vec::new() })
    };
    let estimates = (0..relays).map(estimate).collect::<Result<Vec<_>, _>>()?;
    let counts = Eligibility { eligible: relays, in_consensus: relays };
    let file = BandwidthFile::generate(&estimates, counts, &Settings::new("0", NOW, NOW))?;
    file.write_atomically(folder, NodeIdStyle::default())?;
    Ok(())
}

fn ask_for_all(folder: &Path, store: &Path) -> Result<(), Box<dyn Error>> {
    let options = Options {
        store: store.to_owned(),
        file: folder.join("latest.v3bw"),
        hosts: Vec::new(),
        now: || NOW,
    };
    let server = Server::bind(([127, 0, 0, 1], 0).into(), options)?;
    let address = server.address();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(|| over.load(Ordering::Relaxed)));
        let asked =
            pages().iter().try_for_each(|page| ask(&format!("http://{address}{page}"), page));
        over.store(true, Ordering::Relaxed);
        serving.join().map_err(|_| "the server ended with a panic")??;
        asked
    })?;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("memory of this process at its peak: {}", peak.unwrap_or("not known"));
    Ok(())
}

fn pages() -> Vec<String> {
    let relay = ids(471).rsa;
    let begin = NOW - DAY_S;
    let fixed = [
        "/",
        "/relays",
        "/relays?sort=nickname&order=up&page=90",
        "/relays?search=relay47",
        "/relays?cause=relay_unreachable",
        "/measurers",
        "/periods",
        "/api/overview",
        "/api/relays",
        "/metrics",
        "/health",
    ];
    let mut pages: Vec<String> = fixed.map(str::to_owned).into();
    pages.push(format!("/relays/{relay}"));
    pages.push(format!("/relays/{relay}/history.svg"));
    pages.push("/measurements/4711/seconds.svg".to_owned());
    pages.push(format!("/api/relays/{relay}"));
    pages.push(format!("/periods/{begin}"));
    pages.push(format!("/periods/{begin}?page=40"));
    pages
}

fn ask(url: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let mut times_ms = Vec::new();
    let mut size = 0;
    for _ in 0..ASKED {
        let began = now();
        size = ureq::get(url).call()?.body_mut().read_to_vec()?.len();
        times_ms.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    let first = times_ms.first().copied().unwrap_or_default();
    times_ms.sort_by(f64::total_cmp);
    let (middle, most) = (times_ms[ASKED / 2], times_ms[ASKED - 1]);
    println!("{middle:7.1} ms, first {first:7.1}, most {most:7.1}: {page} ({size} bytes)");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "this is what is measured")]
fn now() -> Instant {
    Instant::now()
}
