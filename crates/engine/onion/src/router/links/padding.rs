//! Link padding against netflow records (padding-spec §2).
//!
//! An observer that records flows closes a record after some ten seconds without traffic, and many records show
//! who was active when. So a client's link with circuits gets a PADDING cell after a random time without
//! traffic in either direction; the client does the same. Like C tor 0.4.9, a relay pads these links:
//!
//! | | padded |
//! | link | padded |
//! | opened by a client | from the first RELAY_EARLY cell of a circuit that is extended; without `nf_pad_before_usage` from its first RELAY cell |
//! | to or from another relay | only with `nf_pad_relays`, and only if the peer has created circuits on it |
//! | of a coordinator or measurer | never |
//! | of protocol version 4 | never |
//!
//! By PADDING_NEGOTIATE a peer stops padding, restarts it, or lengthens the pauses. C tor accepts it from
//! relays as well (only bridges do not), at any time, with any circuit ID; it drops malformed cells.
//!
//! A peer that sends far more padding than it may loses its link: see `receiving`.
//!
//! The cost: a timestamp is stored whenever bytes pass. All links share one timer, an ordered set with at most
//! one entry for each link. A link that was active is *checked* no earlier than `nf_ito_low` later. If it was
//! idle since then, the time of its PADDING cell is drawn, and the cell is *due* then. Traffic in between
//! returns the link to being checked.

use super::link::{Link, Role};
use super::uniform::uniform_below;
use crate::cell::Command;
use crate::cell::msg::LinkPadding;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::circuits::Circuit;
use crate::router::conns::Conns;
use crate::router::parameters::Parameters;
use crate::time::{Duration, Instant};
use alloc::collections::BTreeSet;
use rand_core::Rng;

mod receiving;
mod sending;
pub(super) mod state;
#[cfg(test)]
mod tests;

use state::{Entry, Padding, Use};

/// Minimum time between two checks of a link, whatever the parameters are (C tor checks all links once a
/// second).
const LOOK_MIN: Duration = Duration::from_secs(1);

/// Links to be checked within this time are checked together, so that thousands of links do not cause thousands
/// of wake-ups per second. Cells are not sent together: that would distinguish them from other cells.
const LOOK_GRAIN_NS: u64 = 100_000_000;

/// The timer of link padding.
#[derive(Debug)]
pub(crate) struct Padder {
    is_on: bool,
    low_ms: u32,
    high_ms: u32,
    pads_before_usage: bool,
    pads_relays: bool,
    entries: BTreeSet<(Instant, ConnId)>,
}

impl Padder {
    /// Never pads if it is not `on`.
    pub(crate) fn new(on: bool, parameters: &Parameters) -> Self {
        let mut padder = Self {
            is_on: on,
            low_ms: 0,
            high_ms: 0,
            pads_before_usage: false,
            pads_relays: false,
            entries: BTreeSet::new(),
        };
        padder.obey(parameters);
        padder
    }

    fn obey(&mut self, parameters: &Parameters) {
        let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.low_ms = millis(parameters.nf_ito_low);
        self.high_ms = millis(parameters.nf_ito_high);
        self.pads_before_usage = parameters.nf_pad_before_usage;
        self.pads_relays = parameters.nf_pad_relays;
    }

    /// Applies a new consensus.
    pub(crate) fn follow<S: CellModel>(&mut self, parameters: &Parameters, conns: &mut Conns<S>) {
        self.obey(parameters);
        conns.links_mut().for_each(|(id, link)| self.consider(id, link));
    }

    /// Whether a link is to be padded.
    fn wants(&self, link: &Link) -> bool {
        let Padding { used_for, is_possible, is_wanted, .. } = link.padding;
        let is_used = match used_for {
            Use::Nothing => false,
            Use::Circuits => self.pads_before_usage,
            Use::Traffic => true,
        };
        let is_on = self.is_on && self.high_ms > 0;
        let may_be = link.is_open && link.role == Role::Ordinary && is_possible && is_wanted;
        is_on && may_be && is_used && (self.pads_relays || !link.is_relays())
    }

    /// The limits of a link, in milliseconds. The peer's request can only lengthen them.
    fn limits(&self, padding: &Padding) -> (u32, u32) {
        let low_ms = self.low_ms.max(padding.low_ms.into());
        if low_ms == 0 {
            return (0, self.high_ms); // then C tor ignores both limits of the peer
        }
        (low_ms, self.high_ms.max(padding.high_ms.into()).max(low_ms))
    }

    /// A link is checked this long after traffic.
    fn patience(&self, padding: &Padding) -> Duration {
        Duration::from_millis(self.limits(padding).0.into()).max(LOOK_MIN)
    }

    /// A link has changed: it may need padding. A link that no longer does is dropped at its next check.
    pub(crate) fn consider(&mut self, id: ConnId, link: &mut Link) {
        if link.padding.entry == Entry::None && self.wants(link) {
            let since = link.padding.active_at;
            self.look_after(since, id, &mut link.padding);
        }
    }

    fn look_after(&mut self, since: Instant, id: ConnId, padding: &mut Padding) {
        let at_ns = (since + self.patience(padding)).as_nanos();
        let at = Instant::from_nanos(at_ns.div_ceil(LOOK_GRAIN_NS).saturating_mul(LOOK_GRAIN_NS));
        self.enter(Entry::Look(at), id, padding);
    }

    fn enter(&mut self, entry: Entry, id: ConnId, padding: &mut Padding) {
        self.forget(id, padding);
        padding.entry = entry;
        if let Entry::Look(at) | Entry::Due(at) = entry {
            self.entries.insert((at, id));
        }
    }

    /// The link is closed.
    pub(crate) fn forget(&mut self, id: ConnId, padding: &mut Padding) {
        if let Entry::Look(at) | Entry::Due(at) =
            core::mem::replace(&mut padding.entry, Entry::None)
        {
            self.entries.remove(&(at, id));
        }
    }

    /// Bytes have passed on a link in either direction.
    #[inline]
    pub(crate) fn handle_transfer(&mut self, now: Instant, id: ConnId, link: &mut Link) {
        link.padding.active_at = now;
        if matches!(link.padding.entry, Entry::Due(_)) {
            self.look_after(now, id, &mut link.padding);
        }
    }

    /// A relay cell has passed on a circuit in either direction.
    #[inline]
    pub(crate) fn handle_use<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        circuit: &mut Circuit<S>,
        command: Command,
    ) {
        if !circuit.is_use_noted {
            self.note_use(conns, circuit, command);
        }
    }

    /// Only circuits of several hops count: those that are extended, or come from another relay.
    fn note_use<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        circuit: &mut Circuit<S>,
        command: Command,
    ) {
        let id = circuit.back.conn;
        let Some(link) = conns.link_mut(id) else { return };
        if !link.is_relays() && circuit.next_link.on_link().is_none() {
            return;
        }
        circuit.is_use_noted = command == Command::RELAY;
        let used_for = if circuit.is_use_noted { Use::Traffic } else { Use::Circuits };
        if link.padding.used_for < used_for {
            link.padding.used_for = used_for;
            self.consider(id, link);
        }
    }

    /// Handles a PADDING_NEGOTIATE cell.
    pub(crate) fn negotiate(&mut self, id: ConnId, link: &mut Link, body: &[u8]) {
        let Ok(asked) = LinkPadding::parse(body) else { return };
        link.padding.is_wanted = asked.is_wanted;
        link.padding.low_ms = asked.low_ms;
        link.padding.high_ms = asked.high_ms;
        self.consider(id, link);
    }

    /// When the next link is checked or gets its cell.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// The next link whose timeout has expired.
    fn poll(&mut self, now: Instant) -> Option<ConnId> {
        self.entries.first().filter(|(at, _)| *at <= now)?;
        self.entries.pop_first().map(|(_, id)| id)
    }

    /// A link's timeout has expired: whether it gets a cell. `is_idle` if nothing is queued on it.
    fn handle_entry(
        &mut self,
        now: Instant,
        id: ConnId,
        link: &mut Link,
        is_idle: bool,
        rng: &mut impl Rng,
    ) -> bool {
        let entry = core::mem::replace(&mut link.padding.entry, Entry::None);
        if !self.wants(link) {
            return false;
        }
        let padding = &mut link.padding;
        if !is_idle {
            // Its peer does not read, or a limit blocks it: it is in use all the same.
            self.look_after(now, id, padding);
            return false;
        }
        if matches!(entry, Entry::Due(_)) {
            padding.active_at = now;
            self.look_after(now, id, padding);
            return true;
        }
        if now - padding.active_at < self.patience(padding) {
            self.look_after(padding.active_at, id, padding);
            return false;
        }
        let (low_ms, high_ms) = self.limits(padding);
        // Both ends pad and the shorter time counts, so the maximum of two draws keeps the average in the
        // middle (padding-spec §2.3).
        let drawn_ms =
            uniform_below(rng, high_ms - low_ms).max(uniform_below(rng, high_ms - low_ms));
        let at = padding.active_at + Duration::from_millis((low_ms + drawn_ms).into());
        self.enter(Entry::Due(at.max(now)), id, padding);
        false
    }
}
