//! When keys and certificates are renewed. Pure: the time is an argument, in Unix seconds.

use std::ops::RangeInclusive;

/// How long certificates last. Tor's own signing keys last as long.
pub(crate) const CERTIFICATES_S: u64 = 30 * DAY_S;
/// They are replaced this long before their end: a descriptor is used for a day, and a link for
/// perhaps a week.
const BEFORE_END_S: u64 = 10 * DAY_S;
const DAY_S: u64 = 24 * 3600;

/// A consensus parameter in days.
struct Days {
    name: &'static str,
    default: i32,
    range: RangeInclusive<i32>,
}

impl Days {
    fn seconds(&self, consensus: &dyn Fn(&str) -> Option<i32>) -> u64 {
        let days = consensus(self.name).unwrap_or(self.default);
        u64::from(days.clamp(*self.range.start(), *self.range.end()).unsigned_abs()) * DAY_S
    }
}

/// Lifetime of an onion key (dir-spec.txt, section 3.3; param-spec.txt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnionKeyLife {
    /// Age at which it is replaced.
    rotation_s: u64,
    /// Time for which the previous one is accepted: until every client has a newer consensus.
    grace_s: u64,
}

impl OnionKeyLife {
    /// Reads the consensus parameters.
    pub(crate) fn from_consensus(consensus: &dyn Fn(&str) -> Option<i32>) -> Self {
        let rotation = Days { name: "onion-key-rotation-days", default: 28, range: 1..=90 };
        let grace = Days { name: "onion-key-grace-period-days", default: 7, range: 1..=90 };
        let rotation_s = rotation.seconds(consensus);
        // At most two keys: the grace period ends before the next rotation.
        Self { rotation_s, grace_s: grace.seconds(consensus).min(rotation_s) }
    }
}

/// A renewal that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Generate a new onion key.
    NewOnionKey,
    /// Remove the previous onion key.
    ForgetOldOnionKey,
    /// Issue new certificates.
    Certificates,
}

/// The ages of keys and certificates, in Unix seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    /// When the onion key was generated.
    pub(crate) onion_made: u64,
    /// Whether the previous one is still accepted.
    pub(crate) has_old_onion: bool,
    /// When the certificates were issued.
    pub(crate) certified: u64,
    /// Whether the clock has been set recently. Onion keys then wait: an old key is of no use to anyone, and one that is removed too
    /// early costs the circuits of clients.
    pub(crate) has_clock_jumped: bool,
}

impl Renewal {
    /// The first renewal that is due.
    pub(crate) fn due(&self, now: u64, life: OnionKeyLife) -> Option<Due> {
        let is_settled = !self.has_clock_jumped;
        let onion_age = now.saturating_sub(self.onion_made);
        if is_settled && onion_age >= life.rotation_s {
            return Some(Due::NewOnionKey);
        }
        if is_settled && self.has_old_onion && onion_age >= life.grace_s {
            return Some(Due::ForgetOldOnionKey);
        }
        // After a clock was set back, they are from the future. Others may not take them for valid yet.
        let is_old = now.saturating_sub(self.certified) >= CERTIFICATES_S - BEFORE_END_S;
        let is_of_the_future = self.certified > now.saturating_add(DAY_S);
        (is_old || is_of_the_future).then_some(Due::Certificates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn life() -> OnionKeyLife {
        OnionKeyLife::from_consensus(&|_| None)
    }

    #[test]
    fn an_onion_key_lives_28_days_and_is_accepted_for_seven_more() {
        let mut own = Renewal {
            onion_made: NOW,
            has_old_onion: false,
            certified: NOW,
            has_clock_jumped: false,
        };
        assert_eq!(own.due(NOW, life()), None);
        let change = NOW + 28 * DAY_S;
        own.certified = change;
        assert_eq!(own.due(change - 1, life()), None);
        assert_eq!(own.due(change, life()), Some(Due::NewOnionKey));
        own = Renewal { onion_made: change, has_old_onion: true, certified: change, ..own };
        assert_eq!(own.due(change + 7 * DAY_S - 1, life()), None);
        assert_eq!(own.due(change + 7 * DAY_S, life()), Some(Due::ForgetOldOnionKey));
        own.has_old_onion = false;
        assert_eq!(own.due(change + 7 * DAY_S, life()), None);
        // A key from the future, after a clock was set back, counts as new.
        assert_eq!(own.due(change - DAY_S / 2, life()), None);
    }

    #[test]
    fn a_clock_that_has_just_jumped_costs_no_onion_key() {
        let made = Renewal {
            onion_made: NOW,
            has_old_onion: true,
            certified: NOW + 40 * DAY_S,
            has_clock_jumped: true,
        };
        assert_eq!(made.due(NOW + 40 * DAY_S, life()), None);
        let settled = Renewal { has_clock_jumped: false, ..made };
        assert_eq!(settled.due(NOW + 40 * DAY_S, life()), Some(Due::NewOnionKey));
    }

    #[test]
    fn consensus_parameters_change_lifetimes_within_bounds() {
        let from_consensus = |rotation, grace| {
            OnionKeyLife::from_consensus(&move |name| match name {
                "onion-key-rotation-days" => Some(rotation),
                "onion-key-grace-period-days" => Some(grace),
                _ => None,
            })
        };
        let days = |rotation: u64, grace: u64| OnionKeyLife {
            rotation_s: rotation * DAY_S,
            grace_s: grace * DAY_S,
        };
        assert_eq!(life(), days(28, 7));
        assert_eq!(from_consensus(14, 3), days(14, 3));
        assert_eq!(from_consensus(-1, 0), days(1, 1));
        assert_eq!(from_consensus(1_000, 1_000), days(90, 90));
        assert_eq!(from_consensus(5, 30), days(5, 5));
    }

    #[test]
    fn certificates_are_renewed_ten_days_before_their_end() {
        let own = Renewal {
            onion_made: NOW + 15 * DAY_S,
            has_old_onion: false,
            certified: NOW,
            has_clock_jumped: false,
        };
        assert_eq!(own.due(NOW + 20 * DAY_S - 1, life()), None);
        assert_eq!(own.due(NOW + 20 * DAY_S, life()), Some(Due::Certificates));
        assert_eq!(own.due(NOW - 2 * DAY_S, life()), Some(Due::Certificates), "of the future");
        assert_eq!(own.due(NOW - DAY_S, life()), None);
    }
}
