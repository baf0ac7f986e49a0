//! The measurer's side: a daemon that executes its coordinators' orders.

pub(crate) mod accept;
mod capacity;
mod handshakes;
mod resources;
mod round;
mod session;
mod status;
mod stop_file;

use crate::frames::{Connection, Limits};
use crate::keys::{PublicKey, SecretKey};
use crate::messages::{End, FromCoordinator, FromMeasurer, MESSAGE_MAX_BYTES};
use crate::tls;
use accept::Accepted;
use link::{ClockJump, ClockWatch};
use measurer::member::MemberError;
use measurer::{Consent, Member, Site};
use onion::Rate;
pub use resources::ROUNDS_MAX;
use resources::Resources;
use session::Session;
pub use status::{MeasurerStatus, MeasurerTotals, StatusReader};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use stop_file::StopFile;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Maximum number of queued messages to a coordinator that does not read. One more ends the session.
const UNREAD_MAX: usize = 1024;

/// The timeout for the first message on a new connection.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between the request to end and the end of all connections and rounds.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval at which the stop file is checked. Each order and start checks it, too.
const STOP_FILE_LOOK: Duration = Duration::from_millis(100);

/// Interval at which the clock is checked for a jump.
const CLOCK_LOOK: Duration = Duration::from_secs(2);

/// Makes a member for each concurrent round; members are reused.
pub type MakeMember = Box<dyn Fn() -> Result<Box<dyn Member>, MemberError> + Send + Sync>;

/// The configuration of a measurer's daemon.
pub struct ServerOptions {
    /// The listen address; port 0 for any.
    pub listen: SocketAddr,
    /// Its key.
    pub key: SecretKey,
    /// Whom it obeys, and whom it may flood.
    pub rules: Rules,
    /// Its send and receive rate over all rounds.
    pub capacity: Rate,
    /// The number of sockets to relays, over all rounds, for which it has file descriptors.
    pub sockets_max: u32,
    /// The factory of members.
    pub members: MakeMember,
    /// The TLS keys and ports of capacity tests.
    pub site: Site,
    /// The number of pumps of a capacity test.
    pub pumps: u32,
    /// While this file exists, there is no load.
    pub stop_file: Option<PathBuf>,
}

/// The reason why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is in use, or not local.
    #[error(
        "cannot listen on {address}: {source}; is it an address of this machine, and the port free?"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// The TLS library rejects the key.
    #[error("cannot use the key for TLS: {0}")]
    Tls(rustls::Error),
    /// A thread or event queue cannot be created.
    #[error("cannot start a thread for the sessions: {0}")]
    Thread(io::Error),
}

/// What an operator may change while the daemon runs.
pub struct Rules {
    /// The coordinators whose orders it accepts; all others are refused.
    pub coordinators: Vec<PublicKey>,
    /// The relays that it may flood, whatever a coordinator orders.
    pub consent: Consent,
    /// Addresses of measurers that capacity tests may load, since their operators agreed. Others are permitted like
    /// relays on no list.
    pub peers: BTreeSet<IpAddr>,
    /// What an opt-in list from the coordinator permits: its relays may also be measured on public addresses.
    pub handed: HandedList,
}

/// How a measurer treats the opt-in list that its coordinator hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedList {
    /// The list is ignored.
    Ignored,
    /// The list counts like the measurer's own.
    Accepted,
    /// The list counts like the measurer's own if this key has signed it.
    SignedBy(PublicKey),
}

/// The rules in force, and what follows from them.
struct InForce {
    rules: Rules,
    /// The measurer's own key.
    key: PublicKey,
    tls: Arc<rustls::ServerConfig>,
}

impl InForce {
    fn new(key: &SecretKey, rules: Rules) -> Result<Arc<Self>, ServerError> {
        let tls = tls::server_config(key, rules.coordinators.clone()).map_err(ServerError::Tls)?;
        Ok(Arc::new(Self { rules, key: key.public(), tls: Arc::new(tls) }))
    }
}

/// A measurer's daemon, on a separate thread. Dropping it closes its sessions and stops its rounds.
pub struct MeasurerServer {
    address: SocketAddr,
    key: SecretKey,
    in_force: watch::Sender<Arc<InForce>>,
    status: StatusReader,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl MeasurerServer {
    /// Listens and executes orders.
    ///
    /// # Errors
    /// [`ServerError`]: it cannot listen.
    pub fn start(options: ServerOptions) -> Result<Self, ServerError> {
        let ServerOptions { listen, key, rules, capacity, sockets_max, members, .. } = options;
        let (site, pumps) = (options.site, options.pumps);
        let listen_error = |source| ServerError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let (in_force, receiver) = watch::channel(InForce::new(&key, rules)?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let resources = Arc::new(Resources::new(capacity, sockets_max, members));
        let status = StatusReader { resources: Arc::clone(&resources), in_force: receiver.clone() };
        let (jump, jumped) = watch::channel(None);
        let (halt, stop_file) = StopFile::new(options.stop_file);
        let service = Arc::new(Service {
            resources,
            in_force: receiver,
            stopped,
            jumped,
            stop_file,
            address,
            site,
            pumps,
        });
        let thread = thread::Builder::new().name("measurer".to_owned()).spawn(move || {
            let resources = Arc::clone(&service.resources);
            if let Err(error) = runtime.block_on(serve(listener, &service, &jump, &halt)) {
                tracing::error!("the measurer failed: {error}");
            }
            // Ends the remaining sessions, and with them their rounds.
            drop(runtime);
            resources.wait_until_idle(END_TIMEOUT);
        });
        let thread = Some(thread.map_err(ServerError::Thread)?);
        Ok(Self { address, key, in_force, status, stop, thread })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the rules. Running rounds continue, except those of a coordinator that is no longer accepted: its session ends.
    ///
    /// # Errors
    /// [`ServerError::Tls`]; the previous rules stay in force.
    pub fn reload(&self, rules: Rules) -> Result<(), ServerError> {
        self.in_force.send_replace(InForce::new(&self.key, rules)?);
        Ok(())
    }

    /// A reader of the current state, for metrics.
    #[must_use]
    pub fn status(&self) -> StatusReader {
        self.status.clone()
    }

    /// Whether it has ended without a request. The log then has the reason.
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
    service: &Arc<Service>,
    jump: &watch::Sender<Option<ClockJump>>,
    halt: &watch::Sender<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let in_force = service.in_force.clone();
    let tls = move || Arc::clone(&in_force.borrow().tls);
    let mut incoming = accept::incoming(listener, tls, "`coordinators`");
    let mut stopped = service.stopped.clone();
    let mut connections = JoinSet::new();
    let clock = ClockWatch::start();
    let mut clock_looks = tokio::time::interval(CLOCK_LOOK);
    let mut stop_file_looks = tokio::time::interval(STOP_FILE_LOOK);
    loop {
        tokio::select! {
            _ = stop_file_looks.tick() => service.stop_file.look(halt),
            _ = clock_looks.tick() => {
                if let Some(by) = clock.poll() {
                    tracing::warn!("{by}: is NTP running? All sessions end, and coordinators compare clocks again");
                    jump.send_replace(Some(by));
                }
            }
            accepted = incoming.recv() => match accepted {
                Some(accepted) => {
                    connections.spawn(Arc::clone(service).handle(accepted));
                }
                None => break,
            },
            Some(_) = connections.join_next() => {}
            // An error means that the sender was dropped.
            _ = stopped.wait_for(|stop| *stop) => break,
        }
    }
    drop(incoming);
    let ended = async { while connections.join_next().await.is_some() {} };
    // The remaining connections are cut.
    let _ = tokio::time::timeout(END_TIMEOUT, ended).await;
    Ok(())
}

/// The state that all connections share.
struct Service {
    resources: Arc<Resources>,
    in_force: watch::Receiver<Arc<InForce>>,
    stopped: watch::Receiver<bool>,
    /// The last jump of this host's clock.
    jumped: watch::Receiver<Option<ClockJump>>,
    stop_file: StopFile,
    /// The listen address. Capacity tests listen on other ports of the same address.
    address: SocketAddr,
    /// The TLS keys and ports of capacity tests.
    site: Site,
    /// The number of pumps of a capacity test.
    pumps: u32,
}

impl Service {
    /// Serves a connection until it closes.
    async fn handle(self: Arc<Self>, Accepted { stream, peer, permit }: Accepted) {
        let limits = Limits { message_max_bytes: MESSAGE_MAX_BYTES, queued_max: UNREAD_MAX };
        let mut connection = Connection::<FromCoordinator, FromMeasurer>::over(stream, limits);
        let first = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, connection.incoming.next()).await;
        let stopped = self.stop_file.check().err();
        let done = match first {
            Ok(Ok(Some(_))) if stopped.is_some() => Err(End::lasting(stopped.unwrap_or_default())),
            Ok(Ok(Some(FromCoordinator::Session))) => match self.resources.open_session(peer.key) {
                Some(session_permit) => {
                    let (resources, in_force) =
                        (Arc::clone(&self.resources), self.in_force.clone());
                    let outgoing = connection.outgoing.clone();
                    let stop_file = self.stop_file.clone();
                    let session = Session::new(
                        peer,
                        session_permit,
                        resources,
                        in_force,
                        stop_file,
                        outgoing,
                    );
                    let (stopped, mut jumped) = (self.stopped.clone(), self.jumped.clone());
                    jumped.mark_unchanged();
                    session.run(&mut connection.incoming, stopped, jumped).await
                }
                None => {
                    tracing::warn!("{peer} wants a second session; the first one continues");
                    let reason = "there is a session with this coordinator's key already; one coordinator at a time";
                    Err(End { reason: reason.to_owned(), is_transient: true })
                }
            },
            Ok(Ok(Some(FromCoordinator::Capacity(order)))) => {
                capacity::serve(peer, &order, &self, &mut connection).await.map(|answer| {
                    // It has room for the second message.
                    let _ = connection.outgoing.try_send(FromMeasurer::Capacity(answer));
                })
            }
            Ok(Ok(Some(_))) => {
                Err(End::lasting("the first message opens a session or orders a capacity test"))
            }
            Ok(Ok(None)) => Ok(()),
            Ok(Err(lost)) => Err(End::lasting(lost.0)),
            Err(_) => Err(End::lasting("no message arrived")),
        };
        if let Err(end) = done {
            // If the coordinator is still there, it learns the reason.
            let _ = connection.outgoing.try_send(FromMeasurer::End(end));
        }
        connection.close().await;
        drop(permit);
    }
}
