//! The seam between what decides and what moves bytes.

mod action;
mod work;

pub use action::Action;
pub use work::{Done, Work};

use crate::link::TlsSession;
use crate::time::Instant;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

/// A connection, by the number that its [`Node`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// A listening socket, by its place in the list that the driver was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// What protects the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS: links between relays.
    Tls,
    /// Nothing: an exit's connections to destinations.
    Plain,
}

/// A connection that the node wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dial {
    /// How the node will call it.
    pub conn: ConnId,
    /// Where it leads.
    pub to: SocketAddr,
    /// How its bytes travel.
    pub security: Security,
}

/// A question to the domain name system, by the number that its [`Node`] gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupId(pub u32);

/// A question to the domain name system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// How the node calls it.
    pub id: LookupId,
    /// What it asks.
    pub question: DnsQuery,
}

/// What a [`Lookup`] asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsQuery {
    /// The addresses of this name.
    Addresses(String),
    /// The name of this address.
    Name(IpAddr),
}

/// What the domain name system says. For how long that holds is nobody's business: it would tell a client when another
/// one first asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// Addresses of the name. Not empty.
    Addresses(Vec<IpAddr>),
    /// The name of the address.
    Name(String),
    /// There is no such name.
    NoSuchName,
    /// No answer now: trying later may help.
    Failed,
}

/// What the kernel knows of a connection's way out (Linux: `TCP_INFO` and `SIOCOUTQNSD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketState {
    /// TCP's congestion window, in segments.
    pub cwnd_segments: u32,
    /// Segments that are sent and not acknowledged.
    pub unacked_segments: u32,
    /// Bytes of a segment.
    pub mss_bytes: u32,
    /// Bytes in the kernel's buffer that were not sent yet.
    pub notsent_bytes: u32,
    /// Bytes that the driver has encrypted and the kernel has not taken.
    pub unwritten_bytes: u32,
    /// TCP's smoothed round trip, in microseconds.
    pub rtt_us: u32,
}

/// What a driver holds of a connection's way out: it has it from the node, and the kernel has not taken it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Bytes that wait.
    pub pending_bytes: usize,
    /// Bytes that the kernel has taken since the driver last told of this connection.
    pub written_bytes: usize,
    /// Bytes of memory that this takes.
    pub held_bytes: usize,
}

/// Why a connection is gone, or never came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// Nothing listens there, or a firewall refuses.
    Refused,
    /// No answer within the driver's time for connecting and TLS.
    TimedOut,
    /// The peer closed it in good order.
    ByPeer,
    /// The peer reset it.
    Reset,
    /// No way leads there.
    NoRoute,
    /// The machine has no descriptors, ports or memory left.
    NoResources,
    /// TLS failed: what the library says.
    Tls(String),
    /// The operating system's word on anything else.
    Other(String),
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::ByPeer => f.write_str("closed by the peer"),
            Self::Reset => f.write_str("reset by the peer"),
            Self::NoRoute => f.write_str("no route leads there"),
            Self::NoResources => {
                f.write_str("this machine has no descriptors, ports or memory left")
            }
            Self::Tls(problem) => write!(f, "TLS failed: {problem}"),
            Self::Other(problem) => f.write_str(problem),
        }
    }
}

/// A state machine over many connections, driven by a shell on real sockets or in virtual time.
///
/// # Contract
/// - The driver calls `handle_*` for what has happened, then drains [`poll_action`](Self::poll_action),
///   before it waits again.
/// - `now` never decreases.
/// - After [`poll_close`](Self::poll_close) or [`handle_closed`](Self::handle_closed) the driver
///   forgets the connection; the node may not name it again, and hears no more of it.
/// - [`poll_writable`](Self::poll_writable) names a connection once for each time that it got
///   something to transmit; the driver then calls [`poll_transmit`](Self::poll_transmit) until it
///   gives nothing. A driver whose socket is full may stop in between and go on later.
pub trait Node {
    /// A dialled connection has finished its TLS handshake.
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession);

    /// Whether a connection that has come in from there may begin its TLS handshake. A driver that can asks once for each, and
    /// its sessions say so ([`TlsSession::was_admitted`]).
    fn admits(&mut self, _now: Instant, _from: IpAddr) -> bool {
        true
    }

    /// A connection has come in and has finished its TLS handshake. `None` refuses it.
    ///
    /// If the driver listens for plain connections, the session shows and exports nothing, like
    /// [`NoTls`](crate::link::NoTls); it may know the peer's address.
    fn handle_accepted(
        &mut self,
        now: Instant,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId>;

    /// Plaintext has arrived.
    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]);

    /// A connection is gone, or could not be made. This may be one that the node wants to have closed
    /// and has not named yet; it is not to be named any more.
    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause);

    /// The time of [`poll_timeout`](Self::poll_timeout) has come.
    fn handle_timeout(&mut self, now: Instant);

    /// The next connection to be made.
    #[must_use]
    fn poll_dial(&mut self, now: Instant) -> Option<Dial>;

    /// The next connection that has something to transmit.
    #[must_use]
    fn poll_writable(&mut self) -> Option<ConnId>;

    /// Fills `out` with plaintext for `conn`; returns how much, zero for none.
    #[must_use]
    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize;

    /// The next connection to be closed.
    #[must_use]
    fn poll_close(&mut self) -> Option<ConnId>;

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing happens before.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// A dialled connection without TLS stands.
    fn handle_plain_connected(&mut self, _now: Instant, _conn: ConnId) {}

    /// How many bytes of a connection the node takes now, at most; the driver reads no more from
    /// it. Zero until [`poll_readable`](Self::poll_readable) names it. Only what comes without TLS
    /// can be held back: links are never.
    #[must_use]
    fn receive_limit(&self, _conn: ConnId) -> usize {
        usize::MAX
    }

    /// The next connection that takes bytes again after it took none.
    #[must_use]
    fn poll_readable(&mut self) -> Option<ConnId> {
        None
    }

    /// The next question to the domain name system. A driver without one answers
    /// [`DnsAnswer::Failed`].
    #[must_use]
    fn poll_lookup(&mut self) -> Option<Lookup> {
        None
    }

    /// The answer to a question. It may come after the node has lost its interest.
    fn handle_answer(&mut self, _now: Instant, _id: LookupId, _answer: DnsAnswer) {}

    /// The next connection whose [`SocketState`] the node wants to know. The driver answers at once,
    /// by [`handle_socket_state`](Self::handle_socket_state), before anything else is polled.
    #[must_use]
    fn poll_socket_query(&mut self) -> Option<ConnId> {
        None
    }

    /// The state of a connection; `None` where the system does not tell.
    fn handle_socket_state(&mut self, _now: Instant, _conn: ConnId, _state: Option<SocketState>) {}

    /// The driver holds so much of what it has taken from the node. It tells where a connection's kernel has not taken all at once, until
    /// it has; whenever the memory that this takes changes, and after each buffer's worth that has left; of a connection that it closes
    /// it tells nothing more.
    fn handle_unwritten(&mut self, _now: Instant, _conn: ConnId, _unwritten: Unwritten) {}

    /// The next work that is to be done on any thread.
    #[must_use]
    fn poll_work(&mut self, _now: Instant) -> Option<Work> {
        None
    }

    /// Work of [`poll_work`](Self::poll_work) is done. It may come after the node has lost its interest, and in another
    /// order.
    fn handle_work(&mut self, _now: Instant, _done: Done) {}

    /// The next thing that the node wants, of all kinds; `None` once there is none, until something is
    /// handled. What is to be written comes before what is to be closed: a node may say why on its
    /// last writing.
    #[must_use]
    #[inline]
    fn poll_action(&mut self, now: Instant) -> Option<Action> {
        (self.poll_dial(now).map(Action::Dial))
            .or_else(|| self.poll_lookup().map(Action::Lookup))
            .or_else(|| self.poll_work(now).map(Action::Work))
            .or_else(|| self.poll_socket_query().map(Action::SocketState))
            .or_else(|| self.poll_writable().map(Action::Transmit))
            .or_else(|| self.poll_close().map(Action::Close))
            .or_else(|| self.poll_readable().map(Action::Read))
    }
}
