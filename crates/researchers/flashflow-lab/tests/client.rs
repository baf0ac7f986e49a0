//! End-to-end tests of `flashflow-lab client`.

use lab::{Content, ContentServer, Network, NetworkSpec, RelaySpec};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use testbin::{Ended, PATIENCE, Running, Scratch, number, text};

/// Number of downloads, and of simultaneous programs.
const DOWNLOADS: u64 = 100;
const AT_ONCE: usize = 4;

/// A line of JSON.
fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// Whether a line is the end of a stream.
fn is_closed(line: &str) -> bool {
    value(line)["type"] == "stream_closed"
}

/// Sizes of the downloads: 90 of 1 KiB to 512 KiB, nine of 1 to 9 MiB, and one of 100 MiB, which starts first.
fn content(number: u64) -> Content {
    let len = match number {
        0 => 100 << 20,
        1..10 => number << 20,
        _ => 1 << (10 + number % 10),
    };
    Content { len, seed: number }
}

/// Downloads with `curl`. Returns a problem with the result, if any.
fn wrong_by_curl(socks: &str, isolation: u64, server: u16, content: Content) -> Option<String> {
    let Content { len, seed } = content;
    let done = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--noproxy", ""])
        // A timeout for stalls, not for the whole download.
        .args(["--speed-limit", "1", "--speed-time", &PATIENCE.as_secs().to_string()])
        .args(["--proxy", &format!("socks5://{isolation}:x@{socks}")])
        .arg(format!("http://127.0.0.1:{server}/{len}/{seed}"))
        .output()
        .expect("curl runs");
    let has_all = <[u8; 32]>::from(Sha256::digest(&done.stdout)) == content.sha256();
    let message = String::from_utf8_lossy(&done.stderr);
    let received = done.stdout.len();
    let is_right = done.status.success() && has_all;
    (!is_right)
        .then(|| format!("{content:?}: received {received} bytes; {}: {message}", done.status))
}

/// Downloads all files, several at the same time, with three SOCKS users. Returns problems with the results.
fn all_wrong_by_curl(socks: &str, server: u16, all: Vec<Content>) -> Vec<String> {
    let left = Mutex::new(all.into_iter());
    let next = || left.lock().expect("no panic").next();
    let program = || {
        let wrong = |content: Content| wrong_by_curl(socks, content.seed % 3, server, content);
        std::iter::from_fn(next).filter_map(wrong).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let programs: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(program)).collect();
        programs.into_iter().flat_map(|program| program.join().expect("no panic")).collect()
    })
}

/// A bootstrapped client, and its SOCKS port.
fn bootstrapped(scratch: &Scratch, arguments: &[&str]) -> (Running, String) {
    let mut client = scratch.start(arguments);
    let socks = text(&client.wait_for_record("socks", |_| true), "address").to_owned();
    client.wait_for_record("bootstrapped", |_| true);
    (client, socks)
}

/// A client through which all files were downloaded correctly.
fn downloaded_by(scratch: &Scratch, arguments: &[&str]) -> Ended {
    let (mut client, socks) = bootstrapped(scratch, arguments);
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    let all = (0..DOWNLOADS).map(content).collect();
    assert_eq!(all_wrong_by_curl(&socks, port, all), Vec::<String>::new());
    // Curl may notice the end of a stream before the client.
    client.wait_for_outs("all ends", usize::try_from(DOWNLOADS).expect("few"), is_closed);
    client.signal(Signal::TERM);
    let ended = client.end();
    ended.assert_code(0);
    ended
}

#[test]
fn curl_downloads_through_the_client_which_reports_events() {
    if let Err(error) = Command::new("curl").arg("--version").output() {
        skip::this_test!("the program `curl`: {error}");
    }
    let exit = |nickname: &str| RelaySpec::open_exit(nickname);
    let spec = NetworkSpec::new(vec![exit("exita"), exit("exitb")]);
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let scratch = Scratch::new();
    let authorities: Vec<_> = network.directory_addrs().iter().map(ToString::to_string).collect();
    let authorities = authorities.join(",");
    let arguments = [
        "client",
        "--authority",
        &authorities,
        "--socks",
        "127.0.0.1:0",
        "--data",
        "data",
        "--strategy",
        "uniform",
        "--json",
    ];
    let ended = downloaded_by(&scratch, &arguments);
    assert!(scratch.path("data/client-state.json").is_file(), "guards are kept");
    let values = ended.values();
    let of = |kind: &str| values.iter().filter(|value| value["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("stream_opened").len(), usize::try_from(DOWNLOADS).expect("few"));
    let received_bytes: f64 =
        of("stream_closed").iter().map(|event| number(event, "received_bytes")).sum();
    let expected: u64 = (0..DOWNLOADS).map(|number| content(number).len).sum();
    assert!(
        received_bytes > expected as f64,
        "all content and its headers are received through it: {received_bytes}"
    );
    assert!(
        of("stream_closed").iter().all(|event| event["ok"] == true && event["sent_bytes"] != 0)
    );
    let built = of("circuit_built");
    assert!(built.len() >= 3);
    assert!(built.iter().all(|event| event["path"].as_array().is_some_and(|path| path.len() == 3)));
    assert!(built.iter().all(|event| event["took_ms"].as_f64().is_some_and(|ms| ms > 0.0)));
    assert_eq!(of("ended").len(), 1);
}

/// Starts one of FlashFlow's relays in this network, as an exit to all destinations or not an exit. Returns it with its fingerprint.
fn relay_of_ours(
    scratch: &Scratch,
    network: &Network,
    name: &str,
    is_exit: bool,
) -> (Running, [u8; 20]) {
    let authorities: Vec<_> = network.directory_addrs().iter().map(ToString::to_string).collect();
    let exit = "[exit]\npolicy = [\"accept *:*\"]\nreject_private = false\n";
    let file = format!(
        "nickname = {name:?}\naddress = \"127.0.0.1\"\nkeys = \"keys-{name}\"\nauthorities = {authorities:?}\n{}",
        if is_exit { exit } else { "" }
    );
    fs::write(scratch.path(name), file).expect("written");
    let mut relay = scratch.start(&["relay", "--config", name, "--json"]);
    let mut rsa = [0; 20];
    let fingerprint = relay.wait_for_record("listening", |_| true);
    hex::decode_to_slice(text(&fingerprint, "fingerprint"), &mut rsa).expect("a fingerprint");
    (relay, rsa)
}

#[test]
fn curl_downloads_through_three_of_our_relays() {
    if let Err(error) = Command::new("curl").arg("--version").output() {
        skip::this_test!("the program `curl`: {error}");
    }
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let scratch = Scratch::new();
    let mut relays = [("oursA", false), ("oursB", false), ("oursC", true)]
        .map(|(name, is_exit)| relay_of_ours(&scratch, &network, name, is_exit));
    let known = relays.each_ref().map(|(_, rsa)| *rsa);
    let valid_after = network.wait_until_known(&known, PATIENCE).expect("listed");
    // Before, our exit would refuse circuits from relays that it does not know.
    let [_, _, (exit, _)] = &mut relays;
    exit.wait_for_out("consensus", |line| {
        value(line)["valid_after_unix_s"].as_u64() >= Some(valid_after)
    });
    // No other relay has been measured, so no other is chosen.
    let lines = known.map(|rsa| format!("bw=1000 node_id=${}\n", hex::encode_upper(rsa)));
    let measured = format!("1600000000\nversion=1.4.0\n=====\n{}", lines.concat());
    fs::write(scratch.path("measured"), measured).expect("written");
    let folder = network.dir().to_str().expect("text");
    let arguments = [
        "client",
        "--network",
        folder,
        "--socks",
        "127.0.0.1:0",
        "--strategy",
        "measured",
        "--bwfile",
        "measured",
        "--json",
    ];
    let ended = downloaded_by(&scratch, &arguments);
    let values = ended.values();
    let of = |kind: &str| values.iter().filter(|value| value["type"] == kind).collect::<Vec<_>>();
    let used: BTreeSet<u64> =
        of("stream_opened").iter().filter_map(|event| event["circuit"].as_u64()).collect();
    assert!(used.len() >= 3, "a circuit for each name: {used:?}");
    // Destinations are printed only on request.
    let all_scrubbed =
        of("stream_closed").iter().all(|event| text(event, "target") == "[scrubbed]");
    assert!(all_scrubbed, "{values:#?}");
    for built in of("circuit_built") {
        let path = built["path"].as_array().expect("a path");
        let is_ours = path.iter().all(|hop| text(hop, "nickname").starts_with("ours"));
        let is_used = built["circuit"].as_u64().is_some_and(|circuit| used.contains(&circuit));
        assert!(is_ours || !is_used, "{built}");
    }

    // A bandwidth file of another network has no relay of this one.
    let strangers = "1600000000\nversion=1.4.0\n=====\nbw=1000 node_id=$";
    fs::write(scratch.path("measured"), format!("{strangers}{}\n", "AB".repeat(20)))
        .expect("written");
    let refused = scratch.run(&arguments);
    refused.assert_code(1);
    assert!(
        refused.error.contains("no relay of the consensus has a measurement"),
        "{}",
        refused.error
    );
}

#[test]
fn curl_downloads_over_linked_circuits() {
    if let Err(error) = Command::new("curl").arg("--version").output() {
        skip::this_test!("the program `curl`: {error}");
    }
    // A guard and a middle for each of three legs, including authorities, and the exit.
    let mut relays: Vec<_> =
        (0..4).map(|number| RelaySpec::new(&format!("middle{number}"))).collect();
    relays.push(RelaySpec::open_exit("exit"));
    let network = Network::start(&NetworkSpec::new(relays), &mut |_| {}).expect("up");
    let scratch = Scratch::new();
    let folder = network.dir().to_str().expect("text");
    let server = ContentServer::start().expect("a server");
    for legs in [2_usize, 3] {
        let arguments = ["client", "--network", folder, "--socks", "127.0.0.1:0", "--json"];
        let (mut client, socks) =
            bootstrapped(&scratch, &[&arguments[..], &["--legs", &legs.to_string()]].concat());
        let all = (1..30).map(content).collect();
        let wrong = all_wrong_by_curl(&socks, server.address().port(), all);
        assert_eq!(wrong, Vec::<String>::new(), "{legs} legs");
        client.wait_for_outs("all ends", 29, is_closed);
        client.signal(Signal::TERM);
        let ended = client.end();
        ended.assert_code(0);
        let values = ended.values();
        let of =
            |kind: &str| values.iter().filter(|value| value["type"] == kind).collect::<Vec<_>>();
        let is_linked = |event: &&Value| event["legs"] == legs;
        let built = of("circuit_built");
        assert!(!built.is_empty() && built.iter().all(is_linked), "{values:#?}");
        // Each leg reports its path, and each stream the traffic of each leg.
        let are_three =
            |event: &&Value| event["path"].as_array().is_some_and(|path| path.len() == 3);
        assert!(of("leg_built").iter().all(are_three), "{values:#?}");
        let closed = of("stream_closed");
        assert!(
            closed.len() >= 29 && closed.iter().all(|event| event["ok"] == true),
            "{values:#?}"
        );
        let all_carry = |event: &&Value| {
            let of_legs = event["legs"].as_array().cloned().unwrap_or_default();
            let has_carried = |leg: &Value| number(leg, "received_messages") > 100.0;
            of_legs.len() == legs && of_legs.iter().all(has_carried)
        };
        assert!(closed.iter().any(all_carry), "{legs} legs: {values:#?}");
    }
}

#[test]
fn unsafe_options_are_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    for (arguments, code, word) in [
        (&["client"][..], 2, "--authority"),
        (&["client"][..], 2, "--network"),
        (&["client"][..], 2, "--public"),
        (&["probe"][..], 2, "--network"),
        (&["client", "--authority", "128.31.0.39:9231"], 2, "--public"),
        (&["client", "--authority", "127.0.0.1:1", "--socks", "0.0.0.0:0"], 2, "--allow-others"),
        (&["client", "--public", "--authority", "127.0.0.1:1"], 2, "--public"),
        (&["client", "--network", "nowhere"], 1, "nowhere"),
        (&["client", "--authority", "127.0.0.1:1", "--strategy", "best"], 2, "uniform"),
    ] {
        let ended = scratch.run(arguments);
        ended.assert_code(code);
        assert!(ended.error.contains(word), "{arguments:?}: {}", ended.error);
    }
    scratch.assert_clean();
}
