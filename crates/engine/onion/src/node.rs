//! The interface between the engine and the code that does I/O.
//!
//! A [`Node`] decides which connections to make, what to write and when to wake up. It knows neither sockets
//! nor TLS: it receives plaintext and a [`TlsSession`], and a driver performs its [`Action`]s.

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
    /// Its identifier, chosen by the node.
    pub conn: ConnId,
    /// The destination.
    pub to: SocketAddr,
    /// Whether the connection uses TLS.
    pub security: Security,
}

/// The identifier of a DNS query, chosen by its [`Node`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LookupId(pub u32);

/// A DNS query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Its identifier.
    pub id: LookupId,
    /// The query.
    pub question: DnsQuery,
}

/// The content of a [`Lookup`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DnsQuery {
    /// The addresses of a name.
    Addresses(String),
    /// The name of an address.
    Name(IpAddr),
}

/// The result of a DNS query. It has no TTL: a TTL would reveal to a client when another client first made the
/// same query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The addresses of the name. Not empty.
    Addresses(Vec<IpAddr>),
    /// The name of the address.
    Name(String),
    /// NXDOMAIN: the name does not exist.
    NoSuchName,
    /// A temporary failure: a later query may succeed.
    Failed,
}

/// The kernel's view of a connection's sending side (Linux: `TCP_INFO` and `SIOCOUTQNSD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketState {
    /// TCP's congestion window, in segments.
    pub cwnd_segments: u32,
    /// Segments sent and not acknowledged.
    pub unacked_segments: u32,
    /// The segment size, in bytes.
    pub mss_bytes: u32,
    /// Bytes in the kernel's send buffer that were not sent yet.
    pub notsent_bytes: u32,
    /// Bytes that the driver has encrypted and the kernel has not accepted.
    pub unwritten_bytes: u32,
    /// TCP's smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
}

/// Data of one connection that the driver has taken from the node and the kernel has not accepted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// Bytes not accepted yet.
    pub pending_bytes: usize,
    /// Bytes that the kernel has accepted since the last report for this connection.
    pub written_bytes: usize,
    /// Bytes of memory that the data occupies.
    pub held_bytes: usize,
}

/// Why a connection was closed, or could not be established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// Connection refused: no listener, or a firewall.
    Refused,
    /// The connection or the TLS handshake timed out.
    TimedOut,
    /// The peer closed it in an orderly way.
    ByPeer,
    /// The peer reset it.
    Reset,
    /// No route to the host.
    NoRoute,
    /// The machine has no file descriptors, ports or memory left.
    NoResources,
    /// TLS failed, with the error of the TLS library.
    Tls(String),
    /// Any other error of the operating system.
    Other(String),
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::ByPeer => f.write_str("closed by the peer"),
            Self::Reset => f.write_str("reset by the peer"),
            Self::NoRoute => f.write_str("no route to the host"),
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
/// - The driver reports events by `handle_*`, then calls [`poll_action`](Self::poll_action) until it returns
///   `None`, before it waits again.
/// - `now` never decreases.
/// - After [`poll_close`](Self::poll_close) or [`handle_closed`](Self::handle_closed) the connection no longer
///   exists: the node does not name it again and receives no more events for it.
/// - [`poll_writable`](Self::poll_writable) names a connection once each time that it gets data to transmit.
///   The driver then calls [`poll_transmit`](Self::poll_transmit) until it returns zero. If the socket is full,
///   the driver may stop and resume later.
pub trait Node {
    /// A dialled connection has completed its TLS handshake.
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession);

    /// Whether an incoming connection from this address may begin its TLS handshake. A driver that supports
    /// this calls it once for each connection, and its sessions report that ([`TlsSession::was_admitted`]).
    fn admits(&mut self, _now: Instant, _from: IpAddr) -> bool {
        true
    }

    /// An incoming connection has completed its TLS handshake. `None` refuses it.
    ///
    /// If the driver listens for plain connections, the session has no certificate and exports no key material,
    /// like [`NoTls`](crate::link::NoTls); it may know the peer's address.
    fn handle_accepted(
        &mut self,
        now: Instant,
        listener: ListenerId,
        tls: &dyn TlsSession,
    ) -> Option<ConnId>;

    /// Plaintext has arrived.
    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]);

    /// A connection was closed or could not be established. The node may have wanted to close it and not have
    /// named it yet; it must not name it afterwards.
    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause);

    /// The time that [`poll_timeout`](Self::poll_timeout) returned has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next connection to establish.
    #[must_use]
    fn poll_dial(&mut self, now: Instant) -> Option<Dial>;

    /// The next connection with data to transmit.
    #[must_use]
    fn poll_writable(&mut self) -> Option<ConnId>;

    /// Fills `out` with plaintext for `conn`; returns the number of bytes, zero if there are none.
    #[must_use]
    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize;

    /// The next connection to close.
    #[must_use]
    fn poll_close(&mut self) -> Option<ConnId>;

    /// When to call [`handle_timeout`](Self::handle_timeout), unless something happens earlier.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// A dialled connection without TLS is established.
    fn handle_plain_connected(&mut self, _now: Instant, _conn: ConnId) {}

    /// The number of bytes of a connection without TLS that the node accepts now; the driver reads no more from
    /// it. After zero, it resumes when [`poll_readable`](Self::poll_readable) names the connection.
    #[must_use]
    fn receive_limit(&self, _conn: ConnId) -> usize {
        usize::MAX
    }

    /// The number of bytes that the driver may read now from the socket of a connection with TLS, or with `None`
    /// from the sockets of all TLS handshakes together. The driver asks before each read, and only if there is
    /// something to read.
    ///
    /// After zero, it asks again when [`poll_readable`](Self::poll_readable) names the connection. For
    /// handshakes, it asks again after each timeout.
    #[must_use]
    fn poll_read_limit(&mut self, _now: Instant, _conn: Option<ConnId>) -> usize {
        usize::MAX
    }

    /// The driver has read bytes from the socket of a connection with TLS, or of a handshake. The node gets the
    /// plaintext afterwards, if there is any.
    fn handle_read(&mut self, _now: Instant, _conn: Option<ConnId>, _bytes: usize) {}

    /// The next connection that may be read again after its limit was zero.
    #[must_use]
    fn poll_readable(&mut self) -> Option<ConnId> {
        None
    }

    /// The next DNS query. A driver without a resolver answers [`DnsAnswer::Failed`].
    #[must_use]
    fn poll_lookup(&mut self) -> Option<Lookup> {
        None
    }

    /// The result of a DNS query. The node may no longer need it.
    fn handle_answer(&mut self, _now: Instant, _id: LookupId, _answer: DnsAnswer) {}

    /// The next connection whose [`SocketState`] the node needs. The driver answers immediately by
    /// [`handle_socket_state`](Self::handle_socket_state), before it polls anything else.
    #[must_use]
    fn poll_socket_query(&mut self) -> Option<ConnId> {
        None
    }

    /// The state of a connection's socket; `None` if the system does not provide it.
    fn handle_socket_state(&mut self, _now: Instant, _conn: ConnId, _state: Option<SocketState>) {}

    /// Reports the data that the driver has taken from the node and the kernel has not accepted. The driver
    /// calls it for a connection whose kernel buffer is full, until the data is accepted: whenever the memory
    /// that it occupies changes, and after each buffer that the kernel accepts. There are no reports for a
    /// connection that the driver closes.
    fn handle_unwritten(&mut self, _now: Instant, _conn: ConnId, _unwritten: Unwritten) {}

    /// The next computation to run on any thread.
    #[must_use]
    fn poll_work(&mut self, _now: Instant) -> Option<Work> {
        None
    }

    /// A computation of [`poll_work`](Self::poll_work) is complete. Results may arrive in any order, and after
    /// the node no longer needs them.
    fn handle_work(&mut self, _now: Instant, _done: Done) {}

    /// The next action of any kind; `None` if there is none until the next event. Writes come before closes:
    /// the last data on a connection may be the reason why it is closed.
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
