//! `flashflow-lab lab`, and `flashflow measure` in the network that it starts.

use netdoc::fetch::{Fetcher, Resource};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use testbin::{Ended, Scratch, assert_estimate, is_second, number, text};

#[test]
fn a_lab_starts_is_measured_and_is_removed() {
    let scratch = Scratch::new();
    let lab = Lab::up(&scratch);
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
fn a_folder_without_a_lab_is_not_changed() {
    let scratch = Scratch::new();
    let precious = scratch.path("home");
    fs::create_dir(&precious).expect("made");
    fs::write(precious.join("letter"), "dear").expect("written");
    for action in ["status", "down"] {
        for dir in ["home", "absent"] {
            let ended = scratch.run(&["lab", action, "--dir", dir]);
            ended.assert_refused(&[dir, "not the folder of a private network"]);
        }
    }
    assert_eq!(fs::read_to_string(precious.join("letter")).expect("still there"), "dear");
}

/// A network started by `lab up`.
struct Lab<'p> {
    scratch: &'p Scratch,
    dir: PathBuf,
    authority: String,
    address: String,
    fingerprint: String,
    consensus: PathBuf,
}

impl<'p> Lab<'p> {
    fn up(scratch: &'p Scratch) -> Self {
        let dir = scratch.path("net");
        let arguments = ["lab", "up", "--json", "--dir", "net", "--limits", "20,0"];
        let ended = scratch.run(&arguments);
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
        let consensus = scratch.path("consensus");
        fs::write(&consensus, text_of_it).expect("written");
        Self {
            scratch,
            dir,
            authority,
            address: text(node("relay1"), "or_address").to_owned(),
            fingerprint: text(node("relay1"), "fingerprint").to_owned(),
            consensus,
        }
    }

    /// `flashflow measure --json` with further arguments.
    fn measure(&self, seconds: &str, arguments: &[&str]) -> Ended {
        self.scratch.run(&Self::arguments(seconds, arguments))
    }

    fn arguments<'a>(seconds: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
        let common = ["--json", "--seconds", seconds, "--guess", "25", "--capacity", "1000"];
        [&["measure"][..], arguments, &common].concat()
    }

    /// Asserts that the estimate is near the relay's limit.
    fn assert_measured(&self, ended: &Ended, seconds: usize) {
        ended.assert_measured();
        let values = ended.values();
        let (summary, printed) = values.split_last().expect("output");
        let (accounts, printed): (Vec<_>, Vec<_>) =
            printed.iter().partition(|value| value["type"] == "account");
        assert!(!accounts.is_empty(), "the kernel says where its sockets waited");
        for account in accounts {
            assert!(number(&account["account"], "sockets") >= 1.0, "{account}");
            assert!(number(&account["account"], "sent_bytes") > 0.0, "{account}");
        }
        // An inconclusive round is repeated, and ends as soon as that is certain.
        let rounds = number(summary, "rounds");
        assert!(printed.len() as f64 <= seconds as f64 * rounds, "{printed:?}");
        let last: Vec<_> =
            printed.iter().filter(|second| number(second, "round") == rounds).collect();
        assert_eq!(last.len(), seconds, "{printed:?}");
        for (index, second) in last.into_iter().enumerate() {
            assert_eq!((&second["type"], &second["second"]), (&"second".into(), &index.into()));
        }
        // As text without a terminal.
        for second in 1..=seconds {
            let line = format!("round {rounds}, second {second} of {seconds}: ");
            assert!(ended.error.contains(&line), "no {line:?} in {}", ended.error);
        }
        assert_eq!(summary["type"], "summary");
        assert_eq!(summary["fingerprint"], self.fingerprint);
        assert_eq!(summary["error"], Value::Null);
        // Tor forwards about 92 % of its limit of 20 Mbit/s. One of three seconds without traffic costs a third.
        assert_estimate(summary, 20.0, 0.75, 0.55);
        assert!(number(summary, "estimate_mbit_per_s") < 21.0, "{summary}");
        assert!(number(summary, "cells_checked") > 0.0, "{summary}");
    }

    fn is_refused_where_something_is(&self) {
        let ended = self.scratch.run(&["lab", "up", "--dir", "net"]);
        ended.assert_refused(&["not empty", "net"]);
        assert!(self.dir.join("lab.json").is_file());
    }

    fn is_seen_by_status(&self) {
        let ended = self.scratch.run(&["lab", "status", "--json", "--dir", "net"]);
        ended.assert_code(0);
        let value = ended.summary();
        assert_eq!(value["up"], true);
        let nodes = value["nodes"].as_array().expect("a list");
        assert!(nodes.len() == 5 && nodes.iter().all(|node| node["alive"] == true), "{value}");
        let ended = self.scratch.run(&["lab", "status", "--dir", "net"]);
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
        // A wrong identity is an error.
        let other = "00112233445566778899AABBCCDDEEFF00112233";
        let ended = self.measure("3", &[other, "--address", &self.address]);
        ended.assert_code(1);
        let error = text(&ended.summary(), "error").to_owned();
        assert!(error.contains("wrong relay"), "{error}");
        assert_eq!(ended.summary()["estimate_mbit_per_s"], Value::Null);
    }

    fn survives_a_reader_that_goes_away(&self) {
        let arguments = Self::arguments("3", &["relay1", "--authority", &self.authority]);
        let mut child = self.scratch.command(&arguments).spawn().expect("the program");
        let mut line = String::new();
        // The reader closes the pipe after the first line.
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(is_second(&line), "{line}");
        let output = child.wait_with_output().expect("ended");
        let error = String::from_utf8_lossy(&output.stderr);
        // On a busy machine the result is a lower bound.
        assert!(matches!(output.status.code(), Some(0 | 3)), "{}: {error}", output.status);
        assert!(!error.contains("panicked"), "{error}");
    }

    fn interrupted_measurement(&self) {
        let arguments = Self::arguments("60", &["relay1", "--authority", &self.authority]);
        let mut running = self.scratch.start(&arguments);
        running.wait_for_out("a second", is_second);
        running.signal(Signal::INT);
        let ended = running.end();
        ended.assert_code(130);
        let (last, before) = ended.out.split_last().expect("output");
        let is_told = |line: &String| is_second(line) || line.contains(r#""type":"account""#);
        assert!(last.contains("\"interrupted\"") && before.iter().all(is_told), "{before:?}");
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
            fs::write(self.scratch.path(name), bytes).expect("written");
            let ended = self.measure("3", &["relay1", "--consensus", name]);
            ended.assert_refused(&[name]);
        }
        let ended = self.measure("3", &["relay1", "--consensus", "absent"]);
        ended.assert_refused(&["absent"]);
    }

    fn down(self) {
        let ended = self.scratch.run(&["lab", "down", "--json", "--dir", "net"]);
        ended.assert_code(0);
        assert_eq!(ended.summary()["up"], false);
        assert!(!self.dir.exists());
        self.scratch.assert_clean();
        let ended = self.scratch.run(&["lab", "status", "--dir", "net"]);
        ended.assert_refused(&["net"]);
    }
}

/// A closed port.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address")
}

#[test]
fn an_authority_with_another_protocol_is_named() {
    let scratch = Scratch::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let _gone = stream.write_all(b"220 mail.example ESMTP\r\n\r\n");
    });
    let ended = scratch.run(&["measure", "relay1", "--authority", &address]);
    ended.assert_refused(&[&address]);
    server.join().expect("no panic");
}
