//! `flashflow measure`: relays on public addresses must have opted in.

use std::fs;
use std::path::Path;
use std::process::Command;
use testbin::Scratch;

/// Five relays of the live network in 2020, all on public addresses.
fn public_relays() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/netdoc/tests/data/consensus-ns");
    fs::read_to_string(path).expect("part of netdoc")
}

#[test]
fn relays_on_public_addresses_are_refused_with_instructions_to_opt_in() {
    let scratch = Scratch::new();
    fs::write(scratch.path("live"), public_relays()).expect("written");
    let ended = scratch.run(&["measure", "Relay5000", "--consensus", "live"]);
    ended.assert_refused(&["148.251.75.247", "has not opted in", "--opt-in"]);
    assert!(!ended.error.contains("team:"), "consent comes first: {}", ended.error);
    let fingerprint = "0123456789ABCDEF0123456789ABCDEF01234567";
    let ended = scratch.run(&["measure", fingerprint, "--address", "198.51.100.7:443"]);
    ended.assert_refused(&["198.51.100.7", "--opt-in"]);
}

/// Runs `flashflow measure` in a network namespace in which a public address is local. Returns its exit status, its output, and the
/// number of TCP connections that it tried to open.
fn measure_at_a_public_address(scratch: &Scratch, more: &[&str]) -> (Option<i32>, String, u64) {
    let script = "ip link set lo up && ip address add 198.51.100.7/32 dev lo || exit 99
        \"$@\"; status=$?
        awk '/^Tcp: [0-9]/ { print \"opened\", $6 }' /proc/net/snmp
        exit $status";
    let flashflow = env!("CARGO_BIN_EXE_flashflow");
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", script, "sh", flashflow])
        .args(["measure", "Relay5000", "--consensus", "consensus", "--sockets", "1"])
        .args(more)
        .current_dir(scratch.path(""))
        .output()
        .expect("unshare is part of util-linux");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    let opened = out.lines().find_map(|line| line.strip_prefix("opened ")?.parse().ok());
    (output.status.code(), format!("{out}{error}"), opened.expect("the kernel's count"))
}

#[test]
fn a_relay_that_has_not_opted_in_gets_no_packet() {
    let is_possible = Command::new("unshare").args(["--net", "ip", "link"]).output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        skip::this_test!("a network namespace needs root, and ip");
    }
    let scratch = Scratch::new();
    let live = public_relays().replace("148.251.75.247 4080", "198.51.100.7 4080");
    fs::write(scratch.path("consensus"), live).expect("written");
    let (status, printed, opened) = measure_at_a_public_address(&scratch, &[]);
    assert_eq!((status, opened), (Some(1), 0), "{printed}");
    assert!(printed.contains("198.51.100.7") && printed.contains("--opt-in"), "{printed}");

    // A relay on the list is contacted: only the list makes the difference.
    let consensus = netdoc::consensus::Consensus::parse(public_relays().as_bytes()).expect("sound");
    let relay = consensus.by_nickname("Relay5000").expect("there").fingerprint;
    fs::write(scratch.path("list"), format!("# agreed\n{relay}\n")).expect("written");
    let (status, printed, opened) = measure_at_a_public_address(&scratch, &["--opt-in", "list"]);
    assert_eq!(status, Some(1), "nobody listens there: {printed}");
    assert!(opened > 0 && printed.contains("team:"), "{printed}");
}

#[test]
fn an_invalid_opt_in_list_is_refused_with_the_line() {
    let scratch = Scratch::new();
    fs::write(scratch.path("live"), public_relays()).expect("written");
    fs::write(scratch.path("list"), "# mine\nnot-a-fingerprint\n").expect("written");
    let measure = ["measure", "Relay5000", "--consensus", "live", "--opt-in"];
    let ended = scratch.run(&[&measure[..], &["list"]].concat());
    ended.assert_refused(&["line 2", "list", "40 hex digits"]);
    let ended = scratch.run(&[&measure[..], &["absent"]].concat());
    ended.assert_refused(&["absent"]);
}

#[test]
fn opt_in_lists_are_compared_with_each_other_and_a_consensus_and_merged() {
    let scratch = Scratch::new();
    let [one, two] = ["AB", "CD"].map(|digits| digits.repeat(20));
    let write = |name: &str, text: String| fs::write(scratch.path(name), text).expect("written");
    write("a", format!("{one} 198.51.100.7 # agreed\n{two}\n"));
    write("b", format!("{one} 198.51.100.8\n"));
    scratch.run(&["opt-in", "check", "a", "a"]).assert_code(0);
    let ended = scratch.run(&["opt-in", "check", "a", "b", "--json"]);
    ended.assert_code(1);
    let values = ended.values();
    let problem = |value: &serde_json::Value| value["problem"].as_str().map(ToOwned::to_owned);
    let problems: Vec<_> = values.iter().filter_map(problem).collect();
    assert_eq!(problems, ["other addresses on b", "not on b"]);
    assert_eq!(values[2]["relays"], 2);

    let merged = scratch.run(&["opt-in", "merge", "a", "b"]);
    merged.assert_code(0);
    let lower = |line: &String| line.to_lowercase().trim_start_matches('$').to_owned();
    let lines: Vec<_> = merged.out.iter().map(lower).collect();
    let [one, two] = [one.to_lowercase(), two.to_lowercase()];
    assert_eq!(lines, [format!("{one} 198.51.100.7"), format!("{one} 198.51.100.8"), two]);
    write("merged", merged.out.join("\n"));
    scratch.run(&["opt-in", "check", "merged"]).assert_code(0);

    let key = scratch.run(&["keys", "--out", "offline.key"]).out[0].clone();
    let other = scratch.run(&["keys", "--out", "other.key"]).out[0].clone();
    let signed = scratch.run(&["opt-in", "sign", "merged", "--key", "offline.key"]);
    signed.assert_code(0);
    assert_eq!(signed.out[..3], merged.out, "the same relays, and a signature");
    write("signed", signed.out.join("\n"));
    scratch.run(&["opt-in", "check", "merged", "signed"]).assert_code(0);
    scratch.run(&["opt-in", "check", "signed", "--key", &key]).assert_code(0);
    scratch.run(&["opt-in", "check", "signed", "--key", &other]).assert_refused(&["not one by"]);
    scratch.run(&["opt-in", "check", "merged", "--key", &key]).assert_refused(&["not signed"]);
    write("signed", signed.out[1..].join("\n"));
    scratch.run(&["opt-in", "check", "signed", "--key", &key]).assert_refused(&["was changed"]);

    write("live", public_relays());
    let ended = scratch.run(&["opt-in", "check", "b", "--consensus", "live"]);
    ended.assert_code(1);
    assert!(ended.out[0].ends_with("not in the consensus"), "{:?}", ended.out);
    write("b", "nonsense".to_owned());
    scratch.run(&["opt-in", "check", "a", "b"]).assert_refused(&["line 1", "b"]);
}
