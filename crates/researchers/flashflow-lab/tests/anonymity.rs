//! Tests of `flashflow-lab anonymity`, and of the options that strategies need.

use serde_json::Value;
use std::fs;
use testbin::Scratch;

const CONSENSUS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../engine/netdoc/tests/data/consensus-ns");

/// A document of the public network, if there is one.
fn real(name: &str) -> Option<String> {
    let path = format!("{}/../../../../shared/data/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::metadata(&path).is_ok().then_some(path)
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or(f64::NAN)
}

#[test]
fn results_of_a_small_consensus_are_reproducible() {
    let scratch = Scratch::new();
    let arguments = ["anonymity", "--consensus", CONSENSUS, "--same-subnets", "--json"];
    let (first, second) = (scratch.run(&arguments), scratch.run(&arguments));
    first.assert_code(0);
    assert_eq!(first.values(), second.values());
    let values = first.values();
    assert_eq!(values.len(), 2, "weighted and uniform");
    let two =
        scratch.run(&[&arguments[..], &["--legs", "1,2", "--adversary-relays", "0.4"]].concat());
    let share = |place: usize| number(&two.values()[place]["adversaries"][0], "observed_share");
    assert!(share(1) > share(0) && share(1) < 2.0 * share(0), "{:?}", two.values());
    for value in values {
        assert_eq!(value["type"], "anonymity");
        let exit = &value["exit"];
        assert!(number(exit, "entropy_bits") <= number(exit, "most_bits") + 1e-9, "{value}");
        let share = number(&value["adversaries"][0], "compromised_share");
        assert!((0.0..=1.0).contains(&share), "{value}");
    }
    scratch.assert_clean();
}

#[test]
fn the_public_network_of_2020_gave_weighted_paths_fewer_bits_and_more_to_its_largest_relays() {
    let consensus = real("consensus/2020-02-29-10-00-00-consensus");
    let descriptors = real("descriptors/2020-02-29-10-05-00-server-descriptors");
    let (Some(consensus), Some(descriptors)) = (consensus, descriptors) else {
        skip::this_test!("there is no whole consensus in ../shared/data");
    };
    let scratch = Scratch::new();
    let ended = scratch.run(&[
        "anonymity",
        "--consensus",
        &consensus,
        "--descriptors",
        &descriptors,
        "--strategy",
        "weighted",
        "--strategy",
        "uniform",
        "--strategy",
        "ranking",
        "--adversary-largest",
        "0.1",
        "--adversary-relays",
        "0.1",
        "--pairs",
        "20",
        "--json",
    ]);
    ended.assert_code(0);
    let values = ended.values();
    let [weighted, uniform, ranking] = &values[..] else { panic!("{values:?}") };
    let bits = |value: &Value| number(value, "path_bits");
    assert!(bits(weighted) < bits(ranking) && bits(ranking) < bits(uniform));
    // Some thousands of relays in three places.
    assert!((25.0..38.0).contains(&bits(uniform)), "{uniform}");
    let share = |value: &Value, nth: usize| number(&value["adversaries"][nth], "compromised_share");
    assert!(share(weighted, 1) > 10.0 * share(uniform, 1), "{weighted} {uniform}");
    // A random tenth of all relays is at both ends of about a hundredth of uniform paths.
    assert!((0.005..0.02).contains(&share(uniform, 0)), "{uniform}");
}

#[test]
fn missing_options_of_a_strategy_are_named() {
    let scratch = Scratch::new();
    fs::write(scratch.path("geoip"), "10.0.0.0,10.0.0.255,DE\n").expect("written");
    fs::write(scratch.path("broken"), "what,is,this\n").expect("written");
    let asked = |more: &[&'static str], code: i32, word: &str| {
        let mut arguments = vec!["anonymity", "--consensus", CONSENSUS];
        arguments.extend_from_slice(more);
        let ended = scratch.run(&arguments);
        ended.assert_code(code);
        assert!(ended.error.contains(word), "{more:?}: {}", ended.error);
    };
    asked(&["--strategy", "geography"], 2, "--geo");
    asked(&["--geo", "country=DE", "--countries", "nowhere"], 1, "tor-geoipdb");
    asked(&["--geo", "country=FR", "--countries", "geoip"], 2, "FR");
    asked(&["--geo", "country=Germany"], 2, "two letters");
    asked(&["--geo", "country=DE", "--countries", "broken"], 1, "line 1");
    asked(&["--strategy", "latency"], 2, "flashflow-lab probe");
    asked(&["--strategy", "throughput", "--model", "geoip"], 1, "gzip");
    asked(&["--strategy", "measured"], 2, "--bwfile");
    asked(&["--strategy", "ranking"], 2, "--descriptors");
    asked(&["--influence", "2", "--strategy", "ranking"], 2, "0 to 1");
    asked(&["--adversary-relays", "7"], 2, "0 to 1");
    // All relays of that network are on loopback, which has no country.
    asked(
        &["--strategy", "geography", "--geo", "country=DE", "--countries", "geoip"],
        1,
        "no exit",
    );
    scratch.assert_clean();
}

#[test]
fn measurements_of_other_relays_are_an_error_and_zero_weights_are_uniform() {
    let scratch = Scratch::new();
    let strangers =
        format!("1767225600\nversion=1.9.0\n=====\nnode_id=${} bw=5\n", "AB".repeat(20));
    fs::write(scratch.path("strangers"), strangers).expect("written");
    let measured = ["--strategy", "measured", "--bwfile", "strangers"];
    let ended = scratch.run(&[&["anonymity", "--consensus", CONSENSUS][..], &measured].concat());
    ended.assert_code(1);
    assert!(ended.error.contains("no relay of the consensus has a measurement"), "{}", ended.error);

    let text = fs::read_to_string(CONSENSUS).expect("a consensus");
    let weightless = text.lines().map(|line| match line.split_once("w Bandwidth=") {
        Some(("", _)) => "w Bandwidth=0\n".to_owned(),
        _ => format!("{line}\n"),
    });
    fs::write(scratch.path("zero"), weightless.collect::<String>()).expect("written");
    let ended = scratch.run(&["anonymity", "--consensus", "zero", "--same-subnets", "--json"]);
    ended.assert_code(0);
    assert!(ended.error.contains("all relays weigh 0"), "{}", ended.error);
    let values = ended.values();
    assert_eq!(values[0]["exit"], values[1]["exit"], "weighted and uniform");
    for value in &values {
        assert!(number(&value["adversaries"][0], "compromised_share") < 0.5, "{value}");
    }
    let planned = scratch.run(&["schedule", "--consensus", "zero", "--team", "1000"]);
    planned.assert_code(1);
    assert!(planned.error.contains("every relay that is up has the weight 0"), "{}", planned.error);
    let sampled =
        scratch.run(&["sim", "sample", "--consensus", "zero", "--scale", "1", "--out", "x"]);
    sampled.assert_code(1);
    assert!(sampled.error.contains("every relay that is up has the weight 0"), "{}", sampled.error);
}
