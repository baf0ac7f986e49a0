//! Compares two bandwidth files, as authorities would vote on them.

use identity::RsaId;
use std::collections::BTreeMap;

/// The difference between two files, by relay, in KB/s as in [`check_as_tor`](super::check_as_tor).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Difference {
    /// Relays that only the later file has.
    pub added: BTreeMap<RsaId, u32>,
    /// Relays that only the earlier file has.
    pub removed: BTreeMap<RsaId, u32>,
    /// Relays with another bandwidth: before and after.
    pub changed: BTreeMap<RsaId, (u32, u32)>,
    /// Relays with an unchanged bandwidth.
    pub same: usize,
}

impl Difference {
    /// Between the relays of two [reports](super::Report).
    #[must_use]
    pub fn between(earlier: &BTreeMap<RsaId, u32>, later: &BTreeMap<RsaId, u32>) -> Self {
        let mut difference = Self::default();
        for (relay, bw) in later {
            match earlier.get(relay) {
                None => {
                    difference.added.insert(*relay, *bw);
                }
                Some(before) if before == bw => difference.same += 1,
                Some(before) => {
                    difference.changed.insert(*relay, (*before, *bw));
                }
            }
        }
        let removed = earlier.iter().filter(|(relay, _)| !later.contains_key(relay));
        difference.removed = removed.map(|(relay, bw)| (*relay, *bw)).collect();
        difference
    }

    /// Whether the files are equal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_relay_is_added_removed_changed_or_unchanged() {
        let of = |pairs: &[(u8, u32)]| {
            let pairs = pairs.iter().map(|(relay, bw)| (RsaId([*relay; 20]), *bw));
            pairs.collect::<BTreeMap<_, _>>()
        };
        let difference =
            Difference::between(&of(&[(1, 5), (2, 6), (3, 7)]), &of(&[(2, 6), (3, 8), (4, 9)]));
        assert_eq!((difference.removed, difference.added), (of(&[(1, 5)]), of(&[(4, 9)])));
        let changed = BTreeMap::from([(RsaId([3; 20]), (7, 8))]);
        assert_eq!((difference.changed, difference.same), (changed, 1));
        assert!(Difference::between(&of(&[(1, 5)]), &of(&[(1, 5)])).is_empty());
    }
}
