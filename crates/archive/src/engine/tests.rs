use super::*;
use crate::synth::{SynthOptions, synthesize};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Merging by DataFusion costs more for each row the more months there are.
#[test]
fn each_month_is_a_separate_stream() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let options = SynthOptions { relays: 3, hours: 2000, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let engine = Engine::open(dataset, Limits { threads: 2, memory_mib: 64 }).unwrap();
    for is_measured_only in [false, true] {
        engine.view(View { is_measured_only, ..View::of("synthetic") }).unwrap();
        let plan = engine.query("EXPLAIN SELECT relay FROM relay_hours").unwrap();
        let plan = texts(&plan, 1).concat();
        assert!(plan.contains("ranges=2, streams=3,"), "{plan}");
    }
}

#[test]
fn a_damaged_file_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let options = SynthOptions { relays: 30, hours: 2000, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let months = dataset.months("statuses").unwrap();
    let limits = Limits { threads: 2, memory_mib: 64 };
    let damage = |path: &Path, places: std::ops::Range<usize>| {
        let mut bytes = fs::read(path).unwrap();
        bytes[places].fill(0xA5);
        fs::write(path, bytes).unwrap();
    };
    let assert_named = |error: ArchiveError, path: &Path| {
        let text = error.to_string();
        assert!(
            text.contains(path.to_str().unwrap()) && text.contains("remove the file"),
            "{text}"
        );
    };
    // A page in the middle, and then a footer.
    let page = &months[1].1;
    let len = usize::try_from(fs::metadata(page).unwrap().len()).unwrap();
    damage(page, len / 4..len / 2);
    let engine = Engine::open(dataset.clone(), limits);
    let error =
        engine.and_then(|it| it.query("SELECT MAX(weight_kb_per_s), MAX(relay) FROM statuses"));
    assert_named(error.unwrap_err(), page);
    let footer = &months[2].1;
    let len = usize::try_from(fs::metadata(footer).unwrap().len()).unwrap();
    damage(footer, len - 8..len);
    assert_named(Engine::open(dataset, limits).err().unwrap(), footer);
}

#[test]
fn a_query_larger_than_memory_spills_or_fails_with_the_option_to_raise() {
    let folder = tempfile::tempdir().unwrap();
    let options = SynthOptions {
        relays: 1000,
        hours: 2000,
        from_unix_s: 1_577_836_800,
        mean_life_hours: 2000.0,
        mean_load: 0.4,
        seed: 35,
    };
    let dataset = Dataset::create(folder.path()).unwrap();
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let query = |memory_mib: usize, sql: &str| {
        let dataset = Dataset::open(folder.path()).unwrap();
        Engine::open(dataset, Limits { threads: 2, memory_mib }).unwrap().query(sql)
    };
    // More than a million groups, in no order, with a text of 40 bytes each.
    let groups = "SELECT COUNT(*) AS n, SUM(n) AS row_count, MAX(last) AS last FROM (
        SELECT weight_kb_per_s, valid_after_unix_s, COUNT(*) AS n, MAX(relay) AS last FROM statuses
        GROUP BY weight_kb_per_s, valid_after_unix_s)";
    assert_eq!(query(64, groups).unwrap(), query(2048, groups).unwrap());
    // The first rows of a sorted query are held in memory.
    let first = "SELECT relay, valid_after_unix_s FROM statuses ORDER BY weight_kb_per_s LIMIT 1 OFFSET 999998";
    let error = query(64, first).unwrap_err().to_string();
    assert!(error.contains("raise it"), "{error}");
}
