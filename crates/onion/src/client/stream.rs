use super::Destination;
use super::event::{CircuitNumber, Figures, Outcome};
use super::pattern::Transfer;
use crate::cell::relay::MAX_DATA_LEN;
use crate::flow::control::FlowError;
use crate::flow::stream::StreamFlow;
use crate::time::Instant;

/// A stream, from before its BEGIN to its end.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) circuit: CircuitNumber,
    pub(super) to: Destination,
    /// Its number on the circuit, from BEGIN on.
    pub(super) id: u16,
    transfer: Transfer,
    /// From BEGIN on.
    pub(super) flow: Option<StreamFlow>,
    pub(super) is_connected: bool,
    pub(super) is_paused: bool,
    held_bytes: usize,
    figures: Figures,
}

impl Stream {
    pub(super) fn new(circuit: CircuitNumber, to: Destination, transfer: Transfer) -> Self {
        Self {
            circuit,
            to,
            id: 0,
            transfer,
            flow: None,
            is_connected: false,
            is_paused: false,
            held_bytes: 0,
            figures: Figures::default(),
        }
    }

    pub(super) const fn figures(&self) -> &Figures {
        &self.figures
    }

    /// What to tell of it at its end.
    pub(super) const fn last_figures(&mut self, now: Instant) -> Figures {
        self.figures.last_at = now;
        self.figures
    }

    pub(super) fn begin(&mut self, now: Instant, id: u16, flow: StreamFlow) {
        self.id = id;
        self.flow = Some(flow);
        self.figures.begun_at = now;
    }

    pub(super) const fn connect(&mut self, now: Instant) {
        self.is_connected = true;
        self.figures.connected_at = Some(now);
    }

    pub(super) const fn has_more_to_send(&self) -> bool {
        self.is_connected && self.figures.sent_bytes < self.transfer.request_bytes()
    }

    /// Fills a DATA cell with what is to be sent next; none if its flow control forbids it.
    pub(super) fn package(&mut self, now: Instant, data: &mut [u8; MAX_DATA_LEN]) -> usize {
        let Some(flow) = &mut self.flow else { return 0 };
        let room = usize::try_from(flow.room_bytes(now)).unwrap_or(usize::MAX);
        let len_max = room.min(MAX_DATA_LEN);
        let len = self.transfer.fill_request(self.figures.sent_bytes, &mut data[..len_max]);
        if len > 0 {
            flow.handle_packaged(len as u64);
            self.figures.sent_bytes += len as u64;
        }
        len
    }

    /// When it may send again, if it is only slowed down.
    pub(super) fn room_at(&self) -> Option<Instant> {
        self.flow.as_ref()?.has_room_at(MAX_DATA_LEN as u64)
    }

    /// Data has come. The outcome, if that is the end.
    pub(super) fn receive(
        &mut self,
        now: Instant,
        data: &[u8],
    ) -> Result<Option<Outcome>, FlowError> {
        let offset = self.figures.received_bytes;
        if !self.transfer.matches_response(offset, data) {
            return Ok(Some(Outcome::WrongBytes { offset }));
        }
        self.figures.first_byte_at.get_or_insert(now);
        self.figures.received_bytes += data.len() as u64;
        self.held_bytes += data.len();
        let held = self.held_bytes as u64;
        self.figures.held_bytes_max = self.figures.held_bytes_max.max(held);
        if let Some(flow) = &mut self.flow {
            flow.handle_delivered(now, self.held_bytes)?;
        }
        if !self.is_paused {
            self.resume(now);
        }
        let is_all = self.figures.received_bytes == self.transfer.response_bytes();
        Ok(is_all.then_some(Outcome::Complete))
    }

    /// Reads all that is held.
    pub(super) fn resume(&mut self, now: Instant) {
        self.is_paused = false;
        let drained = core::mem::take(&mut self.held_bytes);
        if let Some(flow) = &mut self.flow {
            flow.handle_drained(now, drained, 0);
        }
    }
}
