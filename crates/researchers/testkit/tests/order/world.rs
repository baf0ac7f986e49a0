//! A coordinator's link, and the relay at its far end.

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
/// The exported keying material, to which signatures are bound.
pub(crate) const EXPORTED: [u8; 32] = [0x5e; 32];
pub(crate) const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Seconds of the measurement.
pub(crate) const SECONDS: u16 = 3;

/// The ordered relay, and another.
pub(crate) static RELAY: LazyLock<Arc<OwnIdentity>> =
    LazyLock::new(|| Arc::clone(&vectors::IDENTITIES.own));
pub(crate) static OTHER: LazyLock<Arc<OwnIdentity>> =
    LazyLock::new(|| Arc::clone(&vectors::IDENTITIES.other));

/// A TLS session without cryptography, which may refuse to export keying material.
#[derive(Clone)]
pub(crate) struct Tls {
    session: Session,
    exports: bool,
}

impl Tls {
    pub(crate) fn new(exports: bool) -> Self {
        let certificate = Arc::clone(&vectors::IDENTITIES.certificate);
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

/// A coordinator's link before its connection. As the consensus may, it lacks the relay's Ed25519 identity.
pub(crate) fn order_link() -> OrderLink {
    let ids = RelayIds { ed25519: None, ..RELAY.ids() };
    let config = OrderConfig {
        target: Target { address: address(), ids },
        order: order(),
        key_seed: SEED,
        accept_timeout: ACCEPT_TIMEOUT,
        random: [4; 24],
        unix_time_s: vectors::IDENTITIES.unix_time_s,
    };
    OrderLink::new(config, Instant::from_millis(1000))
}

/// An order whose coordinator and target the link replaces.
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
    /// The maximum length in which the relay's bytes are delivered.
    pub(crate) piece_max_bytes: usize,
    /// Whether the relay sends nothing, not even VERSIONS.
    pub(crate) is_mute: bool,
    /// The cells received on the open link, except padding.
    pub(crate) received: Vec<(CircId, Command, Vec<u8>)>,
    /// The number of requests to close the connection.
    pub(crate) closed: u32,
}

impl World {
    /// The connection is dialled.
    pub(crate) fn dialled(identity: &Arc<OwnIdentity>) -> Self {
        let mut link = order_link();
        let now = Instant::from_millis(1000);
        let dial = link.poll_dial(now).expect("a dial");
        assert_eq!(dial, Dial { to: address(), security: Security::Tls, ..dial });
        assert_eq!(link.poll_dial(now), None, "a second dial");
        let tls = Tls::new(true);
        let relay = Channel::responder(
            Arc::clone(identity),
            &tls,
            [3; 32],
            vectors::IDENTITIES.unix_time_s,
        );
        Self {
            link,
            now,
            relay,
            conn: dial.conn,
            piece_max_bytes: usize::MAX,
            is_mute: false,
            received: Vec::new(),
            closed: 0,
        }
    }

    /// The TLS session is established, and the link handshake has run.
    pub(crate) fn connected(identity: &Arc<OwnIdentity>) -> Self {
        let mut world = Self::dialled(identity);
        world.connect(&Tls::new(true));
        world
    }

    /// The TLS session is established with a relay that sends nothing.
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

    /// The relay has received the order.
    pub(crate) fn ordered() -> Self {
        Self::connected(&RELAY)
    }

    /// The relay has accepted the order.
    pub(crate) fn accepted() -> Self {
        let mut world = Self::ordered();
        assert_eq!(world.send_message(&Message::Accepted { nonce: NONCE }), [OrderEvent::Accepted]);
        world
    }

    /// The relay has reported all seconds.
    pub(crate) fn finished() -> Self {
        let mut world = Self::accepted();
        for second in 0..SECONDS {
            world.send_message(&traffic(second));
        }
        world
    }

    /// Transmits the output of both sides until there is none.
    pub(crate) fn exchange(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            let mut is_idle = true;
            while self.link.poll_writable().is_some() {
                let len = self.link.poll_transmit(self.now, self.conn, &mut buffer);
                self.receive(&buffer[..len]);
                is_idle = false;
            }
            while self.link.poll_close().is_some() {
                self.closed += 1;
            }
            let len = if self.is_mute { 0 } else { self.relay.poll_transmit(&mut buffer) };
            for piece in buffer[..len].chunks(self.piece_max_bytes) {
                self.link.handle_bytes(self.now, self.conn, piece);
            }
            if is_idle && len == 0 {
                return;
            }
        }
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while let Some(cell) = self.relay.handle_bytes(&mut bytes).expect("the coordinator's cells")
        {
            self.received.push((cell.circ_id, cell.command, cell.body.to_vec()));
        }
    }

    /// The relay queues a cell of any kind.
    pub(crate) fn queue(&mut self, at: CircId, command: Command, body: &[u8]) {
        self.relay.send(at, command, body);
    }

    /// The relay sends a cell of any kind; returns the events.
    pub(crate) fn send_cell(
        &mut self,
        at: CircId,
        command: Command,
        body: &[u8],
    ) -> Vec<OrderEvent> {
        self.queue(at, command, body);
        self.exchange();
        self.events()
    }

    /// The relay sends a message; returns the events.
    pub(crate) fn send_message(&mut self, message: &Message) -> Vec<OrderEvent> {
        self.send_cell(CircId::LINK, Command::MEASURE, &message.encode())
    }

    pub(crate) fn events(&mut self) -> Vec<OrderEvent> {
        std::iter::from_fn(|| self.link.poll_event()).collect()
    }

    /// The connection closes. Returns the events.
    pub(crate) fn close(&mut self, cause: CloseCause) -> Vec<OrderEvent> {
        self.link.handle_closed(self.now, self.conn, cause);
        self.exchange();
        self.events()
    }

    /// Lets this time pass. Returns the events.
    pub(crate) fn advance(&mut self, time: Duration) -> Vec<OrderEvent> {
        self.now += time;
        self.link.handle_timeout(self.now);
        self.exchange();
        self.events()
    }

    /// The order that the relay has received.
    pub(crate) fn signed_order(&self) -> SignedOrder {
        let [(CircId::LINK, Command::MEASURE, body)] = &self.received[..] else {
            panic!("one order: {:?}", self.received)
        };
        let Ok(Message::Order(signed)) = Message::parse(body) else { panic!("an order") };
        signed
    }
}

/// The clients' traffic in a second, which differs by second.
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
