//! `flashflow measure-team`.

use serde_json::Value;
use std::fs;
use testbin::{Scratch, number, text};

#[test]
fn measurers_on_loopback_are_measured() {
    let scratch = Scratch::new();
    let arguments = ["measure-team", "--local", "3", "--seconds", "2", "--rate", "40", "--json"];
    let ended = scratch.run(&arguments);
    ended.assert_code(0);
    let values = ended.values();
    let (summary, members) = values.split_last().expect("output");
    assert_eq!((&summary["type"], &summary["complete"]), (&"summary".into(), &true.into()));
    assert_eq!(members.len(), 3);
    for member in members {
        assert_eq!(member["type"], "measurer");
        assert!(number(member, "capacity_mbit_per_s") > 0.0);
        assert_eq!(member["stranger_connections"], 0);
        let peers = member["peers"].as_array().expect("a list");
        let counts = peers.iter().map(|peer| peer["received_bytes"].as_array().map(Vec::len));
        assert_eq!(counts.collect::<Vec<_>>(), [Some(2), Some(2)]);
    }
}

#[test]
fn wrong_arguments_of_measure_team_are_refused() {
    let scratch = Scratch::new();
    for arguments in [
        &["measure-team"][..],
        &["measure-team", "--local", "1"],
        &["measure-team", "--local", "2", "--seconds", "0"],
        &["measure-team", "--local", "2", "--team", "coordinator.toml"],
    ] {
        scratch.run(arguments).assert_code(2);
    }
}

#[test]
fn with_one_measurer_both_commands_require_a_configured_capacity() {
    let scratch = Scratch::new();
    scratch.run(&["keys", "--out", "own.key"]).assert_code(0);
    let team = "key = \"own.key\"\nout = \"out\"\nauthority = \"127.0.0.1:1\"\n[[measurers]]\naddress = \"127.0.0.1:1\"\n\
                key = \"19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1\"\n";
    fs::write(scratch.path("team.toml"), team).expect("space");
    for command in [&["coordinator", "--once", "--config"][..], &["measure-team", "--team"]] {
        let ended = scratch.run(&[command, &["team.toml"]].concat());
        ended.assert_code(1);
        assert!(ended.error.contains("`capacity_mbit_per_s = 1000`"), "{}", ended.error);
        assert!(ended.error.contains("by hand"), "{}", ended.error);
    }
}

#[test]
fn remote_measurers_are_measured_and_a_missing_one_is_reported() {
    let scratch = Scratch::new();
    let key = |name: &str| {
        let ended = scratch.run(&["keys", "--json", "--out", &format!("{name}.key")]);
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
        fs::write(scratch.path(&file), config).expect("space");
        let mut daemon = scratch.start(&["measurer", "--json", "--config", &file]);
        let address = daemon.wait_for_value()["address"].clone();
        team += &format!("[[measurers]]\naddress = {address}\nkey = \"{public}\"\n");
        daemons.push(daemon);
        public_keys.push(public);
    }
    fs::write(scratch.path("team.toml"), team).expect("space");
    let arguments = ["measure-team", "--team", "team.toml", "--seconds", "2", "--json"];
    let ended = scratch.run(&arguments);
    ended.assert_code(0);
    let summary = ended.summary();
    assert_eq!((&summary["complete"], &summary["measurers"]), (&true.into(), &2.into()));
    assert!(number(&summary, "capacity_mbit_per_s") > 0.0);

    // The output is valid in a coordinator's configuration.
    let ended = scratch.run(&arguments[..5]);
    ended.assert_code(0);
    let lines = ended.out.join("\n");
    for part in ["[[measurers]]\naddress = \"127.0.0.1:", &public_keys[0], &public_keys[1]] {
        assert!(lines.contains(part), "{lines}");
    }
    assert_eq!(lines.matches("\ncapacity_mbit_per_s = ").count(), 2, "{lines}");

    drop(daemons.pop());
    let ended = scratch.run(&arguments);
    ended.assert_code(1);
    assert_eq!(ended.summary()["capacity_mbit_per_s"], Value::Null, "no low number");
    assert!(ended.error.contains("is `flashflow measurer` running?"), "{}", ended.error);
}
