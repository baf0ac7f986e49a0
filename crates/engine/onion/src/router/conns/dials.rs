//! Fair limits on links that are being dialled.

use crate::node::ConnId;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

/// Maximum number of links being dialled.
const DIALS_MAX: usize = 512;

/// Maximum number of them to addresses that are not in the consensus. Any client can make the relay dial such
/// addresses, and none of them needs to answer.
const UNLISTED_MAX: usize = 256;

/// Links being dialled.
///
/// If there are too many, the oldest dial of the neighbour that requested most is dropped. A client that makes
/// the relay dial unreachable addresses thus shortens its own dials only. [`DIALS_MAX`] bounds the cost of one
/// more dial.
#[derive(Debug, Default)]
pub(crate) struct Dials {
    /// Oldest first.
    all: VecDeque<Dialling>,
}

#[derive(Clone, Copy, Debug)]
struct Dialling {
    conn: ConnId,
    /// The origin of the first circuit that requested it.
    asked_by: Option<IpAddr>,
    /// Whether the consensus lists a relay at the address.
    is_listed: bool,
}

impl Dials {
    pub(crate) fn add(&mut self, conn: ConnId, asked_by: Option<IpAddr>, is_listed: bool) {
        self.all.push_back(Dialling { conn, asked_by, is_listed });
    }

    /// It is open, or it failed.
    pub(super) fn remove(&mut self, conn: ConnId) {
        self.all.retain(|dial| dial.conn != conn);
    }

    /// The dial to drop before this neighbour can have another one; `None` if there is space.
    pub(crate) fn victim(&self, asked_by: Option<IpAddr>, is_listed: bool) -> Option<ConnId> {
        let unlisted = self.all.iter().filter(|dial| !dial.is_listed).count();
        let is_full = self.all.len() >= DIALS_MAX;
        if !is_full && (is_listed || unlisted < UNLISTED_MAX) {
            return None;
        }
        // The space reserved for listed relays is not for others.
        let is_counted = |dial: &&Dialling| !dial.is_listed || (is_listed && unlisted == 0);
        let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
        for dial in self.all.iter().filter(is_counted) {
            *counts.entry(dial.asked_by).or_default() += 1;
        }
        // On a tie, the requester's own dial is dropped.
        let most = counts.into_iter().max_by_key(|(who, count)| (*count, *who == asked_by));
        let greediest = most.map_or(asked_by, |(who, _)| who);
        let oldest = self.all.iter().filter(is_counted).find(|dial| dial.asked_by == greediest);
        oldest.or(self.all.front()).map(|dial| dial.conn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn neighbour(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    fn dial(dials: &mut Dials, number: u32, asked_by: Option<IpAddr>, is_listed: bool) {
        while let Some(victim) = dials.victim(asked_by, is_listed) {
            dials.remove(victim);
        }
        dials.add(ConnId(number), asked_by, is_listed);
    }

    fn all(dials: &Dials) -> impl Iterator<Item = u32> {
        dials.all.iter().map(|dial| dial.conn.0)
    }

    #[test]
    fn excess_dials_displace_only_the_same_clients() {
        let mut dials = Dials::default();
        dial(&mut dials, 0, neighbour(2), false);
        for number in 1..=10_000 {
            dial(&mut dials, number, neighbour(1), false);
        }
        assert_eq!(dials.all.len(), UNLISTED_MAX);
        assert!(all(&dials).any(|number| number == 0), "the other's is still being dialled");
        assert!(
            all(&dials).any(|number| number == 10_000)
                && all(&dials).all(|number| number == 0 || number > 9_000)
        );
        // And another one gets through at once.
        dial(&mut dials, 20_000, neighbour(3), false);
        assert!(
            all(&dials).any(|number| number == 20_000) && all(&dials).any(|number| number == 0)
        );
    }

    #[test]
    fn listed_relays_have_a_separate_limit() {
        let mut dials = Dials::default();
        for number in 0..1000 {
            dial(&mut dials, number, neighbour(number), false);
        }
        assert_eq!(dials.all.len(), UNLISTED_MAX);
        let before: alloc::vec::Vec<u32> = all(&dials).collect();
        for number in 1000..1200 {
            dial(&mut dials, number, neighbour(1), true);
        }
        assert!(before.iter().all(|number| all(&dials).any(|other| other == *number)));
        // Beyond that they take the room of those that are not.
        for number in 1200..2000 {
            dial(&mut dials, number, neighbour(1), true);
        }
        assert_eq!(dials.all.len(), DIALS_MAX);
        assert!(dials.all.iter().all(|dial| dial.is_listed), "{dials:?}");
        assert!(all(&dials).any(|number| number == 1999));
        // Unlisted addresses do not get their places.
        dial(&mut dials, 3000, neighbour(7), false);
        assert_eq!(dials.all.len(), DIALS_MAX);
    }
}
