//! `flashflow-lab conformance` against `flashflow relay`.

use hex::FromHex as _;
use netdoc::Ed25519Id;
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
         measurements_allowed = true\nallowed_coordinators = [\"{coordinator}\"]\nmeasurements_per_period = 50\n\
         max_measurement_duration_s = 10\n"
    );
    fs::write(scratch.path("relay.toml"), configuration).expect("writable");
    let mut relay = scratch.start(&["relay", "--config", "relay.toml", "--json"]);
    let listening = relay.wait_for_record("listening", |_| true);
    let ed25519 = <[u8; 32]>::from_hex(text(&listening, "ed25519")).expect("an identity");
    let ed25519 = Ed25519Id(ed25519).to_string();
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
    assert!(number(&ended.summary(), "held") >= 48.0, "{}", ended.summary());

    // Only answers that do not depend on the coordinator's key are the same.
    let ended = judge("stranger.key");
    ended.assert_code(1);
    let cases = cases(&ended);
    let same = cases.iter().filter(|case| case["holds"] == true).map(|case| text(case, "name"));
    let expected = [
        "an error on an ordinary link",
        "an unknown kind",
        "a message that is too long",
        "an order without fields",
        "PROVEN from a coordinator",
        "an order of an unknown coordinator",
        "an order for another session",
        "an order of 33 measurers",
        "a proof without a measurement",
    ];
    assert_eq!(same.collect::<Vec<_>>(), expected, "{cases:?}");
    relay.stop();
}
