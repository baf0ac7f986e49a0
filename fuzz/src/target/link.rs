//! The relay's end of a link.

use crate::links::Recorded;
use onion::cell::msg::{CreatedFast, DestroyReason};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{Keystream, fast};
use onion::link::{Channel, TlsSession};
use onion::measure::protocol::{EXPORTER_LABEL, Message, Nonce};
use onion::node::ConnId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const EXPORTED: [u8; 32] = [5; 32];

/// The TLS session of each link.
pub(super) struct Tls;

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Recorded::get().own_tls.peer_certificate()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        assert_eq!((label, context), (EXPORTER_LABEL, &[][..]));
        Some(EXPORTED)
    }
}

/// A link, with the relay's end of it.
pub(super) struct Link {
    pub(super) ours: Option<ConnId>,
    pub(super) is_connected: bool,
    channel: Channel,
    circuits: BTreeMap<u32, Keystream>,
    /// Cells received on circuits and not yet answered.
    to_answer: VecDeque<(CircId, Command, [u8; BODY_LEN])>,
    pub(super) to_us: Vec<u8>,
    pub(super) to_them: Vec<u8>,
}

impl Link {
    pub(super) fn new(conn: ConnId) -> Self {
        Self {
            ours: Some(conn),
            is_connected: false,
            channel: Channel::responder(
                Arc::clone(&Recorded::get().own),
                &Tls,
                [6; 32],
                Recorded::get().now_s,
            ),
            circuits: BTreeMap::new(),
            to_answer: VecDeque::new(),
            to_us: Vec::new(),
            to_them: Vec::new(),
        }
    }

    /// Transmits the cells that the relay's end has queued.
    fn transmit(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            let len = self.channel.poll_transmit(&mut buffer);
            self.to_us.extend_from_slice(&buffer[..len]);
            if len == 0 {
                break;
            }
        }
    }

    /// The relay receives bytes. Signatures must be valid: the node is honest.
    pub(super) fn receive(&mut self, mut bytes: &[u8], nonce: Nonce, proves: bool) {
        let mut answers = Vec::new();
        while let Some(cell) = self.channel.handle_bytes(&mut bytes).expect("the node is honest") {
            if cell.command == Command::MEASURE {
                match Message::parse(cell.body).expect("the node is honest") {
                    Message::Proof(proof) => {
                        let own = &Recorded::get().own;
                        proof.verify(&own.ids(), &EXPORTED).expect("a good signature");
                        assert_eq!(proof.nonce, nonce);
                        answers.extend(proves.then_some(Message::Proven));
                    }
                    Message::Order(signed) => {
                        let order = signed.claims().expect("readable");
                        signed.verify(&order, &EXPORTED).expect("a good signature");
                        assert_eq!(order.nonce, nonce);
                    }
                    other => panic!("not a message of a measurer or coordinator: {other:?}"),
                }
            } else if cell.circ_id != CircId::LINK {
                let mut body = [0; BODY_LEN];
                body.copy_from_slice(cell.body);
                self.to_answer.push_back((cell.circ_id, cell.command, body));
            }
        }
        for answer in answers {
            self.channel.send(CircId::LINK, Command::MEASURE, &answer.encode());
        }
        self.transmit();
    }

    /// The relay answers the received cells as an honest relay would.
    pub(super) fn answer(&mut self, cells: usize) {
        for _ in 0..cells {
            let Some((circ_id, command, mut body)) = self.to_answer.pop_front() else { break };
            if command == Command::CREATE_FAST {
                let mut x = [0; 20];
                x.copy_from_slice(&body[..20]);
                let (CreatedFast { y, key_hash }, keys) = fast::respond(&x, [8; 20]);
                self.circuits.insert(circ_id.get(), Keystream::new(&keys.key_forward));
                let created = [y, key_hash].concat();
                self.channel.send(circ_id, Command::CREATED_FAST, &created);
            } else if let Some(keystream) = self.circuits.get_mut(&circ_id.get()) {
                keystream.apply(&mut body);
                self.channel.send(circ_id, Command::RELAY, &body);
            } else {
                let reason = [DestroyReason::PROTOCOL.get()];
                self.channel.send(circ_id, Command::DESTROY, &reason);
            }
        }
        self.transmit();
    }

    /// The relay sends a cell once its link is open.
    pub(super) fn send_cell(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        if self.channel.is_open() {
            self.channel.send(circ_id, command, body);
            self.transmit();
        }
    }
}
