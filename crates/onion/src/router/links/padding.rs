//! Padding of links, against records of who was idle when (padding-spec §2).
//!
//! Those who record connections on the way close a record when nothing passes for some ten seconds; many records
//! tell who was busy when. So a client's link that carries circuits gets a PADDING cell whenever nothing has passed
//! on it, either way, for a time drawn by lot; the client does the same from its end. As a relay, C tor 0.4.9
//! pads these:
//!
//! | | padded |
//! |---|---|
//! | a link that a client has opened | from the first RELAY_EARLY cell on of a circuit that goes on from here; without `nf_pad_before_usage` from the first RELAY cell on |
//! | a link to or from another relay | only with `nf_pad_relays`, and only if the other side has opened circuits on it |
//! | a link of a coordinator or measurer | never |
//! | a link of protocol version 4 | never |
//!
//! By PADDING_NEGOTIATE a peer stops it, starts it again, or lengthens the pauses. C tor takes that from relays
//! as well (only bridges don't), at any time, and without a look at the circuit's ID; what is malformed it drops.
//!
//! Costs: a time is stored whenever bytes pass. All links have one timer, an ordered set with at most one entry
//! for each. Such an entry is one of two. A link that has been active is *looked at*, no sooner than `nf_ito_low`
//! after that. If it was idle since then, the time of its cell is drawn, and it is *due* then.
//! What passes in between sends it back to being looked at.

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

mod sending;
pub(super) mod state;
#[cfg(test)]
mod tests;

use state::{Entry, Padding, Use};

/// No link is looked at sooner than this after the last time, whatever the limits are (C tor looks at
/// all once a second).
const LOOK_MIN: Duration = Duration::from_secs(1);

/// Links are looked at together that want it within this time, so that thousands of them do not wake us
/// thousands of times a second. Cells are not sent together: that would tell them from others.
const LOOK_GRAIN_NS: u64 = 100_000_000;

/// Decides which links are padded, and when.
#[derive(Debug)]
pub(in crate::router) struct Padder {
    is_on: bool,
    low_ms: u32,
    high_ms: u32,
    pads_before_usage: bool,
    pads_relays: bool,
    entries: BTreeSet<(Instant, ConnId)>,
}

impl Padder {
    /// Pads nothing ever if it is not `on`.
    pub(in crate::router) fn new(on: bool, parameters: &Parameters) -> Self {
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

    /// The consensus has changed.
    pub(in crate::router) fn follow<S: CellModel>(
        &mut self,
        parameters: &Parameters,
        conns: &mut Conns<S>,
    ) {
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

    /// The limits of a link, in milliseconds. What its peer has asked for can only lengthen them.
    fn limits(&self, padding: &Padding) -> (u32, u32) {
        let low_ms = self.low_ms.max(padding.low_ms.into());
        if low_ms == 0 {
            return (0, self.high_ms); // then C tor looks at neither of the peer's
        }
        (low_ms, self.high_ms.max(padding.high_ms.into()).max(low_ms))
    }

    /// So long after something has passed a link is looked at.
    fn patience(&self, padding: &Padding) -> Duration {
        Duration::from_millis(self.limits(padding).0.into()).max(LOOK_MIN)
    }

    /// Something about a link has changed: it may be one to be padded from now on. One that is not any
    /// more is dropped when its time comes.
    pub(in crate::router) fn consider(&mut self, id: ConnId, link: &mut Link) {
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

    /// The link is no more.
    pub(in crate::router) fn forget(&mut self, id: ConnId, padding: &mut Padding) {
        if let Entry::Look(at) | Entry::Due(at) =
            core::mem::replace(&mut padding.entry, Entry::None)
        {
            self.entries.remove(&(at, id));
        }
    }

    /// Bytes have passed on a link, one way or the other.
    #[inline]
    pub(in crate::router) fn handle_transfer(&mut self, now: Instant, id: ConnId, link: &mut Link) {
        link.padding.active_at = now;
        if matches!(link.padding.entry, Entry::Due(_)) {
            self.look_after(now, id, &mut link.padding);
        }
    }

    /// A relay cell has come on a circuit, either way.
    #[inline]
    pub(in crate::router) fn handle_use<S: CellModel>(
        &mut self,
        conns: &mut Conns<S>,
        circuit: &mut Circuit<S>,
        command: Command,
    ) {
        if !circuit.has_told_use {
            self.note_use(conns, circuit, command);
        }
    }

    /// Only circuits of several hops count: those that go on from here, or come from another relay.
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
        circuit.has_told_use = command == Command::RELAY;
        let used_for = if circuit.has_told_use { Use::Traffic } else { Use::Circuits };
        if link.padding.used_for < used_for {
            link.padding.used_for = used_for;
            self.consider(id, link);
        }
    }

    /// A PADDING_NEGOTIATE cell has come.
    pub(in crate::router) fn negotiate(&mut self, id: ConnId, link: &mut Link, body: &[u8]) {
        let Ok(asked) = LinkPadding::parse(body) else { return };
        link.padding.is_wanted = asked.is_wanted;
        link.padding.low_ms = asked.low_ms;
        link.padding.high_ms = asked.high_ms;
        self.consider(id, link);
    }

    /// When the next link is looked at, or gets its cell.
    pub(in crate::router) fn next_at(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// A link whose time has come.
    fn poll(&mut self, now: Instant) -> Option<ConnId> {
        self.entries.first().filter(|(at, _)| *at <= now)?;
        self.entries.pop_first().map(|(_, id)| id)
    }

    /// A link's time has come; whether it gets a cell. `is_idle` if nothing waits to be sent on it.
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
            // Its peer does not read, or a limit holds it: it is used all the same.
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
        // Both ends do this, so that the shorter time counts: the greater of two keeps the average
        // in the middle (padding-spec §2.3).
        let drawn_ms =
            uniform_below(rng, high_ms - low_ms).max(uniform_below(rng, high_ms - low_ms));
        let at = padding.active_at + Duration::from_millis((low_ms + drawn_ms).into());
        self.enter(Entry::Due(at.max(now)), id, padding);
        false
    }
}
