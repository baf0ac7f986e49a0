//! The real program on private networks of stock tor, as people and scripts use it.
//!
//! Each run has a folder of its own for its temporary files: whatever it leaves is found there.

mod common;

use common::{Ended, Place, number, text, wait_for};
use netdoc::bwfile::check_as_tor;
use netdoc::fetch::{Fetcher, Resource};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What the issue asks of a relay in the demo's summary.
const RELAY_FIELDS: [&str; 11] = [
    "nickname",
    "fingerprint",
    "mode",
    "limit_mbit_per_s",
    "estimate_mbit_per_s",
    "relay_said_mbit_per_s",
    "conclusive",
    "rounds",
    "seconds",
    "cells_checked",
    "error",
];

fn is_second(line: &str) -> bool {
    line.contains("\"type\":\"second\"")
}

fn assert_close(relay: &Value) {
    let (estimate, said) =
        (number(relay, "estimate_mbit_per_s"), number(relay, "relay_said_mbit_per_s"));
    assert!((0.90..=1.05).contains(&(estimate / said)), "{relay}");
    assert_eq!(relay["conclusive"], true, "{relay}");
}

#[test]
fn the_demo_measures_votes_reports_and_leaves_nothing() {
    let place = Place::new();
    let out = place.path("out");
    let limits = ["--limits", "10,50", "--echo-limits", "20"];
    let arguments = [&["demo", "--json", "--seconds", "5", "--out", "out"][..], &limits].concat();
    let ended = place.run(&arguments);
    eprintln!("the demo took {:?}", ended.took);
    place.assert_clean();
    ended.assert_code(0);

    let values = ended.values();
    let (summary, before) = values.split_last().expect("output");
    assert!(before.iter().all(|value| value["type"] == "second" || value["type"] == "relay"));
    assert_eq!(summary["type"], "summary");
    let relays = summary["relays"].as_array().expect("a list");
    assert_eq!(relays.len(), 3);
    let expected = [(10.0, "transit"), (50.0, "transit"), (20.0, "echo")];
    for (relay, (limit, mode)) in relays.iter().zip(expected) {
        for field in RELAY_FIELDS {
            assert!(relay.get(field).is_some(), "no {field} in {relay}");
        }
        assert_close(relay);
        assert_eq!(number(relay, "limit_mbit_per_s"), limit);
        assert_eq!((&relay["mode"], &relay["error"]), (&Value::from(mode), &Value::Null));
        assert_eq!(relay["seconds"], 5);
        assert!(number(relay, "cells_checked") > 0.0 && number(relay, "rounds") >= 1.0);
        assert!(number(relay, "estimate_mbit_per_s") < limit * 1.05);
        let of_it = |value: &&Value| value["fingerprint"] == relay["fingerprint"];
        let seconds = before.iter().filter(|value| value["type"] == "second").filter(of_it);
        assert_eq!(seconds.count() as f64, 5.0 * number(relay, "rounds"));
    }
    assert_eq!(summary["weights_in_consensus"], true);

    let file = PathBuf::from(text(summary, "bandwidth_file"));
    assert!(file.is_absolute() && file.starts_with(out.canonicalize().expect("made")));
    let bytes = fs::read(&file).expect("the bandwidth file");
    assert_eq!(fs::read(out.join("latest.v3bw")).expect("the link"), bytes);
    let judged = check_as_tor(&bytes, link::unix_time_s());
    assert!(judged.is_clean() && judged.has_terminator, "{judged:#?}");
    assert_eq!(judged.relays.len(), 3);
    for relay in relays {
        let fingerprint = text(relay, "fingerprint").parse().expect("a fingerprint");
        // No more than its operator lets it carry.
        let capped = number(relay, "estimate_mbit_per_s").min(number(relay, "limit_mbit_per_s"));
        let expected = (capped * 1e6 / 8.0 / 1000.0).round();
        assert_eq!(f64::from(judged.relays[&fingerprint]), expected, "{relay}");
        assert_eq!(number(relay, "weight_kb_s"), expected);
        assert_eq!(number(relay, "consensus_weight_kb_s"), expected);
    }
    let report = fs::read_to_string(text(summary, "report")).expect("the report");
    for relay in relays {
        assert!(report.contains(text(relay, "nickname")));
        assert!(report.contains(text(relay, "fingerprint")));
    }
}

#[test]
fn a_network_that_is_kept_is_named_and_stays_but_does_not_run() {
    let place = Place::new();
    let ended =
        place.run(&["demo", "--keep", "--limits", "10", "--echo-limits", "none", "--seconds", "3"]);
    ended.assert_code(0);
    assert_eq!(place.processes(), []);
    let networks = place.networks();
    let [folder] = &networks[..] else { panic!("{networks:?}") };
    assert!(ended.error.contains(folder.to_str().expect("text")), "{}", ended.error);
    assert!(folder.join("relay1/log").is_file() && folder.join("auth0/torrc").is_file());
    // For people, the same as text.
    let printed = ended.out.join("\n");
    for part in ["relay1", "all as measured", "flashflow-demo/report.html", "bandwidth file: "] {
        assert!(printed.contains(part), "{printed}");
    }
}

/// Starts a demo and stops it once it has come to some point; returns what it came to.
fn stopped_demo(place: &Place, when: When, signal: Signal) -> Ended {
    // The relay of ours runs from before the first second on, and has to end as well.
    let limits = ["--limits", "10", "--echo-limits", "10"];
    let arguments = [&["demo", "--json", "--seconds", "30"][..], &limits].concat();
    let mut demo = place.start(&arguments);
    match when {
        When::BringUp => wait_for("a tor", || (place.tors() > 0).then_some(())),
        When::Measurement => demo.wait_for_out("a second", is_second),
    }
    demo.signal(signal);
    let ended = demo.end();
    ended.assert_no_panic();
    ended
}

enum When {
    BringUp,
    Measurement,
}

#[test]
fn an_interrupt_while_the_network_comes_up_leaves_nothing() {
    let place = Place::new();
    let ended = stopped_demo(&place, When::BringUp, Signal::INT);
    ended.assert_code(130);
    place.wait_until_clean();
}

#[test]
fn an_interrupt_while_measuring_leaves_nothing() {
    let place = Place::new();
    let ended = stopped_demo(&place, When::Measurement, Signal::INT);
    ended.assert_code(130);
    // It has wound up in order: nothing is left to the keeper.
    place.assert_clean();
    assert!(ended.error.contains("interrupted"), "{}", ended.error);
    assert!(!ended.out.iter().any(|line| line.contains("summary")), "{:?}", ended.out);
}

#[test]
fn a_demo_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let ended = stopped_demo(&place, When::Measurement, Signal::KILL);
    assert_eq!(ended.code, None);
    place.wait_until_clean();
}

#[test]
fn an_output_folder_that_cannot_be_made_is_named_before_a_network_starts() {
    let place = Place::new();
    fs::write(place.path("file"), "").expect("written");
    let ended = place.run(&["demo", "--limits", "10", "--out", "file/below"]);
    ended.assert_refused(&["file/below"]);
    assert_eq!(ended.code, Some(1));
    place.assert_clean();
}

#[test]
fn nonsense_is_refused_with_a_clear_message_before_a_network_starts() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["demo", "--limits", "nonsense"], &["--limits", "nonsense"]),
        (&["demo", "--limits", "-5"], &["-5"]),
        (&["demo", "--limits=-5"], &["--limits", "-5"]),
        (&["demo", "--limits", ""], &["--limits"]),
        (&["demo", "--limits", "10,,50"], &["--limits"]),
        (&["demo", "--limits", "NaN"], &["--limits", "NaN"]),
        (&["demo", "--limits", "inf"], &["--limits", "inf"]),
        (&["demo", "--limits", "0.1"], &["0.61 Mbit/s"]),
        (&["demo", "--echo-limits", "-5"], &["-5"]),
        (&["demo", "--echo-limits", "nonsense"], &["nonsense", "rate"]),
        (&["demo", "--relays", "0"], &["--relays", "0"]),
        (&["demo", "--relays", "1000"], &["--relays", "1000"]),
        (&["demo", "--seconds", "0"], &["--seconds", "0"]),
        (&["demo", "--check-share", "0"], &["check", "0"]),
        (&["demo", "--check-share", "2"], &["check", "2"]),
        (&["demo", "--check-share", "NaN"], &["check", "NaN"]),
        (&["demo", "--guess", "0"], &["--guess", "0"]),
        (&["demo", "--guess", "inf"], &["--guess", "inf"]),
        (&["demo", "--capacity", "0"], &["--capacity", "0"]),
        (&["demo", "--measurers", "0"], &["--measurers", "0"]),
        (&["demo", "--sockets", "0"], &["--sockets", "0"]),
        (&["lab", "up", "--dir", "net", "--limits", "x"], &["--limits", "x"]),
        (&["lab", "up", "--dir", "net", "--relays", "0"], &["--relays", "0"]),
        (&["lab", "up"], &["--dir"]),
        (&["bench", "measurer", "--runs", "0"], &["--runs", "0"]),
        (&["measure"], &["RELAY"]),
        (&["measure", "relay1"], &["--authority", "--consensus", "--address"]),
        (&["measure", "relay1", "--authority", "nowhere"], &["--authority", "nowhere"]),
        (&["measure", "relay1", "--address", "127.0.0.1:9"], &["fingerprint"]),
        (&["frobnicate"], &["frobnicate"]),
        (&[], &["Usage"]),
    ];
    for (arguments, parts) in cases {
        let place = Place::new();
        let ended = place.run(arguments);
        assert_eq!(ended.out, Vec::<String>::new(), "{arguments:?}");
        ended.assert_refused(parts);
        place.assert_clean();
        assert!(!place.path("net").exists(), "{arguments:?}");
    }
}

#[test]
fn a_missing_tor_is_reported_with_the_way_to_install_it() {
    let place = Place::new();
    let mut command = place.command(&["demo", "--limits", "10", "--json"]);
    command.env("FLASHFLOW_TOR", "/nonexistent");
    let ended = common::Running::new(command).end();
    ended.assert_refused(&["/nonexistent", "apt-get install tor"]);
    // Programs hear of it, too.
    assert_eq!(ended.summary()["type"], "error");
    place.assert_clean();
}

#[test]
fn the_help_of_every_command_has_an_example_of_it() {
    let place = Place::new();
    let commands: &[&[&str]] = &[
        &[],
        &["demo"],
        &["measure"],
        &["lab"],
        &["lab", "up"],
        &["lab", "status"],
        &["lab", "down"],
        &["bench"],
        &["bench", "measurer"],
        &["keys"],
        &["measurer"],
        &["coordinator"],
    ];
    for command in commands {
        let ended = place.run(&[command, &["--help"][..]].concat());
        ended.assert_code(0);
        let help = ended.out.join("\n");
        let example = format!("  flashflow {}", command.join(" "));
        assert!(
            help.contains("Example") && help.contains(example.trim_end()),
            "{command:?} {help}"
        );
    }
}

#[test]
fn a_lab_comes_up_is_measured_and_goes() {
    let place = Place::new();
    let lab = Lab::up(&place);
    lab.is_refused_where_something_is();
    lab.is_seen_by_status();
    lab.measure_by_nickname();
    lab.measure_from_a_file();
    lab.measure_by_address();
    lab.survives_a_reader_that_goes_away();
    lab.interrupted_measurement();
    lab.names_that_are_not_there();
    lab.broken_consensuses();
    lab.down();
}

#[test]
fn a_folder_that_is_no_lab_is_left_alone() {
    let place = Place::new();
    let precious = place.path("home");
    fs::create_dir(&precious).expect("made");
    fs::write(precious.join("letter"), "dear").expect("written");
    for action in ["status", "down"] {
        for dir in ["home", "absent"] {
            let ended = place.run(&["lab", action, "--dir", dir]);
            ended.assert_refused(&[dir, "not the folder of a private network"]);
        }
    }
    assert_eq!(fs::read_to_string(precious.join("letter")).expect("still there"), "dear");
}

/// A network that was brought up with `lab up`.
struct Lab<'p> {
    place: &'p Place,
    dir: PathBuf,
    authority: String,
    address: String,
    fingerprint: String,
    consensus: PathBuf,
}

impl<'p> Lab<'p> {
    fn up(place: &'p Place) -> Self {
        let dir = place.path("net");
        let arguments = ["lab", "up", "--json", "--dir", "net", "--limits", "20,0"];
        let ended = place.run(&arguments);
        ended.assert_code(0);
        let value = ended.summary();
        let nodes = value["nodes"].as_array().expect("a list");
        assert_eq!(nodes.len(), 5);
        let node = |name: &str| nodes.iter().find(|node| node["nickname"] == name).expect(name);
        assert_eq!(number(node("relay1"), "limit_mbit_per_s"), 20.0);
        assert_eq!(node("relay2")["limit_mbit_per_s"], Value::Null);
        let authority = text(node("auth0"), "dir_address").to_owned();
        let text_of_it = Fetcher::default()
            .get(authority.parse().expect("an address"), &Resource::Consensus)
            .expect("a consensus");
        let consensus = place.path("consensus");
        fs::write(&consensus, text_of_it).expect("written");
        Self {
            place,
            dir,
            authority,
            address: text(node("relay1"), "or_address").to_owned(),
            fingerprint: text(node("relay1"), "fingerprint").to_owned(),
            consensus,
        }
    }

    /// `flashflow measure --json` with some more arguments.
    fn measure(&self, seconds: &str, arguments: &[&str]) -> Ended {
        self.place.run(&Self::arguments(seconds, arguments))
    }

    fn arguments<'a>(seconds: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        let common = ["--json", "--seconds", seconds, "--guess", "25", "--capacity", "1000"];
        [&["measure"][..], arguments, &common].concat()
    }

    /// Asserts that a measurement came to a result near the relay's limit.
    fn assert_measured(&self, ended: &Ended, seconds: usize) {
        ended.assert_code(0);
        let values = ended.values();
        let (summary, told) = values.split_last().expect("output");
        assert_eq!(told.len(), seconds, "{told:?}");
        for (index, second) in told.iter().enumerate() {
            assert_eq!((&second["type"], &second["second"]), (&"second".into(), &index.into()));
            assert!(number(second, "measured_mbit_per_s") > 0.0);
        }
        assert_eq!(summary["type"], "summary");
        assert_eq!(summary["fingerprint"], self.fingerprint);
        assert_eq!((&summary["conclusive"], &summary["error"]), (&true.into(), &Value::Null));
        // Tor passes some 92 % of its limit.
        let estimate = number(summary, "estimate_mbit_per_s");
        assert!((15.0..21.0).contains(&estimate), "{summary}");
        assert!(number(summary, "cells_checked") > 0.0, "{summary}");
    }

    fn is_refused_where_something_is(&self) {
        let ended = self.place.run(&["lab", "up", "--dir", "net"]);
        ended.assert_refused(&["not empty", "net"]);
        assert!(self.dir.join("lab.json").is_file());
    }

    fn is_seen_by_status(&self) {
        let ended = self.place.run(&["lab", "status", "--json", "--dir", "net"]);
        ended.assert_code(0);
        let value = ended.summary();
        assert_eq!(value["up"], true);
        let nodes = value["nodes"].as_array().expect("a list");
        assert!(nodes.len() == 5 && nodes.iter().all(|node| node["alive"] == true), "{value}");
        let ended = self.place.run(&["lab", "status", "--dir", "net"]);
        ended.assert_code(0);
        assert_eq!(ended.out.iter().filter(|line| line.ends_with("running")).count(), 5);
    }

    fn measure_by_nickname(&self) {
        let ended = self.measure("4", &["relay1", "--authority", &self.authority]);
        self.assert_measured(&ended, 4);
    }

    fn measure_from_a_file(&self) {
        let file = self.consensus.to_str().expect("text");
        let ended = self.measure("3", &[&self.fingerprint, "--consensus", file]);
        self.assert_measured(&ended, 3);
    }

    fn measure_by_address(&self) {
        let ended = self.measure("3", &[&self.fingerprint, "--address", &self.address]);
        self.assert_measured(&ended, 3);
        // Another identity is no measurement.
        let other = "00112233445566778899AABBCCDDEEFF00112233";
        let ended = self.measure("3", &[other, "--address", &self.address]);
        ended.assert_code(1);
        let error = text(&ended.summary(), "error").to_owned();
        assert!(error.contains("wrong relay"), "{error}");
        assert_eq!(ended.summary()["estimate_mbit_per_s"], Value::Null);
    }

    fn survives_a_reader_that_goes_away(&self) {
        let arguments = Self::arguments("3", &["relay1", "--authority", &self.authority]);
        let mut child = self.place.command(&arguments).spawn().expect("the program");
        let mut line = String::new();
        // The reader, and with it the pipe, is gone after the first line.
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(is_second(&line), "{line}");
        let output = child.wait_with_output().expect("ended");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }

    fn interrupted_measurement(&self) {
        let arguments = Self::arguments("60", &["relay1", "--authority", &self.authority]);
        let mut running = self.place.start(&arguments);
        running.wait_for_out("a second", is_second);
        running.signal(Signal::INT);
        let ended = running.end();
        ended.assert_code(130);
        let (last, before) = ended.out.split_last().expect("output");
        assert!(last.contains("\"interrupted\"") && before.iter().all(|line| is_second(line)));
    }

    fn names_that_are_not_there(&self) {
        let refused = |arguments: &[&str], parts: &[&str]| {
            let ended = self.measure("3", arguments);
            ended.assert_refused(parts);
            assert_eq!(ended.summary()["type"], "error");
        };
        let authority = &self.authority;
        refused(&["nobody", "--authority", authority], &["nobody", authority]);
        let unknown = "00112233445566778899AABBCCDDEEFF00112233";
        refused(&[unknown, "--authority", authority], &[unknown]);
        refused(&["0123", "--address", &self.address], &["fingerprint"]);
        refused(&["not/a+name", "--authority", authority], &["not/a+name"]);
        let nobody = nobody().to_string();
        refused(&["relay1", "--authority", &nobody], &[&nobody, "refused"]);
        // The relay's own port speaks TLS, not HTTP.
        refused(&["relay1", "--authority", &self.address], &[&self.address]);
    }

    fn broken_consensuses(&self) {
        let whole = fs::read(&self.consensus).expect("kept");
        let middle = whole.len() / 2;
        let mut garbled = whole.clone();
        garbled[middle..middle + 40].fill(0xff);
        let footer = whole.windows(16).position(|part| part == b"directory-footer").expect("there");
        let cases: [(&str, &[u8]); 7] = [
            ("empty", b""),
            ("garbage", &[0xa7; 5000]),
            ("page", b"<html><body>404 not found</body></html>"),
            ("half", &whole[..middle]),
            ("most", &whole[..footer - 30]),
            ("headless", &whole[middle..]),
            ("garbled", &garbled),
        ];
        for (name, bytes) in cases {
            fs::write(self.place.path(name), bytes).expect("written");
            let ended = self.measure("3", &["relay1", "--consensus", name]);
            ended.assert_refused(&[name]);
        }
        let ended = self.measure("3", &["relay1", "--consensus", "absent"]);
        ended.assert_refused(&["absent"]);
    }

    fn down(self) {
        let ended = self.place.run(&["lab", "down", "--json", "--dir", "net"]);
        ended.assert_code(0);
        assert_eq!(ended.summary()["up"], false);
        assert!(!self.dir.exists());
        self.place.assert_clean();
        let ended = self.place.run(&["lab", "status", "--dir", "net"]);
        ended.assert_refused(&["net"]);
    }
}

/// An address where nothing listens.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

/// Five relays of the live network in 2020, all on public addresses.
fn public_relays() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../netdoc/tests/data/consensus-ns");
    fs::read_to_string(path).expect("part of netdoc")
}

#[test]
fn relays_on_public_addresses_are_refused_with_the_way_to_opt_in() {
    let place = Place::new();
    fs::write(place.path("live"), public_relays()).expect("written");
    let ended = place.run(&["measure", "Relay5000", "--consensus", "live"]);
    ended.assert_refused(&["148.251.75.247", "has not opted in", "--opt-in"]);
    assert!(!ended.error.contains("team:"), "consent comes first: {}", ended.error);
    let fingerprint = "0123456789ABCDEF0123456789ABCDEF01234567";
    let ended = place.run(&["measure", fingerprint, "--address", "198.51.100.7:443"]);
    ended.assert_refused(&["198.51.100.7", "--opt-in"]);
}

#[test]
fn who_has_not_opted_in_gets_no_packet() {
    let place = Place::new();
    // 0.0.0.0 is not local by our rules, but leads to this very machine.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    listener.set_nonblocking(true).expect("set");
    let port = listener.local_addr().expect("an address").port();
    let live = public_relays().replace("148.251.75.247 4080", &format!("0.0.0.0 {port}"));
    fs::write(place.path("consensus"), live).expect("written");
    let measure = ["measure", "Relay5000", "--consensus", "consensus", "--sockets", "1"];

    let ended = place.run(&measure);
    ended.assert_refused(&["0.0.0.0", "--opt-in"]);
    let error = listener.accept().expect_err("nobody called");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);

    // Whoever is on the list is called: only the list made the difference.
    let consensus = netdoc::consensus::Consensus::parse(public_relays().as_bytes()).expect("sound");
    let relay = consensus.by_nickname("Relay5000").expect("there").fingerprint;
    fs::write(place.path("list"), format!("# agreed\n{relay}\n")).expect("written");
    let mut running = place.start(&[&measure[..], &["--opt-in", "list"]].concat());
    let (mut stream, _) = wait_for("a connection", || listener.accept().ok());
    stream.write_all(b"this is no TLS\r\n").expect("written");
    running.wait_for_error("its team", |line| line.contains("team:"));
    drop((stream, listener));
    let ended = running.end();
    ended.assert_code(1);
}

#[test]
fn an_opt_in_list_with_a_bad_line_is_refused_with_its_place() {
    let place = Place::new();
    fs::write(place.path("live"), public_relays()).expect("written");
    fs::write(place.path("list"), "# mine\nnot-a-fingerprint\n").expect("written");
    let measure = ["measure", "Relay5000", "--consensus", "live", "--opt-in"];
    let ended = place.run(&[&measure[..], &["list"]].concat());
    ended.assert_refused(&["line 2", "list", "40 hex digits"]);
    let ended = place.run(&[&measure[..], &["absent"]].concat());
    ended.assert_refused(&["absent"]);
}

#[test]
fn an_authority_that_speaks_something_else_is_named() {
    let place = Place::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _gone = stream.write_all(b"220 mail.example ESMTP\r\n\r\n");
    });
    let ended = place.run(&["measure", "relay1", "--authority", &address]);
    ended.assert_refused(&[&address]);
    server.join().expect("no panic");
}

#[test]
fn help_that_nobody_reads_to_its_end_is_no_panic() {
    let place = Place::new();
    let mut command = place.command(&["demo", "--help"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(output.status.code(), Some(0), "{error}");
}

#[test]
fn measurers_on_loopback_are_measured() {
    let place = Place::new();
    let arguments = ["measure-team", "--local", "3", "--seconds", "2", "--rate", "40", "--json"];
    let ended = place.run(&arguments);
    ended.assert_code(0);
    let values = ended.values();
    let (summary, members) = values.split_last().expect("output");
    assert_eq!((&summary["type"], &summary["complete"]), (&"summary".into(), &true.into()));
    assert_eq!(members.len(), 3);
    for member in members {
        assert_eq!(member["type"], "measurer");
        assert!(number(member, "capacity_mbit_per_s") > 0.0);
        assert_eq!(member["stranger_packets"], 0);
        let peers = member["peers"].as_array().expect("a list");
        let counts = peers.iter().map(|it| it["received_bytes"].as_array().map(Vec::len));
        assert_eq!(counts.collect::<Vec<_>>(), [Some(2), Some(2)]);
    }
}

#[test]
fn wrong_arguments_of_measure_team_are_refused() {
    let place = Place::new();
    for arguments in [
        &["measure-team"][..],
        &["measure-team", "--local", "1"],
        &["measure-team", "--local", "2", "--seconds", "0"],
        &["measure-team", "--local", "2", "--team", "coordinator.toml"],
    ] {
        place.run(arguments).assert_code(2);
    }
}

#[test]
fn measurers_elsewhere_are_measured_and_one_that_is_gone_is_named() {
    let place = Place::new();
    let key = |name: &str| {
        let ended = place.run(&["keys", "--json", "--out", &format!("{name}.key")]);
        text(&ended.summary(), "public_key").to_owned()
    };
    let mut team = "key = \"own.key\"\nout = \"out\"\nauthority = \"127.0.0.1:7001\"\n".to_owned();
    let own = key("own");
    let (mut daemons, mut public_keys) = (Vec::new(), Vec::new());
    for name in ["one", "other"] {
        let public = key(name);
        let config = format!(
            "listen = \"127.0.0.1:0\"\nkey = \"{name}.key\"\ncoordinators = [\"{own}\"]\n\
             capacity_mbit_per_s = 30\n"
        );
        let file = format!("{name}.toml");
        fs::write(place.path(&file), config).expect("space");
        let mut daemon = place.start(&["measurer", "--json", "--config", &file]);
        let address = daemon.wait_for_value()["address"].clone();
        team += &format!("[[measurers]]\naddress = {address}\nkey = \"{public}\"\n");
        daemons.push(daemon);
        public_keys.push(public);
    }
    fs::write(place.path("team.toml"), team).expect("space");
    let arguments = ["measure-team", "--team", "team.toml", "--seconds", "2", "--json"];
    let ended = place.run(&arguments);
    ended.assert_code(0);
    let summary = ended.summary();
    assert_eq!((&summary["complete"], &summary["measurers"]), (&true.into(), &2.into()));
    assert!(number(&summary, "capacity_mbit_per_s") > 0.0);

    // What it prints is what a coordinator's configuration needs.
    let ended = place.run(&arguments[..5]);
    ended.assert_code(0);
    let lines = ended.out.join("\n");
    for part in ["[[measurers]]\naddress = \"127.0.0.1:", &public_keys[0], &public_keys[1]] {
        assert!(lines.contains(part), "{lines}");
    }
    assert_eq!(lines.matches("\ncapacity_mbit_per_s = ").count(), 2, "{lines}");

    drop(daemons.pop());
    let ended = place.run(&arguments);
    ended.assert_code(1);
    assert_eq!(ended.summary()["capacity_mbit_per_s"], Value::Null, "no low number");
    assert!(ended.error.contains("is `flashflow measurer` running?"), "{}", ended.error);
}
