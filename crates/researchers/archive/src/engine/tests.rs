use super::*;
use crate::synth::{SynthOptions, synthesize};
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
        engine.view(View { is_measured_only, ..View::new("synthetic") }).unwrap();
        let plan = engine.query("EXPLAIN SELECT relay FROM relay_hours").unwrap();
        let plan = texts(&plan, 1).concat();
        assert!(plan.contains("ranges=2, streams=3,"), "{plan}");
    }
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
