//! A middle relay, from bytes to bytes: framing, its layer of encryption, the circuit's queue, KIST, and framing again.

use crate::FAST_SOCKET;
use onion::Duration;
use onion::cell::msg::encode_created2_into;
use onion::cell::{BODY_LEN, CELL_LEN, CELLS_PER_RECORD, Cell, CircId, Command};
use onion::cell_model::{CellModel, Handshake, Tor};
use onion::circuit::{NextHop, extend_body};
use onion::crypto::Layers;
use onion::crypto::ntor_v3::extension::Request;
use onion::identity::OwnIdentity;
use onion::link::Authentication;
use onion::node::{Action, ConnId, Node};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use testkit::fixture::{Fixture, RUN};
use testkit::vectors::IDENTITIES;

/// Records that arrive between two runs of the scheduler.
const RECORDS: usize = 8;
/// Batches of records in a repetition.
const BATCHES: u32 = 20;

const RECORD_BYTES: usize = CELLS_PER_RECORD * CELL_LEN;
const CIRCUIT: CircId = CircId::of_initiator(1);

/// The cryptography of relay cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cryptography {
    /// AES-CTR, and SHA-1 for cells that are for the relay.
    Tor1,
    /// Counter Galois Onion.
    Cgo,
}

/// Relays cells forward. Returns their number.
pub(crate) fn run(cryptography: Cryptography, repetitions: u32) -> u64 {
    let mut relay = Relay::new(cryptography);
    let mut record = Vec::new();
    for _ in 0..CELLS_PER_RECORD {
        let body = &[7; BODY_LEN]; // not for the relay, since it decrypts to noise
        Cell { circ_id: CIRCUIT, command: Command::RELAY, body }.encode_into(&mut record);
    }
    assert_eq!(record.len(), RECORD_BYTES);
    let batches = repetitions * BATCHES;
    for _ in 0..batches {
        for _ in 0..RECORDS {
            let now = relay.fixture.now;
            relay.fixture.router.handle_bytes(now, relay.client, &record);
            relay.perform_actions();
        }
        relay.advance(RUN);
    }
    let cells = u64::from(batches) * (RECORDS * CELLS_PER_RECORD) as u64;
    assert_eq!(relay.sent_bytes, cells * CELL_LEN as u64, "each cell leaves within a run of KIST");
    cells
}

struct Relay {
    fixture: Fixture<ChaCha8Rng>,
    /// The link of the client.
    client: ConnId,
    buffer: Vec<u8>,
    /// Bytes sent to the next hop.
    sent_bytes: u64,
}

impl Relay {
    /// With a client's circuit, extended to another relay.
    fn new(cryptography: Cryptography) -> Self {
        let identities = IDENTITIES.clone();
        let config = identities.config();
        let mut fixture = Fixture::new(identities.clone(), config, ChaCha8Rng::from_seed([1; 32]));
        let client = fixture.dial(Some(Authentication::Anonymous), [7; 32]);
        fixture.exchange(client);
        fixture.advance(RUN);

        let request = Request {
            wants_congestion_control: true,
            wants_cgo: cryptography == Cryptography::Cgo,
            ..Request::default()
        };
        let begin_handshake = <Tor as CellModel>::Handshake::ntor_v3;
        let hop = |identity: &OwnIdentity| NextHop {
            address: ([10, 0, 0, 2], 9001).into(),
            ids: identity.ids(),
            onion_key: identity.onion_key(),
        };
        let handshake =
            begin_handshake(&hop(&identities.own), [8; 32], request).expect("good keys");
        let (command, body) = handshake.create_cell();
        fixture.send_cell(client, CIRCUIT, command, &body);
        fixture.advance(RUN);
        let created = fixture.peers[client].received.pop_back().expect("the router answers");
        let finished = handshake.finish_created(created.command, &created.body).expect("honest");
        let mut layers = Layers::default();
        layers.push(&finished.keys);

        let next = hop(&identities.other);
        let handshake = begin_handshake(&next, [9; 32], request).expect("good keys");
        let mut extend = extend_body::<Tor>(&next, &handshake, layers.format(0)).expect("it fits");
        layers.seal(0, Command::RELAY_EARLY, &mut extend);
        fixture.send_cell(client, CIRCUIT, Command::RELAY_EARLY, &extend);
        let next = fixture.dialled.pop_front().expect("the router dials");
        fixture.answer_dial(next, &[[10, 0, 0, 2].into()]);
        fixture.advance(RUN);
        let create = fixture.peers[next].received.pop_back().expect("a CREATE2");
        // The client would reject this answer. The router cannot know.
        let mut created = Vec::new();
        encode_created2_into(&[0; 64], &mut created);
        fixture.send_cell(next, create.circ_id, Command::CREATED2, &created);
        fixture.advance(RUN);

        let client = fixture.peers[client].conn.expect("an open link");
        Self { fixture, client, buffer: vec![0; RECORD_BYTES], sent_bytes: 0 }
    }

    fn advance(&mut self, time: Duration) {
        let end = self.fixture.now + time;
        while let Some(at) = self.fixture.router.poll_timeout().filter(|at| *at <= end) {
            self.fixture.now = self.fixture.now.max(at);
            self.fixture.router.handle_timeout(self.fixture.now);
            self.perform_actions();
        }
        self.fixture.now = end;
    }

    /// In contrast to [`Fixture::settle`], the next hop does not parse its cells, which would be counted.
    fn perform_actions(&mut self) {
        let Fixture { router, now, .. } = &mut self.fixture;
        while let Some(action) = router.poll_action(*now) {
            match action {
                Action::SocketState(conn) => {
                    router.handle_socket_state(*now, conn, Some(FAST_SOCKET));
                }
                Action::Transmit(conn) => loop {
                    let len = router.poll_transmit(*now, conn, &mut self.buffer);
                    if len == 0 {
                        break;
                    }
                    self.sent_bytes += len as u64;
                },
                other => panic!("not an action of an idle network: {other:?}"),
            }
        }
    }
}
