//! Names that a stranger is curious about, and what an exit's answers reveal of them.

use onion::Duration;
use std::sync::{Mutex, PoisonError};

/// Names of either kind.
const EACH: usize = 20;

/// Names of which somebody has asked an exit for half, and nobody for the others. Whose they are is not the stranger's knowledge, but
/// that of who judges his guesses.
#[derive(Debug, Default)]
pub struct Watchlist {
    /// Tells them from those of other times.
    tag: u32,
    /// Where something listens at the address of all names.
    port: u16,
    heard: Mutex<Vec<Probe>>,
}

/// What a question by the stranger came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Somebody has asked before.
    pub was_asked: bool,
    /// From the question to the answer.
    pub took: Duration,
    /// For how long the answer says that it holds, in seconds.
    pub ttl_s: u32,
}

impl Watchlist {
    /// Names with a tag of their own; something listens at this port of their address.
    pub fn new(tag: u32, port: u16) -> Self {
        Self { tag, port, heard: Mutex::default() }
    }

    fn name(&self, number: usize) -> String {
        // Nothing in it says which of the two it is.
        format!("w{number}.{:x}.attacked.test", self.tag)
    }

    /// Those that somebody is to ask for before.
    pub fn to_be_asked(&self) -> impl Iterator<Item = String> + '_ {
        (0..2 * EACH).filter(|number| Self::is_asked(*number)).map(|number| self.name(number))
    }

    /// Two in a row of either kind: probes by RESOLVE and by BEGIN take turns.
    const fn is_asked(number: usize) -> bool {
        number % 4 < 2
    }

    /// All, with whether somebody has asked.
    pub(super) fn all(&self) -> impl Iterator<Item = (String, bool)> + '_ {
        (0..2 * EACH).map(|number| (self.name(number), Self::is_asked(number)))
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn note(&self, probe: Probe) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(probe);
    }

    /// What has been heard so far.
    pub fn heard(&self) -> Vec<Probe> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_names_are_asked_for_by_either_kind_of_probe() {
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
