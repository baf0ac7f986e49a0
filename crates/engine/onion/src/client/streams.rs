use super::application::{Application, Progress};
use super::event::{CircuitNumber, Figures, Outcome, StreamNumber};
use super::plan::Destination;
use crate::cell::relay::{MAX_DATA_LEN, RelayFormat};
use crate::cell_model::{Body, CellModel, PayloadSlice, StreamId};
use crate::flow::control::FlowError;
use crate::flow::stream::{StreamFlow, StreamSignal};
use crate::time::Instant;
use crate::tunnel::Tunnel;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The streams of a tunnel, whichever circuit carries them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) tunnel: Tunnel<StreamNumber>,
    /// Streams whose BEGIN waits for the circuit to open.
    pub(super) waiting: Vec<StreamNumber>,
    /// Streams with data to send, each once.
    pub(super) sending: VecDeque<StreamNumber>,
}

impl Streams {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.tunnel.is_empty() && self.waiting.is_empty()
    }

    /// All streams.
    pub(super) fn iter(&self) -> impl Iterator<Item = StreamNumber> {
        self.tunnel.iter().chain(self.waiting.iter().copied())
    }
}

/// A stream, from before its BEGIN to its end.
#[derive(Debug)]
pub(super) struct Stream<A> {
    pub(super) circuit: CircuitNumber,
    /// The index of its hop; the last hop if `None`.
    pub(super) hop: Option<usize>,
    pub(super) to: Destination,
    /// Its stream ID, from BEGIN on.
    pub(super) id: StreamId,
    application: A,
    /// From BEGIN on.
    pub(super) flow: Option<StreamFlow>,
    pub(super) is_connected: bool,
    pub(super) is_paused: bool,
    held_bytes: usize,
    figures: Figures,
}

impl<A> Stream<A> {
    pub(super) fn new(
        circuit: CircuitNumber,
        hop: Option<usize>,
        to: Destination,
        application: A,
    ) -> Self {
        Self {
            circuit,
            hop,
            to,
            id: StreamId::CIRCUIT,
            application,
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

    pub(super) const fn application_mut(&mut self) -> &mut A {
        &mut self.application
    }

    /// Its statistics.
    pub(super) const fn last_figures(&mut self, now: Instant) -> Figures {
        self.figures.last_at = now;
        self.figures
    }

    pub(super) fn begin(&mut self, now: Instant, id: StreamId, flow: StreamFlow) {
        self.id = id;
        self.flow = Some(flow);
        self.figures.begun_at = now;
    }

    pub(super) fn connect<S: CellModel>(&mut self, now: Instant)
    where
        A: Application<S>,
    {
        self.is_connected = true;
        self.figures.connected_at = Some(now);
        self.application.handle_connected();
    }

    /// Whether it is a RESOLVE.
    pub(super) const fn is_lookup(&self) -> bool {
        matches!(self.to, Destination::Lookup(_))
    }

    pub(super) fn has_more_to_send<S: CellModel>(&self) -> bool
    where
        A: Application<S>,
    {
        self.is_connected && self.application.has_more(self.figures.sent_bytes)
    }

    /// Writes a DATA cell with the next data into `body`; returns false if flow control allows none.
    pub(super) fn package<S: CellModel>(
        &mut self,
        now: Instant,
        format: RelayFormat,
        body: &mut S::Body,
    ) -> bool
    where
        A: Application<S>,
    {
        let Some(flow) = &mut self.flow else { return false };
        let room = usize::try_from(flow.room_bytes(now)).unwrap_or(usize::MAX);
        let (application, sent_bytes) = (&mut self.application, self.figures.sent_bytes);
        let len = match room.min(MAX_DATA_LEN) {
            0 => 0,
            most => {
                body.write_data(format, self.id, most, |room| application.fill(sent_bytes, room))
            }
        };
        if len > 0 {
            flow.handle_packaged(len as u64);
            self.figures.sent_bytes += len as u64;
        }
        len > 0
    }

    /// When it may send again, if only a rate limits it.
    pub(super) fn room_at(&self) -> Option<Instant> {
        self.flow.as_ref()?.has_room_at(MAX_DATA_LEN as u64)
    }

    /// Handles received data. Returns the outcome, if that is the end.
    pub(super) fn receive<S: CellModel>(
        &mut self,
        now: Instant,
        data: S::PayloadSlice<'_>,
    ) -> Result<Option<Outcome>, FlowError>
    where
        A: Application<S>,
    {
        let (offset, len) = (self.figures.received_bytes, data.len());
        let progress = self.application.take(offset, data);
        if progress == Progress::Wrong {
            return Ok(Some(Outcome::WrongBytes { offset }));
        }
        self.figures.first_byte_at.get_or_insert(now);
        self.figures.received_bytes += len as u64;
        self.held_bytes += len;
        let held = self.held_bytes as u64;
        self.figures.held_bytes_max = self.figures.held_bytes_max.max(held);
        if let Some(flow) = &mut self.flow {
            flow.handle_delivered(now, self.held_bytes)?;
        }
        if !self.is_paused {
            self.resume(now);
        }
        Ok((progress == Progress::Complete).then_some(Outcome::Complete))
    }

    /// Delivers all buffered data.
    pub(super) fn resume(&mut self, now: Instant) {
        self.is_paused = false;
        let drained = core::mem::take(&mut self.held_bytes);
        if let Some(flow) = &mut self.flow {
            flow.handle_drained(now, drained, 0);
        }
    }

    /// A flow control message to send now.
    pub(super) fn poll_signal(&mut self) -> Option<StreamSignal> {
        self.flow.as_mut()?.poll_signal()
    }
}
