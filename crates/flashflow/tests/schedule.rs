//! `flashflow schedule`, as users call it.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Another consensus than the real ones, with a few relays.
fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../netdoc/tests/data/consensus-ns")
}

/// A whole consensus of the public network; without it, the test is skipped.
macro_rules! real {
    ($hour:literal) => {{
        let name = concat!("../../../shared/data/consensus/2020-02-29-", $hour, "-00-00-consensus");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        if !path.exists() {
            skip::this_test!("there is no {}", path.display());
        }
        path
    }};
}

fn schedule(consensus: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashflow"));
    command.args(["schedule", "--json", "--consensus"]).arg(consensus).args(more);
    command.output().expect("it starts")
}

/// All values; the last one is the summary.
fn values(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let values: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(values.last().expect("a summary")["type"], "summary", "{output:?}");
    values
}

/// The network of §7 of the paper.
const JULY_2019: [&str; 6] =
    ["--total-gbit-per-s", "608", "--max-mbit-per-s", "998", "--excess", "2.84"];
const TEAM: [&str; 2] = ["--team", "1000,1000,1000"];
const SEED: [&str; 2] =
    ["--seed", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"];

#[test]
fn the_fastest_plan_is_within_a_slot_of_what_the_relays_need() {
    for consensus in [real!("10"), real!("11")] {
        for apart in [&[][..], &["--apart"]] {
            let more = [&JULY_2019[..], &TEAM, &["--greedy"], apart].concat();
            let output = schedule(&consensus, &more);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            let values = values(&output);
            let summary = &values[values.len() - 1];
            let number = |name: &str| summary[name].as_f64().expect("a number");
            assert!((number("bound_slots") - 575.57).abs() < 0.01, "{summary}");
            assert!(number("slots") <= number("bound_slots") + 1.0, "{summary}");
            assert_eq!(summary["relays"], values.len() - 1, "each relay once");
            // None that the team could measure alone would go short.
            if !apart.is_empty() {
                assert_eq!(number("short_machines"), 0.0, "{summary}");
                assert!(number("slots") >= number("bound_slots"), "{summary}");
            }
        }
    }
}

#[test]
fn nine_teams_with_one_seed_have_one_plan_and_new_relays_move_nobody() {
    let (first, later) = (real!("10"), real!("11"));
    let later = later.to_str().expect("UTF-8");
    let teams = TEAM.repeat(9);
    let plan = |seed: &[&str]| {
        let more = [&JULY_2019[..], &teams, seed, &["--next", later]].concat();
        let output = schedule(&first, &more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        values(&output)
    };
    let (one, same) = (plan(&SEED), plan(&SEED));
    let last = one.len() - 1;
    // Golden: the same on all machines and in all builds.
    assert_eq!(
        one[last]["fingerprint"],
        "b4bcbd5f7714263dcec699ce3b5a3c4ddebb42391d43ebf1046b60c88ea5bbdc"
    );
    assert_eq!(one[..last], same[..last]);
    assert!(one[last].get("seed").is_none(), "it is known");
    let drawn = plan(&[]);
    assert_ne!(drawn[last]["fingerprint"], one[last]["fingerprint"]);
    let seed = drawn[last]["seed"].as_str().expect("told");
    assert_eq!(plan(&["--seed", seed])[..last], drawn[..last]);
    let newcomers = &one[last - 1];
    // Counted with grep and comm.
    assert_eq!((&newcomers["type"], &newcomers["new"]), (&"newcomers".into(), &72.into()));
    assert_eq!(newcomers["moved"], 0);
    // The paper: at most 13 minutes.
    assert!(newcomers["measured_after_max_s"].as_u64() <= Some(13 * 60), "{newcomers}");
}

#[test]
fn a_period_that_is_too_short_is_told() {
    let output = schedule(&small(), &["--team", "1", "--period-s", "60", "--greedy"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let short = values(&schedule(&small(), &["--team", "1", "--period-s", "30"]));
    assert!(short[short.len() - 1]["without_slot"].as_u64() > Some(0), "{short:?}");
}

#[test]
fn what_is_wrong_is_told() {
    for (more, code, word) in [
        (&["--team", "1000,x"][..], 2, "no rate above zero"),
        (&["--team", "1000", "--seed", "12"], 2, "64 hexadecimal digits"),
        (&["--team", "1000", "--families"], 2, "--descriptors"),
        (&["--team", "1000", "--excess", "nan"], 1, "--excess NaN"),
        (&["--team", "1000", "--total-gbit-per-s", "9", "--max-mbit-per-s", "1"], 1, "no such sum"),
        (&["--team", "1000", "--next", "/nowhere"], 1, "/nowhere"),
        (&[], 2, "--team"),
    ] {
        let output = schedule(&small(), more);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(word), "{told}");
    }
}
