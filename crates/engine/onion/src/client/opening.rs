//! Creating circuits and opening streams.

use super::application::Application;
use super::circuit::{Circuit, Passage, Stage, Up};
use super::core::Core;
use super::event::{CircuitNumber, ClientEvent, Loss, StreamNumber};
use super::plan::{CircuitPlan, Destination};
use super::streams::{Stream, Streams};
use crate::cell::CircId;
use crate::cell::msg::Begin;
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, Handshake};
use crate::circuit::{Builder, Built, NextHop};
use crate::crypto::ntor_v3::extension::Request;
use crate::flow::control::{CircuitEnd, Flow};
use crate::flow::hop::HopAccount;
use crate::node::ConnId;
use crate::time::Instant;
use crate::tunnel::conflux::ConfluxError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// Opens a circuit. [`ClientEvent::Built`] or [`ClientEvent::Lost`] reports the result.
    ///
    /// A path without hops is lost immediately, without an event.
    pub fn open(&mut self, now: Instant, path: &CircuitPlan) -> CircuitNumber {
        self.now = now;
        let number = self.next_circuit();
        if !path.hops.is_empty() {
            let passage = Passage { legs: Vec::new(), streams: Streams::default(), set: None };
            self.passages.insert(number, passage);
            self.open_leg(number, 0, path);
        }
        number
    }

    /// An unused number.
    pub(super) const fn next_circuit(&mut self) -> CircuitNumber {
        let number = CircuitNumber(self.opened);
        self.opened += 1;
        number
    }

    /// Opens a circuit of a tunnel.
    pub(super) fn open_leg(&mut self, number: CircuitNumber, leg: u8, path: &CircuitPlan) {
        let Some((first, onward)) = path.hops.split_first() else { return };
        let shared = self.links.iter().find(|(_, link)| link.serves(first));
        let shared = shared.map(|(conn, _)| *conn).filter(|_| !path.has_own_link);
        let conn = shared.unwrap_or_else(|| self.dial(*first, path.has_own_link));
        let request = path.request();
        let opening = if path.is_fast {
            S::Handshake::fast(self.random())
        } else {
            self.handshake(first, request.filter(|_| onward.is_empty()))
        };
        let mut rest = Vec::new();
        for (place, hop) in (1..).zip(onward) {
            let is_last = place == onward.len();
            rest.push((*hop, self.handshake(hop, request.filter(|_| is_last))));
        }
        let Some(link) = self.links.get_mut(&conn) else { return };
        let Some(passage) = self.passages.get_mut(&number) else { return };
        let circ_id = link.add_circuit(number);
        let is_open = link.is_open;
        passage.legs.push(Circuit::new(conn, circ_id, leg, Builder::new(circ_id, opening, rest)));
        if is_open {
            self.create(number, conn, circ_id);
        }
    }

    /// The cell models draw the same random bytes.
    pub(super) fn random<const LEN: usize>(&mut self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    fn handshake(&mut self, hop: &NextHop, request: Option<Request>) -> S::Handshake {
        let secret = self.random();
        let newer = request.and_then(|request| S::Handshake::ntor_v3(hop, secret, request).ok());
        newer.unwrap_or_else(|| S::Handshake::ntor(hop, secret))
    }

    /// Sends the first cell of a circuit.
    pub(super) fn create(&mut self, number: CircuitNumber, conn: ConnId, circ_id: CircId) {
        let Some(passage) = self.passages.get_mut(&number) else { return };
        let Some(place) = passage.place(conn, circ_id) else { return };
        let circuit = &mut passage.legs[place];
        let Stage::Building(builder) = &circuit.stage else { return };
        circuit.began_at = self.now;
        if self.links.get(&conn).is_some_and(|link| link.has_feedback) {
            circuit.account = Some(Box::new(HopAccount::of_client(self.flows.hop())));
        }
        if let Some((command, body)) = builder.create() {
            self.send(conn, circ_id, command, &body);
        }
    }

    /// A circuit is open.
    pub(super) fn finish(&mut self, number: CircuitNumber, place: usize) -> Result<(), Loss> {
        let Some(Passage { legs, set, .. }) = self.passages.get_mut(&number) else {
            return Ok(());
        };
        let Some(circuit) = legs.get_mut(place) else { return Ok(()) };
        let (took, leg) = (self.now - circuit.began_at, circuit.leg);
        circuit.hop_times.push(took);
        let Stage::Building(builder) = &mut circuit.stage else { return Ok(()) };
        let Built { layers, agreed } = builder.take_built();
        let flow = Flow::new(self.flows.end(&self.congestion, agreed));
        circuit.stage = Stage::Up(Up::new(layers, flow));
        if set.is_none() {
            self.report(ClientEvent::Built { circuit: number, took });
            self.begin_waiting(number);
            return Ok(());
        }
        if agreed.congestion_sendme_cells.is_none() {
            return Err(ConfluxError::Unsuitable.into());
        }
        self.report(ClientEvent::LegBuilt { circuit: number, leg, took });
        self.link_leg(number, leg);
        Ok(())
    }

    /// Opens a stream on a circuit, as soon as that is open. [`ClientEvent::Over`] reports the result, unless
    /// the circuit is lost before.
    ///
    /// A destination that the last hop's exit policy rejects is answered immediately: the time is the circuit's
    /// round-trip time.
    pub fn begin(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        to: Destination,
        application: A,
    ) -> StreamNumber {
        self.begin_at(now, circuit, None, to, application)
    }

    /// Opens a stream at any hop of the circuit, 0 for the first, or at the last: tor's leaky-pipe topology.
    /// Streams at other hops than the last are for probing: the application's data is not sent on them.
    pub fn begin_at(
        &mut self,
        now: Instant,
        circuit: CircuitNumber,
        hop: Option<usize>,
        to: Destination,
        application: A,
    ) -> StreamNumber {
        self.now = now;
        let number = StreamNumber(self.begun);
        self.begun += 1;
        if let Some(Passage { streams, .. }) = self.passages.get_mut(&circuit) {
            self.streams.insert(number, Stream::new(circuit, hop, to, application));
            streams.waiting.push(number);
            self.begin_waiting(circuit);
        }
        number
    }

    /// Sends the queued BEGINs, if the circuit is open.
    pub(super) fn begin_waiting(&mut self, circuit: CircuitNumber) {
        let Some(passage) = self.passages.get_mut(&circuit) else { return };
        if passage.is_ready() {
            let waiting = core::mem::take(&mut passage.streams.waiting);
            waiting.into_iter().for_each(|stream| self.begin_now(circuit, stream));
        }
    }

    fn begin_now(&mut self, circuit: CircuitNumber, number: StreamNumber) {
        let Some(Passage { legs, streams, .. }) = self.passages.get_mut(&circuit) else {
            return;
        };
        let up = legs.iter().find_map(Circuit::up);
        let (Some(stream), Some(up), Some(id)) =
            (self.streams.get_mut(&number), up, streams.tunnel.next_id())
        else {
            self.streams.remove(&number);
            return;
        };
        stream.begin(self.now, id, up.leg.flow.stream(CircuitEnd::Origin));
        streams.tunnel.add(id, number);
        let (mut data, hop) = (Vec::new(), stream.hop);
        let command = match &stream.to {
            Destination::Directory => RelayCommand::BEGIN_DIR,
            Destination::Host(host, port, flags) => {
                Begin { host, port: *port, flags: *flags }.encode_into(&mut data);
                RelayCommand::BEGIN
            }
            Destination::Lookup(name) => {
                data.extend_from_slice(name.as_bytes());
                data.push(0);
                RelayCommand::RESOLVE
            }
        };
        self.queue_message_to(circuit, hop, command, id, &data);
    }
}
