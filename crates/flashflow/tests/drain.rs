//! Relays that are told to end under load, again and again: nobody loses a transfer.
//!
//! Three times by default. `FLASHFLOW_TERMINATIONS=200 cargo test -p flashflow --test drain` does it two hundred times.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{PATIENCE, Running, Scratch, now, number, text};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, Forge, NodeThread, unix_time_s};
use onion::cell::msg::DestroyReason;
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

/// How often a relay is told to end.
const TERMINATIONS: usize = 3;
/// Clients' circuits through it at a time, each with a transfer.
const TRANSFERS: usize = 8;
/// What each gets, in bytes: half a second and more at the relay's rate.
const BYTES: u64 = 400_000;

/// A relay that runs, and how to extend a circuit to it.
struct Played {
    running: Running,
    hop: NextHop,
}

fn start(scratch: &Scratch, nickname: &str, port: u16) -> Played {
    let text_of = |key: &Value, name: &str| text(key, name).to_owned();
    let config = format!(
        "nickname = \"{nickname}\"\naddress = \"127.0.0.1\"\nkeys = \"{nickname}\"\nor_port = {port}\n\
         rate_mbit_per_s = 40.0\n[exit]\npolicy = [\"accept *:*\"]\nreject_private = false\n"
    );
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

/// Clients, in one.
struct Clients {
    driver: Driver<Client<StdRng>>,
    events: Vec<ClientEvent>,
}

impl Clients {
    fn new(clock: Clock) -> Self {
        let forge = Forge::new([9; 32], unix_time_s()).expect("keys");
        let client = Client::new(unix_time_s(), StdRng::from_seed([8; 32]));
        let tls = TlsConfigs::new(&forge).expect("keys");
        let driver = Driver::new(client, clock, tls, Vec::new(), DriverOptions::default());
        Self { driver: driver.expect("a driver"), events: Vec::new() }
    }

    fn open(&mut self, hops: Vec<NextHop>) -> CircuitNumber {
        let now = self.driver.now();
        self.driver.node_mut().open(now, &CircuitPlan::new(hops))
    }

    /// Goes on until `look` finds something.
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
            assert!(started.elapsed() < PATIENCE, "waited in vain for {what}: {:?}", self.events);
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

#[test]
fn relays_that_are_told_to_end_under_load_break_no_transfer_off() {
    let terminations = std::env::var("FLASHFLOW_TERMINATIONS").ok();
    let terminations = terminations.map_or(TERMINATIONS, |it| it.parse().expect("a number"));
    let scratch = Scratch::new();
    let clock = Clock::start();

    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let server_at = listener.local_addr().expect("an address");
    let forge = Forge::new([7; 32], unix_time_s()).expect("keys");
    let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
    let tls = TlsConfigs::new(&forge).expect("keys");
    let server = Driver::new(Server::new(), clock, tls, vec![listener], options).expect("a server");
    let _server = NodeThread::start("server", Box::new(server), ()).expect("a thread");

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
        middle.running.wait_for_out("its word", |line| line.contains("\"shutting_down\""));
        let under_way = |client: &Client<StdRng>| {
            transfers.iter().filter(|stream| client.figures(**stream).is_some()).count()
        };
        assert!(under_way(clients.driver.node()) > 0, "told to end when all was over");

        // Nothing new begins: the guard tells that the next relay has refused (tor-spec §5.4).
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
