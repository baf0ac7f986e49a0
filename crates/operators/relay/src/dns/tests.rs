use super::*;
use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::Record;
use hickory_proto::rr::rdata::{A, AAAA, PTR};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer};
use onion::link::TlsSession;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Lookup, LookupId, Node};
use onion::{Duration, Instant};
use std::collections::VecDeque;
use std::net::UdpSocket;
use std::sync::mpsc;

/// A name server on loopback. Returns its address and the queried names.
fn server() -> (SocketAddr, mpsc::Receiver<String>) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    let (asked, names) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let mut message = Message::from_vec(&buffer[..len]).expect("a question");
            let query = message.queries[0].clone();
            let name = query.name.to_ascii().to_lowercase();
            if asked.send(name.clone()).is_err() {
                return;
            }
            let of = |ttl, data| Record::from_rdata(query.name.clone(), ttl, data);
            let a = |ttl, last| of(ttl, RData::A(A::new(192, 0, 2, last)));
            message.metadata.message_type = MessageType::Response;
            message.metadata.recursion_available = true;
            let is_v6 = query.query_type == RecordType::AAAA;
            message.answers = match (name.as_str(), is_v6) {
                ("short.test.", false) => vec![a(1, 1), a(70, 2)],
                ("both.test.", false) => vec![a(1_000_000, 3)],
                ("both.test.", true) => {
                    vec![of(1_000_000, RData::AAAA(AAAA::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)))]
                }
                ("7.2.0.192.in-addr.arpa.", _) => {
                    let name = Name::from_ascii("seven.test.").expect("a name");
                    vec![of(600, RData::PTR(PTR(name)))]
                }
                ("broken.test.", _) => {
                    message.metadata.response_code = ResponseCode::ServFail;
                    vec![]
                }
                ("short.test.", true) => vec![],
                _ => {
                    message.metadata.response_code = ResponseCode::NXDomain;
                    vec![]
                }
            };
            let bytes = message.to_vec().expect("encoded");
            socket.send_to(&bytes, from).expect("sent");
        }
    });
    (address, names)
}

/// A node that sends queries.
#[derive(Default)]
struct QueryNode {
    questions: VecDeque<Lookup>,
    answer: Option<DnsAnswer>,
}

impl Node for QueryNode {
    fn handle_connected(&mut self, _: Instant, _: ConnId, _: &dyn TlsSession) {}
    fn handle_accepted(&mut self, _: Instant, _: ListenerId, _: &dyn TlsSession) -> Option<ConnId> {
        None
    }
    fn handle_bytes(&mut self, _: Instant, _: ConnId, _: &[u8]) {}
    fn handle_closed(&mut self, _: Instant, _: ConnId, _: CloseCause) {}
    fn handle_timeout(&mut self, _: Instant) {}
    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        None
    }
    fn poll_writable(&mut self) -> Option<ConnId> {
        None
    }
    fn poll_transmit(&mut self, _: Instant, _: ConnId, _: &mut [u8]) -> usize {
        0
    }
    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    fn poll_lookup(&mut self) -> Option<Lookup> {
        self.questions.pop_front()
    }
    fn handle_answer(&mut self, _: Instant, _: LookupId, answer: DnsAnswer) {
        self.answer = Some(answer);
    }
}

struct World {
    driver: Driver<QueryNode>,
    health: Arc<Health>,
}

impl World {
    fn new(servers: &[SocketAddr]) -> Self {
        let issuer = IdentityIssuer::new([1; 32], link::unix_time_s()).expect("keys");
        let tls = TlsConfigs::new(&issuer).expect("usable");
        let options = DriverOptions::default();
        let driver = Driver::new(QueryNode::default(), Clock::start(), tls, vec![], options);
        let mut driver = driver.expect("a driver");
        let health = Arc::new(Health::new(mpsc::channel().0));
        let names = Names::start(servers, Arc::clone(&health)).expect("started");
        driver.set_resolver(Box::new(names));
        Self { driver, health }
    }

    fn ask(&mut self, question: DnsQuery) -> DnsAnswer {
        let lookup = Lookup { id: LookupId(1), question };
        self.driver.node_mut().questions.push_back(lookup);
        let end = self.driver.now() + Duration::from_secs(60);
        loop {
            self.driver.turn(end).expect("it waits");
            assert!(self.driver.now() < end, "no answer");
            if let Some(answer) = self.driver.node_mut().answer.take() {
                return answer;
            }
        }
    }

    fn addresses(&mut self, name: &str) -> DnsAnswer {
        self.ask(DnsQuery::Addresses(name.to_owned()))
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn answers_to_both_kinds_of_query_are_cached() {
    let (address, asked) = server();
    let mut world = World::new(&[address]);
    let DnsAnswer::Addresses(mut found) = world.addresses("short.test") else { panic!() };
    found.sort();
    assert_eq!(found, vec![ip("192.0.2.1"), ip("192.0.2.2")]);
    let expected = DnsAnswer::Addresses(vec![ip("192.0.2.3"), ip("2001:db8::1")]);
    assert_eq!(world.addresses("Both.Test."), expected);
    let of_seven = world.ask(DnsQuery::Name(ip("192.0.2.7")));
    assert_eq!(of_seven, DnsAnswer::Name("seven.test".to_owned()));
    // Cached answers need no query.
    let before = asked.try_iter().count();
    assert!(before >= 5, "{before}");
    assert_eq!(world.addresses("Both.Test."), expected);
    assert_eq!(asked.try_iter().count(), 0);
}

#[test]
fn nonexistent_names_are_distinguished_from_failures() {
    let (address, asked) = server();
    let mut world = World::new(&[address]);
    assert_eq!(world.addresses("nowhere.test"), DnsAnswer::NoSuchName);
    assert_eq!(world.ask(DnsQuery::Name(ip("192.0.2.8"))), DnsAnswer::NoSuchName);
    let long = "a".repeat(64) + ".test";
    for no_name in ["", "a..b", long.as_str()] {
        assert_ne!(world.addresses(no_name), DnsAnswer::Failed, "{no_name:?}");
    }
    assert_eq!(world.addresses("broken.test"), DnsAnswer::Failed);
    assert_eq!(world.health.count(Outcome::ServerFailed), 1);
    assert_eq!(world.health.count(Outcome::NotExist) + world.health.count(Outcome::NoData), 5);
    // Names are absolute: the search domains of this machine do not apply.
    assert!(
        asked
            .try_iter()
            .all(|name| name.ends_with(".test.") || name.ends_with(".arpa.") || name == ".")
    );
}

/// A name server that answers every query with this code, or not at all.
fn other_server(code: Option<ResponseCode>) -> SocketAddr {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let Some(code) = code else { continue };
            let mut message = Message::from_vec(&buffer[..len]).expect("a question");
            message.metadata.message_type = MessageType::Response;
            message.metadata.response_code = code;
            socket.send_to(&message.to_vec().expect("encoded"), from).expect("sent");
        }
    });
    address
}

#[tokio::test]
async fn a_refusing_failing_or_silent_server_is_bypassed() {
    let (good, _asked) = server();
    let expected = DnsAnswer::Addresses(vec![ip("192.0.2.3"), ip("2001:db8::1")]);
    let question = DnsQuery::Addresses("both.test".to_owned());
    for code in [
        None,
        Some(ResponseCode::Refused),
        Some(ResponseCode::ServFail),
        Some(ResponseCode::NotImp),
        Some(ResponseCode::FormErr),
    ] {
        for addresses in [[other_server(code), good], [good, other_server(code)]] {
            let servers = Servers::new(&addresses).expect("servers");
            let found = (expected.clone(), Outcome::Success);
            assert_eq!(servers.ask(&question).await, found, "{code:?}");
            let first = addresses[servers.first.load(Ordering::Relaxed)];
            assert_eq!(first, good, "the next question goes to the one that answered");
        }
    }
}

#[tokio::test]
async fn a_query_that_all_servers_refuse_fails_with_the_reason() {
    for (code, outcome) in [
        (ResponseCode::Refused, Outcome::Refused),
        (ResponseCode::ServFail, Outcome::ServerFailed),
        (ResponseCode::NotImp, Outcome::NotImplemented),
    ] {
        for count in [1, 2, 3] {
            let addresses: Vec<_> = (0..count).map(|_| other_server(Some(code))).collect();
            let servers = Servers::new(&addresses).expect("servers");
            let question = DnsQuery::Addresses("both.test".to_owned());
            assert_eq!(servers.ask(&question).await, (DnsAnswer::Failed, outcome));
        }
    }
}

/// C tor 0.4.9 sends a query twice, a second apart, and gives up after another second.
#[tokio::test(start_paused = true)]
async fn silent_servers_time_out_as_in_c_tor() {
    for count in [1, 2, 5] {
        let addresses: Vec<_> = (0..count).map(|_| other_server(None)).collect();
        let servers = Servers::new(&addresses).expect("servers");
        for question in
            [DnsQuery::Addresses("both.test".to_owned()), DnsQuery::Name(ip("192.0.2.7"))]
        {
            let begin = tokio::time::Instant::now();
            let failed = (DnsAnswer::Failed, Outcome::Timeout);
            assert_eq!(servers.ask(&question).await, failed);
            let after = begin.elapsed();
            assert!(after <= std::time::Duration::from_millis(2_250), "{after:?}");
        }
    }
}
