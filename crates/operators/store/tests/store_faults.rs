//! Killed processes, machine crashes and full disks: no recorded entry is lost or duplicated.

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

/// Names the store for [`child_that_writes_until_it_is_killed`].
const STORE: &str = "FLASHFLOW_TEST_STORE";

/// If set, the process writes this number of measurements, then idles until it is killed.
const MOST: &str = "FLASHFLOW_TEST_MOST";

/// Not a test: the others run it as a process. It appends measurements, and prints the number of each one once it is
/// recorded.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(STORE) else { return };
    let mut store = Store::open(Path::new(&path)).expect("intact and not in use");
    store.close_unfinished().expect("room");
    let first = u32::try_from(recorded(&store).len()).expect("few");
    let most = std::env::var(MOST).map_or(u32::MAX, |text| text.parse().expect("a number"));
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
    let all = store.each_measurement(0, None, |measurement| {
        assert_eq!(measurement.seconds.len(), 5, "whole");
        let record = store.record(measurement.id).expect("read").expect("whole");
        assert_eq!(Some(record.ended_unix_s), measurement.ended_unix_s);
        numbers.push(u32::try_from(measurement.period_unix_s - NOW).expect("ours"));
        true
    });
    all.expect("read");
    numbers.sort_unstable();
    numbers
}

fn writer(store: &Path, most: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("ours"));
    command
        .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
        .env(STORE, store);
    command.env(MOST, most.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
}

#[test]
fn a_writer_that_is_killed_at_any_moment_loses_nothing_and_records_nothing_twice() {
    let kills: u32 =
        std::env::var("FLASHFLOW_KILLS").map_or(30, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let mut random = StdRng::seed_from_u64(12);
    let mut acknowledged_count = 0;
    for kill in 0..kills {
        let mut child = writer(&path, u32::MAX);
        let out = BufReader::new(child.stdout.take().expect("piped"));
        // Killed while it writes the measurements after the acknowledged ones.
        let more = random.random_range(1..12);
        let lines = out.lines().map(|line| line.expect("text"));
        let mut acknowledged =
            lines.filter_map(|line| line.strip_prefix("recorded ")?.parse::<u32>().ok());
        for _ in 0..more {
            acknowledged_count = acknowledged.next().expect("another measurement") + 1;
        }
        for _ in 0..random.random_range(0..200_000) {
            std::hint::spin_loop();
        }
        child.kill().expect("ours");
        child.wait().expect("ours");
        // Its last acknowledgements before it was killed.
        acknowledged_count = acknowledged.last().map_or(acknowledged_count, |last| last + 1);
        let reader = Reader::open(&path).expect("there");
        let found = recorded(&reader);
        let unique: BTreeSet<u32> = found.iter().copied().collect();
        assert_eq!(unique.len(), found.len(), "kill {kill}: duplicates");
        assert_eq!(found, (0..u32::try_from(found.len()).expect("few")).collect::<Vec<_>>());
        let count = u32::try_from(found.len()).expect("few");
        let expected = acknowledged_count..=acknowledged_count + 1;
        assert!(expected.contains(&count), "kill {kill}: {count} recorded, not {expected:?}");
    }
}

/// After a machine crash, the log may have been cut anywhere and end with arbitrary bytes.
#[test]
fn a_truncated_log_leaves_complete_measurements_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    // With more, SQLite would restart the log.
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
        fs::write(common::companion(&torn, "-wal"), rest).expect("room");
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
    common::companion(path, "-wal")
}

/// Names the full disk for [`child_on_a_full_disk`].
const DISK: &str = "FLASHFLOW_TEST_DISK";

/// Not a test: the next one runs it as a process, with a small disk mounted for it.
#[test]
fn child_on_a_full_disk() {
    let Ok(disk) = std::env::var(DISK) else { return };
    let disk = Path::new(&disk);
    let path = disk.join("store.db");
    let ballast = disk.join("ballast");
    let mut store = Store::open(&path).expect("room");
    let mut pending: Vec<Entry> = Vec::new();
    let (mut number, mut refused) = (0, 0);
    for fill in 0..6 {
        // The remaining space makes some writes fail half-way.
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
                        matches!(error, StoreError::Full { .. }) || error.is_temporary(),
                        "{error}"
                    );
                    refused += 1;
                }
            }
            // Reads succeed all the time.
            store.relay(relay(1).rsa).expect("read");
        }
        fs::remove_file(&ballast).expect("ours");
        store.write(&pending).expect("room again");
        pending.clear();
    }
    assert!(refused > 10, "the disk was full {refused} times");
    let found = recorded(&store);
    assert_eq!(found, (0..number).collect::<Vec<_>>());
    println!("\nall recorded");
}

#[test]
fn a_full_disk_loses_no_entry_that_is_written_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "mount -t tmpfs -o size=3m tmpfs \"$0\" || exit 77; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script]).arg(folder.path());
    command.arg(std::env::current_exe().expect("ours"));
    command.args(["--exact", "child_on_a_full_disk", "--nocapture"]);
    let output = match command.env(DISK, folder.path()).output() {
        Ok(output) => output,
        Err(error) => skip::this_test!("the program `unshare`: {error}"),
    };
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) || error.starts_with("unshare:") {
        skip::this_test!("no right to mount a small disk: {}", error.trim());
    }
    assert!(output.status.success() && out.contains("all recorded"), "{out}\n{error}");
}
