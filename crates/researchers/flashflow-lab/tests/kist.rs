//! `flashflow-lab experiment kist`, in network namespaces.

use rustix::process::Signal;
use testbin::{Scratch, lacking, number, text};

/// Asserts only properties that do not depend on the speed of this machine: the report agrees with its runs, and KIST keeps cells out of the
/// kernel. `crates/engine/sim/tests/figures/schedulers.rs` asserts the gain of quiet circuits in virtual time.
#[test]
fn all_schedulers_are_run_and_compared() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let ended =
        scratch.run_experiment("experiment kist --quick --runs 1 --seconds 2 --out results --json");
    let summary = ended.summary();
    assert_eq!(text(&summary, "experiment"), "kist");
    let cases = summary["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 6, "{summary}");
    let (claims, runs) = cases.split_at(3);
    for (run, scheduler) in runs.iter().zip(["Vanilla", "KISTLite", "KIST"]) {
        assert_eq!((text(run, "scheduler"), text(run, "verdict")), (scheduler, "held"), "{run}");
        // Positive, and at most the bottleneck's rate plus data queued during a pause of the machine.
        let carried = number(run, "mbit_per_s");
        assert!(carried > 0.0 && carried < 25.0, "{run}");
    }
    let (vanilla, kist) = (&runs[0], &runs[2]);
    let columns = ["queue_ms", "first_byte_ms", "mbit_per_s"];
    for (claim, column) in claims.iter().zip(columns) {
        assert!(text(claim, "name").starts_with("KIST: "), "{claim}");
        // With one run each, medians are the values of the runs.
        let (ratio, shown) =
            (number(claim, "ratio"), number(kist, column) / number(vanilla, column));
        assert!((ratio / shown - 1.0).abs() < 1e-6, "{claim}: {shown}");
    }
    let kernel = |run| number(run, "kernel_kib");
    assert!(kernel(kist) > 0.0 && kernel(kist) < 0.8 * kernel(vanilla), "{vanilla} {kist}");
    for file in ["kist.html", "kist.json", "kist.csv", "kist-queue-time.svg", "kist-first-byte.svg"]
    {
        assert!(scratch.path("results").join(file).is_file(), "{file}");
    }
}

#[test]
fn an_interrupted_experiment_leaves_nothing() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let running = scratch.start(&["experiment", "kist", "--out", "results", "--json"]);
    testbin::wait_for("a relay", || (!scratch.processes().is_empty()).then_some(()));
    running.signal(Signal::INT);
    let ended = running.end();
    ended.assert_code(130);
    scratch.wait_until_clean();
}
