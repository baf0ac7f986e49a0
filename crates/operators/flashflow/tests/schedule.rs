//! Tests of `flashflow schedule`.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use testbin::{Ended, Scratch, number, text};

/// A consensus with a few relays.
fn small() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../engine/netdoc/tests/data/consensus-ns")
}

/// A consensus of the public network. Without it, the test is skipped.
macro_rules! real {
    ($hour:literal) => {{
        let name =
            concat!("../../../../shared/data/consensus/2020-02-29-", $hour, "-00-00-consensus");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        if !path.exists() {
            skip::this_test!("there is no {}", path.display());
        }
        path
    }};
}

fn schedule(consensus: &Path, more: &[&str]) -> Ended {
    let consensus = consensus.to_str().expect("UTF-8");
    let fixed = ["schedule", "--json", "--consensus", consensus];
    Scratch::new().run(&[&fixed[..], more].concat())
}

/// The last value.
fn summary(ended: &Ended) -> Value {
    let summary = ended.summary();
    assert_eq!(summary["type"], "summary", "{ended:?}");
    summary
}

/// The network of §7 of the paper, and its slots.
const JULY_2019: [&str; 10] = [
    "--total-gbit-per-s",
    "608",
    "--max-mbit-per-s",
    "998",
    "--excess",
    "2.84",
    "--slot-s",
    "30",
    "--at-once",
    "1000000",
];
const TEAM: [&str; 2] = ["--team", "1000,1000,1000"];
const SEED: [&str; 2] =
    ["--seed", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"];

#[test]
fn the_shortest_plan_is_within_a_slot_of_the_lower_bound() {
    for consensus in [real!("10"), real!("11")] {
        for apart in [&[][..], &["--apart"]] {
            let more = [&JULY_2019[..], &TEAM, &["--greedy"], apart].concat();
            let ended = schedule(&consensus, &more);
            // Machines with several relays need more than the team has.
            ended.assert_code(if apart.is_empty() { 3 } else { 0 });
            let summary = summary(&ended);
            let number = |name: &str| number(&summary, name);
            assert!((number("bound_slots") - 575.57).abs() < 0.01, "{summary}");
            assert!(number("slots") <= number("bound_slots") + 1.0, "{summary}");
            assert_eq!(summary["relays"], ended.out.len() - 1, "each relay once");
            // Machines that the team could measure alone get their full allocation.
            if !apart.is_empty() {
                assert_eq!(number("short_machines"), 0.0, "{summary}");
                assert!(number("slots") >= number("bound_slots"), "{summary}");
            }
        }
    }
}

#[test]
fn nine_teams_with_one_seed_have_one_plan_and_new_relays_move_no_other() {
    let (first, later) = (real!("10"), real!("11"));
    let later = later.to_str().expect("UTF-8");
    let teams = TEAM.repeat(9);
    let plan = |seed: &[&str]| {
        let more = [&JULY_2019[..], &teams, seed, &["--next", later]].concat();
        let ended = schedule(&first, &more);
        ended.assert_code(3);
        ended.values()
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
    let seed = drawn[last]["seed"].as_str().expect("a seed");
    assert_eq!(plan(&["--seed", seed])[..last], drawn[..last]);
    let newcomers = &one[last - 1];
    // Counted with grep and comm.
    assert_eq!((&newcomers["type"], &newcomers["new"]), (&"newcomers".into(), &72.into()));
    assert_eq!(newcomers["moved"], 0);
    // The paper: at most 13 minutes.
    assert!(newcomers["measured_after_max_s"].as_u64() <= Some(13 * 60), "{newcomers}");
}

#[test]
fn a_period_that_is_too_short_is_reported() {
    schedule(&small(), &["--team", "1", "--period-s", "66", "--greedy"]).assert_code(1);
    let short = summary(&schedule(&small(), &["--team", "1", "--period-s", "33"]));
    assert!(short["without_slot"].as_u64() > Some(0), "{short}");
}

/// The default of a setting, from the coordinator's sample.
fn default_of_coordinator(setting: &str) -> u64 {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/coordinator.toml");
    let sample = std::fs::read_to_string(sample).expect("the sample");
    let mut lines = sample.lines().filter_map(|line| line.strip_prefix("#: ")?.split_once(" = "));
    let value = lines.find_map(|(name, value)| (name == setting).then_some(value));
    value.expect(setting).parse().expect("a number")
}

#[test]
fn the_defaults_are_those_of_the_coordinator() {
    let plan = |more: &[&str]| summary(&schedule(&small(), &[&["--team", "4000"], more].concat()));
    let usual = plan(&[]);
    assert_eq!(usual["slot_s"], default_of_coordinator("slot_s"), "{usual}");
    assert_eq!(usual["period_slots"], 86_400 / default_of_coordinator("slot_s"), "{usual}");
    // The maximum number of simultaneous rounds of a measurer.
    assert_eq!(usual["at_once"], 64, "{usual}");
    let other = plan(&["--slot-s", "30", "--at-once", "5"]);
    assert_eq!((&other["slot_s"], &other["at_once"]), (&30.into(), &5.into()), "{other}");
}

#[test]
fn a_team_that_is_too_small_for_some_relays_has_its_own_status() {
    let scratch = Scratch::new();
    let consensus = small();
    let consensus = consensus.to_str().expect("UTF-8");
    let run = |team: &str, code| {
        let ended = scratch.run(&["schedule", "--team", team, "--consensus", consensus]);
        ended.assert_code(code);
        ended.out.join("\n")
    };
    assert!(!run("100000", 0).contains("lower bound"));
    // Each relay has a slot, but some cannot be loaded enough in any slot.
    let printed = run("50", 3);
    assert!(printed.contains("0 measurements without a slot"), "{printed}");
    let values = schedule(&small(), &["--team", "50"]).values();
    let (summary, measurements) = values.split_last().expect("a summary");
    let short = summary["lower_bound_relays"].as_u64().expect("a number");
    let needs = number(summary, "largest_need_mbit_per_s");
    let excess = number(summary, "excess");
    // Relays at one address are one machine.
    let mut machines: BTreeMap<&str, (f64, u64)> = BTreeMap::new();
    for value in measurements {
        let (capacity, relays) = machines.entry(text(value, "machine")).or_default();
        *capacity += number(value, "capacity_mbit_per_s");
        *relays += 1;
    }
    let too_large = machines.values().filter(|(capacity, _)| capacity * excess > 50.0);
    assert_eq!(short, too_large.map(|(_, relays)| relays).sum::<u64>(), "{summary}");
    assert!(short > 0, "{summary}");
    let word = if short == 1 { "relay" } else { "relays" };
    let warning = format!(
        "warning: {short} {word} will only get lower bounds: the smallest team has 50 Mbit/s, the largest machine needs {needs:.0} Mbit/s"
    );
    assert!(printed.contains(&warning), "no {warning} in {printed}");
    assert!(printed.contains("; 1 team; "), "{printed}");
}

#[test]
fn errors_name_the_problem() {
    for (more, code, word) in [
        (&["--team", "1000,x"][..], 2, "not a rate above zero"),
        (&["--team", "1000", "--seed", "12"], 2, "64 hexadecimal digits"),
        (&["--team", "1000", "--families"], 2, "--descriptors"),
        (&["--team", "1000", "--excess", "nan"], 2, "--excess NaN"),
        (&["--team", "1000", "--total-gbit-per-s", "9", "--max-mbit-per-s", "1"], 2, "no such sum"),
        (&["--team", "1000", "--next", "/nowhere"], 1, "/nowhere"),
        (&[], 2, "--team"),
    ] {
        let ended = schedule(&small(), more);
        ended.assert_code(code);
        ended.assert_refused(&[word]);
    }
}

#[test]
fn a_coordinators_configuration_is_planned_as_it_would_measure() {
    let scratch = Scratch::new();
    let config = |more: &str, capacity: u32| {
        let consensus = small();
        let text = format!(
            "key = \"c.key\"\nout = \"out\"\nconsensus = \"{}\"\nopt_in = \"list\"\n{more}\n[[measurers]]\n\
             address = \"127.0.0.1:1\"\ncapacity_mbit_per_s = {capacity}\n\
             key = \"19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1\"\n",
            consensus.display()
        );
        std::fs::write(scratch.path("c.toml"), text).expect("space");
        scratch.run(&["schedule", "--json", "--config", "c.toml"])
    };
    testbin::team::make_key(&scratch, "c.key");
    std::fs::write(scratch.path("list"), "").expect("space");
    config("", 100_000).assert_refused(&["no relay may be measured"]);

    let text = std::fs::read(small()).expect("the consensus");
    let consensus = netdoc::consensus::Consensus::parse(&text).expect("a consensus");
    let measurable = consensus.routers().iter().filter(|router| router.is_measurable());
    let all: Vec<String> =
        measurable.map(|measurable| measurable.fingerprint.to_string()).collect();
    std::fs::write(scratch.path("list"), all.join("\n")).expect("space");
    let ended = config("seconds = 20\nperiod_s = 7200\nat_once_max = 3", 100_000);
    ended.assert_code(0);
    let summary = ended.summary();
    let slot_s = default_of_coordinator("slot_s") - 10;
    assert_eq!(
        (&summary["slot_s"], &summary["period_slots"]),
        (&slot_s.into(), &(7200 / slot_s).into())
    );
    assert_eq!((&summary["relays"], &summary["at_once"]), (&all.len().into(), &3.into()));
    std::fs::write(scratch.path("list"), &all[0]).expect("space");
    assert_eq!(config("", 100_000).summary()["relays"], 1, "only the one that opted in");
    std::fs::write(scratch.path("list"), all.join("\n")).expect("space");
    config("", 50).assert_code(3);
    config("period_s = 33", 1).assert_code(1);
    let planned = scratch.run(&["schedule", "--config", "c.toml"]).out.join("\n");
    assert!(planned.contains("\nlower bounds: "), "{planned}");
}

#[test]
fn the_number_of_used_slots_is_not_that_of_the_last_one() {
    let scratch = Scratch::new();
    let consensus = small();
    let consensus = consensus.to_str().expect("UTF-8");
    let arguments = ["schedule", "--consensus", consensus, "--team", "1000000", SEED[0], SEED[1]];
    let json = scratch.run(&[&arguments[..], &["--json"]].concat());
    let summary = summary(&json);
    let measurements = json.values().into_iter().filter(|line| line["type"] == "measurement");
    let slots: BTreeMap<u64, Value> =
        measurements.map(|line| (line["slot"].as_u64().expect("a number"), line)).collect();
    let last = *slots.keys().last().expect("relays");
    assert!((slots.len() as u64) < last, "spread over the day: {slots:?}");
    assert_eq!(summary["used_slots"], slots.len(), "{summary}");
    assert_eq!(summary["slots"], last + 1, "{summary}");
    let load = number(&summary, "mean_load");
    assert!(load > 0.0 && load < 1.0, "{summary}");
    let text = scratch.run(&arguments).out.join("\n");
    let begins_h = last as f64 * number(&summary, "slot_s") / 3600.0;
    let expected = format!(
        "{} (load {:.0} %) of 2618 slots of 33 s used; the last begins after {begins_h:.1} h",
        slots.len(),
        load * 100.0
    );
    assert!(text.contains(&expected), "{expected}: {text}");
}

#[test]
fn the_sufficient_team_has_a_plan_with_room_and_a_smaller_one_has_not() {
    let plan = |team: f64| {
        summary(&schedule(
            &small(),
            &["--team", &team.to_string(), "--greedy", "--max-mbit-per-s", "20"],
        ))
    };
    let sufficient = number(&plan(500.0), "sufficient_team_mbit_per_s");
    let share = |team| {
        let plan = plan(team);
        number(&plan, "slots") / number(&plan, "period_slots")
    };
    assert!(share(sufficient) * 1.1 <= 1.0, "{sufficient}");
    let is_smallest = share(sufficient * 0.98) * 1.1 > 1.0;
    // What the largest machine needs is the other limit.
    let needs = number(&plan(500.0), "largest_need_mbit_per_s");
    assert!(is_smallest || sufficient <= needs * 1.01, "{sufficient}, {needs}");
}

#[test]
fn relays_that_decline_are_left_out_and_second_turns_need_a_larger_team() {
    let plan = |more: &[&str]| {
        let fixed = ["--team", "500", "--greedy", "--max-mbit-per-s", "20"];
        summary(&schedule(&small(), &[&fixed[..], more].concat()))
    };
    let (all, some, again) =
        (plan(&[]), plan(&["--declines", "0.3"]), plan(&["--second-turns", "0.5"]));
    let share = number(&some, "relays") / number(&all, "relays");
    assert!((0.6..0.8).contains(&share), "{share}");
    assert_eq!(number(&again, "relays"), number(&all, "relays"));
    let ratio = number(&again, "traffic_tb") / number(&all, "traffic_tb");
    assert!((ratio - 2.0).abs() < 1e-9, "half of them with twice the load: {ratio}");
    let team = |plan| number(plan, "sufficient_team_mbit_per_s");
    assert!(team(&some) <= team(&all) && team(&all) <= team(&again), "{all} {some} {again}");
    for share in ["-0.1", "1.1", "nan"] {
        for name in ["--declines", "--second-turns"] {
            let option = format!("{name}={share}");
            schedule(&small(), &["--team", "500", &option]).assert_refused(&[name]);
        }
    }
}
