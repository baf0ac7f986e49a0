use crate::cell::msg::BeginFlags;
use crate::cell::relay::MAX_DATA_LEN;
use crate::cell_model::{CellModel, StreamId};
use crate::flow::stream::StreamFlow;
use crate::node::LookupId;
use crate::router::circuits::TunnelIndex;
use crate::router::queue_age::QueueAge;
use crate::time::Instant;
use core::net::SocketAddr;

/// What a BEGIN has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) struct Asked {
    pub(in crate::router) port: u16,
    pub(in crate::router) flags: BeginFlags,
}

/// What a stream takes its place from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) enum StreamKind {
    /// It leads to a destination, or is a question to the domain name system.
    Exit,
    /// It leads to our directory server.
    Directory,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::router) enum State {
    /// Its destination's address is being looked up.
    Resolving { lookup: LookupId, asked: Asked },
    /// It is a RESOLVE, and ends with the answer.
    Asking { lookup: LookupId },
    /// The shell connects to the destination. `is_told`: the client is told the address, but for that of the
    /// directory server.
    Connecting { to: SocketAddr, is_told: bool },
    /// Bytes go both ways.
    Open,
    /// The stream is over: what its client has sent is still to be written.
    Draining,
    /// Over, and the shell is to close the connection.
    Closing,
}

impl State {
    /// Whether the destination takes bytes.
    pub(in crate::router) const fn is_writable(self) -> bool {
        matches!(self, Self::Open | Self::Draining)
    }

    /// Whether the stream is its circuit's.
    pub(in crate::router) const fn has_circuit(self) -> bool {
        !matches!(self, Self::Draining | Self::Closing)
    }

    /// Whether the shell knows the connection.
    pub(in crate::router) const fn is_dialled(self) -> bool {
        !matches!(self, Self::Resolving { .. } | Self::Asking { .. })
    }
}

/// One stream of a circuit that ends here, or its connection after its end.
#[derive(Debug)]
pub(in crate::router) struct Stream<S: CellModel> {
    /// Its tunnel, while the stream is not over.
    pub(in crate::router) tunnel: TunnelIndex,
    /// Its number in the tunnel.
    pub(in crate::router) stream_id: StreamId,
    pub(in crate::router) state: State,
    pub(in crate::router) kind: StreamKind,
    /// From the client to the destination.
    pub(in crate::router) buffer: S::Buffer,
    /// Of the bytes in it.
    pub(in crate::router) age: QueueAge,
    pub(in crate::router) flow: StreamFlow,
    /// What the stream's flow control lets be read from the destination.
    pub(in crate::router) room_bytes: u64,
    /// It is in the list of those that may be read again at this time.
    pub(super) rated_until: Option<Instant>,
    /// When it began, or when its destination last took something.
    pub(in crate::router) since: Instant,
    pub(super) is_writable_named: bool,
    pub(super) is_readable_named: bool,
}

impl<S: CellModel> Stream<S> {
    pub(in crate::router) fn new(
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

    /// Looks again how much may be read. Better a whole cell later than crumbs now.
    pub(super) fn update_room(&mut self, now: Instant) {
        let room_bytes = self.flow.room_bytes(now);
        self.room_bytes = if room_bytes < MAX_DATA_LEN as u64 { 0 } else { room_bytes };
    }

    /// When it may be read again, if nothing but an advised rate forbids it.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        self.flow.has_room_at(MAX_DATA_LEN as u64)
    }
}
