//! The cost of an event in table lookups, with 1,000 and with 100,000 circuits.
//!
//! Two operations look at everything by design: the upkeep every ten seconds, and the OOM handler, once for
//! each tenth of the memory limit.

use super::{Core, ExitConfig, ExitPolicy, Honest, LinkPeer, RouterConfig, table_lookups};
use crate::cell::msg::{Create2, DestroyReason, Extend2, encode_created2_into, link_specifier};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{
    Body, Cell, CellModel, HeaderOnly, HeaderOnlyPayload, Layers, Message, PayloadSlice, Run,
    StreamId,
};
use crate::identity::{RelayIds, RsaId};
use crate::node::{CloseCause, ConnId};
use crate::time::{Duration, Instant};
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

type HeaderOnlyBody = <HeaderOnly as CellModel>::Body;
type HeaderOnlyCell = <HeaderOnly as CellModel>::Cell;

const START: Instant = Instant::ORIGIN;

/// On each link: nine circuits that are extended to the same relay, and one that ends here, with a stream.
const PER_LINK: u32 = 10;

/// The circuit that ends here.
const LAST: u32 = PER_LINK;

const STREAM: StreamId = StreamId(1);

/// A relay with many clients.
struct Busy {
    relay: Core<HeaderOnly, ChaCha8Rng>,
    clients: Vec<ConnId>,
    others: Vec<ConnId>,
    streams: Vec<ConnId>,
}

impl Busy {
    fn with(circuits: u32) -> Self {
        let exit = ExitConfig {
            policy: ExitPolicy::accept_all(),
            allows_single_hop: true,
            ..ExitConfig::default()
        };
        let config = RouterConfig {
            exit: Some(exit),
            streams_max: u32::MAX,
            held_bytes_max: usize::MAX,
            ..RouterConfig::new(HeaderOnly::identity(1), 0)
        };
        let relay = Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), START);
        let mut busy = Self { relay, clients: vec![], others: vec![], streams: vec![] };
        (0..circuits / PER_LINK).for_each(|number| busy.add(number));
        assert_eq!(busy.relay.open_circuits(), circuits as usize);
        busy.relay.check_accounts();
        busy
    }

    /// A client with its circuits, and the relay that they are extended to.
    fn add(&mut self, number: u32) {
        let client = self.accept(number);
        self.clients.push(client);
        for circuit in 1..LAST {
            self.create_fast(client, circuit);
            self.extend(client, circuit, number);
        }
        self.others.push(self.relay.poll_dial().expect("one for all of them").conn);
        self.open_dialled(number);
        self.create_fast(client, LAST);
        self.begin_stream(client, LAST, STREAM);
        let stream = self.relay.poll_dial().expect("a stream").conn;
        self.relay.handle_plain_connected(START, stream);
        self.streams.push(stream);
        self.take_all(client);
    }

    fn accept(&mut self, number: u32) -> ConnId {
        let [_, ip @ ..] = number.to_be_bytes();
        let from = IpAddr::from([10, ip[0], ip[1], ip[2]]);
        let conn = self.relay.accept(START, Some(from), None).expect("room");
        self.relay.handle_link_open(START, conn, &LinkPeer::default());
        conn
    }

    fn cell(&mut self, conn: ConnId, circuit: CircId, command: Command, body: &HeaderOnlyBody) {
        assert!(self.relay.handle_cell(START, conn, circuit, command, body));
    }

    fn create_fast(&mut self, client: ConnId, circuit: u32) {
        let body = HeaderOnlyBody::from_bytes(&[]);
        self.cell(client, CircId::of_initiator(circuit), Command::CREATE_FAST, &body);
        assert!(self.relay.poll_control(START, client).is_some());
    }

    /// Sends a message to the hop at this distance.
    fn send_message(
        &mut self,
        client: ConnId,
        circuit: u32,
        hop: usize,
        command: RelayCommand,
        stream_id: StreamId,
        data: &[u8],
    ) {
        let mut body = HeaderOnlyBody::default();
        let data = HeaderOnlyPayload::from_bytes(data);
        let message = Message { command, stream_id, data };
        body.write(RelayFormat::V0, &message).expect("it fits");
        let mut layers = <HeaderOnly as CellModel>::Layers::default();
        (0..=hop).for_each(|_| layers.push(&RelayFormat::V0));
        layers.seal(hop, Command::RELAY, &mut body);
        self.cell(client, CircId::of_initiator(circuit), Command::RELAY_EARLY, &body);
    }

    fn extend(&mut self, client: ConnId, circuit: u32, relay: u32) {
        let [_, ip @ ..] = relay.to_be_bytes();
        let address = [45, ip[0], ip[1], ip[2], 35, 41];
        let rsa = ids(relay).rsa.0;
        let link_specifiers: Vec<(u8, &[u8])> =
            vec![(link_specifier::IPV4, &address), (link_specifier::RSA_IDENTITY, &rsa)];
        let mut data = Vec::new();
        let create = Create2 { handshake_type: 2, data: &[] };
        Extend2 { link_specifiers, create }.encode_into(&mut data);
        self.send_message(client, circuit, 0, RelayCommand::EXTEND2, StreamId::CIRCUIT, &data);
    }

    /// The relay of the last link answers, and so do all circuits that wait for it.
    fn open_dialled(&mut self, number: u32) {
        let conn = *self.others.last().expect("one that was dialled");
        let peer = LinkPeer { relay: Some(ids(number)), is_canonical: true, ..LinkPeer::default() };
        self.relay.handle_link_open(START, conn, &peer);
        self.answer_creates(conn);
    }

    fn answer_creates(&mut self, conn: ConnId) {
        let mut created = Vec::new();
        encode_created2_into(&[], &mut created);
        let created = HeaderOnlyBody::from_bytes(&created);
        while let Some(create) = self.relay.poll_control(START, conn) {
            assert_eq!(create.command, Command::CREATE2);
            self.cell(conn, create.circ_id, Command::CREATED2, &created);
        }
    }

    fn begin_stream(&mut self, client: ConnId, circuit: u32, stream: StreamId) {
        let data = b"93.184.215.14:80\0\0\0\0\0";
        self.send_message(client, circuit, 0, RelayCommand::BEGIN, stream, data);
    }

    /// All cells queued for a link.
    fn take_all(&mut self, conn: ConnId) {
        let mut room = vec![HeaderOnlyCell::EMPTY; 64];
        while self.relay.poll_control(START, conn).is_some() {}
        while self.relay.poll_cells(START, conn, &mut room) > 0 {}
        while self.relay.poll_writable().is_some() {}
    }

    /// The lookups of each kind of event that concerns the first client.
    fn costs(&mut self) -> Vec<(&'static str, u64)> {
        let (client, other, stream) = (self.clients[0], self.others[0], self.streams[0]);
        let mut costs = Vec::new();
        let mut count = |what, busy: &mut Self, event: &dyn Fn(&mut Self)| {
            costs.push((what, table_lookups::during(|| event(busy))));
        };
        count("a relayed cell", self, &|busy| {
            busy.send_message(client, 1, 1, RelayCommand::DATA, STREAM, &[]);
            busy.take_all(other);
        });
        count("data from a destination", self, &|busy| {
            let data = HeaderOnlyPayload::Run(Run { at: 0, len: 4 });
            busy.relay.handle_stream_data(START, stream, data);
            busy.take_all(client);
        });
        count("a stream that opens and closes", self, &|busy| {
            busy.begin_stream(client, LAST, StreamId(2));
            busy.send_message(client, LAST, 0, RelayCommand::END, StreamId(2), &[6]);
            while busy.relay.poll_dial().is_some() {}
            while let Some(closed) = busy.relay.poll_close() {
                assert!(closed != client && closed != other);
            }
            busy.take_all(client);
        });
        count("an unexpected SENDME, which closes its circuit", self, &|busy| {
            busy.send_message(client, LAST, 0, RelayCommand::SENDME, STREAM, &[]);
            busy.take_all(client);
        });
        count("a new circuit", self, &|busy| busy.create_fast(client, 20));
        count("a circuit that is extended over an open link", self, &|busy| {
            busy.extend(client, 20, 0);
            busy.answer_creates(other);
            busy.take_all(client);
        });
        count("a circuit that is destroyed", self, &|busy| {
            let reason = HeaderOnlyBody::from_bytes(&[DestroyReason::NONE.get()]);
            busy.cell(client, CircId::of_initiator(20), Command::DESTROY, &reason);
            busy.take_all(other);
        });
        count("a circuit that waits for a link that fails", self, &|busy| {
            busy.create_fast(client, 21);
            busy.extend(client, 21, 1 << 23);
            let dial = busy.relay.poll_dial().expect("a relay that is not known");
            busy.relay.handle_closed(START, dial.conn, &CloseCause::ByPeer);
            busy.take_all(client);
        });
        count("an early timeout", self, &|busy| busy.relay.handle_timeout(START));
        count("memory", self, &|busy| {
            assert!(busy.relay.held_bytes() > 0 && busy.relay.queued_bytes() < usize::MAX);
        });
        count("a link that opens and closes", self, &|busy| {
            let conn = busy.accept(1 << 23);
            busy.relay.handle_closed(START, conn, &CloseCause::ByPeer);
        });
        count("a link that is lost with all its circuits", self, &|busy| {
            busy.relay.handle_closed(START, client, &CloseCause::ByPeer);
            busy.take_all(other);
        });
        costs
    }
}

fn ids(number: u32) -> RelayIds {
    let mut rsa = [9; 20];
    rsa[..4].copy_from_slice(&number.to_be_bytes());
    RelayIds { rsa: RsaId(rsa), ed25519: None }
}

#[test]
fn the_cost_of_an_event_is_independent_of_the_number_of_circuits() {
    let costs = [1_000, 100_000].map(|circuits| {
        let mut busy = Busy::with(circuits);
        let costs = busy.costs();
        busy.relay.check_accounts();
        // A full scan must be noticeable.
        let pass =
            table_lookups::during(|| busy.relay.handle_timeout(START + Duration::from_secs(60)));
        assert!(pass >= circuits.into(), "{pass} lookups for {circuits} circuits");
        costs
    });
    assert_eq!(costs[0], costs[1]);
    for (what, lookups) in &costs[0] {
        assert!(*lookups < 400, "{what}: {lookups}");
    }
}
