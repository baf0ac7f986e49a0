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
const UNHURRIED: Duration = Duration::from_millis(20);

/// The message in both directions: all statements of the sender. The listening side answers each message with one of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Words {
    statements: Vec<Statement>,
}

/// A statement as [`coordinator::agreement`] encodes it; in a message, hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Statement(#[serde(with = "hex")] Vec<u8>);

impl Words {
    fn of(statements: &[Vec<u8>]) -> Self {
        Self { statements: statements.iter().cloned().map(Statement).collect() }
    }

    fn heard(self) -> Heard {
        Heard::Words(self.statements.into_iter().map(|Statement(it)| it).collect())
    }
}

/// The state of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All its current statements.
    Words(Vec<Vec<u8>>),
    /// It cannot be reached, for this reason.
    Unreachable(String),
}

/// The connections with the coordinators of other authorities, on a separate thread. Dropping it closes them.
pub struct Authorities {
    address: SocketAddr,
    said: watch::Sender<Arc<[Vec<u8>]>>,
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
        let (said, saying) = watch::channel(Arc::from([]));
        let (stop, stopped) = oneshot::channel::<()>();
        let inbox = Arc::new(Inbox::default());
        let service = Service { inbox: Arc::clone(&inbox), said: saying.clone() };
        let talking = Arc::clone(&inbox);
        let thread = thread::Builder::new().name("authorities".to_owned()).spawn(move || {
            runtime.block_on(async move {
                for route in routes {
                    tokio::spawn(talk(route, saying.clone(), Arc::clone(&talking)));
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
        Ok(Self { address, said, inbox, stop: Some(stop), thread })
    }

    /// The address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the statements that are sent to all others. With none, no authority is dialled, and incoming statements
    /// are ignored.
    pub fn say(&self, statements: Vec<Vec<u8>>) {
        if statements.is_empty() {
            self.inbox.heard().clear();
        }
        self.said.send_replace(statements.into());
    }

    /// The newest state of each authority with news since the last call; waits for news until the timeout.
    #[must_use]
    pub fn hear(&self, longest: Duration) -> Vec<(PublicKey, Heard)> {
        let wait =
            self.inbox.news.wait_timeout_while(self.inbox.heard(), longest, |it| it.is_empty());
        let (mut heard, _) = wait.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard).into_iter().collect()
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
    heard: Mutex<BTreeMap<PublicKey, Heard>>,
    news: Condvar,
}

impl Inbox {
    fn heard(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Heard>> {
        // No code that holds the lock can panic half-way.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, from: PublicKey, what: Heard) {
        let mut heard = self.heard();
        match what {
            Heard::Words(_) => {
                heard.insert(from, what);
            }
            // The message may have arrived nevertheless.
            Heard::Unreachable(_) => {
                heard.entry(from).or_insert(what);
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
    said: watch::Receiver<Arc<[Vec<u8>]>>,
}

impl Service {
    /// Answers one authority until it closes the connection.
    async fn answer_all(self, Accepted { stream, peer, permit }: Accepted) {
        let mut connection = Connection::<Words, Words>::over(stream, LIMITS);
        while let Ok(Some(words)) = connection.incoming.next().await {
            tokio::time::sleep(UNHURRIED).await;
            let statements = Words::of(&self.said.borrow());
            // Without statements of our own there is no agreement, and those of others do not count.
            if !statements.statements.is_empty() {
                self.inbox.put(peer.key, words.heard());
            }
            if connection.outgoing.send(statements).await.is_err() {
                break;
            }
        }
        drop(permit);
    }
}

/// Sends statements to one authority, until the end.
async fn talk(route: Route, mut said: watch::Receiver<Arc<[Vec<u8>]>>, inbox: Arc<Inbox>) {
    // An error means that the sender was dropped.
    while said.wait_for(|statements| !statements.is_empty()).await.is_ok() {
        if let Err(problem) = converse(&route, &mut said, &inbox).await {
            inbox.put(route.pinned, Heard::Unreachable(problem));
            tokio::time::sleep(REPEAT).await;
        }
    }
}

/// Sends statements to one authority over one connection, until there are none left.
async fn converse(
    route: &Route,
    said: &mut watch::Receiver<Arc<[Vec<u8>]>>,
    inbox: &Inbox,
) -> Result<(), String> {
    let late = "it does not answer";
    let connected = tokio::time::timeout(ANSWER_TIMEOUT, route.stream()).await;
    let (stream, _) = connected.map_err(|_| late.to_owned())?.map_err(in_words)?;
    let mut connection = Connection::<Words, Words>::over(stream, LIMITS);
    loop {
        let words = Words::of(&said.borrow_and_update());
        if words.statements.is_empty() {
            return Ok(());
        }
        // An answer shows whether the message arrived.
        let _ = connection.outgoing.send(words).await;
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, connection.incoming.next()).await;
        let answer = answer.map_err(|_| late.to_owned())?.map_err(|lost| plain(&lost.0))?;
        let words = answer.ok_or_else(|| "it closed the connection".to_owned())?;
        inbox.put(route.pinned, words.heard());
        // Earlier, if there is news; the end is detected above.
        let _ = tokio::time::timeout(REPEAT, said.changed()).await;
        if said.has_changed().is_err() {
            return Ok(());
        }
    }
}

/// The error of a connection to another authority.
fn in_words(error: ConnectError) -> String {
    match error {
        ConnectError::Unreachable { source, .. } => format!("it cannot be reached: {source}"),
        ConnectError::ForeignKey { shown, .. } => format!("it has another key, {shown}"),
        ConnectError::RefusesOurKey { own, .. } => {
            format!("it does not know our key; add {own} to its `[[authorities]]`")
        }
        ConnectError::OtherProtocol { source, .. } => format!("it is no coordinator: {source}"),
        ConnectError::Broke { problem, .. } => format!("the connection broke: {problem}"),
        other => other.to_string(),
    }
}
