//! Invariants of a period, checked after each step and at the end.

use super::*;

impl World {
    /// Finished measurements were recorded before.
    pub(super) fn check_journal(&self, relay: RsaId) {
        let of_relay = |entry: &&Entry| match entry {
            Entry::Started(started) => started.relay() == relay,
            Entry::Finished(finished) => finished.begun.relay() == relay,
            _ => false,
        };
        let last = self.journal.entries().iter().rev().find(of_relay);
        assert!(matches!(last, Some(Entry::Started(_))), "not in the journal: {last:?}");
    }

    /// No measurer ever sends more than its capacity. Checked at the start of each load.
    pub(super) fn check_capacity(&self, at: Instant) {
        for place in 0..MEASURERS {
            let sending = self
                .loads
                .values()
                .filter(|load| load.sends.as_ref().is_some_and(|sends| sends.contains(&at)));
            let all: Rate =
                sending.filter_map(|load| load.orders.get(&place)).map(|order| order.rate).sum();
            let has = capacity_of(place);
            assert!(all <= has, "measurer {place} is asked for {all} of {has}");
        }
    }

    /// No measurer's load is above its share of the policy's rates, and none is out of hours. Checked at the start of each load.
    pub(super) fn check_policy(&self, measurement: MeasurementId, at: Instant, end: Instant) {
        let (Some(policy), Some(load)) = (&self.options.policy, self.loads.get(&measurement))
        else {
            return;
        };
        let relay = load.relay.expect("given");
        if self.conduct(relay) != Conduct::NotAsked {
            return;
        }
        let unix_s = |at: Instant| BEGIN + at.saturating_since(Instant::ORIGIN).as_secs();
        let times = [at, end].map(unix_s);
        assert!(times.iter().all(|at| policy.hours.contains(*at)), "out of hours: {times:?}");
        let address = self.relay(relay).address.ip();
        for (place, order) in &load.orders {
            let key = [u8::try_from(place + 1).expect("few measurers"); 32];
            for limit in policy.limits(&key, address, times[0]) {
                let in_zone = |other: &&Load| {
                    let is_loaded = other.sends.as_ref().is_some_and(|sends| sends.contains(&at));
                    let relay =
                        other.relay.filter(|relay| self.conduct(*relay) == Conduct::NotAsked);
                    let address = relay.map(|relay| self.relay(relay).address.ip());
                    let zones = address.map(|address| policy.limits(&key, address, times[0]));
                    is_loaded && zones.into_iter().flatten().any(|zone| zone.zone == limit.zone)
                };
                let others = self.loads.values().filter(in_zone);
                let all: Rate =
                    others.filter_map(|load| load.orders.get(place)).map(|order| order.rate).sum();
                assert!(order.rate <= all && all <= limit.rate, "{all} for {limit:?} at {place}");
            }
        }
    }

    pub(super) fn check_at_once(&self) {
        let at_once = self.loads.len();
        assert!(at_once <= 16, "{at_once} relays at once");
    }

    /// No estimate exceeds the relay's capacity.
    pub(in super::super) fn check_record(&self, record: &Record) {
        let Some(capacity) = record.capacity() else { return };
        let most = self.relay(record.relay.ids.rsa).capacity;
        assert!(capacity.as_byte_per_s() <= most + most / 50, "{record:?}");
    }

    pub(super) fn check_publication(&self, relays: &[PublishedRelay]) {
        let mut known = BTreeSet::new();
        for relay in relays {
            assert!(known.insert(relay.ids.rsa), "twice: {relay:?}");
            assert!(self.may_be_measured(relay.ids.rsa), "{relay:?}");
        }
    }

    /// The conclusive estimates of the period, in the end.
    pub(in super::super) fn conclusive(&self) -> BTreeMap<RsaId, Rate> {
        let pasts = self.journal.pasts(self.bounds.begin_unix_s);
        let records = pasts.into_iter().filter_map(|(id, past)| Some((id, past.record?)));
        let conclusive =
            records.filter(|(_, record)| record.verdict() == crate::Verdict::Conclusive);
        conclusive.filter_map(|(id, record)| Some((id, record.capacity()?))).collect()
    }

    /// The slot in which each relay was measured first.
    pub(in super::super) fn first_slots(&self) -> BTreeMap<RsaId, u32> {
        let mut slots = BTreeMap::new();
        for entry in self.journal.entries() {
            if let Entry::Started(started) = entry
                && let Some(slot) = started.slot
            {
                slots.entry(started.relay()).or_insert(slot);
            }
        }
        slots
    }

    /// A conclusive estimate equals the one without disturbances.
    pub(in super::super) fn compare(&self, undisturbed: &Self) {
        let (ours, theirs) = (self.conclusive(), undisturbed.conclusive());
        for (relay, rate) in &ours {
            let Some(expected) = theirs.get(relay).filter(|_| self.group_size(*relay) == 1) else {
                continue;
            };
            let share = rate.as_byte_per_s() as f64 / expected.as_byte_per_s() as f64;
            assert!((0.95..=1.05).contains(&share), "{relay}: {rate}, and undisturbed {expected}");
        }
        // A clock that is set to before the period ends it: it has not begun.
        let is_cut_short = self.time().unix_s() < BEGIN;
        // By a policy fast relays are not loaded enough.
        let least = if self.options.policy.is_some() { 30 } else { 100 };
        assert!(is_cut_short || ours.len() > least, "{} relays", ours.len());
    }
}
