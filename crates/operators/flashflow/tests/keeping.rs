//! A coordinator's store: a coordinator that is killed resumes, and its results can be exported and explained.

use rustix::process::{Signal, geteuid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use testbin::team::{make_key, measurer_of, two_relays_by_plan};
use testbin::{Ended, Running, Scratch, number, text};

/// The complete lines: a killed process may leave an incomplete one.
fn values(ended: &Ended) -> Vec<Value> {
    ended.out.iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn export(scratch: &Scratch, arguments: &[&str]) -> Vec<Value> {
    let fixed = ["export", "--store", "bandwidth/store.db"];
    let ended = scratch.run(&[&fixed[..], arguments].concat());
    ended.assert_code(0);
    ended.values()
}

#[test]
fn a_coordinator_that_is_killed_repeatedly_loses_nothing_and_measures_nothing_twice() {
    const PERIOD_S: u64 = 56;
    let scratch = Scratch::new();
    let (network, measurer) = two_relays_by_plan(&scratch, PERIOD_S);
    // Start at the beginning of a period, so that all kills and restarts are in one period.
    let passed_s = || link::unix_time_s() % PERIOD_S;
    testbin::wait_for("a period", || (passed_s() < 3).then_some(()));
    let arguments = ["coordinator", "--config", "c.toml", "--json"];
    let mut printed = Vec::new();
    // In the middle of a measurement, at the end of one, and in the middle of another.
    let moments: [fn(&str) -> bool; 3] =
        [testbin::is_second, |line| line.contains("\"type\":\"relay\""), testbin::is_second];
    for moment in moments {
        let mut run = scratch.start(&arguments);
        run.wait_for_out("its moment", moment);
        run.signal(Signal::KILL);
        printed.extend(values(&run.end()));
    }
    let mut run = scratch.start(&arguments);
    run.wait_for_outs("two periods", 2, |line| line.contains("\"summary\""));
    // Reading the store does not disturb the coordinator.
    let live = export(&scratch, &["--what", "relays"]);
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);
    printed.extend(values(&ended));
    let names: BTreeSet<&str> = live.iter().map(|relay| text(relay, "nickname")).collect();
    assert!(names.is_superset(&BTreeSet::from(["fast", "slow"])), "{names:?}");

    let all = export(&scratch, &[]);
    let mut turns: BTreeMap<(&str, u64), Vec<&Value>> = BTreeMap::new();
    for measurement in &all {
        let period = measurement["period_unix_s"].as_u64().expect("a time");
        turns.entry((text(measurement, "nickname"), period)).or_default().push(measurement);
    }
    for ((name, period), turns) in &turns {
        let finals = turns.iter().filter(|turn| turn["is_final"] == true).count();
        assert!(finals <= 1, "{name} was measured twice in period {period}: {turns:#?}");
        let numbers: BTreeSet<_> = turns.iter().map(|turn| turn["turn"].as_u64()).collect();
        assert_eq!(numbers.len(), turns.len(), "{turns:#?}");
    }
    // Some measurement was interrupted, so no completed one has its number.
    assert!(all.iter().any(|measurement| number(measurement, "turn") > 1.0), "{all:#?}");
    // Failures have no estimate.
    let has_number =
        |value: &&Value| value["type"] == "relay" && value["estimate_mbit_per_s"].is_number();
    let results: Vec<&Value> = printed.iter().filter(has_number).collect();
    for result in &results {
        let is_it = |measurement: &&Value| {
            let mbit = measurement["capacity_byte_s"].as_f64().unwrap_or_default() * 8.0 / 1e6;
            let same = (mbit - number(result, "estimate_mbit_per_s")).abs() < 0.001;
            measurement["fingerprint"] == result["fingerprint"] && same
        };
        assert!(
            all.iter().any(|measurement| is_it(&measurement)),
            "printed and not recorded: {result}"
        );
    }
    let finals = all.iter().filter(|measurement| measurement["is_final"] == true).count();
    assert!(finals >= results.len(), "{finals} recorded, {} printed", results.len());
    // The seed of a period is exported after the period. It was drawn during the first one.
    let now_unix_s = link::unix_time_s();
    let periods = export(&scratch, &["--what", "periods"]);
    let first = periods.iter().filter_map(|period| period["begin_unix_s"].as_u64()).min();
    for period in &periods {
        let begin = period["begin_unix_s"].as_u64().expect("a time");
        let is_on = begin + PERIOD_S > now_unix_s;
        assert!(!is_on || period["seed"].is_null(), "exported too early: {period}");
        let is_long_over = begin + 2 * PERIOD_S < now_unix_s;
        let is_exported = period["seed"].is_string();
        assert!(!is_long_over || is_exported || Some(begin) == first, "not exported: {period}");
    }

    scratch.run(&["store", "check", "bandwidth/store.db"]).assert_code(0);
    scratch.run(&["store", "backup", "bandwidth/store.db", "copy.db"]).assert_code(0);
    let copied = scratch.run(&["export", "--store", "copy.db"]);
    assert_eq!(copied.values(), all);
    let taken = scratch.run(&["store", "backup", "bandwidth/store.db", "copy.db"]);
    taken.assert_refused(&["copy.db", "not overwritten"]);
    let csv =
        scratch.run(&["export", "--store", "copy.db", "--what", "seconds", "--format", "csv"]);
    csv.assert_code(0);
    assert!(
        csv.out[0].starts_with("fingerprint,ended_unix_s,turn,round,second,bytes,"),
        "{}",
        csv.out[0]
    );
    let seconds = export(&scratch, &["--what", "seconds"]);
    assert_eq!(csv.out.len(), seconds.len() + 1);
    assert!(
        seconds.iter().any(|second| second["limiter"] != "unknown"),
        "the kernel reports limits"
    );
    let records = export(&scratch, &["--what", "records"]);
    assert_eq!(records.len(), all.len());
    let printed = scratch.run(&["bwfile", "explain", "slow", "--store", "bandwidth/store.db"]);
    printed.assert_code(0);
    assert!(
        printed.out[0].contains("has the weight") && printed.out.concat().contains("in transit"),
        "{:#?}",
        printed.out
    );
    // The votes of C tor, which has not used the bandwidth file.
    let votes = network.dir().join("auth0/v3-status-votes");
    let votes = votes.to_str().expect("text");
    let arguments = ["site", "--store", "bandwidth/store.db", "--votes", votes, "--out", "site"];
    scratch.run(&arguments).assert_code(0);
    let named = |file: &str| scratch.path("site").join(file);
    let index = fs::read_to_string(named("index.html")).expect("a page");
    assert!(index.contains("Relays with an estimate: <b>2</b>"), "{index}");
    let found = fs::read_to_string(named("relays.js")).expect("a list");
    assert!(found.contains("\"slow\"") && found.contains("\"fast\""), "{found}");
    let stranger = "F".repeat(40);
    let printed = scratch.run(&["bwfile", "explain", &stranger, "--store", "bandwidth/store.db"]);
    printed.assert_refused(&[&stranger, "has no relay"]);

    measurer.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}

#[test]
fn a_measurer_accepts_the_next_relay_before_the_load_of_the_last_one_ends() {
    let scratch = Scratch::new();
    // Each of the two relays gets more than half of the measurer.
    let (network, measurer) = two_relays_by_plan(&scratch, 200);
    let mut run = scratch.start(&["coordinator", "--config", "c.toml", "--json"]);
    run.wait_for_outs("two results", 2, |line| line.contains("\"type\":\"relay\""));
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);
    assert!(!ended.error.contains("are in use by"), "{}", ended.error);
    measurer.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}

#[test]
fn a_greedy_coordinator_that_is_killed_measures_only_the_relays_without_a_result() {
    const TWO_DAYS_S: u64 = 2 * 24 * 3600;
    let scratch = Scratch::new();
    let (network, measurer) = two_relays_by_plan(&scratch, TWO_DAYS_S);
    let config = scratch.path("c.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    let text = format!("schedule = \"greedy\"\nat_once_max = 1\n{text}");
    fs::write(&config, text).expect("written");
    let arguments = ["coordinator", "--config", "c.toml", "--json"];
    let mut run = scratch.start(&arguments);
    run.wait_for_out("a result", |line| line.contains("\"type\":\"relay\""));
    run.signal(Signal::KILL);
    run.end();
    let before = export(&scratch, &[]);
    let mut run = scratch.start(&arguments);
    run.wait_for_out("the end of the period's measurements", |line| line.contains("\"summary\""));
    run.signal(Signal::TERM);
    run.end().assert_code(130);
    let after = export(&scratch, &[]);
    let finals = |name: &str| {
        let of_relay = |measurement: &&Value| {
            measurement["nickname"] == name && measurement["is_final"] == true
        };
        after.iter().filter(of_relay).count()
    };
    assert_eq!((finals("fast"), finals("slow")), (1, 1), "{before:#?} {after:#?}");
    measurer.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}

#[test]
fn a_bandwidth_file_that_fails_the_gate_does_not_reach_tor() {
    const PERIOD_S: u64 = 56;
    let scratch = Scratch::new();
    let (network, measurer) = two_relays_by_plan(&scratch, PERIOD_S);
    let config = scratch.path("c.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    fs::write(&config, format!("{text}[gate]\nlower_bounds_max_percent = 100\n")).expect("written");
    // A file of much larger relays.
    let line = |digit: &str| format!("node_id=${} bw=900000\n", digit.repeat(40));
    let header = format!("{}\nversion=1.9.0\n=====\n", link::unix_time_s());
    let before = header + &line("A") + &line("B");
    let folder = scratch.path("bandwidth");
    let latest = folder.join("latest.v3bw");
    fs::create_dir(&folder).expect("made");
    fs::write(&latest, &before).expect("written");

    let mut command = scratch.command(&["coordinator", "--config", "c.toml", "--json"]);
    command.env("RUST_LOG", "authority=debug,info");
    let mut run = Running::new(command);
    run.wait_for_error("the gate", |line| line.contains("gate: total_fall is"));
    run.wait_for_error("both relays", |line| line.contains("gate: large_gains is 100 %"));
    let written = || netdoc::bwfile::stored(&folder).expect("a folder").len();
    let first = written();
    testbin::wait_for("more files", || (written() > first + 1).then_some(()));
    assert_eq!(fs::read_to_string(&latest).expect("there"), before);
    // Without a previous file there is nothing to compare with. A file is written as soon as both relays are measured.
    fs::remove_file(&latest).expect("there");
    testbin::wait_for("a file for tor", || latest.exists().then_some(()));
    // Before the end, which interrupts measurements: the cause of an older estimate is not in the file.
    let file = fs::read_to_string(&latest).expect("there");
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);
    assert_eq!(file.matches("node_id=").count(), 2, "{file}");
    assert_eq!(
        file.matches("flashflow_conclusive=0").count(),
        file.matches("flashflow_cause=").count(),
        "{file}"
    );
    // It is logged once for each set of checks that fail: at first, relays are missing as well.
    let logged = ended.error.matches("gate: total_fall is").count();
    assert!(logged <= 2 && written() >= first + 3, "{logged} times: {}", ended.error);
    assert!(ended.error.contains("passes the gate again"), "{}", ended.error);
    assert!(!ended.error.contains("without the vote of"), "votes are fetched: {}", ended.error);
    let outcome = fs::read_to_string(folder.join("gate.json")).expect("written");
    assert!(outcome.contains("\"passed\":true"), "{outcome}");
    measurer.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}

#[test]
fn two_coordinators_cannot_share_a_store() {
    let scratch = Scratch::new();
    make_key(&scratch, "c.key");
    let measurer = make_key(&scratch, "m.key");
    let config = format!(
        "key = \"c.key\"\nout = \"out\"\nauthority = \"127.0.0.1:1\"\n{}",
        measurer_of("127.0.0.1:1", &measurer)
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    let mut first = scratch.start(&["coordinator", "--config", "c.toml"]);
    first.wait_for_error("its start", |line| line.contains("coordinator"));
    testbin::wait_for("a store", || scratch.path("out/store.db").exists().then_some(()));
    let second = scratch.run(&["coordinator", "--config", "c.toml"]);
    second.assert_refused(&["store.db", "another program"]);
    first.signal(Signal::TERM);
    first.end().assert_code(130);
    scratch.run(&["export", "--store", "none.db"]).assert_refused(&["none.db", "no store"]);
    let other = scratch.run(&["dashboard", "--store", "out/none.db", "--listen", "127.0.0.1:0"]);
    other.assert_refused(&["out/none.db", "use --store out/store.db"]);
    // The superuser may read any file, unless it has given up its capabilities.
    fs::set_permissions(scratch.path("out/store.db"), Permissions::from_mode(0o000)).expect("ours");
    let check = scratch.command(&["store", "check", "out/store.db"]);
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(check.get_program());
    command.args(check.get_args()).current_dir(scratch.path("")).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = if geteuid().is_root() { Running::new(command) } else { Running::new(check) };
    ended.end().assert_refused(&["cannot open out/store.db", "Permission denied"]);
    fs::write(scratch.path("text"), "version=1.9.0").expect("written");
    scratch.run(&["export", "--store", "text"]).assert_refused(&["not a store of a coordinator"]);
    scratch.wait_until_clean();
}
