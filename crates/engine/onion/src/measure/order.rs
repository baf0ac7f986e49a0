//! The coordinator's link to a target: the order, its answer, and the target's reports about its clients.

mod failure;

pub(super) use failure::write_refusal;
pub use failure::{OrderFailure, OrderViolation};

use super::load::Target;
use super::protocol::{ClientSecond, EXPORTER_LABEL, Message, Order, SentBack};
use crate::cell::{CircId, Command};
use crate::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use crate::time::{Duration, Instant};
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The one connection.
const LINK: ConnId = ConnId(0);

/// An order to be given.
#[derive(Clone)]
pub struct OrderConfig {
    /// The target's address and identities.
    pub target: Target,
    /// The order; its coordinator becomes that of the seed, and its target the authenticated relay, whose
    /// Ed25519 identity may not have been known before.
    pub order: Order,
    /// The seed of the coordinator's Ed25519 key, which signs.
    pub key_seed: [u8; 32],
    /// The time in which the target must accept.
    pub accept_timeout: Duration,
    /// Fresh random bytes.
    pub random: [u8; 24],
    /// The Unix time in seconds, for the validity of certificates.
    pub unix_time_s: u64,
}

/// The result of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderEvent {
    /// The target has accepted: measurers may connect.
    Accepted,
    /// Its report of its clients' traffic in the next second, and of what it returned to each measurer. Seconds
    /// come in order, each once.
    ClientSecond(ClientSecond, Vec<SentBack>),
    /// It has reported all seconds. The link stays open until [`OrderLink::stop`], or until the target closes
    /// it; there are no more events.
    Finished,
    /// It ended early; the link is closed.
    Failed(OrderFailure),
}

/// The state of the link.
#[derive(Debug)]
enum Phase {
    /// Until TLS is established.
    Dialling,
    /// Until the link is open, with the keying material for signatures.
    Opening { exported: [u8; 32] },
    /// Until it is accepted.
    Ordered,
    /// The number of reported seconds.
    Accepted(u32),
    /// All seconds are reported.
    Finished,
    /// Failed or stopped.
    Over,
}

/// The coordinator's link to a target, as a state machine.
///
/// - *getters*: [`is_over`](Self::is_over);
/// - *commands*: [`stop`](Self::stop), upon which the target aborts the measurement;
/// - *handle* and *poll*: those of [`Node`], and [`poll_event`](Self::poll_event).
///
/// It waits for acceptance only for the configured time, but without limit for the seconds: others decide when
/// the measurement begins.
pub struct OrderLink {
    config: OrderConfig,
    deadline: Instant,
    phase: Phase,
    channel: Option<Channel>,
    must_dial: bool,
    is_writable: bool,
    must_close: bool,
    events: VecDeque<OrderEvent>,
}

impl OrderLink {
    /// Plans the link; it is opened when it is driven.
    #[must_use]
    pub fn new(config: OrderConfig, now: Instant) -> Self {
        Self {
            deadline: now + config.accept_timeout,
            config,
            phase: Phase::Dialling,
            channel: None,
            must_dial: true,
            is_writable: false,
            must_close: false,
            events: VecDeque::new(),
        }
    }

    /// Whether it has failed or was stopped.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Closes the link, which aborts a running measurement.
    pub fn stop(&mut self) {
        if !self.is_over() {
            self.phase = Phase::Over;
            // A connection that was never dialled cannot be closed.
            self.must_close = !core::mem::take(&mut self.must_dial);
        }
    }

    /// The next event.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<OrderEvent> {
        self.events.pop_front()
    }

    fn fail(&mut self, failure: OrderFailure) {
        if !self.is_over() {
            self.events.push_back(OrderEvent::Failed(failure));
            self.stop();
        }
    }

    fn begin(&mut self, tls: &dyn TlsSession) -> Result<Channel, String> {
        let OrderConfig { target, random, unix_time_s, .. } = self.config;
        let exported = tls
            .export_keying_material(EXPORTER_LABEL, &[])
            .ok_or("our TLS session cannot export keying material")?;
        self.phase = Phase::Opening { exported };
        let expected = ExpectedPeer { ids: target.ids, address: target.address.ip() };
        Channel::initiator(expected, Authentication::Anonymous, tls, random, unix_time_s)
            .map_err(|error| error.to_string())
    }

    /// Handles all cells of some plaintext.
    fn handle_cells(
        &mut self,
        channel: &mut Channel,
        mut input: &[u8],
    ) -> Result<(), OrderFailure> {
        while !matches!(self.phase, Phase::Finished) {
            let cell = channel.handle_bytes(&mut input);
            let no_link = |error: ChannelError| {
                let problem = error.to_string();
                match error.is_about_dates() {
                    true => OrderFailure::NotValidNow { problem },
                    false => OrderFailure::NoLink { problem },
                }
            };
            let Some(cell) = cell.map_err(no_link)? else { break };
            // There are no circuits on this link; other cells are ignored.
            if cell.circ_id == CircId::LINK && cell.command == Command::MEASURE {
                let message = Message::parse(cell.body).map_err(|error| {
                    OrderFailure::Violation(OrderViolation::Malformed(error.problem))
                })?;
                self.handle_message(message)?;
            }
        }
        if channel.is_open()
            && let Phase::Opening { exported } = &self.phase
        {
            if let Some(peer) = channel.peer() {
                self.config.order.target = peer.ids;
            }
            let signed = self.config.order.sign(&self.config.key_seed, exported);
            let order = Message::Order(signed);
            channel.send(CircId::LINK, Command::MEASURE, &order.encode());
            self.phase = Phase::Ordered;
        }
        Ok(())
    }

    fn handle_message(&mut self, message: Message) -> Result<(), OrderFailure> {
        let violation = |violation| Err(OrderFailure::Violation(violation));
        match (message, &self.phase) {
            (Message::Error { code, text }, _) => Err(OrderFailure::Refused { code, text }),
            (Message::Accepted { nonce }, Phase::Ordered) => {
                if nonce != self.config.order.nonce {
                    return violation(OrderViolation::OtherNonce);
                }
                self.phase = Phase::Accepted(0);
                self.events.push_back(OrderEvent::Accepted);
                Ok(())
            }
            (Message::ClientSecond(second, sent_back), Phase::Accepted(expected)) => {
                let (expected, found) = (*expected, u32::from(second.second));
                if found != expected {
                    return violation(OrderViolation::WrongSecond { expected, found });
                }
                self.events.push_back(OrderEvent::ClientSecond(second, sent_back));
                self.phase = Phase::Accepted(expected + 1);
                if expected + 1 >= u32::from(self.config.order.seconds) {
                    self.events.push_back(OrderEvent::Finished);
                    self.phase = Phase::Finished;
                }
                Ok(())
            }
            _ => violation(OrderViolation::OutOfOrder),
        }
    }
}

impl Node for OrderLink {
    fn handle_connected(&mut self, _now: Instant, _conn: ConnId, tls: &dyn TlsSession) {
        if !matches!(self.phase, Phase::Dialling) {
            return;
        }
        match self.begin(tls) {
            Ok(channel) => {
                self.channel = Some(channel);
                self.is_writable = true;
            }
            Err(problem) => self.fail(OrderFailure::NoLink { problem }),
        }
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, _now: Instant, _conn: ConnId, plaintext: &[u8]) {
        // The channel leaves its slot, since its cells borrow from it.
        if matches!(self.phase, Phase::Finished | Phase::Over) {
            return;
        }
        let Some(mut channel) = self.channel.take() else { return };
        let outcome = self.handle_cells(&mut channel, plaintext);
        self.is_writable |= channel.queued_len() > 0;
        self.channel = Some(channel);
        if let Err(failure) = outcome {
            self.fail(failure);
        }
    }

    fn handle_closed(&mut self, _now: Instant, _conn: ConnId, cause: CloseCause) {
        match self.phase {
            Phase::Over | Phase::Finished => {}
            Phase::Dialling | Phase::Opening { .. } => {
                self.fail(OrderFailure::NoLink { problem: cause.to_string() });
            }
            Phase::Ordered => self.fail(OrderFailure::Closed { was_accepted: false, cause }),
            Phase::Accepted(_) => self.fail(OrderFailure::Closed { was_accepted: true, cause }),
        }
        // The driver has forgotten it: it must not be named again.
        self.phase = Phase::Over;
        self.channel = None;
        (self.is_writable, self.must_close) = (false, false);
    }

    fn handle_timeout(&mut self, now: Instant) {
        if now < self.deadline {
            return;
        }
        match self.phase {
            Phase::Dialling | Phase::Opening { .. } => self.fail(OrderFailure::LinkTimedOut),
            Phase::Ordered => self.fail(OrderFailure::NotAnswered),
            Phase::Accepted(_) | Phase::Finished | Phase::Over => {}
        }
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        let to = self.config.target.address;
        core::mem::take(&mut self.must_dial).then_some(Dial {
            conn: LINK,
            to,
            security: Security::Tls,
        })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        let is_writable = core::mem::take(&mut self.is_writable) && !self.is_over();
        is_writable.then_some(LINK)
    }

    fn poll_transmit(&mut self, _now: Instant, _conn: ConnId, out: &mut [u8]) -> usize {
        self.channel.as_mut().map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        core::mem::take(&mut self.must_close).then_some(LINK)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Dialling | Phase::Opening { .. } | Phase::Ordered => Some(self.deadline),
            Phase::Accepted(_) | Phase::Finished | Phase::Over => None,
        }
    }
}
