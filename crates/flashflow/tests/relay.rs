//! `flashflow relay` as people and scripts run it.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{Running, Scratch, text};
use lab::{Network, NetworkSpec};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A public key (RFC 8032, §7.1, test 1).
const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

const LEAST: [&str; 7] =
    ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];

/// Waits for a line of JSON on stdout that is of this type, and of which `holds`.
fn wait_for(relay: &mut Running, kind: &str, holds: impl Fn(&Value) -> bool) {
    let kind_of = |value: &Value| value["type"] == kind;
    relay.wait_for_out(kind, |line| {
        serde_json::from_str::<Value>(line).is_ok_and(|value| kind_of(&value) && holds(&value))
    });
}

#[test]
fn a_relay_listens_ends_when_it_is_told_to_and_stays_the_same() {
    let scratch = Scratch::new();
    let mut said = Vec::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut relay = scratch.start(&LEAST);
        relay.wait_for_out("listening", |line| line.starts_with("listening on "));
        relay.wait_for_error("policy", |line| line == "may not be measured");
        relay.signal(signal);
        let ended = relay.end();
        ended.assert_code(0);
        assert_eq!(ended.out.len(), 1, "{:?}", ended.out);
        let words: Vec<_> = ended.out[0].split(' ').map(str::to_owned).collect();
        assert_eq!(
            [&words[0], &words[1], &words[3], &words[5]],
            ["listening", "on", "fingerprint", "ed25519"]
        );
        let address: SocketAddr = words[2].parse().expect("an address");
        assert!(address.ip().is_loopback() && address.port() != 0);
        TcpListener::bind(address).expect("the port is free again");
        assert_eq!((words[4].len(), words[6].len()), (40, 64));
        said.push((words[4].clone(), words[6].clone()));
    }
    assert_eq!(said[0], said[1]);
}

#[test]
fn a_file_and_flags_together_make_a_relay_that_a_stock_network_lists() {
    let scratch = Scratch::new();
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let authorities = network.directory_addrs();
    let authorities: Vec<_> = authorities.iter().map(ToString::to_string).collect();
    let authorities = authorities.join(",");
    let file = "nickname = \"fromfile\"\naddress = \"127.0.0.1\"\nrate_mbit_per_s = 5\n\
                keys = \"keys\"\n[flashflow]\nbackground_traffic_percent = 10\n";
    fs::create_dir(scratch.path("config")).expect("made");
    fs::write(scratch.path("config/relay.toml"), file).expect("written");
    let arguments = [
        "relay",
        "--config",
        "config/relay.toml",
        "--rate",
        "20",
        "--authority",
        &authorities,
        "--coordinator",
        KEY,
        "--json",
    ];
    let mut relay = scratch.start(&arguments);
    wait_for(&mut relay, "measurements", |value| {
        value["allowed"] == true
            && value["coordinators"] == serde_json::json!([KEY])
            && value["client_share_permille"] == 100
    });
    for authority in authorities.split(',') {
        wait_for(&mut relay, "published", |value| {
            value["authority"] == authority && value["answer"] == "accepted"
        });
    }
    wait_for(&mut relay, "listed", |value| {
        let flags = value["flags"].as_array().cloned().unwrap_or_default();
        flags.contains(&"Running".into()) && flags.contains(&"Fast".into())
    });
    relay.signal(Signal::TERM);
    let ended = relay.end();
    ended.assert_code(0);
    let values = ended.values();
    let listening = values.iter().find(|value| value["type"] == "listening").expect("told");
    let consensus = network.consensus().expect("an answer").expect("a consensus");
    let consensus = netdoc::Consensus::parse(consensus.as_bytes()).expect("a consensus");
    let listed = consensus.find(text(listening, "fingerprint")).expect("listed");
    let address = SocketAddr::new(listed.address.into(), listed.or_port);
    assert_eq!(listed.nickname.as_str(), "fromfile");
    assert_eq!(text(listening, "address"), address.to_string());
    assert_eq!(values.last().map(|value| text(value, "type")), Some("ended"));
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    assert!(scratch.path("config/keys/secret_id_key").is_file(), "beside the file");
}

#[test]
fn mistakes_are_refused_before_anything_is_made() {
    let scratch = Scratch::new();
    fs::write(scratch.path("bad.toml"), "nickname = \"a\"\nnonsense = 1\n").expect("written");
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["`nickname` is missing", "--nickname"]),
        (&["--nickname", "a b"], &["--nickname", "isn't a nickname"]),
        (&["--nickname", "a", "--address", "127.0.0.1"], &["`keys` is missing"]),
        (&["--config", "none.toml"], &["none.toml"]),
        (&["--config", "bad.toml"], &["bad.toml", "line 2", "nonsense"]),
        (&["--coordinator", "12"], &["--coordinator", "64 hex digits"]),
        (&["--authority", "nowhere"], &["--authority", "nowhere"]),
        (&["--or-port", "70000"], &["--or-port", "70000"]),
    ];
    for (arguments, parts) in cases {
        let ended = scratch.run(&[&["relay"], *arguments].concat());
        ended.assert_refused(parts);
    }
    let cases: &[(&[&str], &str)] = &[
        (&["--rate", "0.1"], "slower than"),
        (&["--rate", "NaN"], "no amount"),
        (&["--burst", "5"], "there is no rate_mbit_per_s"),
        (&["--address", "0.0.0.0"], "nobody can reach"),
    ];
    for (arguments, part) in cases {
        let mut all = LEAST.to_vec();
        if arguments[0] == "--address" {
            all.truncate(3);
            all.extend(["--keys", "keys"]);
        }
        all.extend(*arguments);
        scratch.run(&all).assert_refused(&[part]);
    }
    assert!(!scratch.path("keys").exists());

    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let ended = scratch.run(&[&LEAST[..], &["--or-port", &port]].concat());
    ended.assert_refused(&["cannot listen on", &port, "Choose another"]);
}
