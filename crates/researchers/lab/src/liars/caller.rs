use super::LiarError;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions};
use onion::cell::{CircId, Command};
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::load::Target;
use onion::measure::protocol::{EXPORTER_LABEL, Message};
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use onion::{Duration, Instant};
use std::collections::VecDeque;

/// The only connection.
const LINK: ConnId = ConnId(0);

/// A coordinator or measurer that violates the protocol: sends arbitrary messages of the measurement protocol to a
/// relay over a real link, and receives the answers.
pub struct Caller {
    driver: Driver<CallerNode>,
    patience: Duration,
}

impl Caller {
    /// Creates the TLS keys for all links of callers.
    ///
    /// # Errors
    /// If keys cannot be created.
    pub fn tls(seed: [u8; 32], unix_time_s: u64) -> Result<TlsConfigs, LiarError> {
        Ok(TlsConfigs::nameless(seed, unix_time_s)?)
    }

    /// Opens an anonymous link. `patience` is the timeout for it, and later for each answer.
    ///
    /// # Errors
    /// [`LiarError`]: there is no link.
    pub fn dial(
        target: Target,
        tls: TlsConfigs,
        unix_time_s: u64,
        patience: Duration,
    ) -> Result<Self, LiarError> {
        let node = CallerNode {
            target,
            unix_time_s,
            must_dial: true,
            exported: [0; 32],
            channel: None,
            is_writable: false,
            received: VecDeque::new(),
            closed: None,
        };
        let options = DriverOptions::default();
        let driver = Driver::new(node, Clock::start(), tls, Vec::new(), options)?;
        let mut caller = Self { driver, patience };
        caller.until(|node| node.is_open() || node.closed.is_some())?;
        match &caller.driver.node().closed {
            None if caller.driver.node().is_open() => Ok(caller),
            None => Err(LiarError::NoLink("it is not open in time".to_owned())),
            Some(cause) => Err(LiarError::NoLink(cause.clone())),
        }
    }

    /// The keying material that signatures on this link are bound to.
    #[must_use]
    pub fn exported(&self) -> [u8; 32] {
        self.driver.node().exported
    }

    /// Sends a message and waits for the answer; `None` if there is none in time.
    ///
    /// # Errors
    /// [`LiarError`]: an error of the operating system.
    pub fn request(&mut self, message: &Message) -> Result<Option<Message>, LiarError> {
        self.driver.node_mut().send(message);
        self.until(|node| !node.received.is_empty() || node.closed.is_some())?;
        Ok(self.driver.node_mut().received.pop_front())
    }

    fn until(&mut self, is_done: impl Fn(&CallerNode) -> bool) -> Result<(), LiarError> {
        let deadline = self.driver.now() + self.patience;
        while !is_done(self.driver.node()) && self.driver.now() < deadline {
            self.driver.turn(deadline)?;
        }
        Ok(())
    }
}

/// The caller's end of the link.
struct CallerNode {
    target: Target,
    unix_time_s: u64,
    must_dial: bool,
    exported: [u8; 32],
    channel: Option<Channel>,
    is_writable: bool,
    received: VecDeque<Message>,
    /// Why the link has closed.
    closed: Option<String>,
}

impl CallerNode {
    fn is_open(&self) -> bool {
        self.channel.as_ref().is_some_and(Channel::is_open)
    }

    fn send(&mut self, message: &Message) {
        if let Some(channel) = &mut self.channel {
            channel.send(CircId::LINK, Command::MEASURE, &message.encode());
            self.is_writable = true;
        }
    }

    fn begin(&mut self, tls: &dyn TlsSession) -> Result<Channel, String> {
        self.exported = tls
            .export_keying_material(EXPORTER_LABEL, &[])
            .ok_or("the TLS session cannot export keying material")?;
        let expected = ExpectedPeer { ids: self.target.ids, address: self.target.address.ip() };
        // Only unused times are hidden of these.
        let random = [9; 24];
        Channel::initiator(expected, Authentication::Anonymous, tls, random, self.unix_time_s)
            .map_err(|error| error.to_string())
    }
}

impl Node for CallerNode {
    fn handle_connected(&mut self, _: Instant, _: ConnId, tls: &dyn TlsSession) {
        match self.begin(tls) {
            Ok(channel) => {
                self.channel = Some(channel);
                self.is_writable = true;
            }
            Err(problem) => self.closed = Some(problem),
        }
    }

    fn handle_accepted(&mut self, _: Instant, _: ListenerId, _: &dyn TlsSession) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, _: Instant, _: ConnId, mut plaintext: &[u8]) {
        let Some(channel) = &mut self.channel else { return };
        loop {
            match channel.handle_bytes(&mut plaintext) {
                Ok(Some(cell)) if cell.command == Command::MEASURE => {
                    self.received.extend(Message::parse(cell.body));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => {
                    self.closed = Some(error.to_string());
                    break;
                }
            }
        }
        self.is_writable |= channel.queued_len() > 0;
    }

    fn handle_closed(&mut self, _: Instant, _: ConnId, cause: CloseCause) {
        self.closed.get_or_insert(cause.to_string());
        self.channel = None;
        self.is_writable = false;
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_dial(&mut self, _: Instant) -> Option<Dial> {
        let to = self.target.address;
        std::mem::take(&mut self.must_dial).then_some(Dial {
            conn: LINK,
            to,
            security: Security::Tls,
        })
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        (std::mem::take(&mut self.is_writable) && self.channel.is_some()).then_some(LINK)
    }

    fn poll_transmit(&mut self, _: Instant, _: ConnId, out: &mut [u8]) -> usize {
        self.channel.as_mut().map_or(0, |channel| channel.poll_transmit(out))
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}
