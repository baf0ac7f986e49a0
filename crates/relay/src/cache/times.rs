//! When a directory fetches its next consensus (dir-spec.txt, section 4.5). Pure.

use netdoc::Consensus;
use onion::Duration;

/// Time for the authorities to have it, where clocks differ: tor's
/// `CONSENSUS_MIN_SECONDS_BEFORE_CACHING`.
const SLACK_S: u64 = 120;
/// A consensus whose end is not longer ago is still served and used: tor's
/// `REASONABLY_LIVE_TIME`.
const REASONABLY_LIVE_S: u64 = 24 * 3600;

/// Whether it is the time for it, by a clock that may be a little wrong.
pub(crate) const fn is_reasonably_live(consensus: &Consensus, now: u64) -> bool {
    consensus.valid_after <= now + REASONABLY_LIVE_S
        && now <= consensus.valid_until.saturating_add(REASONABLY_LIVE_S)
}

/// Whether every directory should have the next one by now: the first half-interval after this one stopped being fresh is over.
pub(crate) fn is_overdue(consensus: &Consensus, now: u64) -> bool {
    let interval = consensus.fresh_until.saturating_sub(consensus.valid_after);
    now > consensus.fresh_until + slack_s(interval) + interval / 2
}

/// Where an interval is short, so is the time for the authorities to have the consensus.
fn slack_s(interval_s: u64) -> u64 {
    SLACK_S.min(interval_s / 16).max(1)
}

/// How long to wait before the next one is fetched: until a random time in the first half-interval
/// after this one stops being fresh; not at all if it does not hold now. `chance` is a random number
/// from 0 to 1. Networks with short intervals have short times.
pub(crate) fn pause(consensus: &Consensus, now: u64, chance: f64) -> Duration {
    let Consensus { valid_after, fresh_until, valid_until, .. } = *consensus;
    if now < valid_after || now > valid_until {
        return Duration::ZERO;
    }
    let interval = fresh_until.saturating_sub(valid_after);
    let slack = slack_s(interval);
    // At the latest while it holds.
    let latest = valid_until.saturating_sub(1).max(fresh_until);
    let spread = (interval / 2).max(1);
    let begin = (fresh_until + slack).min(latest.saturating_sub(spread)).max(valid_after);
    let at =
        Duration::from_secs(begin) + Duration::from_secs(spread).mul_f64(chance.clamp(0.0, 1.0));
    at.saturating_sub(Duration::from_secs(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::NS;

    fn consensus(valid_after: u64, fresh: u64, valid: u64) -> Consensus {
        let mut consensus = Consensus::parse(NS).expect("a consensus");
        consensus.valid_after = valid_after;
        consensus.fresh_until = valid_after + fresh;
        consensus.valid_until = valid_after + valid;
        consensus
    }

    #[test]
    fn the_next_one_is_fetched_in_the_first_half_interval_after_this_one_is_fresh() {
        let public = consensus(10_000, 3_600, 3 * 3_600);
        assert_eq!(pause(&public, 10_000, 0.0), Duration::from_secs(3_600 + 120));
        assert_eq!(pause(&public, 10_000, 1.0), Duration::from_secs(3_600 + 120 + 1_800));
        assert_eq!(pause(&public, 14_000, 0.0), Duration::ZERO);
        let testing = consensus(10_000, 10, 200);
        assert_eq!(pause(&testing, 10_003, 0.0), Duration::from_secs(8));
        assert_eq!(pause(&testing, 10_003, 1.0), Duration::from_secs(13));
        let fleeting = consensus(10_000, 10, 10);
        assert!(pause(&fleeting, 10_000, 1.0) < Duration::from_secs(11));
    }

    #[test]
    fn one_that_does_not_hold_is_replaced_at_once() {
        let consensus = consensus(100_000, 3_600, 3 * 3_600);
        assert_eq!(pause(&consensus, 99_999, 0.5), Duration::ZERO);
        assert_eq!(pause(&consensus, 100_000 + 3 * 3_600 + 1, 0.5), Duration::ZERO);
        assert!(is_reasonably_live(&consensus, 100_000 + 27 * 3_600));
        assert!(!is_reasonably_live(&consensus, 100_001 + 27 * 3_600));
        assert!(is_reasonably_live(&consensus, 100_000 - 24 * 3_600));
        assert!(!is_reasonably_live(&consensus, 0));
    }
}
