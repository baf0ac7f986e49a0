//! Names of a DNS probing attack, and what an exit's answers reveal about them.

use onion::Duration;
use std::sync::{Mutex, PoisonError};

/// The number of names of each of the two kinds.
const EACH: usize = 20;

/// Names, half of which another client has asked an exit to resolve. The attacker does not know which half; only the experiment does.
#[derive(Debug, Default)]
pub struct Watchlist {
    /// Distinguishes these names from those of other runs.
    tag: u32,
    /// The port of the listener at the address of all names.
    port: u16,
    probes: Mutex<Vec<Probe>>,
}

/// The result of a request by the attacker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Whether another client has asked before.
    pub was_asked: bool,
    /// The time from the request to the answer.
    pub took: Duration,
    /// The TTL of the answer in seconds.
    pub ttl_s: u32,
}

impl Watchlist {
    /// Creates names with this tag. A listener is at this port of their address.
    pub fn new(tag: u32, port: u16) -> Self {
        Self { tag, port, probes: Mutex::default() }
    }

    fn name(&self, number: usize) -> String {
        // The name does not reveal its kind.
        format!("w{number}.{:x}.attacked.test", self.tag)
    }

    /// The names for which another client must ask before the attack.
    pub fn to_be_asked(&self) -> impl Iterator<Item = String> + '_ {
        (0..2 * EACH).filter(|number| Self::is_asked(*number)).map(|number| self.name(number))
    }

    /// Kinds alternate after two names, because probes by RESOLVE and by BEGIN alternate.
    const fn is_asked(number: usize) -> bool {
        number % 4 < 2
    }

    /// All names, with whether another client has asked.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        (0..2 * EACH).map(|number| (self.name(number), Self::is_asked(number)))
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn record(&self, probe: Probe) {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).push(probe);
    }

    /// The results up to now.
    pub fn probes(&self) -> Vec<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_probe_has_as_many_known_names_as_unknown_ones() {
        let list = Watchlist::new(7, 80);
        let all: Vec<(String, bool)> = list.all().collect();
        let asked: Vec<String> = list.to_be_asked().collect();
        assert_eq!((all.len(), asked.len()), (2 * EACH, EACH));
        for (place, (name, is_asked)) in all.iter().enumerate() {
            assert_eq!(asked.contains(name), *is_asked, "{place}");
        }
        let by_begin = all.iter().skip(1).step_by(2).filter(|(_, is_asked)| *is_asked).count();
        assert_eq!(by_begin, EACH / 2);
    }
}
