//! Daemons whose calendar clock is wrong for a while: when it is right again, everything works as before.

use lab::{Network, NetworkSpec};
use netdoc::bwfile::BandwidthFile;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use testbin::fake_clock::FakeClock;
use testbin::team::{
    make_key, measurer_of, ready_measurer, two_relays_by_plan, write_consensus, write_measurer,
};
use testbin::{Running, Scratch};

const DAY_S: i64 = 24 * 3600;
const NO_LIBRARY: &str = "libfaketime (Debian: faketime)";

/// The jumps of a clock in the output, in seconds.
fn jumps<'l>(out: impl IntoIterator<Item = &'l String>) -> Vec<i64> {
    let values = out.into_iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values
        .filter(|value| value["type"] == "clock_jumped")
        .filter_map(|value| value["by_s"].as_i64())
        .collect()
}

/// Sets the clock, and waits until the program has noticed it.
fn jump(running: &mut Running, clock: &FakeClock, offset_s: i64) {
    let count = jumps(running.out()).len() + 1;
    clock.set(offset_s);
    running.wait_for_outs("a jump", count, |line| line.contains("\"clock_jumped\""));
}

/// Waits for one more line for which `holds` is true.
fn wait_for_another(running: &mut Running, what: &str, holds: impl Fn(&str) -> bool) {
    let count = running.out().iter().filter(|line| holds(line)).count() + 1;
    running.wait_for_outs(what, count, holds);
}

fn assert_jumps(found: &[i64], expected: &[i64]) {
    let is_it = |(found, expected): (&i64, &i64)| found.abs_diff(*expected) < 10;
    let are_they = found.len() == expected.len() && found.iter().zip(expected).all(is_it);
    assert!(are_they, "each once: {found:?}");
}

#[test]
fn a_relay_whose_clock_was_wrong_is_accepted_when_it_is_right() {
    let scratch = Scratch::new();
    let Some(clock) = FakeClock::new(&scratch, "clock") else { skip::this_test!("{NO_LIBRARY}") };
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let authorities = network.directory_addrs();
    let list = authorities.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let relay = ["relay", "--nickname", "mine", "--address", "127.0.0.1", "--keys", "keys"];
    let options = ["--authority", &list, "--assume-reachable", "--json"];
    let mut relay = Running::new(clock.command(&scratch, &[&relay[..], &options].concat()));
    relay.wait_for_record("listed", |value| value["flags"].is_array());
    let is_answered = |line: &str, answers: &[&str]| {
        answers.iter().any(|answer| line.contains(&format!("\"answer\":\"{answer}\"")))
    };
    // Two hours last: afterwards the authorities have a descriptor that is ahead, and keep it.
    let offsets_s = [40 * DAY_S, -3 * DAY_S, 7200];
    let mut expected = Vec::new();
    for offset_s in offsets_s {
        jump(&mut relay, &clock, offset_s);
        wait_for_another(&mut relay, "an answer", |line| {
            is_answered(line, &["accepted", "not_new", "refused"])
        });
        jump(&mut relay, &clock, 0);
        wait_for_another(&mut relay, "acceptance", |line| {
            is_answered(line, &["accepted", "not_new"])
        });
        expected.extend([offset_s, -offset_s]);
    }
    relay.signal(Signal::TERM);
    let ended = relay.end();
    ended.assert_code(0);
    assert_jumps(&jumps(&ended.out), &expected);
    assert!(!ended.error.contains("renewed: onion key"), "{}", ended.error);
    network.stop().expect("down");
    scratch.wait_until_clean();
}

#[test]
fn a_measurer_with_another_time_is_named_and_not_used() {
    let scratch = Scratch::new();
    let coordinator = make_key(&scratch, "c.key");
    let mut config =
        "key = \"c.key\"\nout = \"bandwidth\"\nconsensus = \"consensus\"\nopt_in = \"all\"\n"
            .to_owned();
    let mut measurers = Vec::new();
    for (name, offset_s) in [("m1", 3 * DAY_S), ("m2", -60)] {
        let Some(clock) = FakeClock::new(&scratch, &format!("{name}.clock")) else {
            skip::this_test!("{NO_LIBRARY}")
        };
        clock.set(offset_s);
        let key = make_key(&scratch, &format!("{name}.key"));
        write_measurer(&scratch, name, "127.0.0.1:0", &coordinator);
        let file = format!("{name}.toml");
        let command = clock.command(&scratch, &["measurer", "--config", &file]);
        let (measurer, address) = ready_measurer(Running::new(command));
        config += &measurer_of(&address, &key);
        measurers.push(measurer);
    }
    fs::write(scratch.path("c.toml"), config).expect("written");
    let opted_in = write_consensus(&scratch, "consensus", 0);
    fs::write(scratch.path("all"), opted_in).expect("written");
    let run = || scratch.run(&["coordinator", "--config", "c.toml", "--once"]);
    let differs = "differs from ours by";
    let [ahead, behind] = ["+259", "-6"].map(|by| format!("{differs} {by}"));
    run().assert_refused(&["no measurer of the team", &ahead, &behind]);
    // Before a measurer is needed, the consensus must be of this time.
    for (offset_s, problem) in [(-3 * DAY_S, "ended at"), (3 * DAY_S, "is not valid before")] {
        write_consensus(&scratch, "consensus", offset_s);
        run().assert_refused(&["is not used", problem, "correct the clock"]);
    }
    for measurer in measurers {
        measurer.stop();
    }
}

/// The path of a date after this one, if there is any.
fn later_than(value: &Value, now_unix_s: u64) -> Option<String> {
    let Value::Object(fields) = value else {
        return value.as_array()?.iter().find_map(|value| later_than(value, now_unix_s));
    };
    fields.iter().find_map(|(name, value)| {
        let is_later =
            name.ends_with("_unix_s") && value.as_u64().is_some_and(|at| at > now_unix_s);
        if is_later { Some(name.clone()) } else { later_than(value, now_unix_s) }
    })
}

#[test]
fn a_coordinator_whose_clock_was_wrong_leaves_no_date_of_the_future() {
    let scratch = Scratch::new();
    let Some(clock) = FakeClock::new(&scratch, "clock") else { skip::this_test!("{NO_LIBRARY}") };
    let (network, measurer) = two_relays_by_plan(&scratch, 48);
    let arguments = ["coordinator", "--config", "c.toml", "--json"];
    let mut run = Running::new(clock.command(&scratch, &arguments));
    run.wait_for_out("a second", testbin::is_second);
    jump(&mut run, &clock, 7200);
    run.wait_for_error("the measurer", |line| line.contains("differs from ours by -7"));
    jump(&mut run, &clock, 0);
    wait_for_another(&mut run, "a result", |line| line.contains("\"type\":\"relay\""));
    wait_for_another(&mut run, "the end of a period", |line| line.contains("\"summary\""));
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);
    assert_jumps(&jumps(&ended.out), &[7200, -7200]);
    let now_unix_s = link::unix_time_s();
    for what in ["measurements", "relays", "periods", "records", "paths"] {
        let all = scratch.run(&["export", "--store", "bandwidth/store.db", "--what", what]);
        all.assert_code(0);
        for value in all.values() {
            assert_eq!(later_than(&value, now_unix_s), None, "{what}: {value}");
            assert!(value["blame"] != "relay", "{value}");
        }
    }
    let text = fs::read(scratch.path("bandwidth/latest.v3bw")).expect("a file");
    let file = BandwidthFile::parse(&text).expect("ours").file;
    assert!(file.relays.iter().any(|line| !line.unmeasured), "{file:?}");
    let times = file.relays.iter().filter_map(|line| line.time);
    assert!(times.chain(file.header.file_created).all(|at| at <= now_unix_s), "{file:?}");
    let files = netdoc::bwfile::stored(&scratch.path("bandwidth")).expect("a folder");
    let latest = fs::canonicalize(scratch.path("bandwidth/latest.v3bw")).expect("a link");
    assert_eq!(files.last().and_then(|file| file.file_name()), latest.file_name(), "{files:?}");
    measurer.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}
