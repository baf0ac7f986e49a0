//! `flashflow-lab lab path` and `bench path`, in network namespaces.

use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use testbin::{Scratch, lacking, number, text, wait_for};

/// The kernel's name of the namespace at a path, such as `net:[4026532345]`.
fn identity(host: &Value) -> String {
    let target = fs::read_link(text(host, "netns")).expect("it is there");
    target.to_str().expect("text").to_owned()
}

/// Processes that are in a network namespace or hold it open.
fn holders(identity: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("a folder").filter_map(Result::ok);
    let holds = |path: &std::path::Path| {
        let leads_there = |link: &std::path::Path| {
            fs::read_link(link).is_ok_and(|target| target.as_os_str() == identity)
        };
        let mut descriptors =
            fs::read_dir(path.join("fd")).into_iter().flatten().filter_map(Result::ok);
        leads_there(&path.join("ns/net")) || descriptors.any(|fd| leads_there(&fd.path()))
    };
    let paths = entries.map(|entry| entry.path()).filter(|path| holds(path));
    paths.map(|path| fs::read_to_string(path.join("cmdline")).unwrap_or_default()).collect()
}

#[test]
fn a_command_reaches_the_far_host_and_its_packets_are_counted() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let received = scratch.path("received");
    let far = format!(
        "ip -o addr show wan >&2; readlink /proc/self/ns/net >'{}'; exec sleep 600",
        received.display()
    );
    let near = "set -e; for i in 1 2 3 4 5; do echo $i > /dev/udp/$FLASHFLOW_FAR/9; done; \
                until grep -q net: received; do sleep 0.05; done; \
                test \"$(cat received)\" = \"$(readlink $FLASHFLOW_FAR_NETNS)\"; \
                test \"$(readlink /proc/self/ns/net)\" = \"$(readlink $FLASHFLOW_NEAR_NETNS)\"";
    let arguments = ["lab", "path", "--rtt-ms", "2", "--back-blackhole", "--json", "--far", &far];
    let ended = scratch.run(&[&arguments[..], &["--", "bash", "-c", near]].concat());
    ended.assert_code(0);
    assert!(ended.error.contains("10.77.0.2/32"), "{}", ended.error);
    let summary = ended.summary();
    assert!(number(&summary["out"], "packets") >= 5.0, "{summary}");
    // The refusal of the far host is dropped.
    assert_eq!(number(&summary["back"], "delivered_packets"), 0.0, "{summary}");
    assert_eq!(number(&summary, "exit_status"), 0.0);
    scratch.wait_until_clean();
}

#[test]
fn a_failing_command_fails_and_a_long_one_ends_at_the_time_limit() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let ended = scratch.run(&["lab", "path", "--json", "--", "sh", "-c", "exit 7"]);
    ended.assert_code(1);
    assert_eq!(number(&ended.summary(), "exit_status"), 7.0);
    let ended = scratch.run(&["lab", "path", "--seconds", "1", "--", "sleep", "600"]);
    ended.assert_code(0);
    let table = ended.out.join("\n");
    assert!(
        table.contains("lost by chance") && table.contains("lost unintentionally: 0"),
        "{table}"
    );
}

#[test]
fn invalid_options_are_refused() {
    let scratch = Scratch::new();
    scratch.run(&["lab", "path", "--rtt-ms", "-1"]).assert_refused(&[]);
    scratch.run(&["lab", "path", "--rtt-ms=-1"]).assert_refused(&["milliseconds"]);
    scratch.run(&["lab", "path", "--loss-percent", "101"]).assert_refused(&["1.01"]);
    scratch.run(&["lab", "path", "--congestion", "vegas"]).assert_refused(&["bbr, cubic and reno"]);
}

/// The error must not look like a lack of network namespaces.
#[test]
fn a_missing_command_is_named() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let ended = scratch.run(&["lab", "path", "--", "no-such-command"]);
    ended.assert_code(1);
    let expected = "configuration: `no-such-command` cannot be started at the host `near`";
    assert!(ended.error.contains(expected), "{}", ended.error);
    scratch.wait_until_clean();
}

#[test]
fn nothing_is_left_after_kill_9() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let mark = scratch.path("mark").display().to_string();
    // A daemon at one host, and another program there.
    let far = format!("setsid sh -c 'sleep 600; : {mark}' & wait");
    let near = format!("sleep 600; : {mark}");
    let mut running =
        scratch.start(&["lab", "path", "--json", "--far", &far, "--", "sh", "-c", &near]);
    let path = running.wait_for_value();
    assert_eq!((text(&path, "type"), text(&path["far"], "address")), ("path", "10.77.0.2"));
    let networks = ["near", "far"].map(|host| identity(&path[host]));
    let runs = || scratch.processes().iter().filter(|(_, line)| line.contains(&mark)).count();
    // The program itself, with its arguments; both shells, and the daemon.
    wait_for("the commands", || (runs() >= 4).then_some(()));
    assert!(networks.iter().all(|network| holders(network).len() >= 3));
    running.signal(Signal::KILL);
    drop(running);
    wait_for("the end of all processes", || scratch.processes().is_empty().then_some(()));
    // A namespace and its interfaces exist as long as a process is in it or holds it open.
    for network in &networks {
        wait_for("the end of the network", || holders(network).is_empty().then_some(()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    assert!(!networks.iter().any(|network| mounts.contains(network)), "{mounts}");
    let devices = fs::read_to_string("/proc/net/dev").expect("readable");
    assert!(!devices.contains("wan:"), "{devices}");
}

#[test]
fn bench_path_uses_counters_of_the_receiving_kernel() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let arguments = ["bench", "path", "--runs", "1", "--seconds", "1", "--warm-up-s", "1"];
    let ended = scratch.run(&[&arguments[..], &["--rtt-ms", "10", "--json"]].concat());
    let [run, summary] = &ended.values()[..] else { panic!("{:?}", ended.out) };
    assert_eq!((text(run, "type"), text(summary, "type")), ("run", "summary"));
    assert!(number(summary, "mbit_per_s") > 0.0, "{summary}");
    // At most the traffic of the path, with headers.
    let bytes = number(summary, "mbit_per_s") * 1e6 / 8.0;
    assert!(number(&run["out"], "delivered_bytes") > bytes, "{run}");
    assert!(number(summary, "path_cpu_s_per_gbit") > 0.0, "{summary}");
}
