use super::{DecryptedMessage, Stage, StageModel};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use onion::cell::msg::{Sendme, parse_created2};
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::{
    Body, CellModel, Finished, Handshake, Layers, Message, PayloadSlice, StreamId,
};
use onion::circuit::{NextHop, extend_body};
use onion::crypto::ntor_v3::extension::Request;
use onion::flow::control::SendmeTag;
use rand_core::Rng;

/// The kind of handshake with a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeKind {
    /// CREATE_FAST: the first hop only.
    Fast,
    /// ntor.
    Ntor,
    /// ntor v3, with congestion control.
    Congestion,
    /// ntor v3, with congestion control and Counter Galois Onion.
    Cgo,
}

/// A client's end of a circuit.
#[derive(Debug)]
pub(super) struct ClientCircuit<S: CellModel> {
    layers: S::Layers,
    /// The pending handshake.
    handshake: Option<S::Handshake>,
    /// DATA cells received.
    data_cells: u64,
    /// The number of cells that a SENDME acknowledges.
    sendme_cells: u64,
    /// SENDMEs to send: the hop whose cells they acknowledge, and the tag of the last of them.
    due: VecDeque<(usize, SendmeTag)>,
    /// The offset of the next data to send.
    sent_bytes: u32,
}

impl<S: StageModel, R: Rng> Stage<S, R> {
    fn next_hop(number: u8) -> NextHop {
        let identity = S::identity(number);
        let address = ([192, 0, 2, number], 9001).into();
        NextHop { address, ids: S::ids(&identity), onion_key: S::onion_key(&identity) }
    }

    fn begin_handshake(&mut self, kind: HandshakeKind, with: u8) -> S::Handshake {
        let to = Self::next_hop(with);
        match kind {
            HandshakeKind::Fast => S::Handshake::fast(self.next_secret()),
            HandshakeKind::Ntor => S::Handshake::ntor(&to, self.next_secret()),
            HandshakeKind::Congestion | HandshakeKind::Cgo => {
                let secret = self.next_secret();
                let request = Request {
                    wants_congestion_control: true,
                    wants_cgo: kind == HandshakeKind::Cgo,
                    ..Request::default()
                };
                S::Handshake::ntor_v3(&to, secret, request).expect("an Ed25519 identity")
            }
        }
    }

    /// A client creates a circuit, unless it has one with this ID.
    pub fn create(&mut self, link: usize, circ_id: CircId, kind: HandshakeKind) {
        if self.client_mut(link, circ_id).is_some() {
            return;
        }
        let handshake = self.begin_handshake(kind, 0);
        let (command, body) = handshake.create_cell();
        let Some(state) = self.links.get_mut(link) else { return };
        let circuit = ClientCircuit {
            layers: S::Layers::default(),
            handshake: Some(handshake),
            data_cells: 0,
            sendme_cells: 100,
            due: VecDeque::new(),
            sent_bytes: 0,
        };
        state.clients.insert(circ_id, circuit);
        self.send_bytes(link, circ_id, command, &body);
    }

    /// A client extends its circuit to a relay with this number, unless a handshake is pending.
    pub fn extend(&mut self, link: usize, circ_id: CircId, kind: HandshakeKind, to: u8) {
        let circuit = self.client_mut(link, circ_id);
        if circuit.is_none_or(|circuit| circuit.handshake.is_some() || circuit.layers.is_empty()) {
            return;
        }
        let handshake = self.begin_handshake(kind, to);
        let Some(circuit) = self.client_mut(link, circ_id) else { return };
        let last = circuit.layers.len().saturating_sub(1);
        let format = circuit.layers.format(last);
        let body = extend_body::<S>(&Self::next_hop(to), &handshake, format);
        let Ok(mut body) = body else { return };
        circuit.handshake = Some(handshake);
        circuit.layers.seal(last, Command::RELAY_EARLY, &mut body);
        self.send(link, circ_id, Command::RELAY_EARLY, &body);
    }

    /// The number of hops of a client's circuit.
    #[must_use]
    pub fn hops(&self, link: usize, circ_id: CircId) -> usize {
        let circuit = self.links.get(link).and_then(|link| link.clients.get(&circ_id));
        circuit.map_or(0, |circuit| circuit.layers.len())
    }

    /// DATA cells received on a circuit.
    #[must_use]
    pub fn data_cells(&self, link: usize, circ_id: CircId) -> u64 {
        let circuit = self.links.get(link).and_then(|link| link.clients.get(&circ_id));
        circuit.map_or(0, |circuit| circuit.data_cells)
    }

    /// A client sends a message to a hop.
    pub fn send_message(
        &mut self,
        link: usize,
        circ_id: CircId,
        (hop, command): (usize, RelayCommand),
        stream_id: StreamId,
        bytes: &[u8],
    ) {
        let mut body = S::Body::from_bytes(&[]);
        let data = S::PayloadSlice::from_bytes(bytes);
        let Some(circuit) = self.client_mut(link, circ_id) else { return };
        let format = circuit.layers.format(hop);
        if body.write(format, &Message { command, stream_id, data }).is_ok() {
            self.seal_and_send(link, circ_id, hop, body);
        }
    }

    /// A client sends a DATA cell to a hop, with `len` bytes or what fits.
    pub fn send_data(
        &mut self,
        link: usize,
        circ_id: CircId,
        hop: usize,
        stream_id: StreamId,
        len: u32,
    ) {
        let Some(circuit) = self.client_mut(link, circ_id) else { return };
        let format = circuit.layers.format(hop);
        let most = format.max_data_len(RelayCommand::DATA);
        let len = len.min(u32::try_from(most).unwrap_or(u32::MAX));
        let at = circuit.sent_bytes;
        circuit.sent_bytes = at.wrapping_add(len);
        let mut body = S::Body::from_bytes(&[]);
        let command = RelayCommand::DATA;
        let written =
            S::with_data(at, len, |data| body.write(format, &Message { command, stream_id, data }));
        if written.is_ok() {
            self.seal_and_send(link, circ_id, hop, body);
        }
    }

    /// A client sends the oldest SENDME that is due on a circuit. Returns false if there is none.
    pub fn acknowledge(&mut self, link: usize, circ_id: CircId) -> bool {
        let due = self.client_mut(link, circ_id).and_then(|circuit| circuit.due.pop_front());
        let Some((hop, tag)) = due else { return false };
        let mut data = Vec::new();
        Sendme::Tagged(tag.as_bytes()).encode_into(&mut data);
        self.send_message(link, circ_id, (hop, RelayCommand::SENDME), StreamId::CIRCUIT, &data);
        true
    }

    fn seal_and_send(&mut self, link: usize, circ_id: CircId, hop: usize, mut body: S::Body) {
        let Some(circuit) = self.client_mut(link, circ_id) else { return };
        // Without a layer, the cell would be noise in one cell model and a message in the other.
        if hop >= circuit.layers.len() {
            return;
        }
        circuit.layers.seal(hop, Command::RELAY, &mut body);
        self.send(link, circ_id, Command::RELAY, &body);
    }

    fn client_mut(&mut self, link: usize, circ_id: CircId) -> Option<&mut ClientCircuit<S>> {
        self.links.get_mut(link)?.clients.get_mut(&circ_id)
    }

    /// A client destroys a circuit whose cells it cannot decrypt or parse.
    fn destroy(&mut self, link: usize, circ_id: CircId) {
        self.links[link].clients.remove(&circ_id);
        self.answers.push_back((link, circ_id, Command::DESTROY, [1].into()));
    }

    /// A client receives a cell.
    pub(super) fn receive_as_client(
        &mut self,
        link: usize,
        circ_id: CircId,
        command: Command,
        body: &S::Body,
    ) -> Option<DecryptedMessage> {
        let circuit = self.client_mut(link, circ_id)?;
        match command {
            Command::CREATED_FAST | Command::CREATED2 => {
                let handshake = circuit.handshake.take()?;
                match handshake.finish_created(command, body.bytes()) {
                    Ok(finished) => circuit.finish(&finished),
                    Err(_) => self.destroy(link, circ_id),
                }
                None
            }
            Command::DESTROY => {
                self.links[link].clients.remove(&circ_id);
                None
            }
            Command::RELAY => {
                let mut plain = body.clone();
                let Ok(hop) = circuit.layers.open(&mut plain) else {
                    self.destroy(link, circ_id); // its layers are desynchronized
                    return None;
                };
                let format = circuit.layers.format(hop);
                let message = plain.message(format).expect("a readable message");
                circuit.receive(hop, &message)
            }
            _ => None,
        }
    }
}

impl<S: CellModel> ClientCircuit<S> {
    /// Completes a handshake.
    fn finish(&mut self, finished: &Finished<S>) {
        self.layers.push(&finished.keys);
        self.sendme_cells = finished.agreed.congestion_sendme_cells.map_or(100, u64::from);
    }

    fn receive(
        &mut self,
        hop: usize,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Option<DecryptedMessage> {
        let Message { command, data, .. } = *message;
        if command == RelayCommand::DATA {
            self.data_cells += 1;
            if self.data_cells.is_multiple_of(self.sendme_cells) {
                self.due.push_back((hop, self.layers.received_tag(hop)));
            }
        }
        if command == RelayCommand::EXTENDED2
            && let Some(handshake) = self.handshake.take()
            && parse_created2(data.bytes()).is_ok()
            && let Ok(finished) = handshake.finish_extended(data.bytes())
        {
            self.finish(&finished);
        }
        Some(DecryptedMessage::new::<S>(hop, message))
    }
}

impl DecryptedMessage {
    /// Records a message. Handshakes and tags differ between cell models: only their length is recorded.
    pub(super) fn new<S: CellModel>(hop: usize, message: &Message<S::PayloadSlice<'_>>) -> Self {
        let Message { command, stream_id, data } = *message;
        let is_comparable = !matches!(
            command,
            RelayCommand::DATA
                | RelayCommand::SENDME
                | RelayCommand::EXTENDED2
                | RelayCommand::EXTEND2
        );
        let bytes = if is_comparable { data.bytes().into() } else { Vec::new() };
        let len = if command == RelayCommand::DATA || is_comparable { data.len() } else { 0 };
        Self { hop, command, stream_id, len, bytes }
    }
}
