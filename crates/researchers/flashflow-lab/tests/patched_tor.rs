//! Our coordinator and measurers with a second implementation of the protocol: C tor with `patches/tor-0.4.9`.
//!
//! `make tor` builds it; without it these tests are skipped.

use serde_json::Value;
use testbin::{Scratch, assert_estimate, number, text};

#[test]
fn a_patched_tor_is_measured_by_echo_next_to_ours_and_an_unmodified_one() {
    let Some(tor) = lab::patched_tor() else {
        skip::this_test!("no patched tor: `make tor` builds it")
    };
    let scratch = Scratch::new();
    let tor = tor.to_str().expect("a readable path");
    let limits = ["--limits", "20", "--echo-limits", "20", "--tor-limits", "20,40"];
    let arguments = [&["demo", "--json", "--seconds", "5", "--tor", tor][..], &limits].concat();
    let ended = scratch.run(&arguments);
    scratch.assert_clean();
    ended.assert_measured();

    let values = ended.values();
    let relays = values.last().expect("output")["relays"].as_array().expect("a list");
    let found = relays.iter().map(|relay| (text(relay, "nickname"), text(relay, "mode")));
    let expected =
        [("relay1", "transit"), ("patched1", "echo"), ("patched2", "echo"), ("echo1", "echo")];
    assert_eq!(found.collect::<Vec<_>>(), expected);
    for relay in &relays[1..3] {
        assert_eq!(relay["error"], Value::Null, "{relay}");
        assert!(number(relay, "cells_checked") > 0.0, "{relay}");
        // Tor's token buckets lose up to a sixth: they refill in steps of 16 ticks, and forget the rest of a step.
        assert_estimate(relay, number(relay, "limit_mbit_per_s"), 0.75, 0.6);
    }
}
