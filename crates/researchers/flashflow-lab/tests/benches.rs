//! Tests of `flashflow-lab bench relay` and `bench idle`. They do not assert any speed.

use testbin::{Scratch, number, text};

#[test]
fn our_relay_c_tor_and_the_least_of_any_relay_are_compared() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["bench", "relay", "--seconds", "4", "--runs", "1", "--json"]);
    ended.assert_code(0);
    let of = |kind| ended.values().into_iter().filter(move |line| line["type"] == kind);
    let runs: Vec<_> = of("run").collect();
    let relays: Vec<&str> = runs.iter().map(|run| text(run, "relay")).collect();
    assert_eq!(relays, ["tor", "ours"]);
    let limits: Vec<_> = of("limit").collect();
    let summary = ended.summary();
    for name in ["bound_gbit_per_cpu_s", "tls_forwarder_gbit_per_cpu_s"] {
        let [limit] = &limits[..] else { panic!("{limits:?}") };
        assert!(number(limit, name) > 0.0, "{limit}");
        assert!((number(&summary, name) - number(limit, name)).abs() < 1e-9, "{summary}");
    }
    let of_bound =
        number(&summary, "ours_gbit_per_cpu_s") / number(&summary, "bound_gbit_per_cpu_s");
    assert!((number(&summary, "share_of_bound") - of_bound).abs() < 1e-9, "{summary}");
    for (name, run) in ["tor_gbit_per_cpu_s", "ours_gbit_per_cpu_s"].iter().zip(&runs) {
        assert!(number(run, "bytes") > 1e6, "{run}");
        let of_run = number(run, "gbit_per_cpu_s");
        assert!((number(&summary, name) - of_run).abs() < 1e-9, "{summary}");
        assert!(
            (number(run, "bytes") * 8e-9 / number(run, "cpu_s") - of_run).abs() < 1e-6,
            "{run}"
        );
    }
    let ratio = number(&summary, "ours_gbit_per_cpu_s") / number(&summary, "tor_gbit_per_cpu_s");
    assert!((number(&summary, "ratio") - ratio).abs() < 1e-9, "{summary}");
    let quiet: Vec<_> =
        ended.values().into_iter().filter(|value| value["type"] == "quiet").collect();
    let loads: Vec<_> =
        quiet.iter().map(|sample| (text(sample, "relay"), text(sample, "load_of"))).collect();
    assert_eq!(loads, [("tor", "tor"), ("ours", "tor"), ("ours", "ours")]);
    for sample in &quiet {
        assert!(
            number(sample, "round_trips") >= 1.0 && number(sample, "round_trip_median_ms") > 0.0,
            "{sample}"
        );
        assert!(number(sample, "load_mbit_per_s") > 1.0, "{sample}");
    }
}

#[test]
fn the_least_of_any_relay_is_that_of_its_parts() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["bench", "limit", "--seconds", "1", "--runs", "1", "--json"]);
    ended.assert_code(0);
    let runs: Vec<_> = ended.values().into_iter().filter(|line| line["type"] == "run").collect();
    let [run] = &runs[..] else { panic!("{runs:?}") };
    let parts = ["cryptography_gbit_per_cpu_s", "kernel_gbit_per_cpu_s"];
    let both: f64 = parts.iter().map(|part| number(run, part).recip()).sum();
    assert!((both.recip() - number(run, "bound_gbit_per_cpu_s")).abs() < 1e-9, "{run}");
    let of_all = number(&ended.summary(), "bound_gbit_per_cpu_s");
    assert!((number(run, "bound_gbit_per_cpu_s") - of_all).abs() < 1e-9, "{run}");
}

#[test]
fn our_client_and_c_tor_are_compared() {
    let scratch = Scratch::new();
    let ended =
        scratch.run(&["bench", "client", "--mb", "20", "--streams", "2", "--runs", "1", "--json"]);
    ended.assert_code(0);
    let runs: Vec<_> = ended.values().into_iter().filter(|value| value["type"] == "run").collect();
    let clients: Vec<&str> = runs.iter().map(|run| text(run, "client")).collect();
    assert_eq!(clients, ["tor", "ours"]);
    let summary = ended.summary();
    for run in &runs {
        let name = text(run, "client");
        assert!((number(run, "bytes") - 4e7).abs() < 1.0, "{run}");
        let of_run = number(run, "gbit_per_cpu_s");
        let of_all = number(&summary, &format!("{name}_gbit_per_cpu_s"));
        assert!((of_all - of_run).abs() < 1e-9, "{summary}");
        assert!(
            (number(run, "bytes") * 8e-9 / number(run, "cpu_s") - of_run).abs() < 1e-6,
            "{run}"
        );
        assert!(number(&summary, &format!("{name}_first_byte_ms")) > 0.0, "{summary}");
    }
    let ratio = number(&summary, "ours_gbit_per_cpu_s") / number(&summary, "tor_gbit_per_cpu_s");
    assert!((number(&summary, "ratio") - ratio).abs() < 1e-9, "{summary}");
    let [ours, tor] =
        ["ours_first_byte_ms", "tor_first_byte_ms"].map(|name| number(&summary, name));
    assert!((number(&summary, "first_byte_ratio") - ours / tor).abs() < 1e-9, "{summary}");
    // One run has no spread.
    assert!(summary["first_byte_ratio_interval"].is_null(), "{summary}");
}

#[test]
fn closed_circuits_release_their_memory() {
    let scratch = Scratch::new();
    let arguments = "bench idle --connections 20 --circuits 400 --soak 40000 --json";
    let ended = scratch.run(&arguments.split(' ').collect::<Vec<_>>());
    ended.assert_code(0);
    let ours = &ended.summary()["ours"];
    assert_eq!((number(ours, "connections"), number(ours, "circuits")), (20.0, 400.0), "{ours}");
    // A circuit takes some kilobytes. If none were released, they would take a hundred megabytes.
    let memory = ours["soak_memory_mb"].as_array().expect("readings");
    assert_eq!(memory.len(), 11, "{ours}");
    let (first, last) = (memory[1].as_f64().expect("MB"), memory[10].as_f64().expect("MB"));
    assert!(last < first + 10.0, "{ours}");
}
