//! A coordinator that is killed, a machine that stops, a disk that is full: nothing that was recorded is lost, and
//! nothing is there twice.

mod common;

use common::{NOW, closed, relay};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use store::{Entry, MeasurementFinished, MeasurementStarted, Reader, Store, StoreError};

/// Names the store for [`the_one_who_writes`].
const STORE: &str = "FLASHFLOW_TEST_STORE";

/// If set, the process writes this number of measurements, then idles until it is killed.
const MOST: &str = "FLASHFLOW_TEST_MOST";

/// Not a test of its own: what the others start as a process. It writes one measurement after the other, from those on that
/// are there, and says the number of each one once it is recorded.
#[test]
fn the_one_who_writes() {
    let Ok(path) = std::env::var(STORE) else { return };
    let mut store = Store::open(Path::new(&path)).expect("sound, and nobody else has it");
    store.close_unfinished().expect("room");
    let first = u32::try_from(recorded(&store).len()).expect("few");
    let most = std::env::var(MOST).map_or(u32::MAX, |it| it.parse().expect("a number"));
    for number in first..most {
        let turn = closed(number);
        let begun = Entry::Started(turn.begun.clone());
        store.write([&begun]).expect("room");
        let ended = Entry::Finished(Box::new(turn));
        store.write([&ended]).expect("room");
        println!("\nrecorded {number}");
    }
    loop {
        std::thread::park();
    }
}

/// The numbers of all finished measurements, with repetitions; the store is consistent.
fn recorded(store: &Reader) -> Vec<u32> {
    store.check_all().expect("sound");
    let mut numbers = Vec::new();
    let all = store.each_measurement(0, None, |it| {
        assert_eq!(it.seconds.len(), 5, "whole");
        let record = store.record(it.id).expect("read").expect("whole");
        assert_eq!(Some(record.ended_unix_s), it.ended_unix_s);
        numbers.push(u32::try_from(it.period_unix_s - NOW).expect("ours"));
        true
    });
    all.expect("read");
    numbers.sort_unstable();
    numbers
}

fn writer(store: &Path, most: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("ours"));
    command.args(["--exact", "the_one_who_writes", "--nocapture"]).env(STORE, store);
    command.env(MOST, most.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

#[test]
fn a_writer_that_is_killed_at_any_moment_loses_nothing_and_records_nothing_twice() {
    let kills: u32 =
        std::env::var("FLASHFLOW_KILLS").map_or(30, |it| it.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let mut random = StdRng::seed_from_u64(12);
    let mut told = 0;
    for kill in 0..kills {
        let mut child = writer(&path, u32::MAX);
        let out = BufReader::new(child.stdout.take().expect("piped"));
        // Killed while it writes something after what it has told.
        let more = random.random_range(1..12);
        let lines = out.lines().map(|line| line.expect("text"));
        let mut acknowledged =
            lines.filter_map(|line| line.strip_prefix("recorded ")?.parse::<u32>().ok());
        for _ in 0..more {
            told = acknowledged.next().expect("it goes on") + 1;
        }
        for _ in 0..random.random_range(0..200_000) {
            std::hint::spin_loop();
        }
        child.kill().expect("ours");
        child.wait().expect("ours");
        // What it said before it ended.
        told = acknowledged.last().map_or(told, |last| last + 1);
        let reader = Reader::open(&path).expect("there");
        let found = recorded(&reader);
        let unique: BTreeSet<u32> = found.iter().copied().collect();
        assert_eq!(unique.len(), found.len(), "kill {kill}: something is there twice");
        assert_eq!(found, (0..u32::try_from(found.len()).expect("few")).collect::<Vec<_>>());
        let count = u32::try_from(found.len()).expect("few");
        assert!((told..=told + 1).contains(&count), "kill {kill}: {told} told, {count} recorded");
    }
}

/// What is left of the log when a machine stops: any beginning of it, and rubbish behind.
#[test]
fn a_log_that_is_cut_anywhere_leaves_whole_measurements_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    // More, and it would begin the log anew.
    let mut child = writer(&path, 25);
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let acknowledged = out.lines().map(|line| line.expect("text"));
    let count = acknowledged.filter(|line| line.starts_with("recorded ")).take(25).count();
    child.kill().expect("ours");
    child.wait().expect("ours");
    assert_eq!(count, 25);
    let (database, log) = (fs::read(&path).expect("there"), fs::read(log(&path)).expect("there"));
    let mut random = StdRng::seed_from_u64(13);
    let mut seen = BTreeSet::new();
    for cut in 0..150 {
        let kept = random.random_range(0..=log.len());
        let torn = folder.path().join(format!("torn-{cut}.db"));
        fs::write(&torn, &database).expect("room");
        let mut rest = log[..kept].to_vec();
        rest.extend((0..random.random_range(0..5000)).map(|_| random.random::<u8>()));
        fs::write(common::beside(&torn, "-wal"), rest).expect("room");
        match Store::open(&torn) {
            Ok(store) => {
                let found = recorded(&store);
                assert_eq!(
                    found,
                    (0..u32::try_from(found.len()).expect("few")).collect::<Vec<_>>()
                );
                seen.insert(found.len());
            }
            Err(error) => panic!("{kept} of {} bytes: {error}", log.len()),
        }
        fs::remove_file(&torn).expect("ours");
    }
    assert!(seen.len() > 10, "cut at many places: {seen:?}");
}

fn log(path: &Path) -> std::path::PathBuf {
    common::beside(path, "-wal")
}

/// Names the full disk for [`the_one_whose_disk_is_full`].
const DISK: &str = "FLASHFLOW_TEST_DISK";

/// Not a test of its own: runs where a small disk was mounted for it alone.
#[test]
fn the_one_whose_disk_is_full() {
    let Ok(disk) = std::env::var(DISK) else { return };
    let disk = Path::new(&disk);
    let path = disk.join("store.db");
    let ballast = disk.join("ballast");
    let mut store = Store::open(&path).expect("room");
    let mut pending: Vec<Entry> = Vec::new();
    let (mut number, mut refused) = (0, 0);
    for fill in 0..6 {
        // So much that some writes fail in the middle.
        let mut size = 64 << 10;
        while size > 512 {
            let old = fs::read(&ballast).unwrap_or_default().len();
            if fs::write(&ballast, vec![1; old + size]).is_err() {
                let _ = fs::write(&ballast, vec![1; old]);
                size /= 2;
            }
        }
        let left = 4096 * fill;
        let old = fs::read(&ballast).expect("there").len();
        fs::File::options()
            .write(true)
            .open(&ballast)
            .expect("there")
            .set_len((old.saturating_sub(left)) as u64)
            .expect("less");
        for _ in 0..30 {
            pending.push(Entry::Finished(Box::new(closed(number))));
            number += 1;
            match store.write(&pending) {
                Ok(()) => pending.clear(),
                Err(error) => {
                    assert!(
                        matches!(error, StoreError::Full { .. }) || error.may_pass(),
                        "{error}"
                    );
                    refused += 1;
                }
            }
            // Who reads is served all the while.
            store.relay(relay(1).rsa).expect("read");
        }
        fs::remove_file(&ballast).expect("ours");
        store.write(&pending).expect("room again");
        pending.clear();
    }
    assert!(refused > 10, "the disk was full {refused} times");
    let found = recorded(&store);
    assert_eq!(found, (0..number).collect::<Vec<_>>());
    println!("\nall is there");
}

#[test]
fn a_full_disk_costs_nothing_that_is_written_again_later() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=3m tmpfs \"$0\" || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script]).arg(folder.path());
    command.arg(std::env::current_exe().expect("ours"));
    command.args(["--exact", "the_one_whose_disk_is_full", "--nocapture"]);
    let output = match command.env(DISK, folder.path()).output() {
        Ok(output) => output,
        Err(error) => skip::this_test!("the program `unshare`: {error}"),
    };
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || error.starts_with("unshare:") {
        skip::this_test!("no right to mount a small disk: {}", error.trim());
    }
    assert!(output.status.success() && out.contains("all is there"), "{out}\n{error}");
}
