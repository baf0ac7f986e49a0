//! A relay that serves only measurements is believed by a coordinator, and suspected by ordinary circuits.

use hex::FromHex as _;
use lab::Network;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, NodeThread, unix_time_s};
use onion::Rate;
use onion::cell::msg::DestroyReason;
use onion::measure::protocol::CoordinatorKey;
use onion::measure::target::TargetParams;
use onion::router::{Behavior, RateLimit, Router, RouterConfig};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use relay::{Relay, RelayConfig};
use serde_json::{Value, json};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::channel;
use testbin::team::{make_key, measurer_of, start_measurer, two_relays, write_measurer};
use testbin::{PATIENCE, Scratch, number, text};

const LIMIT_MBIT_S: f64 = 20.0;

/// Takes part in measurements, and extends no circuit.
struct OnlyMeasured;

impl Behavior for OnlyMeasured {
    fn refuses_to_extend(&self) -> Option<DestroyReason> {
        Some(DestroyReason::RESOURCE_LIMIT)
    }
}

type OnlyMeasuredRelay = NodeThread<Router<StdRng, OnlyMeasured>>;

/// Publishes an honest relay, and replaces it with one that has its keys and serves only measurements.
fn start(scratch: &Scratch, network: &Network, coordinator: CoordinatorKey) -> OnlyMeasuredRelay {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = free.local_addr().expect("bound");
    drop(free);
    let keys = scratch.path("liar");
    let config = RelayConfig {
        nickname: Some("liar".parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        or_port: Some(address.port()),
        keys: Some(keys.clone()),
        authorities: Some(network.directory_addrs()),
        ..RelayConfig::default()
    };
    let honest = Relay::start(&config.check().expect("sound"), channel().0).expect("started");
    network.wait_until_known(&[honest.rsa().0], PATIENCE).expect("listed");
    drop(honest);

    let mut rng = StdRng::from_seed([7; 32]);
    let keys = relay::keys::open(&keys, &mut rng).expect("its keys");
    let now = unix_time_s();
    let mut issuer = IdentityIssuer::new([8; 32], now).expect("made");
    let identity = Arc::new(issuer.certify(&keys).expect("certified").identity);
    let rate = Rate::from_mbit_per_s(LIMIT_MBIT_S);
    let target = TargetParams {
        is_allowed: true,
        coordinators: vec![coordinator],
        measurements_per_period: 100,
        ..TargetParams::default()
    };
    let config = RouterConfig {
        target,
        limit: Some(RateLimit { rate, burst_bytes: rate.as_byte_per_s() / 10 }),
        ..RouterConfig::new(identity, now)
    };
    let clock = Clock::start();
    let router = Router::with_behavior(config, OnlyMeasured, rng, clock.now());
    let listener = TcpListener::bind(address).expect("the port is free again");
    let tls = TlsConfigs::new(&issuer).expect("sound");
    let driver = Driver::new(router, clock, tls, vec![listener], DriverOptions::default());
    NodeThread::start("liar", Box::new(driver.expect("it runs")), ()).expect("a thread")
}

/// Lines of circuits as if they had ended three hours apart, the last three hours ago.
fn spread(circuits: &[Value]) -> String {
    let mut ended_unix_s = unix_time_s() - 3 * 3600 * circuits.len() as u64;
    let mut text = String::new();
    for circuit in circuits {
        let mut circuit = circuit.clone();
        circuit["ended_unix_s"] = json!(ended_unix_s);
        ended_unix_s += 3 * 3600;
        text += &format!("{circuit}\n");
    }
    text
}

#[test]
fn a_relay_that_serves_only_measurements_is_believed_and_suspected() {
    const CIRCUITS: usize = 150;
    let scratch = Scratch::new();
    let network = two_relays();
    let coordinator = make_key(&scratch, "c.key");
    let public = <[u8; 32]>::from_hex(&coordinator).expect("a key");
    let liar = start(&scratch, &network, CoordinatorKey(public));
    let measurer_key = make_key(&scratch, "m1.key");
    write_measurer(&scratch, "m1", "127.0.0.1:0", &coordinator);
    let (measurer, at) = start_measurer(&scratch, "m1.toml");
    let authority = network.directory_addrs()[0].to_string();
    let config = format!(
        "key = \"c.key\"\nout = \"bandwidth\"\nauthority = \"{authority}\"\necho = [\"liar\"]\nseconds = 5\n\
         guess_mbit_per_s = 40\n{}",
        measurer_of(&at, &measurer_key),
    );
    fs::write(scratch.path("c.toml"), config).expect("written");
    let ended = scratch.run(&["coordinator", "--config", "c.toml", "--once", "--json"]);
    let summary = ended.summary();
    let relays = summary["relays"].as_array().expect("a list");
    let measured = relays.iter().find(|relay| relay["nickname"] == "liar").expect("measured");
    testbin::assert_estimate(measured, LIMIT_MBIT_S, 0.75, 0.6);

    let circuits = CIRCUITS.to_string();
    let options = ["--circuits", &circuits, "--rounds", "1", "--gap-ms", "1", "--pause-ms", "1"];
    let probe = ["probe", "--authority", &authority, "--seed", "1", "--json"];
    let probed = scratch.run(&[&probe[..], &options].concat());
    probed.assert_code(0);
    let mut lines = probed.values();
    assert_eq!(lines.pop().map(|line| line["type"] == "summary"), Some(true));
    assert_eq!(lines.len(), CIRCUITS);
    let fingerprint = text(measured, "fingerprint");
    for line in &lines {
        let path = line["path"].as_array().expect("relays");
        assert!(
            line["ended_unix_s"].as_u64() > Some(1_700_000_000) && number(line, "took_ms") > 0.0
        );
        // As the last hop it has nothing to extend.
        let is_dropped = path[..2].iter().any(|relay| *relay == fingerprint);
        assert_eq!(line["failure"].is_string(), is_dropped, "{line}");
    }
    fs::write(scratch.path("probes"), spread(&lines)).expect("written");

    let store = ["--probes", "probes", "--store", "bandwidth/store.db", "--json"];
    let explain = |relay: &[&str]| {
        let ended = scratch.run(&[&["bwfile", "explain"], relay, &store].concat());
        ended.assert_code(0);
        ended.values()
    };
    let [found] = &explain(&[])[..] else { panic!("one relay is suspected") };
    assert_eq!((text(found, "type"), text(found, "fingerprint")), ("suspicion", fingerprint));
    assert!(text(found, "words").starts_with("Its estimate is "), "{found}");
    let [explained] = &explain(&["liar"])[..] else { panic!("an explanation") };
    assert_eq!(explained["suspicion"], found["suspicion"]);
    let suspicion = &found["suspicion"];
    assert!(number(suspicion, "by_chance") <= 0.001, "{suspicion}");
    assert!(number(suspicion, "neighbours") >= 4.0, "all others: {suspicion}");
    let [honest] = &explain(&["fast"])[..] else { panic!("an explanation") };
    assert!(honest["suspicion"].is_null(), "{honest}");
    assert!(honest["words"].to_string().contains("no suspicion"), "{honest}");
    // Without a store, the circuits alone are judged.
    let alone = scratch.run(&["bwfile", "explain", "--probes", "probes"]);
    alone.assert_code(0);
    let [line] = &alone.out[..] else { panic!("{:?}", alone.out) };
    assert!(line.contains(fingerprint) && line.contains("It seems not to serve clients"), "{line}");

    measurer.stop();
    drop(liar);
    network.stop().expect("down");
    scratch.wait_until_clean();
}
