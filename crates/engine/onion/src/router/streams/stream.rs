use crate::cell::msg::BeginFlags;
use crate::cell::relay::MAX_DATA_LEN;
use crate::cell_model::{CellModel, StreamId};
use crate::flow::stream::StreamFlow;
use crate::node::LookupId;
use crate::router::circuits::TunnelIndex;
use crate::router::queue_age::QueueAge;
use crate::time::Instant;
use core::net::SocketAddr;

/// The request of a BEGIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BeginRequest {
    pub(crate) port: u16,
    pub(crate) flags: BeginFlags,
}

/// The limit that a stream counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// It leads to a destination, or is a DNS query.
    Exit,
    /// It leads to the directory server.
    Directory,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Its destination's name is being resolved.
    Resolving { lookup: LookupId, asked: BeginRequest },
    /// It is a RESOLVE, and ends with the answer.
    Asking { lookup: LookupId },
    /// The shell connects to the destination. `reports_address`: whether the client gets the address, as for all but
    /// the directory server.
    Connecting { to: SocketAddr, reports_address: bool },
    /// Open in both directions.
    Open,
    /// Closed: the client's data is still to be written.
    Draining,
    /// Closed, and the shell is to close the connection.
    Closing,
}

impl State {
    /// Whether the destination gets data.
    pub(crate) const fn is_writable(self) -> bool {
        matches!(self, Self::Open | Self::Draining)
    }

    /// Whether the stream belongs to its circuit.
    pub(crate) const fn has_circuit(self) -> bool {
        !matches!(self, Self::Draining | Self::Closing)
    }

    /// Whether the shell knows the connection.
    pub(crate) const fn is_dialled(self) -> bool {
        !matches!(self, Self::Resolving { .. } | Self::Asking { .. })
    }
}

/// One stream of a circuit that ends here, or its connection after its end.
#[derive(Debug)]
pub(crate) struct Stream<S: CellModel> {
    /// Its tunnel, while the stream is open.
    pub(crate) tunnel: TunnelIndex,
    /// Its stream ID.
    pub(crate) stream_id: StreamId,
    pub(crate) state: State,
    pub(crate) kind: StreamKind,
    /// Data from the client to the destination.
    pub(crate) buffer: S::Buffer,
    /// The age of that data.
    pub(crate) age: QueueAge,
    pub(crate) flow: StreamFlow,
    /// Bytes that flow control allows to read from the destination.
    pub(crate) room_bytes: u64,
    /// When it may be read again, if it is in that list.
    pub(super) rated_until: Option<Instant>,
    /// When it began, or when its destination last accepted data.
    pub(crate) since: Instant,
    pub(super) is_writable_named: bool,
    pub(super) is_readable_named: bool,
}

impl<S: CellModel> Stream<S> {
    pub(crate) fn new(
        now: Instant,
        tunnel: TunnelIndex,
        stream_id: StreamId,
        state: State,
        mut flow: StreamFlow,
    ) -> Self {
        Self {
            tunnel,
            stream_id,
            state,
            kind: StreamKind::Exit,
            buffer: S::Buffer::default(),
            age: QueueAge::default(),
            room_bytes: flow.room_bytes(now),
            flow,
            rated_until: None,
            since: now,
            is_writable_named: false,
            is_readable_named: false,
        }
    }

    /// Evaluates how much may be read. A whole cell later is better than fragments now.
    pub(super) fn update_room(&mut self, now: Instant) {
        let room_bytes = self.flow.room_bytes(now);
        self.room_bytes = if room_bytes < MAX_DATA_LEN as u64 { 0 } else { room_bytes };
    }

    /// When it may be read again, if only an advised rate prevents it.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.flow.has_room_at(MAX_DATA_LEN as u64)
    }
}
