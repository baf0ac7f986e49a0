//! From nothing to a session.

use crate::convert::{MessageError, Told, plain, told};
use crate::keys::PublicKey;
use crate::messages::{FromCoordinator, FromMeasurer, Hello, MESSAGE_MAX_BYTES};
use crate::rpc::measurer_client::MeasurerClient;
use crate::server::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};
use crate::tls;
use hyper_util::rt::TokioIo;
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
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

/// Time from the first packet to the measurer's first word.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// A measurer that still believes in our last session is asked again after this, until it notices.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Orders that wait for a measurer that does not read. One more ends the session.
const UNREAD_MAX: usize = 256;

/// Why there is no session with a measurer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens there, or nothing gets there.
    #[error("the measurer at {at} cannot be reached: {source}; is `flashflow measurer` running?")]
    Unreachable {
        /// Where.
        at: SocketAddr,
        /// What the operating system says.
        source: Arc<io::Error>,
    },
    /// Another key than the pinned one.
    #[error(
        "whoever listens at {at} is not our measurer: it has the key of another team, {shown}, \
         instead of {pinned}; compare with `flashflow keys --show FILE` there"
    )]
    ForeignKey {
        /// Where.
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
        /// Where.
        at: SocketAddr,
        /// Our key.
        own: PublicKey,
    },
    /// No measurer.
    #[error("what listens at {at} is no measurer: {source}")]
    OtherProtocol {
        /// Where.
        at: SocketAddr,
        /// How that was noticed.
        source: Arc<io::Error>,
    },
    /// The connection broke on the way to a session.
    #[error("the connection to the measurer at {at} broke: {problem}")]
    Broke {
        /// Where.
        at: SocketAddr,
        /// How.
        problem: String,
    },
    /// The measurer refuses the session.
    #[error("the measurer at {at} refuses the session: {reason}")]
    Refused {
        /// Where.
        at: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Its first word is none.
    #[error("the measurer at {at} begins with nonsense: {source}")]
    Nonsense {
        /// Where.
        at: SocketAddr,
        /// What is wrong with it.
        source: MessageError,
    },
    /// It takes too long.
    #[error("the measurer at {at} did not answer within {CONNECT_TIMEOUT:?}")]
    TimedOut {
        /// Where.
        at: SocketAddr,
    },
    /// We are ending.
    #[error("the coordinator is ending")]
    Ended,
}

/// A session that stands.
pub(crate) struct Line {
    pub(crate) hello: Hello,
    /// How long a message is under way, about: half of what opening the connection took.
    pub(crate) way: Duration,
    pub(crate) to_measurer: mpsc::Sender<FromCoordinator>,
    pub(crate) from_measurer: Streaming<FromMeasurer>,
}

/// Whom to reach, and as whom.
pub(crate) struct Route {
    pub(crate) at: SocketAddr,
    pub(crate) pinned: PublicKey,
    pub(crate) own: PublicKey,
    pub(crate) tls: Arc<rustls::ClientConfig>,
}

impl Route {
    /// Makes a session.
    pub(crate) async fn connect(&self) -> Result<Line, ConnectError> {
        let mut last = None;
        let attempts = async {
            loop {
                match self.attempt().await {
                    Err((error, true)) => last = Some(error),
                    Err((error, false)) => return Err(error),
                    Ok(line) => return Ok(line),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, attempts).await {
            Ok(result) => result,
            Err(_) => Err(last.unwrap_or(ConnectError::TimedOut { at: self.at })),
        }
    }

    /// Tries once; an error comes with whether it may pass.
    async fn attempt(&self) -> Result<Line, (ConnectError, bool)> {
        let lasting = |error| (error, false);
        let at = self.at;
        let (channel, way) = self.channel().await.map_err(lasting)?;
        let mut client = MeasurerClient::new(channel)
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .max_encoding_message_size(MESSAGE_MAX_BYTES);
        let (to_measurer, orders) = mpsc::channel(UNREAD_MAX);
        let answer = client.session(ReceiverStream::new(orders)).await;
        let mut from_measurer = answer.map_err(|status| self.refused(&status))?.into_inner();
        let first = from_measurer.message().await.map_err(|status| self.refused(&status))?;
        let nothing =
            || ConnectError::Broke { at, problem: "it ended before its first word".to_owned() };
        let first = first.ok_or_else(|| lasting(nothing()))?;
        match told(first) {
            Ok(Told::Hello(hello)) => Ok(Line { hello, way, to_measurer, from_measurer }),
            Ok(Told::Report(_)) => {
                let problem = "its first word is about a round".to_owned();
                Err(lasting(ConnectError::Broke { at, problem }))
            }
            Err(source) => Err(lasting(ConnectError::Nonsense { at, source })),
        }
    }

    /// A connection whose keys have been checked, and how long its way is.
    pub(crate) async fn channel(&self) -> Result<(Channel, Duration), ConnectError> {
        let (stream, way) = self.shake_hands().await?;
        // The one connection there is. Lost, it is not replaced behind our back.
        let mut stream = Some(TokioIo::new(stream));
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take().ok_or_else(|| io::Error::other("the connection is lost"));
            std::future::ready(stream)
        });
        Endpoint::from_static("http://measurer")
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .connect_with_connector(connector)
            .await
            .map(|channel| (channel, way))
            .map_err(|error| ConnectError::Broke { at: self.at, problem: chain(&error) })
    }

    fn refused(&self, status: &Status) -> (ConnectError, bool) {
        let reason = plain(status.message());
        let may_pass = status.code() == Code::AlreadyExists;
        (ConnectError::Refused { at: self.at, reason }, may_pass)
    }

    /// Connects, and waits until the measurer has accepted our key.
    async fn shake_hands(&self) -> Result<(TlsStream<TcpStream>, Duration), ConnectError> {
        let at = self.at;
        let unreachable = |source| ConnectError::Unreachable { at, source: Arc::new(source) };
        let before = tokio::time::Instant::now();
        let socket = TcpStream::connect(at).await.map_err(unreachable)?;
        let way = before.elapsed() / 2;
        socket.set_nodelay(true).map_err(unreachable)?;
        // A name is never sent nor checked.
        let name = ServerName::from(at.ip());
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let handshake = connector.connect(name, socket).await;
        let mut stream = handshake.map_err(|error| self.tls_failed(error))?;
        // In TLS 1.3 the client is through before the server has seen its key: the server's first
        // bytes, which it sends unasked, or its alert, say whether the key was accepted.
        match stream.fill_buf().await {
            Ok([]) => Err(ConnectError::Broke { at, problem: "it was closed".to_owned() }),
            Ok(_) => Ok((stream, way)),
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

/// An error with all that lies behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(cause) = behind {
        text = format!("{text}: {cause}");
        behind = cause.source();
    }
    plain(&text)
}
