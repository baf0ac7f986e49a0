//! A DNS server for exits of private networks: their queries must not leave the machine.

use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock;

/// Maximum length of a query over UDP.
const QUESTION_MAX: usize = 4096;

/// How often it checks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// A DNS server over UDP on loopback, with a configurable delay. Each name has the address 127.0.0.1 and no
/// IPv6 address; names below `invalid` do not exist. It ends with this value.
#[derive(Debug)]
pub struct NameServer {
    address: SocketAddr,
    asked: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts it on a free port. Its answers have a delay of `delay` and a TTL of `ttl_s` seconds.
    ///
    /// # Errors
    /// If the system returns no port or thread.
    pub fn start(delay: Duration, ttl_s: u32) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = socket.local_addr()?;
        let (asked, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, must_end) = (Arc::clone(&asked), Arc::clone(&is_over));
        let thread = thread::Builder::new().name("names".to_owned()).spawn(move || {
            // A failing socket answers nobody, which shows in the number of queries.
            let _ended = serve(&socket, delay, ttl_s, &count, &must_end);
        })?;
        Ok(Self { address, asked, is_over, thread: Some(thread) })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queries so far.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

/// Answers until it is to end.
fn serve(
    socket: &UdpSocket,
    delay: Duration,
    ttl_s: u32,
    asked: &AtomicU64,
    is_over: &AtomicBool,
) -> io::Result<()> {
    // The delay is constant, so answers leave in order of arrival.
    let mut waiting: VecDeque<(Instant, Vec<u8>, SocketAddr)> = VecDeque::new();
    let mut buffer = [0; QUESTION_MAX];
    while !is_over.load(Ordering::Relaxed) {
        let now = clock::now();
        while waiting.front().is_some_and(|(due, ..)| *due <= now)
            && let Some((_, bytes, to)) = waiting.pop_front()
        {
            // The client may be gone.
            let _sent = socket.send_to(&bytes, to);
        }
        let wait = waiting.front().map_or(LOOK, |(due, ..)| due.saturating_duration_since(now));
        // Zero would mean no timeout.
        socket.set_read_timeout(Some(wait.clamp(Duration::from_micros(100), LOOK)))?;
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                asked.fetch_add(1, Ordering::Relaxed);
                // Malformed queries are ignored.
                if let Some(bytes) = answer(&buffer[..len], ttl_s) {
                    waiting.push_back((clock::now() + delay, bytes, from));
                }
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn answer(question: &[u8], ttl_s: u32) -> Option<Vec<u8>> {
    let mut message = Message::from_vec(question).ok()?;
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
    fn names_are_here_and_those_below_invalid_are_nowhere() {
        let server = NameServer::start(Duration::from_millis(1), 77).expect("started");
        let found = ask(&server, "Some.Name.test.", RecordType::A);
        let record = &found.answers[0];
        assert_eq!((record.ttl, &record.data), (77, &RData::A(A::from(Ipv4Addr::LOCALHOST))));
        assert!(ask(&server, "some.name.test.", RecordType::AAAA).answers.is_empty());
        let none = ask(&server, "x.y.invalid.", RecordType::A);
        assert_eq!(none.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(server.asked(), 3);
    }
}
