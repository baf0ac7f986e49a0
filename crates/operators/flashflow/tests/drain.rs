//! Graceful shutdown of relays under load: no transfer is lost. A reload of the configuration changes the shutdown.
//!
//! There are three terminations by default; `FLASHFLOW_TERMINATIONS=200 cargo test -p flashflow --test all drain::` makes 200.

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, NodeThread, unix_time_s};
use onion::cell::msg::{DestroyReason, EndReason};
use onion::circuit::{CircuitError, NextHop};
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Loss, Outcome, Server, StreamNumber, Transfer,
};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use testbin::{PATIENCE, Running, Scratch, now, number, text};

/// Number of terminations.
const TERMINATIONS: usize = 3;
/// Number of simultaneous client circuits through the relay, each with a transfer.
const TRANSFERS: usize = 8;
/// Size of each transfer, in bytes: more than half a second at the relay's rate.
const BYTES: u64 = 400_000;

/// A running relay as a hop.
struct Played {
    running: Running,
    hop: NextHop,
}

fn start(scratch: &Scratch, nickname: &str, port: u16) -> Played {
    start_as(scratch, nickname, &configuration(nickname, port, 40, "accept *:*"))
}

fn configuration(nickname: &str, port: u16, rate_mbit_per_s: u32, policy: &str) -> String {
    format!(
        "nickname = \"{nickname}\"\naddress = \"127.0.0.1\"\nkeys = \"{nickname}\"\nor_port = {port}\n\
         rate_mbit_per_s = {rate_mbit_per_s}.0\nmetrics = \"127.0.0.1:0\"\n\
         [exit]\npolicy = [\"{policy}\"]\nreject_private = false\n"
    )
}

fn start_as(scratch: &Scratch, nickname: &str, config: &str) -> Played {
    let text_of = |key: &Value, name: &str| text(key, name).to_owned();
    let file = format!("{nickname}.toml");
    fs::write(scratch.path(&file), config).expect("written");
    let mut running = scratch.start(&["relay", "--config", &file, "--json"]);
    let listening = running.wait_for_value();
    let (mut rsa, mut ed25519) = ([0; 20], [0; 32]);
    hex::decode_to_slice(text_of(&listening, "fingerprint"), &mut rsa).expect("hex");
    hex::decode_to_slice(text_of(&listening, "ed25519"), &mut ed25519).expect("hex");
    let key = fs::read(scratch.path(nickname).join("secret_onion_key_ntor")).expect("a key");
    let hop = NextHop {
        address: text_of(&listening, "address").parse().expect("an address"),
        ids: RelayIds { rsa: RsaId(rsa), ed25519: Some(Ed25519Id(ed25519)) },
        // The public half comes last.
        onion_key: *key.last_chunk().expect("a key"),
    };
    Played { running, hop }
}

/// Several clients in one engine.
struct Clients {
    driver: Driver<Client<StdRng>>,
    events: Vec<ClientEvent>,
}

impl Clients {
    fn new(clock: Clock) -> Self {
        let issuer = IdentityIssuer::new([9; 32], unix_time_s()).expect("keys");
        let client = Client::new(unix_time_s(), StdRng::from_seed([8; 32]));
        let tls = TlsConfigs::new(&issuer).expect("keys");
        let driver = Driver::new(client, clock, tls, Vec::new(), DriverOptions::default());
        Self { driver: driver.expect("a driver"), events: Vec::new() }
    }

    fn open(&mut self, hops: Vec<NextHop>) -> CircuitNumber {
        let now = self.driver.now();
        self.driver.node_mut().open(now, &CircuitPlan::new(hops))
    }

    /// Runs until `look` returns a value.
    fn until<T>(
        &mut self,
        what: &str,
        look: impl Fn(&Client<StdRng>, &[ClientEvent]) -> Option<T>,
    ) -> T {
        let started = now();
        loop {
            if let Some(found) = look(self.driver.node(), &self.events) {
                return found;
            }
            assert!(started.elapsed() < PATIENCE, "timeout: {what}: {:?}", self.events);
            let soon = self.driver.now() + onion::Duration::from_millis(100);
            self.driver.turn(soon).expect("a turn");
            while let Some(event) = self.driver.node_mut().poll_event() {
                self.events.push(event);
            }
        }
    }

    fn transfer(&mut self, circuit: CircuitNumber, to: SocketAddr, seed: u64) -> StreamNumber {
        let now = self.driver.now();
        let transfer = Transfer::download(seed, BYTES);
        self.driver.node_mut().begin(now, circuit, to.into(), transfer)
    }
}

/// A server that sends the requested number of bytes, and its address.
fn serve(clock: Clock) -> (NodeThread<Server>, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let server_at = listener.local_addr().expect("an address");
    let issuer = IdentityIssuer::new([7; 32], unix_time_s()).expect("keys");
    let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
    let tls = TlsConfigs::new(&issuer).expect("keys");
    let server = Driver::new(Server::new(), clock, tls, vec![listener], options).expect("a server");
    (NodeThread::start("server", Box::new(server), ()).expect("a thread"), server_at)
}

#[test]
fn a_reloaded_configuration_applies_at_once_and_metrics_count_the_traffic() {
    let scratch = Scratch::new();
    let clock = Clock::start();
    let (_server, server_at) = serve(clock);
    let guard = start(&scratch, "guard", 0);
    let mut exit = start(&scratch, "exit", 0);
    let metrics = exit.running.wait_for_record("metrics", |_| true);
    let figure = |name: &str| -> f64 {
        let answer = testbin::get(text(&metrics, "address"), "/metrics");
        let mut values =
            answer.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        values.next().expect("it is there").parse().expect("a number")
    };
    let port = exit.hop.address.port();
    let mut reloads = 0;
    let mut reload = |rate_mbit_per_s, policy| {
        reloads += 1;
        let config = configuration("exit", port, rate_mbit_per_s, policy);
        fs::write(scratch.path("exit.toml"), config).expect("written");
        exit.running.signal(Signal::HUP);
        exit.running.wait_for_outs("its word", reloads, |line| {
            let value: Value = serde_json::from_str(line).unwrap_or_default();
            value["type"] == "reloaded"
                && value["changed"].as_array().is_some_and(|changed| !changed.is_empty())
        });
    };
    // The port was chosen at the start, so `or_port = 0` is not a change.
    reload(41, "accept *:*");

    let mut clients = Clients::new(clock);
    let path = vec![guard.hop, exit.hop];
    let circuits = [clients.open(path.clone()), clients.open(path)];
    clients.until("circuits", |client, _| {
        circuits.iter().all(|circuit| client.is_built(*circuit)).then_some(())
    });
    let outcome = |clients: &mut Clients, stream: StreamNumber| {
        clients.until("its end", |_, events| {
            events.iter().find_map(|event| match event {
                ClientEvent::Over { stream: over, outcome, .. } if *over == stream => {
                    Some(*outcome)
                }
                _ => None,
            })
        })
    };
    let stream = clients.transfer(circuits[0], server_at, 1);
    assert_eq!(outcome(&mut clients, stream), Outcome::Complete);
    assert!(figure("tor_relay_traffic_bytes{direction=\"written\"}") > 400_000.0);

    reload(41, "reject *:*");
    let stream = clients.transfer(circuits[0], server_at, 2);
    assert_eq!(outcome(&mut clients, stream), Outcome::Ended(EndReason::EXIT_POLICY));

    reload(1, "accept *:*");
    let limited = "tor_relay_load_global_rate_limit_reached_total{side=\"write\"}";
    let before = figure(limited);
    let stream = clients.transfer(circuits[0], server_at, 3);
    clients.until("some of it", |client, _| {
        client.figures(stream).is_some_and(|figures| figures.received_bytes > 0).then_some(())
    });
    // The transfer takes seconds at this rate.
    assert_eq!(figure("tor_relay_circuits_total{state=\"opened\"}"), 2.0);
    assert_eq!(figure("tor_relay_connections{type=\"Exit\",state=\"opened\"}"), 1.0);
    assert_eq!(figure("tor_relay_connections{type=\"OR\",state=\"opened\"}"), 1.0);
    assert_eq!(outcome(&mut clients, stream), Outcome::Complete, "open circuits stay open");
    assert!(figure(limited) > before, "the rate is not what was read");
}

#[test]
fn relays_that_are_terminated_under_load_abort_no_transfer() {
    let terminations = std::env::var("FLASHFLOW_TERMINATIONS").ok();
    let terminations =
        terminations.map_or(TERMINATIONS, |terminations| terminations.parse().expect("a number"));
    let scratch = Scratch::new();
    let clock = Clock::start();
    let (_server, server_at) = serve(clock);

    let guard = start(&scratch, "guard", 0);
    let exit = start(&scratch, "exit", 0);
    let mut middle = start(&scratch, "middle", 0);
    let mut clients = Clients::new(clock);
    let mut whole = 0;
    for round in 0..terminations {
        let path = vec![guard.hop, middle.hop, exit.hop];
        let circuits: Vec<_> = (0..TRANSFERS).map(|_| clients.open(path.clone())).collect();
        clients.until("circuits", |client, _| {
            circuits.iter().all(|circuit| client.is_built(*circuit)).then_some(())
        });
        let seeds = (round * TRANSFERS) as u64..;
        let pairs = circuits.iter().zip(seeds);
        let transfers: Vec<_> =
            pairs.map(|(circuit, seed)| clients.transfer(*circuit, server_at, seed)).collect();
        let received = |client: &Client<StdRng>, stream: &StreamNumber| {
            client.figures(*stream).map_or(BYTES, |figures| figures.received_bytes)
        };
        clients.until("load", |client, _| {
            transfers.iter().all(|stream| received(client, stream) > 0).then_some(())
        });
        middle.running.signal(Signal::TERM);
        middle.running.wait_for_record("shutting_down", |_| true);
        let under_way = |client: &Client<StdRng>| {
            transfers.iter().filter(|stream| client.figures(**stream).is_some()).count()
        };
        assert!(under_way(clients.driver.node()) > 0, "the signal came after all transfers");

        // No new circuit: the guard reports that the next relay has refused (tor-spec, section 5.4).
        let late = clients.open(path.clone());
        let why = clients.until("refusal", |_, events| {
            events.iter().find_map(|event| match event {
                ClientEvent::Lost { circuit, cause } if *circuit == late => Some(cause.clone()),
                _ => None,
            })
        });
        let Loss::Circuit(CircuitError::Destroyed(reason) | CircuitError::Truncated(reason)) = why
        else {
            panic!("{why}")
        };
        assert_eq!(reason, DestroyReason::DESTROYED);

        let outcomes = clients.until("all transfers", |_, events| {
            let over = |stream: &StreamNumber| {
                events.iter().find_map(|event| match event {
                    ClientEvent::Over { stream: over, outcome, .. } if over == stream => {
                        Some(*outcome)
                    }
                    _ => None,
                })
            };
            assert!(
                !events.iter().any(|event| match event {
                    ClientEvent::Lost { circuit, .. } => circuits.contains(circuit),
                    _ => false,
                }),
                "a circuit is lost: {events:?}"
            );
            transfers.iter().map(over).collect::<Option<Vec<_>>>()
        });
        assert_eq!(outcomes, [Outcome::Complete; TRANSFERS], "termination {round}");
        whole += outcomes.len();
        for circuit in circuits {
            clients.driver.node_mut().destroy(circuit);
        }
        clients.until("the last words", |client, _| (client.open_circuits() == 0).then_some(()));
        let soon = clients.driver.now() + onion::Duration::from_millis(100);
        clients.driver.turn(soon).expect("a turn");
        clients.events.clear();

        let port = middle.hop.address.port();
        let ended = middle.running.end();
        ended.assert_code(0);
        assert_eq!(number(&ended.summary(), "circuits"), 0.0, "{}", ended.summary());
        middle = start(&scratch, "middle", port);
    }
    assert_eq!(whole, terminations * TRANSFERS);
}
