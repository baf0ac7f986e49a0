use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// The maximum number of addresses; when it is exceeded, all are forgotten.
const REMEMBERED: usize = 1024;

/// Limits log messages: each kind of error once from each address, so that a stranger cannot fill the disk.
#[derive(Debug, Default)]
pub(crate) struct SayOnce(Mutex<BTreeSet<(IpAddr, &'static str)>>);

impl SayOnce {
    /// Whether this is the first time.
    pub(crate) fn is_news(&self, from: IpAddr, what: &'static str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= REMEMBERED {
            said.clear();
        }
        said.insert((from, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_news_once() {
        let (once, here) = (SayOnce::default(), IpAddr::from([127, 0, 0, 1]));
        assert!(once.is_news(here, "key") && !once.is_news(here, "key"));
        assert!(once.is_news(here, "garbage") && once.is_news([10, 0, 0, 1].into(), "key"));
    }

    #[test]
    fn memory_is_bounded() {
        let once = SayOnce::default();
        for number in 0..5000u32 {
            once.is_news(number.to_be_bytes().into(), "key");
        }
        assert!(once.0.lock().unwrap().len() <= REMEMBERED);
    }
}
