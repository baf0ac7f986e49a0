//! The parties of a case: a coordinator and measurers, as peers of the relay.

use super::{ConformanceError, Subject};
use crate::peer::Peer;
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, IdentityIssuer};
use onion::Duration;
use onion::cell::{CircId, Command};
use onion::crypto::Keystream;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, Order, Proof,
};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng as _, SeedableRng as _};

/// Longer than the longest measurement that a relay may permit: 120 seconds (`FFMaxMeasurementDuration`).
const SOON: Duration = Duration::from_secs(130);

/// Longer than an error on one link takes to follow an answer on another.
const MOMENT: Duration = Duration::from_millis(100);

/// The secret keys of the measurers that orders name.
pub(super) const MEASURERS: [[u8; 32]; 2] = [[0xa0; 32], [0xa1; 32]];

/// The end of a case before its time.
pub(super) enum Abort {
    /// The relay did something else; the text is the row's.
    Relay(String),
    /// This machine failed.
    Own(ConformanceError),
}

impl From<ConformanceError> for Abort {
    fn from(error: ConformanceError) -> Self {
        Self::Own(error)
    }
}

impl From<DriverError> for Abort {
    fn from(error: DriverError) -> Self {
        Self::Own(error.into())
    }
}

/// The result of a step.
pub(super) type Step<T> = Result<T, Abort>;

/// Refers to a peer of the current case.
#[derive(Clone, Copy)]
pub(super) struct PeerId(usize);

/// A relay and its peers.
pub(super) struct Bench {
    pub(super) subject: Subject,
    tls: TlsConfigs,
    clock: Clock,
    drivers: Vec<Driver<Peer>>,
}

impl Bench {
    pub(super) fn new(subject: Subject, issuer: &IdentityIssuer) -> Result<Self, ConformanceError> {
        let tls =
            TlsConfigs::new(issuer).map_err(|error| ConformanceError::Own(error.to_string()))?;
        Ok(Self { subject, tls, clock: Clock::start(), drivers: Vec::new() })
    }

    /// Plays a case, and closes its links. Returns its result.
    pub(super) fn play(
        &mut self,
        case: fn(&mut Self) -> Step<String>,
    ) -> Result<String, ConformanceError> {
        let found = case(self);
        for driver in &mut self.drivers {
            driver.node_mut().close();
        }
        let is_closed = |driver: &Driver<Peer>| driver.node().is_closed();
        let deadline = self.clock.now() + Duration::from_secs(2);
        while !self.drivers.iter().all(is_closed) && self.clock.now() < deadline {
            self.step()?;
        }
        self.drivers.clear();
        match found {
            Ok(found) | Err(Abort::Relay(found)) => Ok(found),
            Err(Abort::Own(error)) => Err(error),
        }
    }

    fn step(&mut self) -> Result<(), ConformanceError> {
        let mut wait = Duration::from_millis(1);
        for driver in &mut self.drivers {
            driver.turn(self.clock.now() + std::mem::take(&mut wait))?;
        }
        Ok(())
    }

    /// Lets time pass until `is_done`, or ends the case.
    pub(super) fn until(
        &mut self,
        what: &str,
        mut is_done: impl FnMut(&mut Self) -> bool,
    ) -> Step<()> {
        let deadline = self.clock.now() + SOON;
        while !is_done(self) {
            if self.clock.now() >= deadline {
                return Err(Abort::Relay(format!("{what} not within {} s", SOON.as_secs())));
            }
            self.step()?;
        }
        Ok(())
    }

    /// Waits for what a peer receives. The end of its link ends the case.
    pub(super) fn until_peer(
        &mut self,
        peer: PeerId,
        what: &str,
        has_it: impl Fn(&Peer) -> bool,
    ) -> Step<()> {
        self.until(what, |bench| has_it(bench.at(peer)) || bench.at(peer).ended.is_some())?;
        if has_it(self.at(peer)) {
            return Ok(());
        }
        Err(Abort::Relay(format!("no {what}, but the end of the link, error {}", self.error(peer))))
    }

    pub(super) fn pass(&mut self, time: Duration) -> Step<()> {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Opens a link to the relay.
    pub(super) fn peer(&mut self) -> Step<PeerId> {
        let Subject { target, unix_time_s, .. } = self.subject;
        let node = Peer::new(target, unix_time_s);
        let options = DriverOptions::default();
        let driver = Driver::new(node, self.clock, self.tls.clone(), Vec::new(), options)?;
        self.drivers.push(driver);
        let peer = PeerId(self.drivers.len() - 1);
        self.until("a link", |bench| bench.at(peer).is_open() || bench.at(peer).ended.is_some())?;
        match &self.at(peer).ended {
            Some(cause) => Err(Abort::Relay(format!("no link: {cause}"))),
            None => Ok(peer),
        }
    }

    pub(super) fn at(&mut self, PeerId(place): PeerId) -> &mut Peer {
        self.drivers[place].node_mut()
    }

    /// Waits until the relay has closed a link.
    pub(super) fn until_closed(&mut self, peer: PeerId) -> Step<()> {
        self.until("the end of a link", |bench| bench.at(peer).ended.is_some())
    }

    /// The error of a link, once the relay has closed it.
    pub(super) fn error_at_end(&mut self, peer: PeerId) -> Step<String> {
        self.until_closed(peer)?;
        Ok(self.error(peer))
    }

    /// The relay must not have closed this link, nor be about to.
    pub(super) fn require_open(&mut self, peer: PeerId) -> Step<()> {
        self.pass(MOMENT)?;
        match self.at(peer).is_open() && self.at(peer).errors().is_empty() {
            true => Ok(()),
            false => Err(Abort::Relay(format!("another link ends, error {}", self.error(peer)))),
        }
    }

    /// The first error that a peer has received: the reason for the end of its link.
    pub(super) fn error(&mut self, peer: PeerId) -> String {
        self.at(peer).errors().first().map_or_else(|| "-".to_owned(), u16::to_string)
    }

    /// The errors that both parties have received so far.
    pub(super) fn both(&mut self, coordinator: PeerId, peer: PeerId) -> String {
        format!("{} {}", self.error(coordinator), self.error(peer))
    }

    /// The errors of both parties, once the relay has closed their links.
    pub(super) fn errors(&mut self, coordinator: PeerId, measurer: PeerId) -> Step<String> {
        self.until_closed(coordinator)?;
        self.until_closed(measurer)?;
        Ok(self.both(coordinator, measurer))
    }

    pub(super) fn order(&self) -> Step<Order> {
        let mut nonce = [0; 32];
        let rng = StdRng::try_from_rng(&mut SysRng);
        rng.map_err(|error| ConformanceError::Own(error.to_string()))?.fill_bytes(&mut nonce);
        Ok(Order {
            coordinator: CoordinatorKey::of_seed(&self.subject.coordinator),
            target: self.subject.target.ids,
            measurers: MEASURERS.iter().map(MeasurerKey::of_seed).collect(),
            seconds: 9,
            client_share: ClientShare::DEFAULT,
            sockets: 1,
            expires_unix_s: self.subject.unix_time_s + 600,
            nonce: Nonce(nonce),
        })
    }

    pub(super) fn send_order(&mut self, peer: PeerId, order: &Order) {
        let seed = self.subject.coordinator;
        let signed = order.sign(&seed, &self.at(peer).exported);
        self.at(peer).send_message(&Message::Order(signed));
    }

    /// A coordinator whose order is accepted.
    pub(super) fn coordinator(&mut self, order: &Order) -> Step<PeerId> {
        match self.ask_when_idle(order)? {
            (peer, answer) if answer == (Message::Accepted { nonce: order.nonce }) => Ok(peer),
            (_, answer) => Err(Abort::Relay(format!("an order is refused: {answer:?}"))),
        }
    }

    /// The answer to an order.
    pub(super) fn ask_when_idle(&mut self, order: &Order) -> Step<(PeerId, Message)> {
        // The measurement of the case before may not have ended.
        self.ask_until_not(ErrorCode::BUSY, |bench, peer| bench.send_order(peer, order))
    }

    /// The answer to what new peers `send`, one after the other until the answer is not this error.
    pub(super) fn ask_until_not(
        &mut self,
        temporary: ErrorCode,
        send: impl Fn(&mut Self, PeerId),
    ) -> Step<(PeerId, Message)> {
        let deadline = self.clock.now() + SOON;
        loop {
            let peer = self.peer()?;
            send(self, peer);
            self.until_peer(peer, "answer", |peer| !peer.messages().is_empty())?;
            let answer = self.at(peer).messages().swap_remove(0);
            let is_temporary = matches!(answer, Message::Error { code, .. } if code == temporary);
            if !is_temporary || self.clock.now() >= deadline {
                return Ok((peer, answer));
            }
            self.drivers.truncate(peer.0);
            self.pass(Duration::from_millis(200))?;
        }
    }

    pub(super) fn send_proof(
        &mut self,
        peer: PeerId,
        seed: &[u8; 32],
        nonce: Nonce,
        exported: &[u8; 32],
    ) {
        let proof = Proof::sign(seed, nonce, &self.subject.target.ids, exported);
        self.at(peer).send_message(&Message::Proof(proof));
    }

    /// Sends a correct proof.
    pub(super) fn prove(&mut self, peer: PeerId, order: &Order, seed: &[u8; 32]) {
        let exported = self.at(peer).exported;
        self.send_proof(peer, seed, order.nonce, &exported);
    }

    /// The link of a measurer that has proved itself.
    pub(super) fn proven(&mut self, order: &Order, seed: &[u8; 32]) -> Step<PeerId> {
        let peer = self.peer()?;
        self.prove(peer, order, seed);
        self.until_peer(peer, "PROVEN", |peer| peer.messages() == [Message::Proven])?;
        Ok(peer)
    }

    /// The links of the coordinator and a measurer of this order.
    pub(super) fn parties_of(&mut self, order: &Order) -> Step<(PeerId, PeerId)> {
        Ok((self.coordinator(order)?, self.proven(order, &MEASURERS[0])?))
    }

    pub(super) fn parties(&mut self) -> Step<(PeerId, PeerId)> {
        let order = self.order()?;
        self.parties_of(&order)
    }

    /// The measurement of this order must still run: the coordinator's link is open, and another measurer can prove itself.
    pub(super) fn require_running(&mut self, coordinator: PeerId, order: &Order) -> Step<()> {
        self.proven(order, &MEASURERS[1])?;
        self.require_open(coordinator)
    }

    /// Creates the circuit with this number, and returns its ID and the keystream of its cells.
    pub(super) fn circuit(&mut self, measurer: PeerId, number: u32) -> Step<(CircId, Keystream)> {
        let (circ_id, x) = (CircId::of_initiator(number), [1; 20]);
        self.at(measurer).send(circ_id, Command::CREATE_FAST, &x);
        self.until_peer(measurer, "CREATED_FAST", |peer| peer.fast_keys(circ_id, x).is_some())?;
        let keys = self.at(measurer).fast_keys(circ_id, x);
        let keys = keys.ok_or_else(|| Abort::Relay("no keys of a circuit".to_owned()))?;
        Ok((circ_id, Keystream::new(&keys.key_forward)))
    }
}
