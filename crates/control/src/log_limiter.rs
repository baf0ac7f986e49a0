use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The maximum number of addresses; when it is exceeded, all are forgotten.
const REMEMBERED: usize = 1024;

/// Limits log messages: each kind of error once from each address, so that a stranger cannot fill the disk.
#[derive(Debug, Default)]
pub(crate) struct LogLimiter(Mutex<BTreeSet<(IpAddr, &'static str)>>);

impl LogLimiter {
    /// Whether this is the first time.
    pub(crate) fn is_new(&self, from: IpAddr, what: &'static str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= REMEMBERED {
            logged.clear();
        }
        logged.insert((from, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_new_once_per_address() {
        let (limiter, here) = (LogLimiter::default(), IpAddr::from([127, 0, 0, 1]));
        assert!(limiter.is_new(here, "key") && !limiter.is_new(here, "key"));
        assert!(limiter.is_new(here, "garbage") && limiter.is_new([10, 0, 0, 1].into(), "key"));
    }

    #[test]
    fn memory_is_bounded() {
        let limiter = LogLimiter::default();
        for number in 0..5000u32 {
            limiter.is_new(number.to_be_bytes().into(), "key");
        }
        assert!(limiter.0.lock().unwrap().len() <= REMEMBERED);
    }
}
