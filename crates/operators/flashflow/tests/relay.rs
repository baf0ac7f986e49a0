//! Tests of `flashflow relay`.

use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use netdoc::RsaId;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use testbin::{PATIENCE, Running, Scratch, number, text};

/// A public key (RFC 8032, §7.1, test 1).
const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

const LEAST: [&str; 7] =
    ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];

#[test]
fn a_relay_listens_ends_on_a_signal_and_keeps_its_identity() {
    let scratch = Scratch::new();
    let mut identities = Vec::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut relay = scratch.start(&LEAST);
        relay.wait_for_out("listening", |line| line.starts_with("listening on "));
        relay.wait_for_error("policy", |line| line.ends_with(" INFO may not be measured"));
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
        identities.push((words[4].clone(), words[6].clone()));
    }
    assert_eq!(identities[0], identities[1]);
}

#[test]
fn a_c_tor_network_lists_a_relay_configured_by_file_and_flags() {
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
    relay.wait_for_record("measurements", |value| {
        value["allowed"] == true
            && value["coordinators"] == serde_json::json!([KEY])
            && value["client_share_permille"] == 100
    });
    for authority in authorities.split(',') {
        relay.wait_for_record("published", |value| {
            value["authority"] == authority
                && (value["answer"] == "accepted" || value["answer"] == "not_new")
        });
    }
    relay.wait_for_record("listed", |value| {
        let flags = value["flags"].as_array().cloned().unwrap_or_default();
        flags.contains(&"Running".into()) && flags.contains(&"Fast".into())
    });
    // Three authorities, the relays of the network, and this relay.
    let relays = u64::try_from(network.nodes().len()).expect("few") + 1;
    relay.wait_for_record("consensus", |value| value["relays"] == relays);
    relay.signal(Signal::TERM);
    let ended = relay.end();
    ended.assert_code(0);
    let values = ended.values();
    let listening = values.iter().find(|value| value["type"] == "listening").expect("an event");
    let consensus = network.consensus().expect("an answer").expect("a consensus");
    let consensus = netdoc::Consensus::parse(consensus.as_bytes()).expect("a consensus");
    let listed = consensus.find(text(listening, "fingerprint")).expect("listed");
    let address = SocketAddr::new(listed.address.into(), listed.or_port);
    assert_eq!(listed.nickname.as_str(), "fromfile");
    assert_eq!(text(listening, "address"), address.to_string());
    let followed: Vec<_> = values.iter().filter(|value| value["type"] == "consensus").collect();
    let since = |value: &&Value| value["valid_after_unix_s"].as_u64();
    assert!(followed.is_sorted_by(|a, b| since(a) < since(b)), "each once: {followed:?}");
    assert_eq!(consensus.routers().len() as u64, relays);
    assert_eq!(values.last().map(|value| text(value, "type")), Some("ended"));
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
    assert!(
        scratch.path("config/keys/secret_id_key").is_file(),
        "in the folder of the configuration"
    );
}

#[test]
fn invalid_settings_are_refused_before_anything_is_written() {
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
        (&["--rate", "NaN"], "not an amount"),
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

/// Starts a relay in this network that prints its load. Returns it with its fingerprint and address.
fn start_tied_to(
    scratch: &Scratch,
    network: &Network,
    (nickname, wait_s): (&str, &str),
) -> (Running, [u8; 20], SocketAddr) {
    let authorities = network.directory_addrs();
    let authorities: Vec<_> = authorities.iter().map(ToString::to_string).collect();
    let authorities = authorities.join(",");
    let mut relay = scratch.start(&[
        "relay",
        "--nickname",
        nickname,
        "--address",
        "127.0.0.1",
        "--keys",
        nickname,
        // Makes downloads slow.
        "--rate",
        "4",
        "--authority",
        &authorities,
        "--shutdown-wait-s",
        wait_s,
        "--json",
        "--print-load",
    ]);
    let listening = relay.wait_for_value();
    let rsa: RsaId = text(&listening, "fingerprint").parse().expect("a fingerprint");
    (relay, rsa.0, text(&listening, "address").parse().expect("an address"))
}

/// Makes the client build a circuit through these relays. Returns whether it was built, and its last event.
fn build(client: &mut Client, path: [[u8; 20]; 3]) -> (bool, String) {
    let path = path.map(|rsa| format!("${}", RsaId(rsa))).join(",");
    let reply = client.control().request(&format!("EXTENDCIRCUIT 0 {path}")).expect("known relays");
    let id = reply.text().strip_prefix("EXTENDED ").expect("a circuit").to_owned();
    loop {
        let event = client.control().events().recv_timeout(PATIENCE).expect("an event");
        let text = event.message.text().to_owned();
        let is = |what: &str| text.starts_with(&format!("CIRC {id} {what}"));
        if is("BUILT") || is("FAILED") || is("CLOSED") {
            return (is("BUILT"), text);
        }
    }
}

#[test]
fn a_download_survives_the_termination_of_its_relays() {
    let scratch = Scratch::new();
    let exit = RelaySpec::open_exit("stock");
    let network = Network::start(&NetworkSpec::new(vec![exit]), &mut |_| {}).expect("up");
    // Far longer than the test, except for the third relay.
    let (mut guard, a, guard_address) = start_tied_to(&scratch, &network, ("guard", "3600"));
    let (mut middle, b, _) = start_tied_to(&scratch, &network, ("middle", "3600"));
    let (hasty, c, _) = start_tied_to(&scratch, &network, ("hasty", "1"));
    network.wait_until_known(&[a, b, c], PATIENCE).expect("listed");
    let z = network.relays()[0].rsa();
    let extra = ["ConfluxEnabled 0".to_owned()];
    let mut client =
        Client::start(&network, "client", &extra, &[a, b, c, z], PATIENCE).expect("a client");
    let pins = Pins { entry: vec![a], middle: vec![b], exit: vec![z] };
    client.pin(&pins).expect("accepted");
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (client.socks(), server.address().port());
    let content = Content { len: 8 << 20, seed: 1 };
    let downloading =
        thread::spawn(move || download(socks, ("127.0.0.1", port), content, "first", PATIENCE));
    for relay in [&mut guard, &mut middle] {
        // Far more than the traffic of a self-test.
        relay.wait_for_record("load", |load| number(load, "client_bytes") > 1_500_000.0);
    }
    assert!(build(&mut client, [a, c, z]).0, "a circuit through the third is open");
    for relay in [&mut guard, &mut middle] {
        relay.signal(Signal::TERM);
        relay.wait_for_record("shutting_down", |value| {
            number(value, "circuits") >= 1.0 && number(value, "wait_s") == 3600.0
        });
    }
    hasty.signal(Signal::INT);
    assert!(!downloading.is_finished(), "the signal comes during the download");

    // A circuit over an open link is refused with a reason, and new connections are refused.
    let (is_built, text) = build(&mut client, [a, b, z]);
    assert!(!is_built && text.contains("REMOTE_REASON=HIBERNATING"), "{text}");
    assert!(TcpStream::connect(guard_address).is_err(), "the port is closed");
    let done = downloading.join().expect("no panic").expect("downloaded");
    assert!(done.is_right, "{done:?}");

    // After the time limit, circuits are aborted.
    let ended = hasty.end();
    ended.assert_code(0);
    let last = ended.summary();
    assert!(last["type"] == "ended" && number(&last, "circuits") >= 1.0, "{last}");
    // A second signal ends the relay at once.
    middle.signal(Signal::TERM);
    let ended = middle.end();
    ended.assert_code(143);
    assert!(ended.values().iter().all(|value| value["type"] != "ended"));
    // Without circuits, it ends at once.
    drop(client);
    drop(network);
    let ended = guard.end();
    ended.assert_code(0);
    assert_eq!(ended.summary(), serde_json::json!({"type": "ended", "circuits": 0, "streams": 0}));
    assert!(ended.error.contains("a second signal ends the relay at once"), "{}", ended.error);
}
