use super::{DecryptedMessage, Stage, StageModel};
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::cell::msg::{Create2, encode_created2_into};
use onion::cell::relay::{RelayCommand, RelayFormat};
use onion::cell::{CircId, Command};
use onion::cell_model::{Body, CellModel, Layer, Message, PayloadSlice, StreamId};
use onion::flow::control::Agreed;
use onion::node::ConnId;
use rand_core::Rng;

/// A circuit at the next hop.
#[derive(Debug)]
pub(super) struct HopCircuit<S: CellModel> {
    layer: S::Layer,
}

/// The flow control that next hops offer.
const OFFERED: Agreed = Agreed { congestion_sendme_cells: Some(31) };

impl<S: StageModel, R: Rng> Stage<S, R> {
    /// The relay dials a next hop, whose number is the last octet of its address. The link is open at once.
    pub(super) fn add_next_hop(&mut self, conn: ConnId, to: SocketAddr) {
        let number = match to.ip() {
            core::net::IpAddr::V4(ip) => ip.octets()[3],
            core::net::IpAddr::V6(_) => 1,
        };
        self.open(conn, Some(number), None);
    }

    /// Links to next hops, in the order in which they were opened.
    pub fn next_hops(&self) -> impl Iterator<Item = usize> {
        let links = self.links.iter().enumerate();
        links.filter(|(_, link)| link.relay.is_some() && link.conn.is_some()).map(|(at, _)| at)
    }

    /// The circuits that the relay has created on a link.
    #[must_use]
    pub fn created_circuits(&self, link: usize) -> Vec<CircId> {
        self.links.get(link).map_or_else(Vec::new, |link| link.hops.keys().copied().collect())
    }

    /// A next hop sends a message to the client.
    pub fn reply(
        &mut self,
        link: usize,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: StreamId,
        bytes: &[u8],
    ) {
        let mut body = S::Body::from_bytes(&[]);
        let data = S::PayloadSlice::from_bytes(bytes);
        let Some(format) = self.format_of(link, circ_id) else { return };
        if body.write(format, &Message { command, stream_id, data }).is_ok() {
            self.originate(link, circ_id, body);
        }
    }

    /// A next hop sends a DATA cell to the client.
    pub fn reply_data(&mut self, link: usize, circ_id: CircId, stream_id: StreamId, len: u32) {
        let mut body = S::Body::from_bytes(&[]);
        let command = RelayCommand::DATA;
        let Some(format) = self.format_of(link, circ_id) else { return };
        let written =
            S::with_data(0, len, |data| body.write(format, &Message { command, stream_id, data }));
        if written.is_ok() {
            self.originate(link, circ_id, body);
        }
    }

    /// The message format in cells of a circuit at its next hop.
    fn format_of(&self, link: usize, circ_id: CircId) -> Option<RelayFormat> {
        self.links.get(link)?.hops.get(&circ_id).map(|hop| hop.layer.format())
    }

    fn originate(&mut self, link: usize, circ_id: CircId, mut body: S::Body) {
        let hop = self.links.get_mut(link).and_then(|link| link.hops.get_mut(&circ_id));
        let Some(hop) = hop else { return };
        hop.layer.originate(&mut body);
        self.send(link, circ_id, Command::RELAY, &body);
    }

    /// A next hop receives a cell.
    pub(super) fn receive_as_hop(
        &mut self,
        link: usize,
        circ_id: CircId,
        command: Command,
        body: &S::Body,
    ) -> Option<DecryptedMessage> {
        match command {
            Command::CREATE2 => {
                self.answer_create(link, circ_id, body);
                None
            }
            Command::DESTROY => {
                self.links[link].hops.remove(&circ_id);
                None
            }
            Command::RELAY | Command::RELAY_EARLY => {
                let hop = self.links[link].hops.get_mut(&circ_id)?;
                let mut plain = body.clone();
                if hop.layer.decrypt(command, &mut plain) {
                    let message = plain.message(hop.layer.format()).expect("a client's message");
                    return Some(DecryptedMessage::new::<S>(1, &message));
                }
                // The last hop destroys a circuit when it does not recognize a cell.
                self.links[link].hops.remove(&circ_id);
                self.answers.push_back((link, circ_id, Command::DESTROY, Vec::from([1])));
                None
            }
            _ => None,
        }
    }

    fn answer_create(&mut self, link: usize, circ_id: CircId, body: &S::Body) {
        let secret = self.next_secret();
        let number = self.links[link].relay.unwrap_or_default();
        let identity = if number == 0 { self.identity.clone() } else { S::identity(number) };
        let answer = Create2::parse(body.bytes())
            .ok()
            .and_then(|create| S::answer(&identity, &create, OFFERED, || secret));
        let Some(answer) = answer else {
            self.answers.push_back((link, circ_id, Command::DESTROY, Vec::from([1])));
            return;
        };
        let hop = HopCircuit { layer: S::Layer::new(&answer.keys) };
        self.links[link].hops.insert(circ_id, hop);
        let mut created = Vec::new();
        encode_created2_into(&answer.data, &mut created);
        self.answers.push_back((link, circ_id, Command::CREATED2, created));
    }
}
