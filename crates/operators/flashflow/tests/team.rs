//! Coordinators and measurers as processes: `flashflow keys`, `measurer` and `coordinator`.

use netdoc::consensus::Flag;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use testbin::team::{
    Ten, make_key, measurer_of, start_measurer, two_relays, write_consensus, write_measurer,
};
use testbin::{Scratch, assert_estimate, number, text};

#[test]
fn a_key_is_made_once_and_can_be_shown() {
    let scratch = Scratch::new();
    let public = make_key(&scratch, "key");
    assert_eq!(public.len(), 64);
    scratch.run(&["keys", "--out", "key"]).assert_refused(&["key", "never overwritten"]);
    let shown = scratch.run(&["keys", "--show", "key", "--json"]);
    shown.assert_code(0);
    assert_eq!(shown.summary(), json!({"type": "key", "public_key": public}));
    scratch.run(&["keys"]).assert_refused(&["--out", "--show"]);
    scratch.run(&["keys", "--show", "none"]).assert_refused(&["none"]);
}

#[test]
fn a_measurer_obeys_only_its_own_coordinators_and_ends_on_a_signal() {
    let scratch = Scratch::new();
    let (ours, theirs) = (make_key(&scratch, "ours.key"), make_key(&scratch, "theirs.key"));
    let measurer_key = make_key(&scratch, "m.key");
    write_measurer(&scratch, "m", "127.0.0.1:0", &ours);
    let (mut measurer, address) = start_measurer(&scratch, "m.toml");
    let config = format!(
        "key = \"theirs.key\"\nout = \"bandwidth\"\nconsensus = \"consensus\"\nopt_in = \"all\"\n{}",
        measurer_of(&address, &measurer_key)
    );
    fs::write(scratch.path("c.toml"), &config).expect("written");
    // The coordinator contacts measurers only if there is a relay to measure.
    let all = write_consensus(&scratch, "consensus", 0);
    fs::write(scratch.path("all"), all).expect("written");
    let ended = scratch.run(&["coordinator", "--config", "c.toml", "--once"]);
    ended.assert_refused(&["key of another team", &theirs, "no measurer of the team"]);
    measurer.wait_for_error("a refusal", |line| {
        line.contains("key of another team") && line.contains(&theirs)
    });
    measurer.stop();
    TcpListener::bind(&address).expect("the port is free again");
    scratch.wait_until_clean();
}

#[test]
fn a_measurer_reloads_its_lists_and_keeps_the_previous_ones_if_the_new_ones_are_wrong() {
    let scratch = Scratch::new();
    let coordinator = make_key(&scratch, "c.key");
    make_key(&scratch, "m.key");
    write_measurer(&scratch, "m", "127.0.0.1:0", &coordinator);
    let config = fs::read_to_string(scratch.path("m.toml")).expect("written");
    let write = |more: &str, list: &str| {
        fs::write(scratch.path("m.toml"), format!("{config}{more}\n")).expect("written");
        fs::write(scratch.path("list"), list).expect("written");
    };
    let (mut measurer, address) = start_measurer(&scratch, "m.toml");
    let relay = "8EE1049573B16673000000000000000000001267";
    write("opt_in = \"list\"\nown_address = \"127.0.0.1\"", relay);
    measurer.signal(Signal::HUP);
    let has = |part: &'static str| move |line: &str| line.contains(part);
    measurer.wait_for_error("a reload", has("with 1 relay on the opt-in list"));
    measurer.wait_for_error("what needs a restart", has("only a restart changes: own_address"));
    write("opt_in = \"list\"", "nonsense");
    measurer.signal(Signal::HUP);
    measurer.wait_for_error("an error", has("not reloaded: line 1 of the opt-in list"));
    // It still listens.
    std::net::TcpStream::connect(&address).expect("connected");
    measurer.stop();
}

#[test]
fn an_invalid_configuration_is_refused_with_the_field() {
    let scratch = Scratch::new();
    fs::write(scratch.path("m.toml"), "listen = \"127.0.0.1:0\"\nkye = \"m.key\"\n")
        .expect("written");
    scratch.run(&["measurer", "--config", "m.toml"]).assert_refused(&["m.toml", "`kye`"]);
    scratch.run(&["measurer", "--config", "none.toml"]).assert_refused(&["none.toml"]);
    scratch.run(&["measurer"]).assert_refused(&["--config"]);
    make_key(&scratch, "c.key");
    let measurer = make_key(&scratch, "m.key");
    let config = "key = \"c.key\"\nout = \"out\"\nauthority = \"127.0.0.1:1\"\n";
    let bounded = measurer_of("127.0.0.1:1", &measurer);
    let boundless = bounded.lines().take(3).collect::<Vec<_>>().join("\n");
    fs::write(scratch.path("c.toml"), format!("{config}{boundless}\n")).expect("written");
    scratch.run(&["coordinator", "--config", "c.toml", "--once"]).assert_refused(&[
        "127.0.0.1:1",
        "capacity_mbit_per_s",
        "measure-team --team",
    ]);
    fs::write(scratch.path("c.toml"), "key = 5\n").expect("written");
    scratch.run(&["coordinator", "--config", "c.toml"]).assert_refused(&["c.toml", "key = 5"]);
}

/// The complete system: two measurers, one of which is killed and restarted, measure C tor relays in transit and one relay by echo.
#[test]
fn a_team_measures_a_network_although_a_measurer_is_killed() {
    let scratch = Scratch::new();
    let network = two_relays();
    let authorities = network.directory_addrs();
    let list = authorities.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let coordinator = make_key(&scratch, "c.key");

    let relay = ["relay", "--nickname", "echoing", "--address", "127.0.0.1", "--keys", "keys"];
    let relay = [&relay[..], &["--rate", "20", "--authority", &list]].concat();
    let options = ["--coordinator", &coordinator];
    let mut relay = scratch.start(&[&relay[..], &options].concat());
    relay.wait_for_out("listening", |line| line.starts_with("listening on "));
    let mut is_listed = |text: &str| {
        let consensus = netdoc::consensus::Consensus::parse(text.as_bytes()).expect("a consensus");
        consensus.by_nickname("echoing").is_ok_and(|router| router.flags.contains(Flag::Running))
    };
    network.wait_for_consensus(None, &mut is_listed, testbin::PATIENCE).expect("listed");

    let (one, two) = (make_key(&scratch, "m1.key"), make_key(&scratch, "m2.key"));
    write_measurer(&scratch, "m1", "127.0.0.1:0", &coordinator);
    write_measurer(&scratch, "m2", "127.0.0.1:0", &coordinator);
    let (first, first_at) = start_measurer(&scratch, "m1.toml");
    let (second, second_at) = start_measurer(&scratch, "m2.toml");
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"{}\"\necho = [\"gone\", \"echoing\"]\nseconds = 5\n\
         guess_mbit_per_s = 40\n{}{}",
        authorities[0],
        measurer_of(&first_at, &one),
        measurer_of(&second_at, &two),
    );
    fs::write(scratch.path("c.toml"), config).expect("written");

    let mut run = scratch.start(&["coordinator", "--config", "c.toml", "--once", "--json"]);
    run.wait_for_out("a second", testbin::is_second);
    second.signal(Signal::KILL);
    assert_eq!(second.end().code, None, "killed");
    write_measurer(&scratch, "m2", &second_at, &coordinator);
    let (second, _) = start_measurer(&scratch, "m2.toml");
    let ended = run.end();
    ended.assert_measured();
    let summary = ended.summary();
    let relays = summary["relays"].as_array().expect("a list");
    assert_eq!(relays.len(), 3);
    for (name, limit, mode) in
        [("slow", 10.0, "transit"), ("fast", 30.0, "transit"), ("echoing", 20.0, "echo")]
    {
        let relay: &Value = relays.iter().find(|relay| relay["nickname"] == name).expect(name);
        assert_eq!(text(relay, "mode"), mode, "{relay}");
        assert_estimate(relay, limit, 0.75, 0.6);
    }
    // The round that the measurer aborted is repeated as the relay's second round.
    let values = ended.values();
    let is_second = |value: &&Value| value["type"] == "second" && value["round"] == 2;
    let again = values.iter().find(is_second).expect("a second round");
    let of_it = |relay: &&Value| relay["nickname"] == again["nickname"];
    assert!(number(relays.iter().find(of_it).expect("measured"), "rounds") >= 2.0, "{again}");
    let file = fs::read_to_string(scratch.path("bandwidth/latest.v3bw")).expect("a bandwidth file");
    assert_eq!(file.matches("node_id=").count(), 3, "{file}");
    assert_eq!(file.matches(" master_key_ed25519=").count(), 3, "from the descriptors: {file}");
    assert!(file.contains("flashflow_mode=echo"), "{file}");
    // Statistics of the measurers' paths are stored for the next period.
    let paths = scratch.run(&["export", "--store", "bandwidth/store.db", "--what", "paths"]);
    paths.assert_code(0);
    let paths = paths.values();
    let measured: BTreeSet<&str> = paths.iter().map(|path| text(path, "fingerprint")).collect();
    assert_eq!(measured.len(), 3, "{paths:?}");
    for path in &paths {
        assert!([&one, &two].iter().any(|key| *key == text(path, "measurer")), "{path}");
        assert!(number(path, "rtt_ms") > 0.0, "{path}");
    }

    for measurer in [first, second] {
        measurer.stop();
    }
    relay.stop();
    network.stop().expect("down");
    scratch.wait_until_clean();
}

/// The daemon first measures new relays, as many at a time as the measurer accepts. Then it measures each relay once per period, in its
/// slot of a secret plan.
#[test]
fn a_coordinator_measures_each_relay_once_per_period_by_a_secret_plan() {
    const PERIOD_S: u64 = 48;
    /// The first period is incomplete.
    const PERIODS: usize = 3;
    let scratch = Scratch::new();
    let Ten { network, echoes, measurer } = Ten::by_plan(&scratch, PERIOD_S);
    let mut run = scratch.start(&["coordinator", "--config", "c.toml", "--json"]);
    let is_summary = |line: &str| line.contains("\"summary\"");
    run.wait_for_outs("the ends of all periods", PERIODS, is_summary);
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);
    let expected: BTreeSet<&str> = Ten::STOCK.into_iter().chain(Ten::ECHO).collect();

    // The output.
    let values = ended.values();
    let periods: Vec<&[Value]> =
        values.split(|value| value["type"] == "summary").take(PERIODS).collect();
    for period in &periods {
        let relays = period.iter().filter(|value| value["type"] == "relay");
        let relays: Vec<&str> = relays.map(|relay| text(relay, "nickname")).collect();
        let names: BTreeSet<&str> = relays.iter().copied().collect();
        assert_eq!(relays.len(), names.len(), "twice in one period: {relays:?}");
    }
    for summary in values.iter().filter(|value| value["type"] == "summary").skip(1) {
        let relays = summary["relays"].as_array().expect("a list");
        let names: BTreeSet<&str> = relays.iter().map(|relay| text(relay, "nickname")).collect();
        assert_eq!((relays.len(), names), (expected.len(), expected.clone()), "{}", ended.error);
    }

    // The store has one measurement of each relay and period, and more only after an inconclusive one.
    let all = scratch.run(&["export", "--store", "bandwidth/store.db"]);
    all.assert_code(0);
    let all = all.values();
    let period_of = |measurement: &Value| measurement["period_unix_s"].as_u64().expect("a time");
    let begun: BTreeSet<u64> = all.iter().map(period_of).collect();
    for period in begun.iter().take(PERIODS) {
        let is_whole = period != begun.first().expect("some");
        for name in &expected {
            let is_of_it = |measurement: &&Value| {
                measurement["nickname"] == *name && period_of(measurement) == *period
            };
            let mut turns: Vec<&Value> = all.iter().filter(is_of_it).collect();
            turns.sort_unstable_by_key(|turn| turn["turn"].as_u64());
            let numbers: Vec<u64> = turns.iter().filter_map(|turn| turn["turn"].as_u64()).collect();
            assert!(numbers.iter().copied().eq(1..=turns.len() as u64), "{turns:#?}");
            let earlier = turns.split_last().map_or(&[][..], |(_, earlier)| earlier);
            assert!(earlier.iter().all(|turn| turn["is_final"] == false), "done twice: {turns:#?}");
            let is_measured = turns.last().is_some_and(|turn| turn["capacity_byte_s"].is_number());
            assert!(is_measured || !is_whole, "{name} in {period}: {turns:#?}\n{}", ended.error);
            let mode = if name.starts_with("echo") { "echo" } else { "transit" };
            assert!(turns.iter().all(|turn| turn["mode"] == mode), "{turns:#?}");
        }
    }
    // At most the number of simultaneous relays that the measurer accepts, although its capacity would suffice for all: no order is refused.
    let time = |measurement: &Value, name: &str| measurement[name].as_u64().unwrap_or(u64::MAX);
    let at_once = |now: &Value| {
        let now = time(now, "started_unix_s");
        let runs = |measurement: &&Value| {
            time(measurement, "started_unix_s") <= now && now < time(measurement, "ended_unix_s")
        };
        all.iter().filter(runs).count()
    };
    let most = all.iter().map(at_once).max().expect("some");
    assert!((2..=Ten::AT_ONCE_MAX).contains(&most), "{most} at once: {all:#?}");
    let message = format!("at most {} relays are measured at once", Ten::AT_ONCE_MAX);
    assert!(
        ended.error.contains(&message) && !ended.error.contains("it refuses"),
        "{}",
        ended.error
    );

    // The plan is not printed.
    let seed = scratch.path("bandwidth/schedule.seed");
    let mode = fs::metadata(&seed).expect("a seed").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let secret = fs::read_to_string(&seed).expect("ours");
    assert!(
        !ended.error.contains(secret.trim_end()) && !ended.out.concat().contains(secret.trim_end())
    );
    let file = fs::read_to_string(scratch.path("bandwidth/latest.v3bw")).expect("a bandwidth file");
    let count = |mode: &str| file.matches(&format!("flashflow_mode={mode}")).count();
    assert_eq!((count("transit"), count("echo")), (Ten::STOCK.len(), Ten::ECHO.len()), "{file}");
    assert!(!file.contains("unmeasured=1"), "{file}");
    for party in echoes.into_iter().chain([measurer]) {
        party.stop();
    }
    network.stop().expect("down");
    scratch.wait_until_clean();
}
