use link::Clock;
use onion::{Duration, Instant};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

/// The maximum number of networks that are remembered. One more displaces the one that was logged first.
const REMEMBERED: usize = 1024;

/// The minimum time between two lines.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits log messages about strangers, so that they cannot fill the disk: each kind of error once from each network, and at most one
/// line in a second. The next line has the number of those in between.
#[derive(Debug)]
pub(crate) struct LogLimiter {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was logged, in order, and as a set.
    order: VecDeque<(IpAddr, &'static str)>,
    logged: BTreeSet<(IpAddr, &'static str)>,
    last: Option<Instant>,
    /// The number of errors since the last line.
    unlogged: u64,
}

impl LogLimiter {
    pub(crate) fn new() -> Self {
        Self { clock: Clock::start(), state: Mutex::default() }
    }

    /// Whether to log this error now: if so, the number of others since the last line.
    pub(crate) fn admit(&self, from: IpAddr, what: &'static str) -> Option<u64> {
        let now = self.clock.now();
        self.state.lock().unwrap_or_else(PoisonError::into_inner).admit(now, from, what)
    }
}

impl State {
    fn admit(&mut self, now: Instant, from: IpAddr, what: &'static str) -> Option<u64> {
        let name = (network(from), what);
        let is_early = self.last.is_some_and(|last| now - last < PAUSE);
        if is_early || self.logged.contains(&name) {
            self.unlogged += 1;
            return None;
        }
        self.last = Some(now);
        self.logged.insert(name);
        self.order.push_back(name);
        if self.order.len() > REMEMBERED
            && let Some(first) = self.order.pop_front()
        {
            self.logged.remove(&first);
        }
        Some(std::mem::take(&mut self.unlogged))
    }
}

/// The /24 or /64 of an address: whoever has one address has the others, too.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            IpAddr::from([a, b, c, 0])
        }
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(1000 * seconds)
    }

    #[test]
    fn an_error_is_logged_once_per_network_with_the_number_of_others() {
        let mut state = State::default();
        let v4 = |last| IpAddr::from([192, 0, 2, last]);
        let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 7, 0, 0, 0, last]);
        assert_eq!(state.admit(at(1), v4(1), "key"), Some(0));
        assert_eq!(state.admit(at(5), v4(1), "key"), None);
        assert_eq!(state.admit(at(6), v4(200), "key"), None, "the same /24");
        assert_eq!(state.admit(at(7), v4(200), "garbage"), Some(2));
        assert_eq!(state.admit(at(8), v6(1), "key"), Some(0));
        assert_eq!(state.admit(at(9), v6(2), "key"), None, "the same /64");
        let mapped: IpAddr = "::ffff:192.0.2.9".parse().expect("an address");
        assert_eq!(state.admit(at(9), mapped, "key"), None, "an IPv4 address");
        assert_eq!(state.admit(at(9), IpAddr::from([192, 0, 3, 1]), "key"), Some(2));
    }

    #[test]
    fn strangers_of_all_networks_together_get_a_line_in_a_second() {
        let mut state = State::default();
        let mut lines = 0;
        let mut counted = 0;
        for number in 0..100_000_u32 {
            let from = IpAddr::from((number << 8).to_be_bytes());
            // 1,000 in a second.
            let now = Instant::from_millis(number.into());
            if let Some(others) = state.admit(now, from, "key") {
                (lines, counted) = (lines + 1, counted + others + 1);
            }
        }
        assert_eq!((lines, counted + state.unlogged), (100, 100_000));
    }

    #[test]
    fn memory_is_bounded_and_what_was_logged_last_is_remembered() {
        let mut state = State::default();
        let from = |number: u32| IpAddr::from((number << 8).to_be_bytes());
        for number in 0..5000 {
            state.admit(at(number.into()), from(number), "key");
        }
        assert_eq!((state.order.len(), state.logged.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(state.admit(at(9000), from(4999), "key"), None);
        assert_eq!(state.admit(at(9001), from(0), "key"), Some(1), "forgotten");
    }
}
