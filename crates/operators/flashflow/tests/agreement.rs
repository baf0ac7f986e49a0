//! Coordinators of several authorities, as processes: one secret seed for all of them.

use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use testbin::team::{make_key, measurer_of};
use testbin::{Scratch, text};

/// Five rounds, and somewhat more.
const PERIOD_S: u64 = 38;
const ROUND_S: u64 = 6;

/// A closed port, at an address that no other test uses.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.38.6.1:0").expect("loopback");
    listener.local_addr().expect("bound")
}

/// The secret seed that a coordinator stores for a period.
fn seed(scratch: &Scratch, name: &str, period: &Value) -> String {
    let kept = fs::read_to_string(scratch.path(&format!("{name}/schedule.agreed"))).expect("kept");
    let mut lines = kept.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let line = lines.find(|line| line["period_unix_s"] == *period).expect("of this period");
    text(&line, "seed").to_owned()
}

#[test]
fn two_coordinators_agree_on_a_seed_although_a_third_fails_halfway() {
    let scratch = Scratch::new();
    let names = ["first", "second", "third"];
    let keys = names.map(|name| make_key(&scratch, &format!("{name}.key")));
    // The agreement needs neither a network nor measurers.
    let measurer = make_key(&scratch, "m.key");
    // A coordinator that joins during an agreement waits for the next one.
    let is_early = || link::unix_time_s() % PERIOD_S < 3;
    testbin::wait_for("a period", || is_early().then_some(()));
    let addresses = names.map(|_| free());
    for (own, name) in names.iter().enumerate() {
        let mut config = format!(
            "key = \"{name}.key\"\nout = \"{name}\"\nauthority = \"127.0.0.1:1\"\nperiod_s = {PERIOD_S}\nslot_s = 7\n\
             agree_listen = \"{}\"\nagree_round_s = {ROUND_S}\n{}",
            addresses[own],
            measurer_of("127.0.0.1:1", &measurer),
        );
        for other in (0..names.len()).filter(|other| *other != own) {
            config += &format!(
                "[[authorities]]\nname = \"{}\"\naddress = \"{}\"\nkey = \"{}\"\n",
                names[other], addresses[other], keys[other]
            );
        }
        fs::write(scratch.path(&format!("{name}.toml")), config).expect("written");
    }
    let mut runs = names
        .map(|name| scratch.start(&["coordinator", "--config", &format!("{name}.toml"), "--json"]));
    runs[0]
        .wait_for_error("the commitment of the third", |line| line.contains("third has committed"));
    runs[1]
        .wait_for_error("the commitment of the third", |line| line.contains("third has committed"));
    // Before any coordinator reveals its share.
    runs[2].signal(Signal::KILL);
    let agreements = [0, 1].map(|place| runs[place].wait_for_record("agreement", |_| true));
    for one in &agreements {
        assert_eq!(one["agreed"], true, "{agreements:#?}");
        assert_eq!(one["members"].as_array().map(Vec::len), Some(2), "{agreements:#?}");
        assert_eq!(one["without"][0]["name"], "third");
        assert!(text(&one["without"][0], "why").contains("did not reveal"), "{agreements:#?}");
        assert_eq!(one["unconfirmed"].as_array().map(Vec::len), Some(0), "{agreements:#?}");
        assert_eq!(
            (&one["mark"], &one["period_unix_s"]),
            (&agreements[0]["mark"], &agreements[0]["period_unix_s"])
        );
    }
    // The seeds are the same, and so are the plans.
    let consensus =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/netdoc/tests/data/consensus-ns");
    let consensus = consensus.to_str().expect("text");
    let plans = ["first", "second"].map(|name| {
        let seed = seed(&scratch, name, &agreements[0]["period_unix_s"]);
        let teams = ["--team", "2000", "--team", "2000"];
        let fixed = ["schedule", "--json", "--consensus", consensus, "--seed", &seed];
        let ended = scratch.run(&[&fixed[..], &teams].concat());
        ended.assert_code(0);
        text(&ended.summary(), "fingerprint").to_owned()
    });
    assert_eq!(plans[0], plans[1]);
    // The seed is secret during the period.
    let seed = seed(&scratch, "first", &agreements[0]["period_unix_s"]);
    let [first, second, third] = runs;
    for run in [first, second] {
        run.signal(Signal::TERM);
        let ended = run.end();
        ended.assert_code(130);
        assert!(!ended.error.contains(&seed) && !ended.out.concat().contains(&seed));
    }
    drop(third);
    scratch.wait_until_clean();
}
