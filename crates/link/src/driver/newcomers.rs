//! Connections that have come in, and whose TLS does not stand yet.

use onion::router::Place;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// So many at a time. TCP costs who connects nothing, and each holds a file descriptor and some kilobytes until its time
/// is up; as many as this finish their handshakes within that time.
const NEWCOMERS_MAX: usize = 4096;

/// Newcomers by where they come from, and in the order of their coming.
///
/// When there are too many, the newest goes of the place that has most: who opens connections and says nothing keeps himself out, and
/// nobody else. Of places that have as many, it is the one whose first has waited longest: from ever other places nobody is kept out who
/// does not take longer than they. Each step costs the logarithm of their number.
#[derive(Debug)]
pub(super) struct Newcomers {
    most: usize,
    by_socket: BTreeMap<usize, (Place, u64)>,
    by_place: BTreeMap<Place, BTreeMap<u64, usize>>,
    /// How many each has, and when the first of them came.
    by_count: BTreeSet<(usize, Reverse<u64>, Place)>,
    come: u64,
}

impl Newcomers {
    /// For a driver that has so many connections at most: newcomers are half of them, so that those that stand have room.
    pub(super) fn new(connections_max: usize) -> Self {
        Self {
            most: (connections_max / 2).clamp(1, NEWCOMERS_MAX),
            by_socket: BTreeMap::new(),
            by_place: BTreeMap::new(),
            by_count: BTreeSet::new(),
            come: 0,
        }
    }

    /// One has come from there. The socket that is to go for it, if there are too many.
    pub(super) fn add(&mut self, from: IpAddr, socket: usize) -> Option<usize> {
        let place = Place::of(from);
        let number = self.come;
        self.come += 1;
        self.by_socket.insert(socket, (place, number));
        self.change(place, |sockets| {
            sockets.insert(number, socket);
        });
        if self.by_socket.len() <= self.most {
            return None;
        }
        let (_, _, most) = self.by_count.last()?;
        let (_, newest) = self.by_place.get(most)?.last_key_value()?;
        Some(*newest)
    }

    /// Its TLS stands, or it is gone. Nothing happens if it is none.
    pub(super) fn remove(&mut self, socket: usize) {
        let Some((place, number)) = self.by_socket.remove(&socket) else { return };
        self.change(place, |sockets| {
            sockets.remove(&number);
        });
    }

    fn change(&mut self, place: Place, change: impl FnOnce(&mut BTreeMap<u64, usize>)) {
        let sockets = self.by_place.entry(place).or_default();
        let key = |sockets: &BTreeMap<u64, usize>| {
            let (first, _) = sockets.first_key_value()?;
            Some((sockets.len(), Reverse(*first), place))
        };
        if let Some(before) = key(sockets) {
            self.by_count.remove(&before);
        }
        change(sockets);
        if let Some(now) = key(sockets) {
            self.by_count.insert(now);
        } else {
            self.by_place.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Comes, and whoever has to go goes: who that is.
    fn come(newcomers: &mut Newcomers, from: [u8; 4], socket: usize) -> Option<usize> {
        let victim = newcomers.add(from.into(), socket);
        victim.into_iter().for_each(|socket| newcomers.remove(socket));
        victim
    }

    #[test]
    fn who_says_nothing_keeps_himself_out_and_nobody_else() {
        let mut newcomers = Newcomers::new(usize::MAX);
        assert_eq!(come(&mut newcomers, [192, 0, 2, 1], 100_000), None);
        for socket in 0..20_000_usize {
            let flooder = u8::try_from(socket % 24).expect("few");
            let victim = come(&mut newcomers, [198, 51, 100, flooder], socket);
            assert!(victim.is_none_or(|it| it < 100_000 && it + 48 > socket), "{victim:?}");
        }
        for honest in 2..=200 {
            let victim = come(&mut newcomers, [192, 0, 2, honest], 100_000 + usize::from(honest));
            assert!(victim.is_some_and(|it| it < 100_000), "a flooder's: {victim:?}");
        }
        assert_eq!(newcomers.by_socket.len(), NEWCOMERS_MAX);
        assert!((100_002..=100_200).all(|it| newcomers.by_socket.contains_key(&it)));
        // All are one of each place: there are never more.
        let sockets: Vec<usize> = newcomers.by_socket.keys().copied().collect();
        sockets.into_iter().for_each(|socket| newcomers.remove(socket));
        assert!(newcomers.by_place.is_empty() && newcomers.by_count.is_empty());
        for number in 0..u32::try_from(NEWCOMERS_MAX).expect("few") + 10 {
            come(&mut newcomers, number.to_be_bytes(), number as usize);
        }
        assert_eq!(newcomers.by_socket.len(), NEWCOMERS_MAX);
    }

    #[test]
    fn from_ever_other_places_nobody_is_kept_out_who_is_faster_than_they() {
        let mut newcomers = Newcomers::new(usize::MAX);
        let most = u32::try_from(NEWCOMERS_MAX).expect("few");
        (0..most)
            .for_each(|number| _ = come(&mut newcomers, number.to_be_bytes(), number as usize));
        // IPv6 or IPv4, a high or a low address: whoever comes stays, and the first who came goes.
        let honest: [IpAddr; 3] = ["2001:db8::1", "255.255.255.254", "0.0.255.255"]
            .map(|it| it.parse().expect("an address"));
        for (nth, from) in honest.into_iter().enumerate() {
            assert_eq!(newcomers.add(from, 10_000_000 + nth), Some(nth), "{from}");
            newcomers.remove(nth);
        }
        // They are as many again, and slower than those who are gone by then.
        for number in most..most * 2 - 3 {
            let victim = come(&mut newcomers, number.to_be_bytes(), number as usize);
            assert!(victim.is_some_and(|it| it < 10_000_000), "{victim:?}");
        }
    }

    #[test]
    fn those_whose_handshakes_are_done_keep_half_of_a_small_machines_places() {
        let mut newcomers = Newcomers::new(100);
        for number in 0..200_u32 {
            come(&mut newcomers, number.to_be_bytes(), number as usize);
        }
        assert_eq!(newcomers.by_socket.len(), 50);
    }
}
