//! Coordinators of several authorities among themselves: each tells all others what it has to say, again and again, and hears what
//! they say. What that is, [`coordinator::agreement`] knows.
//!
//! Each listens and dials, and each call carries words both ways: two hear each other if either of them can reach the other.

use crate::convert::plain;
use crate::keys::{PublicKey, SecretKey};
use crate::remote::connect::{ConnectError, Route};
use crate::rpc::authority_client::AuthorityClient;
use crate::rpc::authority_server;
use crate::server::accept::{self, Peer};
use crate::server::{KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT, ServerError};
use crate::tls;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};

/// All that one says of a period: of at most 16 authorities two commitments and two reveals each, with 16 signatures.
const MESSAGE_MAX_BYTES: usize = 256 << 10;

/// What has been said is said again after this, in case that it was not heard; news are told at once.
const REPEAT: Duration = Duration::from_millis(500);

/// A connection, and an answer, may take so long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// Who calls us has its answer after this, so that nobody keeps us busy.
const UNHURRIED: Duration = Duration::from_millis(20);

/// Requests at once on one connection.
const STREAMS_MAX: u32 = 2;

/// What one says, all of it.
///
/// ```proto
/// service Authority { rpc Exchange(Words) returns (Words); }
/// ```
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Words {
    /// Each as [`coordinator::agreement`] writes it.
    #[prost(bytes = "vec", repeated, tag = "1")]
    pub statements: Vec<Vec<u8>>,
}

/// What has come of an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// All that it says now.
    Words(Vec<Vec<u8>>),
    /// It cannot be reached, for this reason.
    Unreachable(String),
}

/// The coordinators of other authorities, and the connections with them, on a thread of its own. Dropping it ends them.
pub struct Authorities {
    address: SocketAddr,
    said: watch::Sender<Arc<[Vec<u8>]>>,
    inbox: Arc<Inbox>,
    /// Its end is the command to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Authorities {
    /// Listens for these others, whom nobody else can pretend to be. Nobody is dialled before there is something to say.
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
                            tracing::error!("other authorities cannot reach us any more: {error}");
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

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells all others this from now on, instead of what it was before. With nothing to say nobody is called, and nobody heard.
    pub fn say(&self, statements: Vec<Vec<u8>>) {
        if statements.is_empty() {
            self.inbox.heard().clear();
        }
        self.said.send_replace(statements.into());
    }

    /// The newest of each who was heard since the last call; waits for it, but no longer than this.
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

/// One place for each: whoever says more than is listened to is only heard less often.
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
            // It may have reached us all the same.
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
) -> Result<(), Box<dyn std::error::Error>> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let incoming = accept::incoming(listener, tls, "`[[authorities]]`");
    let service = authority_server::AuthorityServer::new(service)
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    tonic::transport::Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .serve_with_incoming(service, incoming)
        .await?;
    Ok(())
}

struct Service {
    inbox: Arc<Inbox>,
    said: watch::Receiver<Arc<[Vec<u8>]>>,
}

#[tonic::async_trait]
impl authority_server::Authority for Service {
    async fn exchange(&self, request: Request<Words>) -> Result<Response<Words>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let peer = peer.ok_or_else(|| Status::unauthenticated("no key was shown"))?;
        tokio::time::sleep(UNHURRIED).await;
        let statements = self.said.borrow().to_vec();
        // Who has nothing to say does not listen either: there is no agreement on.
        if !statements.is_empty() {
            self.inbox.put(peer.key, Heard::Words(request.into_inner().statements));
        }
        Ok(Response::new(Words { statements }))
    }
}

/// Tells one other, for ever.
async fn talk(route: Route, mut said: watch::Receiver<Arc<[Vec<u8>]>>, inbox: Arc<Inbox>) {
    // An error says that nobody is left who could say something.
    while said.wait_for(|statements| !statements.is_empty()).await.is_ok() {
        if let Err(problem) = converse(&route, &mut said, &inbox).await {
            inbox.put(route.pinned, Heard::Unreachable(problem));
            tokio::time::sleep(REPEAT).await;
        }
    }
}

/// Tells one other over one connection, until there is nothing to say any more.
async fn converse(
    route: &Route,
    said: &mut watch::Receiver<Arc<[Vec<u8>]>>,
    inbox: &Inbox,
) -> Result<(), String> {
    let late = "it does not answer";
    let connected = tokio::time::timeout(ANSWER_TIMEOUT, route.channel()).await;
    let (channel, _) = connected.map_err(|_| late.to_owned())?.map_err(in_words)?;
    let mut client = AuthorityClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    loop {
        let statements = said.borrow_and_update().to_vec();
        if statements.is_empty() {
            return Ok(());
        }
        let call = client.exchange(Words { statements });
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, call).await;
        let answer = answer.map_err(|_| late.to_owned())?;
        let words = answer.map_err(|status| plain(status.message()))?.into_inner();
        inbox.put(route.pinned, Heard::Words(words.statements));
        // Earlier, if there is news; an end of all is noticed above.
        let _ = tokio::time::timeout(REPEAT, said.changed()).await;
        if said.has_changed().is_err() {
            return Ok(());
        }
    }
}

/// The error of a connection, where the other side is no measurer.
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
