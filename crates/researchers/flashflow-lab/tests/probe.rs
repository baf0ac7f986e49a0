//! End-to-end tests of `flashflow-lab probe` and `flashflow-lab model` in a network of C tor.

use lab::{Network, NetworkSpec, RelaySpec};
use serde_json::Value;
use std::cell::RefCell;
use testbin::Scratch;

fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

#[test]
fn a_probed_model_is_served_by_a_directory_and_merged() {
    let exit = RelaySpec::open_exit("two");
    let spec = NetworkSpec::new(vec![RelaySpec::new("one"), exit]);
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let authorities: Vec<_> = network.directory_addrs().iter().map(ToString::to_string).collect();
    let authorities = authorities.join(",");
    let scratch = Scratch::new();
    let probed = scratch.run(&[
        "probe",
        "--authority",
        &authorities,
        "--hops",
        "2,3",
        "--circuits",
        "4",
        "--rounds",
        "2",
        "--gap-ms",
        "5",
        "--pause-ms",
        "5",
        "--seed",
        "1",
        "--write-model",
        "model.gz",
        "--json",
    ]);
    probed.assert_code(0);
    let values = probed.values();
    let circuits: Vec<&Value> = values.iter().filter(|value| value["type"] == "circuit").collect();
    assert_eq!(circuits.len(), 8);
    for circuit in circuits {
        assert!(circuit["failure"].is_null(), "{circuit}");
        let hops = circuit["path"].as_array().map_or(0, Vec::len);
        let answered = circuit["rtt_ms"].as_array().expect("round trips");
        assert_eq!(
            (circuit["hop_ms"].as_array().map_or(0, Vec::len), answered.len()),
            (hops, hops)
        );
        assert!(
            answered.iter().all(|of_hop| of_hop.as_array().is_some_and(|times| times.len() == 2))
        );
    }
    let summary = values.last().expect("a summary");
    assert_eq!(
        (summary["type"].as_str(), summary["circuits"].as_u64()),
        (Some("summary"), Some(8))
    );

    scratch.run(&["keys", "--out", "directory.key"]).assert_code(0);
    let mut server =
        scratch.start(&["model", "serve", "model.gz", "--key", "directory.key", "--json"]);
    let source = RefCell::new(String::new());
    server.wait_for_out("address", |line| {
        let value = value(line);
        let part = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        source.replace(format!("{}={}", part("address"), part("public_key")));
        value["type"] == "serving"
    });
    let source = source.take();
    let fetched =
        scratch.run(&["model", "fetch", "--from", &source, "--out", "merged.gz", "--json"]);
    fetched.assert_code(0);
    let [merged] = &fetched.values()[..] else { panic!("{:?}", fetched.values()) };
    let links = merged["links"].as_array().expect("links");
    assert_eq!(Some(links.len() as u64), summary["links"].as_u64());
    let entries = merged["relays"].as_array().expect("relays");
    assert!(entries.iter().all(|entry| entry["entry_rtt_ms"].is_null()), "nobody's business");
    // A signature by another key is refused.
    let (address, _) = source.split_once('=').expect("both");
    let other = format!("{address}={}", "11".repeat(32));
    let refused = scratch.run(&["model", "fetch", "--from", &other, "--out", "other.gz"]);
    refused.assert_code(1);
    assert!(refused.error.contains("not signed by the trusted key"), "{}", refused.error);
    assert!(!scratch.path("other.gz").exists());
    server.stop();
    // Downloads from `probe serve`.
    let mut server = scratch.start(&["probe", "serve", "--json"]);
    let at = RefCell::new(String::new());
    server.wait_for_out("address", |line| {
        at.replace(value(line)["address"].as_str().unwrap_or_default().to_owned());
        value(line)["type"] == "serving"
    });
    let at = at.take();
    let more = ["--circuits", "2", "--rounds", "1", "--gap-ms", "5", "--pause-ms", "5", "--json"];
    let probe = ["probe", "--authority", &authorities, "--server", &at, "--bytes", "300000"];
    let probed = scratch.run(&[&probe[..], &more].concat());
    probed.assert_code(0);
    let circuits: Vec<Value> =
        probed.values().into_iter().filter(|value| value["type"] == "circuit").collect();
    let rates = circuits.iter().filter_map(|circuit| circuit["throughput_kb_s"].as_f64());
    assert_eq!(rates.filter(|rate| *rate > 0.0).count(), 2, "{circuits:?}");
    server.stop();
}
