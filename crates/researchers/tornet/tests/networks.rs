//! Whole runs: of scenarios, of a sample, and of descriptions that cannot work.

use onion::{Duration, Instant};
use sim::world::{Ending, Record};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tornet::Error;
use tornet::network::{Network, Users};
use tornet::results::{Summary, finish};
use tornet::run::{Plan, run};

const FILES: [&str; 3] = ["transfers.csv", "relays.csv", "seconds.csv"];

fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/small.toml")
}

fn sample() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/tornet-0.05-1");
    path.is_dir().then_some(path)
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(name);
    std::fs::read_to_string(path).expect("it is there")
}

/// Published tables use these files.
#[test]
fn the_scenarios_of_the_documentation_can_be_read() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/scenarios/small.toml");
    assert!(Network::read(&shipped).is_ok());
    // The sample is not part of the repository: here a small network is in its place.
    let more = document("scenarios/more.toml");
    let line = "shadow = \"tornet-0.05-1\"\n";
    assert!(more.contains(line), "{more}");
    let small = document("scenarios/small.toml");
    let (_, hosts) = small.split_once("[[relays]]").expect("it has relays");
    let both = format!("{}\n[[relays]]{hosts}", more.replace(line, ""));
    let network = Network::parse(&both, &shipped).expect("a scenario");
    assert_eq!(network.clients.len(), 200 + 40);
    if let Some(sample) = sample() {
        let sample = sample.to_str().expect("UTF-8");
        let text = more.replace("tornet-0.05-1\"", &format!("{sample}\""));
        assert_eq!(Network::parse(&text, &shipped).expect("a sample").clients.len(), 200 + 436);
    }
}

/// The pages must state the constants of the code.
#[test]
fn documented_scheduler_intervals_match_the_code() {
    let ms = |interval: Duration| interval.as_millis();
    let relay = ms(onion::router::schedule::SchedulerConfig::INTERVAL);
    assert!(document("relay.toml").contains(&format!("\n#: scheduler_interval_ms = {relay}\n")));
    assert!(document("relay.md").contains(&format!("in runs, every {relay} ms at most")));
    let simulated = ms(tornet::network::SCHEDULER_INTERVAL);
    assert!(
        document("simulation.md").contains(&format!("\nscheduler_interval_ms = {simulated}\n"))
    );
}

fn simulate(network: &Network, plan: &Plan, folder: Option<&Path>) -> Summary {
    let outcome = run(network, plan, &AtomicBool::new(false), &|_, _| ()).expect("it works");
    finish(network, plan, &outcome, folder).expect("it can be written")
}

#[test]
fn a_seed_gives_the_same_files_to_the_byte_with_any_number_of_threads() {
    let network = Network::read(&small()).expect("a scenario");
    let folder = tempfile::tempdir().expect("a folder");
    let plan = |threads, seed| Plan { seconds: 130, warm_up_s: 10, threads, seed };
    let first = simulate(&network, &plan(1, 7), Some(&folder.path().join("1")));
    for threads in [1, 2, 5] {
        let here = folder.path().join(format!("again-{threads}"));
        let again = simulate(&network, &plan(threads, 7), Some(&here));
        assert_eq!(again.fingerprint, first.fingerprint, "{threads} threads");
        for name in FILES {
            let read = |folder: &Path| std::fs::read(folder.join(name)).expect("it is there");
            let (one, other) = (read(&folder.path().join("1")), read(&here));
            assert!(one == other && one.len() > 1000, "{name} with {threads} threads");
        }
    }
    let [size] = &first.downloads[..] else { panic!("one size: {:?}", first.downloads) };
    assert_eq!((size.bytes, size.timed_out, size.lost), (1 << 20, 0, 0));
    assert!(size.complete > 40, "{}", size.complete);
    // Four windows of 500 cells and a little: slow start must not end for one late acknowledgement.
    assert!(size.last_byte_median_s < Some(3.1), "{size:?}");
    assert_ne!(simulate(&network, &plan(2, 8), None).fingerprint, first.fingerprint);
}

/// Any change of behaviour in the engine or the world changes this. If it is intended, put the new value here.
#[test]
fn the_fingerprint_of_the_small_network_is_the_same_on_every_machine() {
    let network = Network::read(&small()).expect("a scenario");
    let plan = Plan { seconds: 60, warm_up_s: 10, threads: 2, seed: 1 };
    assert_eq!(simulate(&network, &plan, None).fingerprint, "6f9c5760dbf1ebaa");
}

#[test]
fn an_interrupted_run_returns_the_results_so_far() {
    let network = Network::read(&small()).expect("a scenario");
    let plan = Plan { seconds: 1_000_000, warm_up_s: 10, threads: 3, seed: 1 };
    let stop = AtomicBool::new(false);
    let after_some = |second, _| stop.store(second >= 20, std::sync::atomic::Ordering::Relaxed);
    let outcome = run(&network, &plan, &stop, &after_some).expect("it works");
    assert!((20.0..21.0).contains(&outcome.simulated_s), "{}", outcome.simulated_s);
}

#[test]
fn a_shorter_run_has_the_same_downloads_some_unfinished() {
    let busy = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/shadow-busy.toml");
    let network = Network::read(&busy).expect("a scenario");
    let of = |seconds| {
        let plan = Plan { seconds, warm_up_s: 10, threads: 2, seed: 1 };
        run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it works")
    };
    let (short, long) = (of(60), of(80));
    let end = Duration::from_secs_f64(short.simulated_s);
    let age_at_end = |record: &Record| end.saturating_sub(record.begun - Instant::ORIGIN);
    let mut under_way = 0;
    let in_order = |records: &[Record]| {
        let mut records = records.to_vec();
        records.sort_by_key(|record| (record.client, record.begun));
        records
    };
    let known: Vec<Record> = in_order(&long.records)
        .into_iter()
        .filter(|record| !age_at_end(record).is_zero())
        .collect();
    assert_eq!(known.len(), short.records.len());
    for (expected, found) in known.iter().zip(&in_order(&short.records)) {
        assert_eq!((expected.client, expected.begun), (found.client, found.begun));
        if expected.last_byte.is_some_and(|last_byte| last_byte < age_at_end(expected)) {
            assert_eq!(expected, found);
        } else {
            assert_eq!((found.ending, found.last_byte), (Ending::UnderWay, None));
            assert!(found.bytes < expected.bytes, "{found:?} of {expected:?}");
            under_way += 1;
        }
    }
    assert!(under_way > 5, "{under_way} downloads");
}

#[test]
fn a_sample_for_shadow_has_all_its_relays_users_and_benchmarks() {
    let Some(path) = sample() else { skip::this_test!("there is no sample of tornettools") };
    let mut network = Network::read(&path).expect("a sample");
    // 346 relays and three authorities.
    assert_eq!((network.relays.len(), network.servers.len()), (349, 40));
    let of = |what: fn(&Users) -> bool| {
        network.clients.iter().filter(|client| what(&client.users)).count()
    };
    assert_eq!(of(|users| matches!(users, Users::Models(_))), 396);
    assert_eq!(of(|users| matches!(users, Users::Fetch(_))), 40);
    let guards = network.relays.iter().filter(|relay| relay.is_guard).count();
    let exits = network.relays.iter().filter(|relay| relay.is_exit).count();
    assert_eq!((guards, exits), (170, 76));
    let benchmark = network.clients.iter().find_map(|client| match &client.users {
        Users::Fetch(fetch) => Some(fetch.clone()),
        Users::Models(_) => None,
    });
    let fetch = benchmark.expect("there are benchmarks");
    let sizes: Vec<_> = fetch
        .sizes
        .iter()
        .map(|size| (size.bytes, size.timeout.map(|timeout| timeout.as_secs()), size.weight))
        .collect();
    assert_eq!(
        sizes,
        [(51_200, Some(15), 12.0), (1 << 20, Some(60), 2.0), (5 << 20, Some(120), 1.0)]
    );
    // Some users of all, for some seconds: all that a stream was to bring has come.
    network.choices.load = 0.2;
    let plan = Plan { seconds: 8, warm_up_s: 4, threads: 2, seed: 1 };
    let summary = simulate(&network, &plan, None);
    assert!(summary.model_streams_complete > 50, "{}", summary.model_streams_complete);
    assert_eq!(summary.model_streams_complete, summary.model_streams);
}

fn problem(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).expect("it can be written");
    let error = Network::read(folder.path()).and_then(|network| {
        let plan = Plan { seconds: 1, warm_up_s: 0, threads: 1, seed: 1 };
        run(&network, &plan, &AtomicBool::new(false), &|_, _| ())
    });
    error.expect_err("it cannot work").to_string()
}

#[test]
fn networks_that_cannot_work_are_refused_with_a_reason() {
    let good = std::fs::read_to_string(small()).expect("a scenario");
    let cases = [
        (good.replace("relays]]", "relay]]"), "unknown field `relay`"),
        (good.replace("\"NL\"", "\"XX\""), "no place is known for country \"XX\""),
        (good.replace("exit = true", ""), "lets streams out"),
        (good.replace("guard = true", "weight = 0"), "is a guard"),
        (good.replace("[[servers]]", "[[clients]]"), "either `fetch` or `users = true`"),
        (good.replace("mbit_per_s = 10000", "mbit_per_s = -1"), "a rate of -1 Mbit/s"),
        (good.replace("[choices]", "[choices]\nsegment_memory_bytes = 100"), "1448 to 131072"),
        (good.replace("timeout_s = 60", "timeout_s = 0"), "a time-out of 0 s"),
        (good.replace("timeout_s = 60", "weight = 0.0"), "all weights of sizes are 0"),
        (good.replace("every_s = 110", "every_s = [1, 0]"), "a pause of 0 s"),
        (good.replace("[choices]", "[choices]\nload = 1.5"), "all clients fetch at fixed times"),
        (good.replace("[choices]", "shadow = \"nowhere\"\n[choices]"), "there is no sample"),
        ("[[relays]]\ncountry = \"DE\"\nmbit_per_s = 1".into(), "circuits need three relays"),
    ];
    for (text, expected) in cases {
        let error = problem(&text);
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }
}

#[test]
fn a_full_disk_is_reported() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        skip::this_test!("there is no /dev/full");
    }
    let network = Network::read(&small()).expect("a scenario");
    let plan = Plan { seconds: 2, warm_up_s: 0, threads: 1, seed: 1 };
    let outcome = run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it works");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(full, folder.path().join("relays.csv")).expect("a link");
    let error = finish(&network, &plan, &outcome, Some(folder.path())).expect_err("it is full");
    assert!(matches!(&error, Error::Write { path, .. } if path.ends_with("relays.csv")), "{error}");
}
