//! A coordinator's link, and the relay at its other end.

use onion::cell::{CircId, Command};
use onion::identity::{OwnIdentity, RelayIds};
use onion::link::{Channel, TlsSession};
use onion::measure::load::Target;
use onion::measure::order::{OrderConfig, OrderEvent, OrderFailure, OrderLink, OrderViolation};
use onion::measure::protocol::{
    ClientSecond, ClientShare, CoordinatorKey, EXPORTER_LABEL, MeasurerKey, Message, Nonce, Order,
    SignedOrder,
};
use onion::node::{CloseCause, ConnId, Dial, Node, Security};
use onion::{Duration, Instant};
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use testkit::fixture::Session;
use testkit::vectors;

pub(crate) const NONCE: Nonce = Nonce([9; 32]);
pub(crate) const SEED: [u8; 32] = [7; 32];
/// What the session's keys give for signatures.
pub(crate) const EXPORTED: [u8; 32] = [0x5e; 32];
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds of the measurement.
pub(crate) const SECONDS: u16 = 3;

/// The relay that is ordered, and another.
pub(crate) static RELAY: LazyLock<Arc<OwnIdentity>> =
    LazyLock::new(|| Arc::clone(&vectors::PARTIES.own));
pub(crate) static OTHER: LazyLock<Arc<OwnIdentity>> =
    LazyLock::new(|| Arc::clone(&vectors::PARTIES.other));

/// TLS in name only, whose keys can be exported or not.
#[derive(Clone)]
pub(crate) struct Tls {
    session: Session,
    exports: bool,
}

impl Tls {
    pub(crate) fn new(exports: bool) -> Self {
        let certificate = Arc::clone(&vectors::PARTIES.certificate);
        Self { session: Session { certificate, exported: EXPORTED }, exports }
    }
}

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificate()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        (self.exports && label == EXPORTER_LABEL && context.is_empty()).then_some(EXPORTED)
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// A link that is to be. A consensus may lack a relay's Ed25519 identity, and this one does.
pub(crate) fn plan() -> OrderLink {
    let ids = RelayIds { ed25519: None, ..RELAY.ids() };
    let config = OrderConfig {
        target: Target { address: address(), ids },
        order: order(),
        key_seed: SEED,
        accept_timeout: ACCEPT_TIMEOUT,
        random: [4; 24],
        unix_time_s: vectors::PARTIES.unix_time_s,
    };
    OrderLink::new(config, Instant::from_millis(1000))
}

/// An order whose coordinator and target are still others.
fn order() -> Order {
    Order {
        coordinator: CoordinatorKey::of_seed(&[0; 32]),
        target: OTHER.ids(),
        measurers: vec![MeasurerKey::of_seed(&[1; 32])],
        seconds: SECONDS,
        client_share: ClientShare::DEFAULT,
        sockets: 4,
        expires_unix_s: 1,
        nonce: NONCE,
    }
}

pub(crate) fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 9001))
}

pub(crate) struct World {
    pub(crate) link: OrderLink,
    pub(crate) now: Instant,
    relay: Channel,
    conn: ConnId,
    /// The longest piece in which the relay's bytes come.
    pub(crate) piece_max_bytes: usize,
    /// The relay says nothing, not even what a link begins with.
    pub(crate) is_mute: bool,
    /// What has come on the link since it is open, except padding.
    pub(crate) heard: Vec<(CircId, Command, Vec<u8>)>,
    /// How often the link was to be closed.
    pub(crate) closed: u32,
}

impl World {
    /// Dialled, and nothing more.
    pub(crate) fn dialled(identity: &Arc<OwnIdentity>) -> Self {
        let mut link = plan();
        let now = Instant::from_millis(1000);
        let dial = link.poll_dial(now).expect("a connection is wanted");
        assert_eq!(dial, Dial { to: address(), security: Security::Tls, ..dial });
        assert_eq!(link.poll_dial(now), None, "one is enough");
        let tls = Tls::new(true);
        let relay =
            Channel::responder(Arc::clone(identity), &tls, [3; 32], vectors::PARTIES.unix_time_s);
        Self {
            link,
            now,
            relay,
            conn: dial.conn,
            piece_max_bytes: usize::MAX,
            is_mute: false,
            heard: Vec::new(),
            closed: 0,
        }
    }

    /// There is TLS, and the link's handshake is done as far as it goes.
    pub(crate) fn connected(identity: &Arc<OwnIdentity>) -> Self {
        let mut world = Self::dialled(identity);
        world.connect(&Tls::new(true));
        world
    }

    /// There is TLS, and a relay that says nothing.
    pub(crate) fn mute() -> Self {
        let mut world = Self::dialled(&RELAY);
        world.is_mute = true;
        world.connect(&Tls::new(true));
        world
    }

    pub(crate) fn connect(&mut self, tls: &Tls) {
        self.link.handle_connected(self.now, self.conn, tls);
        self.exchange();
    }

    /// The order has been given.
    pub(crate) fn ordered() -> Self {
        Self::connected(&RELAY)
    }

    /// The relay is ready for measurers.
    pub(crate) fn accepted() -> Self {
        let mut world = Self::ordered();
        assert_eq!(world.says(&Message::Accepted { nonce: NONCE }), [OrderEvent::Accepted]);
        world
    }

    /// All was reported.
    pub(crate) fn finished() -> Self {
        let mut world = Self::accepted();
        for second in 0..SECONDS {
            world.says(&traffic(second));
        }
        world
    }

    /// Hands over what both have to say, until they have said all.
    pub(crate) fn exchange(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            let mut is_quiet = true;
            while self.link.poll_writable().is_some() {
                let len = self.link.poll_transmit(self.now, self.conn, &mut buffer);
                self.hear(&buffer[..len]);
                is_quiet = false;
            }
            while self.link.poll_close().is_some() {
                self.closed += 1;
            }
            let len = if self.is_mute { 0 } else { self.relay.poll_transmit(&mut buffer) };
            for piece in buffer[..len].chunks(self.piece_max_bytes) {
                self.link.handle_bytes(self.now, self.conn, piece);
            }
            if is_quiet && len == 0 {
                return;
            }
        }
    }

    fn hear(&mut self, mut bytes: &[u8]) {
        while let Some(cell) = self.relay.handle_bytes(&mut bytes).expect("a coordinator's") {
            self.heard.push((cell.circ_id, cell.command, cell.body.to_vec()));
        }
    }

    /// The relay is about to send a cell of any kind.
    pub(crate) fn queue(&mut self, at: CircId, command: Command, body: &[u8]) {
        self.relay.send(at, command, body);
    }

    /// The relay sends a cell of any kind; returns the events.
    pub(crate) fn sends(&mut self, at: CircId, command: Command, body: &[u8]) -> Vec<OrderEvent> {
        self.queue(at, command, body);
        self.exchange();
        self.events()
    }

    /// The relay sends a message; returns the events.
    pub(crate) fn says(&mut self, message: &Message) -> Vec<OrderEvent> {
        self.sends(CircId::LINK, Command::MEASURE, &message.encode())
    }

    pub(crate) fn events(&mut self) -> Vec<OrderEvent> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }

    /// The connection is gone.
    pub(crate) fn loses(&mut self, cause: CloseCause) -> Vec<OrderEvent> {
        self.link.handle_closed(self.now, self.conn, cause);
        self.exchange();
        self.events()
    }

    /// Time goes by.
    pub(crate) fn waits(&mut self, time: Duration) -> Vec<OrderEvent> {
        self.now += time;
        self.link.handle_timeout(self.now);
        self.exchange();
        self.events()
    }

    /// The order, as it has come to the relay.
    pub(crate) fn given(&self) -> SignedOrder {
        let [(CircId::LINK, Command::MEASURE, body)] = &self.heard[..] else {
            panic!("one order: {:?}", self.heard)
        };
        let Ok(Message::Order(signed)) = Message::parse(body) else { panic!("an order") };
        signed
    }
}

/// What clients did in a second; each has figures of its own.
pub(crate) fn client_second(second: u16) -> ClientSecond {
    let bytes = 1000 + u64::from(second);
    ClientSecond { second, received_bytes: bytes, sent_bytes: 2 * bytes }
}

pub(crate) fn traffic(second: u16) -> Message {
    Message::ClientSecond(client_second(second), Vec::new())
}

/// A failure reported by the relay itself.
pub(crate) fn violation(violation: OrderViolation) -> OrderEvent {
    OrderEvent::Failed(OrderFailure::Violation(violation))
}
