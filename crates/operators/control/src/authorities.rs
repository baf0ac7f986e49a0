//! Connections between the coordinators of several authorities. Each repeatedly sends its statements to all others and
//! receives theirs. [`coordinator::agreement`] defines their content.
//!
//! Each coordinator listens and dials, and each connection carries statements both ways: two can communicate if either
//! of them can reach the other.

use crate::check::plain;
use crate::frames::{Connection, Limits};
use crate::keys::{PublicKey, SecretKey};
use crate::remote::connect::{ConnectError, Route};
use crate::server::ServerError;
use crate::server::accept::{self, Accepted};
use crate::tls;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// All statements of a period: two commitments and two reveals each of at most 16 authorities, with 16 signatures, in
/// hexadecimal digits.
const LIMITS: Limits = Limits { message_max_bytes: 512 << 10, queued_max: 1 };

/// The interval at which statements are repeated, in case they were lost. New statements are sent at once.
const REPEAT: Duration = Duration::from_millis(500);

/// The timeout of a connection, and of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// The minimum time before a caller gets its answer, so that no caller can keep us busy.
const ANSWER_DELAY: Duration = Duration::from_millis(20);

/// The message in both directions: all statements of the sender. The listening side answers each message with one of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Message {
    statements: Vec<Statement>,
}

/// A statement as [`coordinator::agreement`] encodes it; in a message, hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Statement(#[serde(with = "hex")] Vec<u8>);

impl Message {
    fn from_statements(statements: &[Vec<u8>]) -> Self {
        Self { statements: statements.iter().cloned().map(Statement).collect() }
    }

    fn into_state(self) -> PeerState {
        PeerState::Statements(self.statements.into_iter().map(|Statement(bytes)| bytes).collect())
    }
}

/// The state of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// All its current statements.
    Statements(Vec<Vec<u8>>),
    /// It cannot be reached, for this reason.
    Unreachable(String),
}

/// The connections with the coordinators of other authorities, on a separate thread. Dropping it closes them.
pub struct Authorities {
    address: SocketAddr,
    outgoing: watch::Sender<Arc<[Vec<u8>]>>,
    inbox: Arc<Inbox>,
    /// Dropping the sender is the command to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Authorities {
    /// Listens for these authorities, authenticated by key. Connects to them only once there are statements to send.
    ///
    /// # Errors
    /// [`ServerError`]: it cannot listen.
    pub fn start(
        listen: SocketAddr,
        key: &SecretKey,
        others: &[(SocketAddr, PublicKey)],
    ) -> Result<Self, ServerError> {
        let listen_error = |source| ServerError::Listen { address: listen, source };
        let listener = TcpListener::bind(listen).map_err(listen_error)?;
        listener.set_nonblocking(true).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        let keys = others.iter().map(|(_, key)| *key);
        let tls = Arc::new(tls::server_config(key, keys).map_err(ServerError::Tls)?);
        let mut routes = Vec::new();
        for (at, pinned) in others {
            let tls = Arc::new(tls::client_config(key, *pinned).map_err(ServerError::Tls)?);
            routes.push(Route { at: *at, pinned: *pinned, own: key.public(), tls });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(ServerError::Thread)?;
        let (outgoing, outgoing_statements) = watch::channel(Arc::from([]));
        let (stop, stopped) = oneshot::channel::<()>();
        let inbox = Arc::new(Inbox::default());
        let service = Service { inbox: Arc::clone(&inbox), outgoing: outgoing_statements.clone() };
        let received = Arc::clone(&inbox);
        let thread = thread::Builder::new().name("authorities".to_owned()).spawn(move || {
            runtime.block_on(async move {
                for route in routes {
                    tokio::spawn(send_to(
                        route,
                        outgoing_statements.clone(),
                        Arc::clone(&received),
                    ));
                }
                tokio::select! {
                    served = serve(listener, tls, service) => {
                        if let Err(error) = served {
                            tracing::error!("other authorities can no longer reach us: {error}");
                        }
                    }
                    // It ends with an error: nothing is ever sent.
                    _ = stopped => {}
                }
            });
        });
        let thread = Some(thread.map_err(ServerError::Thread)?);
        Ok(Self { address, outgoing, inbox, stop: Some(stop), thread })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the statements that are sent to all others. With none, no authority is dialled, and incoming statements
    /// are ignored.
    pub fn send(&self, statements: Vec<Vec<u8>>) {
        if statements.is_empty() {
            self.inbox.lock().clear();
        }
        self.outgoing.send_replace(statements.into());
    }

    /// The newest state of each authority with news since the last call; waits for news until the timeout.
    #[must_use]
    pub fn receive(&self, timeout: Duration) -> Vec<(PublicKey, PeerState)> {
        let wait = self
            .inbox
            .news
            .wait_timeout_while(self.inbox.lock(), timeout, |states| states.is_empty());
        let (mut states, _) = wait.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *states).into_iter().collect()
    }
}

impl Drop for Authorities {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

/// One slot for each authority: a newer state replaces one that was not read.
#[derive(Default)]
struct Inbox {
    states: Mutex<BTreeMap<PublicKey, PeerState>>,
    news: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PublicKey, PeerState>> {
        // No code that holds the lock can panic halfway.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, from: PublicKey, state: PeerState) {
        let mut states = self.lock();
        match state {
            PeerState::Statements(_) => {
                states.insert(from, state);
            }
            // The message may have arrived nevertheless.
            PeerState::Unreachable(_) => {
                states.entry(from).or_insert(state);
            }
        }
        self.news.notify_all();
    }
}

async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    service: Service,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut incoming = accept::incoming(listener, move || Arc::clone(&tls), "`[[authorities]]`");
    while let Some(accepted) = incoming.recv().await {
        tokio::spawn(service.clone().answer_all(accepted));
    }
    Ok(())
}

#[derive(Clone)]
struct Service {
    inbox: Arc<Inbox>,
    outgoing: watch::Receiver<Arc<[Vec<u8>]>>,
}

impl Service {
    /// Answers one authority until it closes the connection.
    async fn answer_all(self, Accepted { stream, peer, permit }: Accepted) {
        let mut connection = Connection::<Message, Message>::over(stream, LIMITS);
        while let Ok(Some(message)) = connection.incoming.next().await {
            tokio::time::sleep(ANSWER_DELAY).await;
            let answer = Message::from_statements(&self.outgoing.borrow());
            // Without statements of our own there is no agreement, and those of others do not count.
            if !answer.statements.is_empty() {
                self.inbox.put(peer.key, message.into_state());
            }
            if connection.outgoing.send(answer).await.is_err() {
                break;
            }
        }
        drop(permit);
    }
}

/// Sends statements to one authority, until the end.
async fn send_to(route: Route, mut outgoing: watch::Receiver<Arc<[Vec<u8>]>>, inbox: Arc<Inbox>) {
    // An error means that the sender was dropped.
    while outgoing.wait_for(|statements| !statements.is_empty()).await.is_ok() {
        if let Err(problem) = exchange(&route, &mut outgoing, &inbox).await {
            inbox.put(route.pinned, PeerState::Unreachable(problem));
            tokio::time::sleep(REPEAT).await;
        }
    }
}

/// Sends statements to one authority over one connection, until there are none left.
async fn exchange(
    route: &Route,
    outgoing: &mut watch::Receiver<Arc<[Vec<u8>]>>,
    inbox: &Inbox,
) -> Result<(), String> {
    let late = "it does not answer";
    let connected = tokio::time::timeout(ANSWER_TIMEOUT, route.stream()).await;
    let (stream, _) = connected.map_err(|_| late.to_owned())?.map_err(describe)?;
    let mut connection = Connection::<Message, Message>::over(stream, LIMITS);
    loop {
        let message = Message::from_statements(&outgoing.borrow_and_update());
        if message.statements.is_empty() {
            return Ok(());
        }
        // An answer shows whether the message arrived.
        let _ = connection.outgoing.send(message).await;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, connection.incoming.next()).await;
        let answer = answer.map_err(|_| late.to_owned())?.map_err(|lost| plain(&lost.0))?;
        let message = answer.ok_or_else(|| "it closed the connection".to_owned())?;
        inbox.put(route.pinned, message.into_state());
        // Earlier, if there is news; the end is detected above.
        let _ = tokio::time::timeout(REPEAT, outgoing.changed()).await;
        if outgoing.has_changed().is_err() {
            return Ok(());
        }
    }
}

/// The error of a connection to another authority.
fn describe(error: ConnectError) -> String {
    match error {
        ConnectError::Unreachable { source, .. } => format!("it cannot be reached: {source}"),
        ConnectError::ForeignKey { shown, .. } => format!("it has another key, {shown}"),
        ConnectError::RefusesOurKey { own, .. } => {
            format!("it does not know our key; add {own} to its `[[authorities]]`")
        }
        ConnectError::OtherProtocol { source, .. } => format!("it is not a coordinator: {source}"),
        ConnectError::Broke { problem, .. } => format!("the connection broke: {problem}"),
        other => other.to_string(),
    }
}
