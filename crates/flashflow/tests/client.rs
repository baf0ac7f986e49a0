//! `flashflow client` end to end: what its user meets.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{PATIENCE, Scratch};
use lab::{Content, ContentServer, Network, NetworkSpec, RelaySpec, download};
use rustix::process::Signal;
use serde_json::Value;
use std::cell::RefCell;

/// A line of JSON.
fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

#[test]
fn programs_download_through_the_client_and_it_says_what_happens() {
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
    let mut client = scratch.start(&arguments);
    let address = RefCell::new(String::new());
    client.wait_for_out("address", |line| {
        let value = value(line);
        address.replace(value["address"].as_str().unwrap_or_default().to_owned());
        value["type"] == "socks"
    });
    let socks = address.take().parse().expect("an address");
    client.wait_for_out("network", |line| value(line)["type"] == "bootstrapped");
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    for number in 0..100 {
        let content = Content { len: 1 << (10 + number % 11), seed: number };
        let isolation = (number % 3).to_string();
        let done = download(socks, from, content, &isolation, PATIENCE).expect("downloaded");
        assert!(done.is_right, "{number}: {done:?}");
    }
    client.signal(Signal::TERM);
    let ended = client.end();
    ended.assert_code(0);
    assert!(scratch.path("data/client-state.json").is_file(), "guards are kept");
    let values = ended.values();
    let of = |kind: &str| values.iter().filter(|it| it["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("stream_opened").len(), 100);
    assert!(of("stream_closed").iter().all(|it| it["ok"] == true && it["sent_bytes"] != 0));
    let built = of("circuit_built");
    assert!(built.len() >= 3);
    assert!(built.iter().all(|it| it["path"].as_array().is_some_and(|path| path.len() == 3)));
    assert!(built.iter().all(|it| it["took_ms"].as_f64().is_some_and(|ms| ms > 0.0)));
    assert_eq!(of("ended").len(), 1);
}

#[test]
fn what_would_be_unwise_is_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    for (arguments, code, word) in [
        (&["client"][..], 2, "--authority"),
        (&["client", "--authority", "128.31.0.39:9231"], 1, "--public"),
        (&["client", "--authority", "127.0.0.1:1", "--socks", "0.0.0.0:0"], 1, "--allow-others"),
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
