//! The measurer's side: a daemon that does what its coordinators order.

pub(crate) mod accept;
mod book;
mod capacity;
mod handshakes;
mod round;
mod session;

use crate::capacity::{ANSWER_MAX_BYTES, CapacityAnswer, CapacityOrder};
use crate::keys::{PublicKey, SecretKey};
use crate::messages::{FromCoordinator, FromMeasurer, MESSAGE_MAX_BYTES};
use crate::rpc::measurer_server;
use crate::tls;
use accept::Peer;
use book::Book;
pub use book::ROUNDS_MAX;
use measurer::member::MemberError;
use measurer::{Consent, Member};
use onion::Rate;
use session::Session;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// A peer that is silent for so long is asked whether it is still there.
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// A peer that does not answer for so long is lost. A measurer floods its own way out, and a machine that stands still for some
/// seconds finds its own time up before it reads the answers: so it must not be too short.
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Messages that wait for a coordinator that does not read. One more ends the session.
const UNREAD_MAX: usize = 1024;

/// Requests at once on one connection: one is enough.
const STREAMS_MAX: u32 = 4;

/// From the end that was asked for until connections are cut and rounds are left to themselves.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes a member for each round that runs at the same time; members are used again.
pub type MakeMember = Box<dyn Fn() -> Result<Box<dyn Member>, MemberError> + Send + Sync>;

/// What a measurer's daemon needs.
pub struct ServerOptions {
    /// Where to listen; port 0 for any.
    pub listen: SocketAddr,
    /// Its key.
    pub key: SecretKey,
    /// The coordinators that it obeys; all others are refused.
    pub coordinators: Vec<PublicKey>,
    /// What it can send and receive over all rounds.
    pub capacity: Rate,
    /// Sockets to relays that it has file descriptors for, over all rounds.
    pub sockets_max: u32,
    /// Which relays it may flood, whatever a coordinator says.
    pub consent: Consent,
    /// Where members come from.
    pub members: MakeMember,
}

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken, or not ours.
    #[error(
        "cannot listen on {address}: {source}; is it an address of this machine, and the port free?"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// The key is of no use to the TLS library.
    #[error("cannot use the key for TLS: {0}")]
    Tls(rustls::Error),
    /// No thread, or nothing to wait on events with.
    #[error("cannot start a thread for the sessions: {0}")]
    Thread(io::Error),
}

/// A measurer's daemon, on a thread of its own. Dropping it ends it: its sessions are closed and its
/// rounds stopped.
pub struct MeasurerServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MeasurerServer {
    /// Listens, and obeys from now on. In capacity tests it floods measurers on loopback and private
    /// addresses only.
    ///
    /// # Errors
    /// [`ServerError`]: it cannot listen.
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        Self::start_with_peers(options, BTreeSet::new())
    }

    /// Listens, and obeys from now on. In capacity tests it may also flood measurers at `peers`,
    /// public addresses whose operators agreed.
    ///
    /// # Errors
    /// [`ServerError`]: it cannot listen.
    pub fn start_with_peers(
        options: ServerOptions,
        peers: BTreeSet<IpAddr>,
    ) -> Result<Self, ServerError> {
        let ServerOptions { listen, key, coordinators, capacity, sockets_max, consent, members } =
            options;
        let listen_error = |source| ServerError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let tls = Arc::new(tls::server_config(&key, coordinators).map_err(ServerError::Tls)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let book = Arc::new(Book::new(capacity, sockets_max, members));
        let service = Service {
            book,
            consent: Arc::new(consent),
            stopped: stopped.clone(),
            address,
            peers: Arc::new(peers),
        };
        let thread = thread::Builder::new().name("measurer".to_owned()).spawn(move || {
            let book = Arc::clone(&service.book);
            let served = runtime.block_on(serve(listener, tls, service, stopped));
            if let Err(error) = served {
                tracing::error!("the measurer broke down: {error}");
            }
            // Ends what is left of sessions, and with them their rounds.
            drop(runtime);
            book.wait_until_idle(END_TIMEOUT);
        });
        let thread = Some(thread.map_err(ServerError::Thread)?);
        Ok(Self { address, stop, thread })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has ended by itself, which it does not without a reason in the log.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for MeasurerServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    service: Service,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = accept::incoming(listener, tls, "`coordinators`");
    let mut signal = stopped.clone();
    let service = measurer_server::MeasurerServer::new(service)
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(ANSWER_MAX_BYTES);
    let served = tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .serve_with_incoming_shutdown(service, incoming, async move {
            // An error says that nobody is left who could ask for the end.
            let _ = signal.wait_for(|stop| *stop).await;
        });
    let cut = async {
        let _ = stopped.wait_for(|stop| *stop).await;
        tokio::time::sleep(END_TIMEOUT).await;
    };
    tokio::select! {
        served = served => Ok(served?),
        () = cut => Ok(()),
    }
}

/// The one service.
struct Service {
    book: Arc<Book>,
    consent: Arc<Consent>,
    stopped: watch::Receiver<bool>,
    /// Where it listens: capacity tests use UDP at the same address and port.
    address: SocketAddr,
    /// Public addresses that capacity tests may flood.
    peers: Arc<BTreeSet<IpAddr>>,
}

#[tonic::async_trait]
impl measurer_server::Measurer for Service {
    type SessionStream = ReceiverStream<Result<FromMeasurer, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<FromCoordinator>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Status::unauthenticated("no key was shown"))?;
        let Some(ticket) = self.book.enter(peer.key) else {
            tracing::warn!("{peer} wants a second session; the first one goes on");
            return Err(Status::already_exists(
                "there is a session with this coordinator's key already; one coordinator at a time",
            ));
        };
        let (sender, receiver) = mpsc::channel(UNREAD_MAX);
        let session =
            Session::new(peer, ticket, Arc::clone(&self.book), Arc::clone(&self.consent), sender);
        tokio::spawn(session.run(request.into_inner(), self.stopped.clone()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
    async fn capacity(
        &self,
        request: Request<CapacityOrder>,
    ) -> Result<Response<CapacityAnswer>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Status::unauthenticated("no key was shown"))?;
        let stopped = self.stopped.clone();
        let order = request.into_inner();
        capacity::serve(peer, &order, self.address, &self.book, &self.peers, stopped)
            .await
            .map(Response::new)
    }
}
