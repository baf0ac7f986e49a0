//! Counter Galois Onion between these relays and unmodified clients, and between this client and
//! unmodified relays.

use crate::common::{PATIENCE, config, knowing};
use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use link::tls::TlsConfigs;
use link::{
    Clock, Drive, Driver, DriverOptions, IdentityIssuer, NodeThread, Observer, ThreadError,
};
use netdoc::descriptor;
use netdoc::fetch::{Fetcher, Resource};
use onion::Instant;
use onion::circuit::NextHop;
use onion::client::{self, CircuitPlan, ClientEvent, Loss, Outcome, Transfer};
use onion::identity::{RelayIds, RsaId};
use rand::SeedableRng;
use rand::rngs::StdRng;
use relay::{ExitSection, Relay, RelayConfig};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

/// A relay of this crate, optionally as an exit.
fn ours(network: &Network, nickname: &str, is_exit: bool, folder: &Path) -> Relay {
    let open = ExitSection {
        policy: Some(vec!["accept *:*".to_owned()]),
        reject_private: Some(false),
        ..ExitSection::default()
    };
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        exit: if is_exit { open } else { ExitSection::default() },
        ..config(nickname, &folder.join(nickname))
    };
    Relay::start(&settings.check().expect("sound"), channel().0).expect("started")
}

fn c_tor_exit() -> RelaySpec {
    RelaySpec::open_exit("stock")
}

/// C tor clients negotiate CGO only with the last hop. If our relay is in the middle, its layer is a keystream.
#[test]
fn a_c_tor_client_uses_cgo_with_our_exit_and_through_our_middle() {
    let network = Network::start(&NetworkSpec::new(vec![c_tor_exit()]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    // No circuit from before the pinning ends at the middle.
    let [middle, exit] = [("oursA", false), ("oursB", true)]
        .map(|(name, is_exit)| ours(&network, name, is_exit, folder.path()));
    network.wait_until_known(&[middle.rsa().0, exit.rsa().0], PATIENCE).expect("listed");
    // An exit refuses streams on circuits from a relay that it does not know.
    let _ = knowing(&network, 0, &[&middle.rsa().to_string()]);
    let [entry, other] = [0, 1].map(|place: usize| network.authorities()[place].rsa());
    let c_tor = network.relays()[0].rsa();
    let all = [middle.rsa().0, exit.rsa().0, entry, other, c_tor];
    let extra = ["ConfluxEnabled 0".to_owned()];
    let mut client = Client::start(&network, "client", &extra, &all, PATIENCE).expect("a client");
    let server = ContentServer::start().expect("a server");
    let mut number = 0;
    for (second, last) in [(other, exit.rsa().0), (middle.rsa().0, c_tor)] {
        let pins = Pins { entry: vec![entry], middle: vec![second], exit: vec![last] };
        // The client may build circuits immediately after it is pinned.
        let before = (middle.totals().cgo_circuits, exit.totals().cgo_circuits);
        client.pin(&pins).expect("accepted");
        for len in [1 << 10, 100_000, 4 << 20] {
            number += 1;
            let content = Content { len, seed: number };
            let from = ("127.0.0.1", server.address().port());
            let done = download(client.socks(), from, content, &number.to_string(), PATIENCE);
            let done = done.unwrap_or_else(|error| {
                panic!("{last:x?}, {len} bytes: {error}: {:#?}", client.events())
            });
            assert!(done.is_right, "{last:x?}, {len} bytes: {done:?}");
        }
        let at_exit = exit.totals().cgo_circuits - before.1;
        assert_eq!(
            middle.totals().cgo_circuits,
            before.0,
            "CGO is not requested from a middle hop"
        );
        if last == exit.rsa().0 {
            assert!(at_exit >= 3, "{at_exit} of three circuits");
        }
    }
}

/// Events of a client thread: the outcome of a transfer, or why its circuit failed.
struct TransferObserver {
    results: Sender<Result<u64, String>>,
    clock: Clock,
    /// Builds another circuit if C tor destroyed the first one.
    again: Option<(CircuitPlan, SocketAddr, Transfer)>,
}

impl TransferObserver {
    fn begin_again(&mut self, node: &mut client::Client<StdRng>, cause: &Loss) -> bool {
        let is_swept = matches!(cause, Loss::Circuit(error) if error.may_be_swept());
        let Some((plan, to, transfer)) = self.again.take().filter(|_| is_swept) else {
            return false;
        };
        let circuit = node.open(self.clock.now(), &plan);
        node.begin(self.clock.now(), circuit, to.into(), transfer);
        true
    }
}

impl Observer<client::Client<StdRng>> for TransferObserver {
    fn before_turn(&mut self, drive: &mut dyn Drive<client::Client<StdRng>>) -> Option<Instant> {
        while let Some(event) = drive.node_mut().poll_event() {
            let result = match event {
                ClientEvent::Over { outcome: Outcome::Complete, figures, .. } => {
                    Ok(figures.received_bytes)
                }
                ClientEvent::Built { .. } => continue,
                ClientEvent::Lost { cause, .. } if self.begin_again(drive.node_mut(), &cause) => {
                    continue;
                }
                other => Err(format!("{other:?}")),
            };
            let _ = self.results.send(result);
        }
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        let _ = self.results.send(Err(failure.to_string()));
    }
}

struct Silent;

impl Observer<client::Server> for Silent {
    fn before_turn(&mut self, _: &mut dyn Drive<client::Server>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        panic!("{failure}");
    }
}

/// A relay as a hop, from its own descriptor.
fn next_hop(network: &Network, rsa: [u8; 20]) -> NextHop {
    let resource = Resource::Descriptors(vec![RsaId(rsa)]);
    let text = Fetcher::default().get(network.directory_addrs()[0], &resource).expect("served");
    let found = descriptor::iter(&text).next().expect("one").expect("readable");
    assert!(found.proto.is_some_and(|proto| proto.contains("Relay=2-6")), "{:?}", found.proto);
    NextHop {
        address: SocketAddr::new(found.address.into(), found.or_port),
        ids: RelayIds { rsa: RsaId(rsa), ed25519: found.ed25519 },
        onion_key: found.ntor_onion_key.expect("an onion key"),
    }
}

#[test]
fn our_client_uses_cgo_with_c_tor_exits_and_ours() {
    let network = Network::start(&NetworkSpec::new(vec![c_tor_exit()]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let relay = ours(&network, "ours", true, folder.path());
    let [ours, c_tor, first] =
        [relay.rsa().0, network.relays()[0].rsa(), network.authorities()[0].rsa()];
    network.wait_until_known(&[ours, c_tor], PATIENCE).expect("listed");
    let _ = knowing(&network, 0, &[&relay.rsa().to_string()]);

    let now = link::unix_time_s();
    let issuer = IdentityIssuer::new([7; 32], now).expect("keys");
    let clock = Clock::start();
    let tls = TlsConfigs::new(&issuer).expect("certificates");
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let server_at = listener.local_addr().expect("bound");
    let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
    let server = Driver::new(client::Server::new(), clock, tls.clone(), vec![listener], options);
    let server = Box::new(server.expect("a driver"));
    let _server = NodeThread::start("server", server, Silent).expect("a thread");

    // The layer is shared with the last hop, which would understand nothing else.
    let paths = [vec![first, ours, c_tor], vec![first, c_tor, ours], vec![ours, c_tor]];
    for (number, path) in (1..).zip(paths) {
        let mut node = client::Client::new(now, StdRng::seed_from_u64(number));
        let hops = path.iter().map(|rsa| next_hop(&network, *rsa)).collect();
        let before = relay.totals().cgo_circuits;
        let plan =
            CircuitPlan { has_congestion_control: true, has_cgo: true, ..CircuitPlan::new(hops) };
        let circuit = node.open(clock.now(), &plan);
        let transfer = Transfer { seed: number, download_bytes: 2 << 20, upload_bytes: 1 << 20 };
        node.begin(clock.now(), circuit, server_at.into(), transfer);
        let node = Driver::new(node, clock, tls.clone(), Vec::new(), DriverOptions::default());
        let (sender, results) = channel();
        let node = Box::new(node.expect("a driver"));
        let again = Some((plan, server_at, transfer));
        let observer = TransferObserver { results: sender, clock, again };
        let _client = NodeThread::start("client", node, observer).expect("a thread");
        let received = results.recv_timeout(PATIENCE).expect("an end");
        assert!(received.as_ref().is_ok_and(|bytes| *bytes > 2 << 20), "{path:x?}: {received:?}");
        let is_ours = path.last() == Some(&ours);
        assert_eq!(relay.totals().cgo_circuits - before, u64::from(is_ours), "{path:x?}");
    }
}
