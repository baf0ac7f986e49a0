//! A DNS server for exits of private networks: their queries must not leave the machine.

use crate::{Background, clock};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum length of a query.
const QUERY_MAX: usize = 4096;

/// How often the server checks whether to end.
const POLL: Duration = Duration::from_millis(100);

/// A DNS server over UDP on loopback, with a configurable delay. Each name has the address 127.0.0.1 and no
/// IPv6 address; names below `invalid` do not exist. It ends with this value.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    queries: Arc<AtomicU64>,
    _thread: Background,
}

impl NameServer {
    /// Starts it on a free port. Its answers have a delay of `delay` and a TTL of `ttl_s` seconds.
    ///
    /// # Errors
    /// If the system returns no port or thread.
    pub fn start(delay: Duration, ttl_s: u32) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let queries = Arc::<AtomicU64>::default();
        let mut server = Server {
            socket,
            delay,
            ttl_s,
            queries: Arc::clone(&queries),
            pending: VecDeque::new(),
        };
        let thread = Background::start("names", move || match server.turn() {
            Ok(()) => Duration::ZERO,
            // A failure of the socket shows in the number of queries.
            Err(_) => Duration::MAX,
        })?;
        Ok(Self { address, queries, _thread: thread })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of queries so far.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }
}

/// The state of the server's thread.
struct Server {
    socket: UdpSocket,
    delay: Duration,
    ttl_s: u32,
    queries: Arc<AtomicU64>,
    /// Answers and when they are due. The delay is constant, so they leave in order of arrival.
    pending: VecDeque<(Instant, Vec<u8>, SocketAddr)>,
}

impl Server {
    /// Sends the answers that are due, and waits for a query until the next one is due.
    fn turn(&mut self) -> io::Result<()> {
        let now = clock::now();
        while self.pending.front().is_some_and(|(due, ..)| *due <= now)
            && let Some((_, bytes, to)) = self.pending.pop_front()
        {
            // The client may be gone.
            let _sent = self.socket.send_to(&bytes, to);
        }
        let wait =
            self.pending.front().map_or(POLL, |(due, ..)| due.saturating_duration_since(now));
        // Zero would mean no timeout.
        self.socket.set_read_timeout(Some(wait.clamp(Duration::from_micros(100), POLL)))?;
        let mut buffer = [0; QUERY_MAX];
        match self.socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                self.queries.fetch_add(1, Ordering::Relaxed);
                // Malformed queries are ignored.
                if let Some(bytes) = answer(&buffer[..len], self.ttl_s) {
                    self.pending.push_back((clock::now() + self.delay, bytes, from));
                }
                Ok(())
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

fn answer(query: &[u8], ttl_s: u32) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(query).ok()?;
    let query = message.queries.first()?.clone();
    message.metadata.message_type = MessageType::Response;
    message.metadata.recursion_available = true;
    let name = query.name.to_ascii().to_ascii_lowercase();
    if name.trim_end_matches('.').ends_with(".invalid") {
        message.metadata.response_code = ResponseCode::NXDomain;
    } else if query.query_type == RecordType::A {
        let here = RData::A(A::from(Ipv4Addr::LOCALHOST));
        message.answers = vec![Record::from_rdata(query.name, ttl_s, here)];
    }
    message.to_vec().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::Query;
    use hickory_proto::rr::Name;

    fn ask(server: &NameServer, name: &str, query_type: RecordType) -> Message {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let mut message = Message::query();
        message.queries.push(Query::query(Name::from_ascii(name).expect("a name"), query_type));
        let bytes = message.to_vec().expect("encoded");
        socket.send_to(&bytes, server.address()).expect("sent");
        let mut buffer = [0; 1500];
        let len = socket.recv(&mut buffer).expect("an answer");
        Message::from_vec(&buffer[..len]).expect("an answer")
    }

    #[test]
    fn names_resolve_to_loopback_except_below_invalid() {
        let server = NameServer::start(Duration::from_millis(1), 77).expect("started");
        let found = ask(&server, "Some.Name.test.", RecordType::A);
        let record = &found.answers[0];
        assert_eq!((record.ttl, &record.data), (77, &RData::A(A::from(Ipv4Addr::LOCALHOST))));
        assert!(ask(&server, "some.name.test.", RecordType::AAAA).answers.is_empty());
        let none = ask(&server, "x.y.invalid.", RecordType::A);
        assert_eq!(none.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(server.queries(), 3);
    }
}
