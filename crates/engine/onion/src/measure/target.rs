//! The target's side of a measurement, without its cells: admission, the limit for clients, reports (proposal
//! 316 §3.1; paper §4.1).

mod admission;
mod client_limit;
mod params;
#[cfg(test)]
mod tests;

pub use admission::Accepted;
pub use client_limit::{ClientLimit, client_floor};
pub use params::TargetParams;

use super::protocol::{ClientSecond, ErrorCode, Order, Proof, SentBack, SignedOrder};
use crate::identity::RelayIds;
use crate::node::ConnId;
use crate::rate::Rate;
use crate::time::{Duration, Instant};
use admission::History;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

/// Why a message is refused: it is answered with an error, and its link is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error code.
    pub code: ErrorCode,
    /// Details for people.
    pub text: String,
}

impl Refusal {
    /// A refusal without details.
    #[must_use]
    pub const fn new(code: ErrorCode) -> Self {
        Self { code, text: String::new() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, text } = self;
        if text.is_empty() { write!(f, "{code}") } else { write!(f, "{code} ({text})") }
    }
}

/// Something for the caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// Report a second to the coordinator.
    Report {
        /// The coordinator's link.
        conn: ConnId,
        /// Client traffic of that second.
        second: ClientSecond,
        /// The end of the second.
        ended: Instant,
        /// Measurement traffic returned in that second, in bytes.
        measured_bytes: u64,
        /// The traffic returned to each measurer, in the order of the order's measurers.
        sent_back: Vec<SentBack>,
    },
    /// The measurement has ended: close the measurers' links.
    Over {
        /// The coordinator's link, if it still exists.
        coordinator: Option<ConnId>,
        /// The measurers' links.
        measurers: BTreeSet<ConnId>,
        /// Why it ended early, to be sent to all.
        refusal: Option<Refusal>,
    },
}

/// A measurement without traffic for this number of consecutive seconds is ended: clients would be limited for
/// nothing.
const EMPTY_SECONDS_MAX: u8 = 3;

/// A measurement that was accepted.
#[derive(Debug)]
struct Active {
    order: Order,
    coordinator: ConnId,
    /// `FFMaxMeasurementDuration` after the order.
    deadline: Instant,
    /// Their links, and the index of each in the order.
    measurers: BTreeMap<ConnId, usize>,
    running: Option<Running>,
}

/// From the first measurement cell on.
#[derive(Debug)]
struct Running {
    start: Instant,
    current: ClientSecond,
    measured_bytes: u64,
    /// For each measurer in the order.
    sent_back: Vec<u64>,
    /// Consecutive seconds until now without traffic.
    empty_seconds: u8,
    limit: ClientLimit,
}

/// Admits measurements, one at a time, and enforces their rules.
///
/// - *getters*: [`is_measuring`](Self::is_measuring), [`clients_may_send`](Self::clients_may_send);
/// - *handle*: orders, proofs, cells and bytes, lost links, time;
/// - *poll*: [`poll_event`](Self::poll_event), [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub struct Target {
    params: TargetParams,
    ids: RelayIds,
    history: History,
    active: Option<Active>,
    usual: Usual,
    events: VecDeque<TargetEvent>,
}

/// The clients' traffic while nothing is measured.
#[derive(Clone, Copy, Debug)]
struct Usual {
    since: Instant,
    sent_bytes: u64,
    /// In the last observed interval.
    rate: Rate,
}

impl Target {
    /// A relay with these identities that has not been measured yet.
    #[must_use]
    pub const fn new(params: TargetParams, ids: RelayIds) -> Self {
        let usual = Usual { since: Instant::ORIGIN, sent_bytes: 0, rate: Rate::from_bit_per_s(0) };
        Self { params, ids, history: History::new(), active: None, usual, events: VecDeque::new() }
    }

    /// The parameters.
    #[must_use]
    pub const fn params(&self) -> &TargetParams {
        &self.params
    }

    /// Sets the parameters for the next order, from a new consensus.
    pub fn set_params(&mut self, params: TargetParams) {
        self.params = params;
    }

    /// Whether measurement traffic flows: clients are limited.
    #[must_use]
    pub fn is_measuring(&self) -> bool {
        self.active.as_ref().is_some_and(|active| active.running.is_some())
    }

    /// The number of measurers' links that may still connect, for an accepted order.
    #[must_use]
    pub fn expected_sockets(&self) -> u32 {
        self.active.as_ref().map_or(0, |active| active.order.sockets.into())
    }

    /// A coordinator orders a measurement on `conn`, whose keying material is `exported`.
    ///
    /// # Errors
    /// [`Refusal`]: send it to the coordinator, and close its link.
    pub fn handle_order(
        &mut self,
        now: Instant,
        unix_time_s: u64,
        conn: ConnId,
        exported: &[u8; 32],
        signed: &SignedOrder,
    ) -> Result<Accepted, Refusal> {
        let order = self.admit(unix_time_s, exported, signed)?;
        let Order { coordinator, nonce, .. } = order;
        let accepted = Accepted { unix_time_s, coordinator, nonce };
        self.history.remember(accepted);
        self.active = Some(Active {
            order,
            coordinator: conn,
            deadline: now + self.params.max_duration,
            measurers: BTreeMap::new(),
            running: None,
        });
        Ok(accepted)
    }

    /// Restores a measurement that was accepted before the relay restarted.
    pub fn remember(&mut self, accepted: Accepted) {
        self.history.remember(accepted);
    }

    /// A measurer authenticates on `conn`. If it succeeds, circuits there are measurement circuits.
    ///
    /// # Errors
    /// [`Refusal`]: send it to the measurer, and close its link.
    pub fn handle_proof(
        &mut self,
        conn: ConnId,
        exported: &[u8; 32],
        proof: &Proof,
    ) -> Result<(), Refusal> {
        let active = self
            .active
            .as_mut()
            .filter(|active| active.order.nonce == proof.nonce)
            .ok_or(Refusal::new(ErrorCode::NO_SUCH_MEASUREMENT))?;
        let place = active.order.measurers.iter().position(|measurer| *measurer == proof.measurer);
        let place = place.ok_or(Refusal::new(ErrorCode::UNKNOWN_MEASURER))?;
        proof.verify(&self.ids, exported).map_err(|_| Refusal::new(ErrorCode::BAD_SIGNATURE))?;
        if active.measurers.len() >= usize::from(active.order.sockets) {
            return Err(Refusal::new(ErrorCode::TOO_MANY_SOCKETS));
        }
        active.measurers.insert(conn, place);
        Ok(())
    }

    /// A party of the measurement broke its rules on `conn`: the measurement is aborted. Does nothing if the
    /// link has no part in a measurement.
    pub fn handle_violation(&mut self, conn: ConnId, text: String) {
        let Some(active) = &self.active else { return };
        if active.coordinator == conn || active.measurers.contains_key(&conn) {
            self.end(Some(Refusal { code: ErrorCode::VIOLATION, text }));
        }
    }

    /// A link was closed. Without the coordinator's link the measurement ends.
    pub fn handle_closed(&mut self, conn: ConnId) {
        let Some(active) = &mut self.active else { return };
        active.measurers.remove(&conn);
        if active.coordinator == conn {
            self.end(Some(Refusal::new(ErrorCode::CALLED_OFF)));
        }
    }

    /// A measurement cell has arrived. The first begins the measurement.
    #[inline]
    pub fn handle_measurement_cell(&mut self, now: Instant) {
        if let Some(active) = &mut self.active
            && active.running.is_none()
        {
            let share = active.order.client_share.min(self.params.client_share);
            let floor = client_floor(self.usual.rate, self.params.client_share);
            active.running = Some(Running {
                start: now,
                current: ClientSecond::default(),
                measured_bytes: 0,
                sent_back: vec![0; active.order.measurers.len()],
                empty_seconds: 0,
                limit: ClientLimit::new(share, floor, now),
            });
        }
    }

    /// Measurement traffic has been returned on a measurer's link.
    #[inline]
    pub fn handle_measured(&mut self, conn: ConnId, bytes: u64) {
        let Some(active) = &mut self.active else { return };
        let place = active.measurers.get(&conn);
        if let Some(running) = &mut active.running {
            running.measured_bytes += bytes;
            if let Some(sent) = place.and_then(|place| running.sent_back.get_mut(*place)) {
                *sent += bytes;
            }
            running.limit.handle_measured(bytes);
        }
    }

    /// Bytes of measurement traffic without the clients' share of them: what the measurement may use of the
    /// relay's read limit.
    #[inline]
    #[must_use]
    pub fn without_clients_share(&self, bytes: u64) -> u64 {
        let running = self.active.as_ref().and_then(|active| active.running.as_ref());
        running.map_or(bytes, |running| running.limit.without_share(bytes))
    }

    /// Client traffic has arrived, or traffic that this relay has made for a client is sent.
    #[inline]
    pub fn handle_client_received(&mut self, bytes: u64) {
        if let Some(running) = self.running() {
            running.current.received_bytes += bytes;
        }
    }

    /// Client traffic has been sent.
    #[inline]
    pub fn handle_client_sent(&mut self, bytes: u64) {
        if let Some(running) = self.running() {
            running.current.sent_bytes += bytes;
            running.limit.handle_client_sent(bytes);
        } else {
            self.usual.sent_bytes += bytes;
        }
    }

    /// Notes the clients' traffic of the last seconds. Traffic during a measurement does not count, since it is
    /// limited.
    pub fn note_clients(&mut self, now: Instant) {
        if self.is_measuring() {
            self.usual = Usual { since: now, sent_bytes: 0, ..self.usual };
            return;
        }
        let Usual { since, sent_bytes, .. } = self.usual;
        let rate = Rate::from_bytes_over(sent_bytes, now - since);
        self.usual = Usual { since: now, sent_bytes: 0, rate };
    }

    /// Bytes that clients may be sent now: unlimited unless a measurement runs.
    #[inline]
    #[must_use]
    pub fn clients_may_send(&mut self, now: Instant) -> u64 {
        self.running().map_or(u64::MAX, |running| running.limit.available_bytes(now))
    }

    /// When clients may be sent more, if they have to wait.
    #[must_use]
    pub fn clients_may_send_at(&self) -> Option<Instant> {
        let running = self.active.as_ref()?.running.as_ref()?;
        Some(running.limit.next_round_at())
    }

    /// Reports seconds that have ended. Does nothing before [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(active) = &mut self.active {
            if now >= active.deadline {
                self.end(Some(Refusal::new(ErrorCode::TIMED_OUT)));
                return;
            }
            let Some(running) = &mut active.running else { return };
            let ended = running.second_ends_at();
            if now < ended {
                return;
            }
            let second = running.current;
            let measured_bytes = core::mem::take(&mut running.measured_bytes);
            let sent = running.sent_back.iter_mut().map(core::mem::take);
            let named = active.order.measurers.iter();
            let sent_back = named.zip(sent);
            let sent_back: Vec<_> = sent_back
                .map(|(measurer, bytes)| SentBack { measurer: *measurer, bytes })
                .collect();
            running.current = ClientSecond { second: second.second + 1, ..ClientSecond::default() };
            running.empty_seconds = if measured_bytes > 0 { 0 } else { running.empty_seconds + 1 };
            let has_no_traffic = running.empty_seconds >= EMPTY_SECONDS_MAX;
            let is_last = running.current.second >= active.order.seconds;
            let conn = active.coordinator;
            self.events.push_back(TargetEvent::Report {
                conn,
                second,
                ended,
                measured_bytes,
                sent_back,
            });
            if is_last {
                self.end(None);
            } else if has_no_traffic {
                self.end(Some(Refusal::new(ErrorCode::NO_TRAFFIC)));
            }
        }
    }

    /// The next thing to do.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let active = self.active.as_ref()?;
        let second = active.running.as_ref().map(Running::second_ends_at);
        Some(second.map_or(active.deadline, |end| end.min(active.deadline)))
    }

    #[inline]
    fn running(&mut self) -> Option<&mut Running> {
        self.active.as_mut()?.running.as_mut()
    }

    fn end(&mut self, refusal: Option<Refusal>) {
        let Some(active) = self.active.take() else { return };
        let is_gone = refusal.as_ref().is_some_and(|refusal| refusal.code == ErrorCode::CALLED_OFF);
        let coordinator = (!is_gone).then_some(active.coordinator);
        let measurers = active.measurers.into_keys().collect();
        self.events.push_back(TargetEvent::Over { coordinator, measurers, refusal });
    }
}

impl Running {
    fn second_ends_at(&self) -> Instant {
        self.start + Duration::from_secs(u64::from(self.current.second) + 1)
    }
}
