//! `flashflow-lab conformance` against `flashflow relay`.

use hex::FromHex as _;
use netdoc::Ed25519Identity;
use serde_json::Value;
use std::fs;
use testbin::team::make_key;
use testbin::{Ended, Scratch, number, text};

/// The cases of a run.
fn cases(ended: &Ended) -> Vec<Value> {
    ended.values().into_iter().filter(|line| line["type"] == "case").collect()
}

#[test]
fn our_relay_conforms_and_differs_for_a_stranger() {
    let scratch = Scratch::new();
    let coordinator = make_key(&scratch, "coordinator.key");
    make_key(&scratch, "stranger.key");
    let configuration = format!(
        "nickname = \"judged\"\naddress = \"127.0.0.1\"\nkeys = \"keys\"\nauthorities = []\n[flashflow]\n\
         measurements_allowed = true\nallowed_coordinators = [\"{coordinator}\"]\nmeasurements_per_period = 1000\n\
         max_measurement_duration_s = 10\n"
    );
    fs::write(scratch.path("relay.toml"), configuration).expect("writable");
    let mut relay = scratch.start(&["relay", "--config", "relay.toml", "--json"]);
    let listening = relay.wait_for_record("listening", |_| true);
    let ed25519 = <[u8; 32]>::from_hex(text(&listening, "ed25519")).expect("an identity");
    let ed25519 = Ed25519Identity::from_bytes(ed25519).to_string();
    let judge = |key: &str| {
        let address = ["conformance", text(&listening, "address"), "--key", key, "--json"];
        let identities = ["--rsa", text(&listening, "fingerprint"), "--ed25519", &ed25519];
        scratch.run(&[&address[..], &identities].concat())
    };

    let ended = judge("coordinator.key");
    let differing: Vec<Value> =
        cases(&ended).into_iter().filter(|case| case["holds"] != true).collect();
    assert_eq!(differing, Vec::<Value>::new());
    ended.assert_code(0);
    assert!(number(&ended.summary(), "held") >= 20.0, "{}", ended.summary());

    // Every case that needs an accepted order differs, and no other.
    let ended = judge("stranger.key");
    ended.assert_code(1);
    let refused = |case: &&Value| text(case, "found").starts_with("an order is refused");
    let cases = cases(&ended);
    assert_eq!(cases.iter().filter(refused).count(), 16, "{cases:?}");
    assert_eq!(number(&ended.summary(), "held"), 4.0, "{cases:?}");
    relay.stop();
}
