//! The same good and bad cases for two implementations of the measured side: our router, and C tor with `patches/tor-0.4.9`.
//!
//! `make tor` builds the latter; without it that test is skipped.

use crate::common::echo_run::Run;
use crate::common::echo_scenario::{COORDINATOR, MEASURERS, Scenario};
use crate::common::identities::{UNIX_TIME_S, identities};
use crate::common::peer::Peer;
use crate::common::stage::{NodeHandle, RealSockets, Stage};
use onion::Duration;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::Keystream;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, Order, Proof,
};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};

/// Longer than any wait of a case.
const SOON: Duration = Duration::from_secs(40);
/// A relay's longest measurement.
const MAX_DURATION_S: u64 = 10;

/// A relay to judge.
struct Bench {
    stage: RealSockets,
    target: Target,
    unix_time_s: u64,
    peers: Vec<NodeHandle>,
    orders: u8,
}

/// What a case has led to: the error codes that the coordinator and a measurer received, or what else is asked.
type Outcome = String;

/// A case, and the outcome with any implementation.
type Row = (&'static str, fn(&mut Bench) -> Outcome, &'static str);

const ROWS: &[Row] = &[
    ("cells return decrypted and in order, RELAY_EARLY as RELAY", Bench::echoes, "returned"),
    ("a measurement completes, and another may follow", Bench::completes, "1 report, again"),
    ("an unknown kind", |bench| bench.first(&[7]), "15"),
    ("a message that is too long", |bench| bench.first(&[6; 4097]), "15"),
    ("PROVEN from a coordinator", |bench| bench.first(&Message::Proven.encode()), "16"),
    ("a proof without a measurement", Bench::early_proof, "12"),
    ("a measurer that the order does not name", |bench| bench.proof(&[9; 32], false), "- 13"),
    ("a proof for another session", |bench| bench.proof(&MEASURERS[0], true), "- 3"),
    ("a proof on a link with a circuit", Bench::late_proof, "- 16"),
    ("more links than ordered", Bench::too_many_links, "- 14"),
    ("another order on the coordinator's link", |bench| bench.second_order(true), "10 19"),
    ("another order on another link", |bench| bench.second_order(false), "- -, 10"),
    ("17 circuits", |bench| bench.measurer_sends(17, Command::CREATE_FAST, &[1; 20]), "19 19"),
    ("CREATE2", |bench| bench.measurer_sends(1, Command::CREATE2, &[0; 88]), "19 19"),
    ("a message from a measurer", |bench| bench.measurer_says(&Message::Proven), "19 16"),
    ("an error from a measurer", Bench::measurer_gives_up, "19 19"),
    ("the measurer's link closes", Bench::measurer_leaves, "- -"),
    ("the coordinator's link closes", Bench::coordinator_leaves, "- 18"),
    ("the traffic stops", Bench::silence, "20 20"),
    ("nothing arrives at all", Bench::nothing, "17 17"),
];

impl Bench {
    fn peer(&mut self) -> NodeHandle {
        let peer = Peer::dialling(self.target, self.unix_time_s);
        let node = self.stage.add(peer, &identities().others, &[]);
        self.stage.until(SOON, |stage| stage.node::<Peer>(node).is_open());
        self.peers.push(node);
        node
    }

    fn at(&mut self, node: NodeHandle) -> &mut Peer {
        self.stage.node(node)
    }

    fn pass(&mut self, time: Duration) {
        let end = self.stage.now() + time;
        while self.stage.now() < end {
            self.stage.step();
        }
    }

    /// Waits until the relay has closed a link.
    fn until_closed(&mut self, node: NodeHandle) {
        self.stage.until(SOON, |stage| stage.node::<Peer>(node).closed.is_some());
    }

    /// The error that a peer has received.
    fn error(&mut self, node: NodeHandle) -> String {
        match self.at(node).messages().last() {
            Some(Message::Error { code, .. }) => code.get().to_string(),
            _ => "-".to_owned(),
        }
    }

    /// The errors of both parties, once their links are closed.
    fn errors(&mut self, coordinator: NodeHandle, measurer: NodeHandle) -> Outcome {
        self.until_closed(coordinator);
        self.until_closed(measurer);
        format!("{} {}", self.error(coordinator), self.error(measurer))
    }

    /// The error upon the first message of a link.
    fn first(&mut self, body: &[u8]) -> Outcome {
        let peer = self.peer();
        self.at(peer).send(CircId::LINK, Command::MEASURE, body);
        self.until_closed(peer);
        self.error(peer)
    }

    fn next_order(&mut self) -> Order {
        self.orders += 1;
        Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: self.target.ids,
            measurers: MEASURERS.iter().map(MeasurerKey::of_seed).collect(),
            seconds: 9,
            client_share: ClientShare::DEFAULT,
            sockets: 1,
            expires_unix_s: self.unix_time_s + 600,
            nonce: Nonce([self.orders; 32]),
        }
    }

    fn send_order(&mut self, peer: NodeHandle, order: &Order) {
        let signed = order.sign(&COORDINATOR, &self.at(peer).exported);
        self.at(peer).send_message(&Message::Order(signed));
    }

    /// A coordinator whose order is accepted, perhaps only after the measurement of the previous case has ended.
    fn coordinator(&mut self, order: &Order) -> NodeHandle {
        let deadline = self.stage.now() + SOON;
        loop {
            let peer = self.peer();
            self.send_order(peer, order);
            self.stage.until(SOON, |stage| !stage.node::<Peer>(peer).messages().is_empty());
            let answer = self.at(peer).messages().remove(0);
            if answer == (Message::Accepted { nonce: order.nonce }) {
                return peer;
            }
            let is_busy = matches!(answer, Message::Error { code, .. } if code == ErrorCode::BUSY);
            assert!(is_busy && self.stage.now() < deadline, "the order is refused: {answer:?}");
        }
    }

    fn send_proof(&mut self, peer: NodeHandle, seed: &[u8; 32], nonce: Nonce, exported: &[u8; 32]) {
        let proof = Proof::sign(seed, nonce, &self.target.ids, exported);
        self.at(peer).send_message(&Message::Proof(proof));
    }

    /// A measurer that has proved itself.
    fn measurer(&mut self, order: &Order) -> NodeHandle {
        let peer = self.peer();
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], order.nonce, &exported);
        self.stage.until(SOON, |stage| stage.node::<Peer>(peer).messages() == [Message::Proven]);
        peer
    }

    fn parties(&mut self) -> (NodeHandle, NodeHandle) {
        let order = self.next_order();
        (self.coordinator(&order), self.measurer(&order))
    }

    /// Creates a circuit and returns the keystream of its cells.
    fn circuit(&mut self, measurer: NodeHandle) -> (CircId, Keystream) {
        let (circ_id, x) = (CircId::of_initiator(1), [1; 20]);
        self.at(measurer).send(circ_id, Command::CREATE_FAST, &x);
        self.stage.until(SOON, |stage| {
            stage.node::<Peer>(measurer).cell(circ_id, Command::CREATED_FAST).is_some()
        });
        let keys = self.at(measurer).fast_keys(circ_id, x).expect("created");
        (circ_id, Keystream::new(&keys.key_forward))
    }

    fn echoes(&mut self) -> Outcome {
        let (_, measurer) = self.parties();
        let (circ_id, mut keystream) = self.circuit(measurer);
        let mut expected = Vec::new();
        for number in 0..200u8 {
            let mut body = [number; BODY_LEN];
            let command = if number == 3 { Command::RELAY_EARLY } else { Command::RELAY };
            self.at(measurer).send(circ_id, command, &body);
            keystream.apply(&mut body);
            expected.push((circ_id, Command::RELAY, body.to_vec()));
        }
        let cells = |peer: &Peer| -> Vec<_> {
            let on_it = peer.received.iter().filter(|cell| cell.0 == circ_id);
            on_it.filter(|cell| cell.1 != Command::CREATED_FAST).cloned().collect()
        };
        self.stage.until(SOON, |stage| cells(stage.node(measurer)).len() >= expected.len());
        assert!(cells(self.at(measurer)) == expected, "other cells");
        "returned".to_owned()
    }

    fn completes(&mut self) -> Outcome {
        let order = Order { seconds: 1, ..self.next_order() };
        let (coordinator, measurer) = (self.coordinator(&order), self.measurer(&order));
        let (circ_id, _) = self.circuit(measurer);
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.until_closed(measurer);
        assert_eq!(self.error(measurer), "-");
        let is_report = |message: &Message| match message {
            Message::ClientSecond(second, returned) => {
                // Each measurer has its bytes: one cell here, and perhaps that of CREATED_FAST.
                second.second == 0
                    && returned.len() == MEASURERS.len()
                    && (514..=1028).contains(&returned[0].bytes)
                    && returned[1].bytes == 0
            }
            _ => false,
        };
        let reports =
            self.at(coordinator).messages().iter().filter(|message| is_report(message)).count();
        let next = self.next_order();
        self.send_order(coordinator, &next);
        let accepted = Message::Accepted { nonce: next.nonce };
        self.stage
            .until(SOON, |stage| stage.node::<Peer>(coordinator).messages().contains(&accepted));
        format!("{reports} report, again")
    }

    fn early_proof(&mut self) -> Outcome {
        let peer = self.peer();
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], Nonce([0xee; 32]), &exported);
        self.until_closed(peer);
        self.error(peer)
    }

    /// A proof that is refused leaves the measurement alone.
    fn proof(&mut self, seed: &[u8; 32], is_of_another_session: bool) -> Outcome {
        let order = self.next_order();
        let (coordinator, peer) = (self.coordinator(&order), self.peer());
        let exported = if is_of_another_session { [0; 32] } else { self.at(peer).exported };
        self.send_proof(peer, seed, order.nonce, &exported);
        self.until_closed(peer);
        format!("{} {}", self.error(coordinator), self.error(peer))
    }

    fn late_proof(&mut self) -> Outcome {
        let order = self.next_order();
        let (coordinator, peer) = (self.coordinator(&order), self.peer());
        self.circuit(peer);
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], order.nonce, &exported);
        self.until_closed(peer);
        format!("{} {}", self.error(coordinator), self.error(peer))
    }

    fn too_many_links(&mut self) -> Outcome {
        let order = self.next_order();
        let (coordinator, _, peer) = (self.coordinator(&order), self.measurer(&order), self.peer());
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[1], order.nonce, &exported);
        self.until_closed(peer);
        format!("{} {}", self.error(coordinator), self.error(peer))
    }

    fn second_order(&mut self, is_same_link: bool) -> Outcome {
        let (coordinator, measurer) = self.parties();
        let link = if is_same_link { coordinator } else { self.peer() };
        let order = self.next_order();
        self.send_order(link, &order);
        self.until_closed(link);
        if is_same_link {
            return self.errors(coordinator, measurer);
        }
        format!("{} {}, {}", self.error(coordinator), self.error(measurer), self.error(link))
    }

    /// A measurer sends cells of circuits 1, 2 and so on.
    fn measurer_sends(&mut self, count: u32, command: Command, body: &[u8]) -> Outcome {
        let (coordinator, measurer) = self.parties();
        for number in 1..=count {
            self.at(measurer).send(CircId::of_initiator(number), command, body);
        }
        self.errors(coordinator, measurer)
    }

    fn measurer_says(&mut self, message: &Message) -> Outcome {
        let (coordinator, measurer) = self.parties();
        self.at(measurer).send_message(message);
        self.until_closed(coordinator);
        self.until_closed(measurer);
        // It has the reason of its own error first.
        let first = self.at(measurer).messages().into_iter().find_map(|message| match message {
            Message::Error { code, .. } => Some(code.get()),
            _ => None,
        });
        format!("{} {}", self.error(coordinator), first.expect("an error"))
    }

    fn measurer_gives_up(&mut self) -> Outcome {
        let (coordinator, measurer) = self.parties();
        let error = Message::Error { code: ErrorCode::OTHER, text: String::new() };
        self.at(measurer).send_message(&error);
        self.errors(coordinator, measurer)
    }

    fn measurer_leaves(&mut self) -> Outcome {
        let (coordinator, measurer) = self.parties();
        self.at(measurer).close();
        self.pass(Duration::from_millis(500));
        format!("{} {}", self.error(coordinator), self.error(measurer))
    }

    fn coordinator_leaves(&mut self) -> Outcome {
        let (coordinator, measurer) = self.parties();
        self.at(coordinator).close();
        self.until_closed(measurer);
        format!("{} {}", self.error(coordinator), self.error(measurer))
    }

    fn silence(&mut self) -> Outcome {
        let (coordinator, measurer) = self.parties();
        let (circ_id, _) = self.circuit(measurer);
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.errors(coordinator, measurer)
    }

    fn nothing(&mut self) -> Outcome {
        let (coordinator, measurer) = self.parties();
        self.errors(coordinator, measurer)
    }

    /// Prints the table, and fails with all rows that differ.
    #[expect(clippy::print_stderr, reason = "the table, which is shown if the test fails")]
    fn judge(&mut self) {
        let mut differences = Vec::new();
        for (name, case, expected) in ROWS {
            let found = case(self);
            eprintln!("{name}: {found}");
            if found != *expected {
                differences.push(format!("{name}: {found}, not {expected}"));
            }
            for peer in std::mem::take(&mut self.peers) {
                if self.at(peer).closed.is_none() {
                    self.at(peer).close();
                }
            }
        }
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

#[test]
fn our_router_conforms() {
    let scenario = Scenario {
        max_duration: Duration::from_secs(MAX_DURATION_S),
        measurements_per_period: 1000,
        ..Scenario::default()
    };
    let Run { stage, target, .. } = Run::begin(RealSockets::new(), &scenario);
    Bench { stage, target, unix_time_s: UNIX_TIME_S, peers: Vec::new(), orders: 0 }.judge();
}

/// A relay of C tor that contacts nobody.
struct TorRelay {
    _process: TorProcess,
    _folder: tempfile::TempDir,
    target: Target,
}

impl TorRelay {
    fn start(tor: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        // Free until tor listens, with luck.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address: SocketAddr = free.local_addr().expect("bound");
        drop(free);
        let key = CoordinatorKey::of_seed(&COORDINATOR);
        let torrc = format!(
            "DataDirectory {0}/data\nLog notice file {0}/log\nTestingTorNetwork 1\nShutdownWaitLength 0\n\
             Address 127.0.0.1\nORPort {address}\nAssumeReachable 1\nSocksPort 0\nExitRelay 0\n\
             PublishServerDescriptor 0\n__OwningControllerProcess {1}\n\
             DirAuthority none orport=1 no-v2 v3ident={2} 127.0.0.1:1 {2}\n\
             FlashFlow 1\nFlashFlowCoordinator {key}\nFlashFlowQuota 1000\n\
             FlashFlowMaxDuration {MAX_DURATION_S} seconds\n",
            path.display(),
            std::process::id(),
            "0123456789ABCDEF0123456789ABCDEF01234567",
        );
        fs::write(path.join("torrc"), torrc).expect("writable");
        fs::write(path.join("defaults"), "").expect("writable");
        let process = Process::new(tor)
            .args(["-f", "torrc", "--defaults-torrc", "defaults"])
            .current_dir(path)
            .stdout(Stdio::null())
            .spawn();
        let mut process = TorProcess(process.expect("tor"));
        let mut stage = RealSockets::new();
        let deadline = stage.now() + SOON;
        let fingerprint = path.join("data/fingerprint");
        let is_ready = || fingerprint.exists() && std::net::TcpStream::connect(address).is_ok();
        while !is_ready() {
            let has_ended = process.0.try_wait().expect("our process").is_some();
            let log = fs::read_to_string(path.join("log")).unwrap_or_default();
            assert!(!has_ended && stage.now() < deadline, "tor does not listen: {log}");
            std::thread::yield_now();
            stage.step();
        }
        let fingerprint = fs::read_to_string(&fingerprint).expect("written");
        let hex = fingerprint.split_whitespace().last().expect("a fingerprint");
        let mut rsa = [0; 20];
        hex::decode_to_slice(hex, &mut rsa).expect("hexadecimal digits");
        let file = fs::read(path.join("data/keys/ed25519_master_id_public_key")).expect("written");
        let ed25519 = file.last_chunk().copied().map(Ed25519Id);
        let target = Target { address, ids: RelayIds { rsa: RsaId(rsa), ed25519 } };
        Self { _process: process, _folder: folder, target }
    }
}

/// Ends with its owner, also if that panics before tor listens.
struct TorProcess(Child);

impl Drop for TorProcess {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[test]
fn a_patched_tor_conforms() {
    let Some(tor) = lab::patched_tor() else {
        skip::this_test!("no patched tor: `make tor` builds it")
    };
    let relay = TorRelay::start(&tor);
    let stage = RealSockets::new();
    let unix_time_s = link::unix_time_s();
    Bench { stage, target: relay.target, unix_time_s, peers: Vec::new(), orders: 0 }.judge();
}
