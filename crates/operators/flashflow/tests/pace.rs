//! The pace of a coordinator's plan, with C tor relays at addresses of their own and paths of 100 ms, in network namespaces.

use coordinator::Params;
use coordinator::plan::{Machine, Plan, Seed, TeamRoom};
use lab::wan::{HostSpec, Wan, WanPath, WanSpec};
use lab::{Network, NetworkSpec, RelaySpec};
use netdoc::bwfile::{BandwidthFile, Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use testbin::team::{make_key, measurer_of, start_measurer, write_measurer};
use testbin::{Running, Scratch, lacking, text};

/// One-way latency between any two hosts: half of 100 ms.
const LATENCY: Duration = Duration::from_millis(50);
const RELAYS: u8 = 12;
const SECONDS: u64 = 10;
const SLOT_S: u64 = SECONDS + 3;
/// Few of them are free: a measurement that is late delays the next one.
const SLOTS: u64 = RELAYS as u64 + 2;
/// Capacity of each of the two measurers: enough for any of the relays, and not for two of them.
const MEASURER_MBIT_S: u32 = 20;

/// The limit of a relay, and its earlier estimate: a multiple of the unit of bandwidth files.
fn limit(number: u8) -> Rate {
    Rate::from_byte_per_s(900_000 + 30_000 * u64::from(number))
}

/// The address of a relay, in a network of its own.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 100 + number, 0, 1)
}

fn start_network() -> (Wan, Network) {
    let at = |host| Ipv4Addr::new(10, 77, 0, host);
    let relays = HostSpec::new("relays", at(1)).with_addresses((0..RELAYS).map(address));
    let team = ["coordinator", "m0", "m1"];
    let team = team.into_iter().zip(2..).map(|(name, host)| HostSpec::new(name, at(host)));
    let hosts = [relays].into_iter().chain(team).collect();
    let spec = WanSpec { default_path: WanPath::with_latency(LATENCY), ..WanSpec::new(hosts) };
    let wan = Wan::start(&spec).expect("up");
    let relay = |number| {
        RelaySpec::new(&format!("relay{number}")).limited_to(limit(number)).at(address(number))
    };
    let relays = (0..RELAYS).map(relay).collect();
    let spec = NetworkSpec { address: at(1), ..NetworkSpec::new(relays) };
    let start = || Network::start(&spec, &mut |_| {}).expect("up");
    let network = wan.host("relays").expect("it").run(start).expect("a network");
    (wan, network)
}

/// Writes a bandwidth file with an estimate of each relay: relays without one would be measured at the beginning.
fn write_estimates(scratch: &Scratch, network: &Network) {
    let now = link::unix_time_s();
    let estimate = |(number, node): (u8, &lab::Node)| Estimate {
        fingerprint: RsaId(node.rsa()),
        ed25519: None,
        nickname: node.nickname().parse().expect("a nickname"),
        outcome: Outcome::Measured {
            capacity_bytes_s: limit(number).as_byte_per_s(),
            measured_at: now - 3600,
            descriptor_avg_bytes_s: None,
        },
        extra: Vec::new(),
    };
    let estimates: Vec<Estimate> = (0..).zip(network.relays()).map(estimate).collect();
    let count = u64::from(RELAYS);
    let counts = Eligibility { eligible: count, in_consensus: count };
    let settings = Settings::new("0", now - 3600, now - 3600);
    let file = BandwidthFile::generate(&estimates, counts, &settings).expect("valid");
    let folder = scratch.path("bandwidth");
    fs::create_dir(&folder).expect("made");
    file.write_atomically(&folder, NodeIdStyle::default()).expect("written");
}

/// The slot of each relay in the plan of a period, by the coordinator's seed.
fn planned(
    scratch: &Scratch,
    network: &Network,
    begin_unix_s: u64,
    period_s: u64,
) -> BTreeMap<String, u32> {
    let secret = fs::read_to_string(scratch.path("bandwidth/schedule.seed")).expect("a seed");
    let mut bytes = [0; 32];
    hex::decode_to_slice(secret.trim_end(), &mut bytes).expect("64 digits");
    let seed = Seed::from_bytes(bytes).of_period(begin_unix_s, period_s);
    let machine =
        |(number, node): (u8, &lab::Node)| Machine::single(RsaId(node.rsa()), limit(number));
    let machines = (0..).zip(network.relays()).map(machine).collect();
    let team = TeamRoom::of(Rate::from_mbit_per_s(f64::from(2 * MEASURER_MBIT_S)));
    let slots = u32::try_from(period_s / SLOT_S).expect("a few");
    let plan = Plan::randomised(&seed, slots, &[team], Params::default().excess_factor(), machines);
    let slot = |node: &lab::Node| {
        let slot = plan.slot(RsaId(node.rsa()), 0).expect("there are enough slots");
        (node.nickname().to_owned(), slot)
    };
    network.relays().iter().map(slot).collect()
}

/// Of the shortest periods with enough slots, the one that begins next, and when.
fn next_period() -> (u64, u64) {
    let now = link::unix_time_s();
    let next = |length_s: u64| ((now / length_s + 1) * length_s, length_s);
    let next = (SLOTS * SLOT_S..(SLOTS + 2) * SLOT_S).map(next);
    // Each program of the team is started before.
    next.filter(|(begin, _)| *begin > now + 2).min().expect("several")
}

#[test]
fn twelve_distant_relays_of_c_tor_are_measured_in_a_row_each_in_its_planned_slot() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let (wan, network) = start_network();
    let on = |name: &str| wan.host(name).expect("one of four");
    write_estimates(&scratch, &network);
    let coordinator = make_key(&scratch, "c.key");
    let mut team = String::new();
    let measurers = ["m0", "m1"].map(|name| {
        let key = make_key(&scratch, &format!("{name}.key"));
        write_measurer(&scratch, name, &format!("{}:7100", on(name).address()), &coordinator);
        let path = scratch.path(&format!("{name}.toml"));
        let config = fs::read_to_string(&path).expect("written");
        fs::write(path, config + "private_network = true\n").expect("written");
        let start = || start_measurer(&scratch, &format!("{name}.toml"));
        let (measurer, at) = on(name).run(start).expect("a process");
        team += &measurer_of(&at, &key).replace("= 200", &format!("= {MEASURER_MBIT_S}"));
        measurer
    });
    let (begin_unix_s, period_s) = next_period();
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"{}\"\nseconds = {SECONDS}\nslot_s = {SLOT_S}\n\
         period_s = {period_s}\n{team}",
        network.directory_addrs()[0],
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    testbin::wait_for("the period", || (link::unix_time_s() >= begin_unix_s).then_some(()));
    let command = scratch.command(&["coordinator", "--config", "c.toml", "--json"]);
    let mut run = on("coordinator").run(|| Running::new(command)).expect("a process");
    for node in network.relays() {
        run.wait_for_record("relay", |result| result["nickname"] == node.nickname());
    }
    run.signal(Signal::TERM);
    let ended = run.end();
    ended.assert_code(130);

    let planned = planned(&scratch, &network, begin_unix_s, period_s);
    let exported = scratch.run(&["export", "--store", "bandwidth/store.db"]).values();
    // A relay whose first result is doubtful has a second turn.
    let of_period = |row: &&Value| row["period_unix_s"] == begin_unix_s && row["turn"] == 1;
    let first: Vec<&Value> = exported.iter().filter(of_period).collect();
    let began = first.iter().map(|row| {
        let slot = row["slot"].as_u64().expect("a slot");
        (text(row, "nickname").to_owned(), u32::try_from(slot).expect("a few"))
    });
    assert_eq!(began.collect::<BTreeMap<_, _>>(), planned, "{:#?}", ended.error);
    assert_eq!(first.len(), usize::from(RELAYS), "{first:#?}");
    for (number, node) in (0..).zip(network.relays()) {
        let row = first.iter().find(|row| row["nickname"] == node.nickname()).expect("a result");
        let limit = limit(number).as_byte_per_s() as f64;
        let ratio = row["capacity_byte_s"].as_f64().unwrap_or_default() / limit;
        assert!((0.5..1.1).contains(&ratio), "{ratio}: {row}");
    }
    measurers.into_iter().for_each(Running::stop);
    on("relays").run(|| network.stop().expect("down")).expect("a network");
    drop(wan);
    scratch.wait_until_clean();
}
