//! Incoming connections, from the bare socket to a peer with a known key.

use super::handshakes::Handshakes;
use crate::keys::PublicKey;
use crate::log_limiter::LogLimiter;
use crate::tls;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Maximum number of connections of one authenticated coordinator; more are refused. Each key has its own places, so
/// one coordinator cannot exclude others. The configuration limits the number of keys.
const CONNECTIONS_MAX: usize = 64;

/// Time for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after the system had no socket left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(200);

/// A coordinator with a pinned key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) key: PublicKey,
    pub(crate) address: SocketAddr,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "coordinator {} at {}", self.key, self.address)
    }
}

/// The places of each key.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<PublicKey, Arc<Semaphore>>>);

impl Places {
    /// A place of a key, if it has one left.
    fn take(&self, key: PublicKey) -> Option<OwnedSemaphorePermit> {
        // No code that holds the lock panics.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        Arc::clone(places).try_acquire_owned().ok()
    }
}

/// A connection from a peer.
pub(crate) struct Accepted {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) peer: Peer,
    /// Its place among the connections of its key.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Accepts connections. Several TLS handshakes run at the same time, so that none delays others. Each takes
/// the TLS configuration of its time. `list` is the name of the key list in the configuration.
pub(crate) fn incoming(
    listener: TcpListener,
    tls: impl Fn() -> Arc<rustls::ServerConfig> + Send + 'static,
    list: &'static str,
) -> mpsc::Receiver<Accepted> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(accept(listener, tls, list, sender));
    receiver
}

async fn accept(
    listener: TcpListener,
    tls: impl Fn() -> Arc<rustls::ServerConfig>,
    list: &'static str,
    accepted: mpsc::Sender<Accepted>,
) {
    let places = Arc::new(Places::default());
    let limiter = Arc::new(LogLimiter::new());
    let mut handshakes = Handshakes::default();
    loop {
        let (socket, address) = tokio::select! {
            socket = listener.accept() => match socket {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(SHORTAGE_PAUSE).await;
                    continue;
                }
            },
            () = accepted.closed() => return,
        };
        let (tls, accepted, limiter) =
            (TlsAcceptor::from(tls()), accepted.clone(), Arc::clone(&limiter));
        let places = Arc::clone(&places);
        let handshake = tokio::spawn(async move {
            match tokio::time::timeout(HANDSHAKE_TIMEOUT, shake_hands(socket, address, &tls)).await
            {
                Ok(Ok((stream, peer))) => admit(stream, peer, &places, accepted),
                Ok(Err(error)) => log(&limiter, address, list, &error),
                Err(_) => {
                    let error = io::Error::from(io::ErrorKind::TimedOut);
                    log(&limiter, address, list, &error);
                }
            }
        });
        handshakes.begin(address.ip(), handshake.abort_handle());
    }
}

/// Forwards connections with a permitted key. Only now the connection takes a place that strangers cannot take.
fn admit(
    stream: TlsStream<TcpStream>,
    peer: Peer,
    places: &Places,
    accepted: mpsc::Sender<Accepted>,
) {
    let Some(permit) = places.take(peer.key) else {
        tracing::warn!("refused {peer}: it has {CONNECTIONS_MAX} connections already");
        return;
    };
    // In a separate task, since the handshake's may be ended to make room for others.
    tokio::spawn(async move {
        // The receiver is gone if the measurer is ending.
        let _ = accepted.send(Accepted { stream, peer, permit }).await;
    });
}

async fn shake_hands(
    socket: TcpStream,
    address: SocketAddr,
    tls: &TlsAcceptor,
) -> io::Result<(TlsStream<TcpStream>, Peer)> {
    socket.set_nodelay(true)?;
    let stream = tls.accept(socket).await?;
    let shown = stream.get_ref().1.peer_certificates();
    let key = tls::peer_key(shown).ok_or_else(|| io::Error::other("it showed no key"))?;
    Ok((stream, Peer { key, address }))
}

fn log(limiter: &LogLimiter, from: SocketAddr, list: &str, error: &io::Error) {
    let (kind, what) = if let Some(foreign) = tls::foreign_key(error) {
        ("key", format!("{foreign}; if it is ours, add this key to {list}"))
    } else if tls::is_other_protocol(error) {
        ("protocol", format!("it speaks something else: {error}"))
    } else {
        ("other", format!("no handshake: {error}"))
    };
    match limiter.admit(from.ip(), kind) {
        Some(0) => tracing::warn!("refused {from}: {what}"),
        Some(others) => {
            tracing::warn!(
                "refused {from}: {what} ({others} others were refused since the last such line)"
            );
        }
        None => tracing::debug!("refused {from}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SecretKey;

    #[test]
    fn a_key_that_uses_all_its_places_excludes_no_other() {
        let key = || SecretKey::generate().expect("random bytes").public();
        let (greedy, other) = (key(), key());
        let places = Places::default();
        let mut held: Vec<_> = std::iter::from_fn(|| places.take(greedy)).collect();
        assert_eq!(held.len(), CONNECTIONS_MAX);
        assert!(places.take(other).is_some());
        held.pop();
        assert!(places.take(greedy).is_some(), "a released place is available again");
    }
}
