//! Experiments that are killed in the middle continue with the rows that they have stored.

use lab::conformance::BREACHES;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use testbin::Scratch;

/// The files of an experiment's rows, with their content.
fn rows(scratch: &Scratch, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let Ok(entries) = fs::read_dir(scratch.path("out").join(format!("{name}-runs"))) else {
        return BTreeMap::new();
    };
    let paths = entries.map(|entry| entry.expect("listed").path());
    let is_row = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
    paths.filter(is_row).map(|path| (path.clone(), fs::read(&path).expect("a row"))).collect()
}

/// Kills an experiment of this number of cells once it has stored a row, and runs it again.
fn assert_continues(name: &str, options: &str, cells: usize) {
    let scratch = Scratch::new();
    let arguments = format!("experiment {name} {options} --out out --json");
    let arguments: Vec<&str> = arguments.split_ascii_whitespace().collect();
    let running = scratch.start(&arguments);
    testbin::wait_for("a row", || (!rows(&scratch, name).is_empty()).then_some(()));
    running.signal(Signal::KILL);
    assert_eq!(running.end().code, None, "the signal ended {name}");
    let stored = rows(&scratch, name);
    assert!(!scratch.path("out").join(format!("{name}.json")).exists(), "{name} has not reported");
    // Only a folder may be left.
    testbin::wait_for("the end of its processes", || scratch.processes().is_empty().then_some(()));

    let ended = scratch.run(&arguments);
    // On a busy machine, a claim may miss.
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    ended.assert_no_panic();
    let skipped = format!("{} of them were finished before", stored.len());
    assert!(ended.error.contains(&skipped), "no `{skipped}` in: {}", ended.error);
    let all = rows(&scratch, name);
    // A run that this machine decided, because it is busy, has no row.
    assert!((stored.len() + 1..=cells).contains(&all.len()), "{:?}", all.keys());
    assert!(stored.len() < cells, "{name} was killed in the middle");
    for (path, row) in &stored {
        assert_eq!(all.get(path), Some(row), "{} was written again", path.display());
    }
    assert_eq!(scratch.processes(), []);
}

#[test]
fn killed_experiments_continue_with_their_rows() {
    assert_continues("circuitstart", "--worlds simulated --stars 4", 3 + 4);
    assert_continues("crash", "--rounds 3 --seconds 3", 1 + 3);
    assert_continues(
        "adversary",
        "--only forges --seconds 3 --limit 20 --forgers 20",
        1 + BREACHES.len() + 4 + 1 + 1,
    );
}
