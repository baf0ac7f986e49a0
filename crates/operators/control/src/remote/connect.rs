//! Establishes a session.

use crate::check::plain;
use crate::frames::{Connection, Incoming, Limits};
use crate::keys::PublicKey;
use crate::messages::{End, FromCoordinator, FromMeasurer, Hello, MESSAGE_MAX_BYTES};
use crate::tls;
use rustls::pki_types::ServerName;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncBufReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time from the first packet to the measurer's first message.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// The delay before a measurer that still has our previous session open is contacted again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Maximum number of queued orders to a measurer that does not read. One more ends the session.
const UNREAD_MAX: usize = 256;

/// The reason why there is no session with a measurer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// It does not listen, or is unreachable.
    #[error("the measurer at {at} cannot be reached: {source}; is `flashflow measurer` running?")]
    Unreachable {
        /// The address.
        at: SocketAddr,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// Another key than the pinned one.
    #[error(
        "the host at {at} is not our measurer: it has the key of another team, {shown}, \
         instead of {pinned}; compare with `flashflow keys --show FILE` there"
    )]
    ForeignKey {
        /// The address.
        at: SocketAddr,
        /// The key that it showed.
        shown: PublicKey,
        /// The key that it should have shown.
        pinned: PublicKey,
    },
    /// The measurer does not know our key.
    #[error(
        "the measurer at {at} takes ours for the key of another team; add {own} to `coordinators` \
         in its configuration"
    )]
    RefusesOurKey {
        /// The address.
        at: SocketAddr,
        /// Our key.
        own: PublicKey,
    },
    /// The other side is not a measurer.
    #[error("the server at {at} is not a measurer: {source}")]
    OtherProtocol {
        /// The address.
        at: SocketAddr,
        /// How that was detected.
        source: Arc<io::Error>,
    },
    /// The connection broke before the session was open.
    #[error("the connection to the measurer at {at} broke: {problem}")]
    Broke {
        /// The address.
        at: SocketAddr,
        /// The error.
        problem: String,
    },
    /// The measurer refuses the session.
    #[error("the measurer at {at} refuses the session: {reason}")]
    Refused {
        /// The address.
        at: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// The timeout has expired.
    #[error("the measurer at {at} did not answer within {CONNECT_TIMEOUT:?}")]
    TimedOut {
        /// The address.
        at: SocketAddr,
    },
    /// Its clock differs from ours by more than [`link::CLOCK_TOLERANCE`]: one of the two is wrong.
    #[error(
        "the clock of the measurer at {at} differs from ours by {by_s:+} s: set the one that is wrong; until then the measurer is \
         not used"
    )]
    ClocksDiffer {
        /// The address.
        at: SocketAddr,
        /// Its time less ours, in seconds.
        by_s: i64,
    },
    /// This process is ending.
    #[error("the coordinator is ending")]
    Ended,
}

/// An open session.
pub(crate) struct Session {
    pub(crate) hello: Hello,
    /// Approximate one-way delay of a message: half of the time that the TCP handshake took.
    pub(crate) latency: Duration,
    /// The time since 1970 by the measurer's clock when it greeted, in seconds, and when that was. It ends the session if the clock
    /// jumps.
    clock: Option<(u64, tokio::time::Instant)>,
    pub(crate) to_measurer: mpsc::Sender<FromCoordinator>,
    pub(crate) from_measurer: Incoming<FromMeasurer>,
}

impl Session {
    /// Compares the measurer's clock with ours, as they are now.
    ///
    /// # Errors
    /// [`ConnectError::ClocksDiffer`].
    pub(crate) fn check_clock(&self, at: SocketAddr) -> Result<(), ConnectError> {
        let Some((unix_s, since)) = self.clock else { return Ok(()) };
        let theirs = i64::try_from(unix_s.saturating_add(since.elapsed().as_secs()));
        let ours = i64::try_from(link::unix_time_s()).unwrap_or(i64::MAX);
        let by_s = theirs.unwrap_or(i64::MAX).saturating_sub(ours);
        match by_s.unsigned_abs() > link::CLOCK_TOLERANCE.as_secs() {
            true => Err(ConnectError::ClocksDiffer { at, by_s }),
            false => Ok(()),
        }
    }
}

/// The target of a connection, and our own key.
pub(crate) struct Route {
    pub(crate) at: SocketAddr,
    pub(crate) pinned: PublicKey,
    pub(crate) own: PublicKey,
    pub(crate) tls: Arc<rustls::ClientConfig>,
}

struct AttemptError {
    error: ConnectError,
    /// Whether another attempt may succeed.
    is_transient: bool,
}

impl Route {
    /// Establishes a session.
    pub(crate) async fn connect(&self) -> Result<Session, ConnectError> {
        let mut last = None;
        let attempts = async {
            loop {
                match self.attempt().await {
                    Err(AttemptError { error, is_transient: true }) => last = Some(error),
                    Err(AttemptError { error, .. }) => return Err(error),
                    Ok(session) => return Ok(session),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, attempts).await {
            Ok(result) => result,
            Err(_) => Err(last.unwrap_or(ConnectError::TimedOut { at: self.at })),
        }
    }

    /// Tries once.
    async fn attempt(&self) -> Result<Session, AttemptError> {
        let at = self.at;
        let lasting = |error| AttemptError { error, is_transient: false };
        let (stream, latency) = self.stream().await.map_err(lasting)?;
        let limits = Limits { message_max_bytes: MESSAGE_MAX_BYTES, queued_max: UNREAD_MAX };
        let connection = Connection::<FromMeasurer, FromCoordinator>::over(stream, limits);
        let (to_measurer, mut from_measurer) = connection.split();
        // The queue has room, and the first answer shows whether the message arrived.
        let _ = to_measurer.try_send(FromCoordinator::Session);
        let problem = match from_measurer.next().await {
            Ok(Some(FromMeasurer::Hello(hello))) => {
                let hello = Hello { version: plain(&hello.version), ..hello };
                let clock = hello.unix_time_s.map(|unix_s| (unix_s, tokio::time::Instant::now()));
                return Ok(Session { hello, latency, clock, to_measurer, from_measurer });
            }
            Ok(Some(FromMeasurer::End(End { reason, is_transient }))) => {
                let error = ConnectError::Refused { at, reason: plain(&reason) };
                return Err(AttemptError { error, is_transient });
            }
            Ok(Some(_)) => "its first message is not a greeting".to_owned(),
            Ok(None) => "it closed before its first message".to_owned(),
            Err(lost) => plain(&lost.0),
        };
        Err(lasting(ConnectError::Broke { at, problem }))
    }

    /// Connects, and waits until the measurer has accepted our key. Also returns the approximate one-way delay.
    pub(crate) async fn stream(&self) -> Result<(TlsStream<TcpStream>, Duration), ConnectError> {
        let at = self.at;
        let unreachable = |source| ConnectError::Unreachable { at, source: Arc::new(source) };
        let before = tokio::time::Instant::now();
        let socket = TcpStream::connect(at).await.map_err(unreachable)?;
        let latency = before.elapsed() / 2;
        socket.set_nodelay(true).map_err(unreachable)?;
        // A name is never sent nor checked.
        let name = ServerName::from(at.ip());
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let handshake = connector.connect(name, socket).await;
        let mut stream = handshake.map_err(|error| self.tls_failed(error))?;
        // In TLS 1.3 the client's handshake ends before the server has seen its key. The server's first bytes, a keep-alive
        // that it sends unasked, or its alert, show whether it accepted the key.
        match stream.fill_buf().await {
            Ok([]) => Err(ConnectError::Broke { at, problem: "it was closed".to_owned() }),
            Ok(_) => Ok((stream, latency)),
            Err(error) => Err(self.tls_failed(error)),
        }
    }

    fn tls_failed(&self, error: io::Error) -> ConnectError {
        let at = self.at;
        if let Some(foreign) = tls::foreign_key(&error) {
            return ConnectError::ForeignKey { at, shown: foreign.0, pinned: self.pinned };
        }
        if tls::refuses_our_key(&error) {
            return ConnectError::RefusesOurKey { at, own: self.own };
        }
        if tls::is_other_protocol(&error) {
            return ConnectError::OtherProtocol { at, source: Arc::new(error) };
        }
        ConnectError::Broke { at, problem: plain(&error.to_string()) }
    }
}
