//! When a directory or a client fetches the next consensus (dir-spec.txt, section 4.5). Pure.

use netdoc::Consensus;
use std::time::Duration;

/// Margin for clocks that differ: tor's `CONSENSUS_MIN_SECONDS_BEFORE_CACHING`.
const SLACK_S: u64 = 120;
/// A consensus is still served and used for this time after it has expired: tor's
/// `REASONABLY_LIVE_TIME`.
const REASONABLY_LIVE_S: u64 = 24 * 3600;

/// Whether the consensus may be used at `now`: at most a day before or after it is valid. Times are in
/// Unix seconds.
#[must_use]
pub const fn is_reasonably_live(consensus: &Consensus, now: u64) -> bool {
    consensus.valid_after <= now + REASONABLY_LIVE_S
        && now <= consensus.valid_until.saturating_add(REASONABLY_LIVE_S)
}

/// The time from which on the consensus is not [reasonably live](is_reasonably_live), in Unix seconds.
#[must_use]
pub const fn usable_until(consensus: &Consensus) -> u64 {
    consensus.valid_until.saturating_add(REASONABLY_LIVE_S).saturating_add(1)
}

/// Whether every directory should have the next consensus by now: half an interval has passed since this
/// one stopped being fresh.
pub(crate) fn is_overdue(consensus: &Consensus, now: u64) -> bool {
    let interval = consensus.fresh_until.saturating_sub(consensus.valid_after);
    now > consensus.fresh_until + slack_s(interval) + interval / 2
}

/// The margin is shorter for networks with short intervals.
fn slack_s(interval_s: u64) -> u64 {
    SLACK_S.min(interval_s / 16).max(1)
}

/// The delay until the next fetch: a random time in the first half-interval after this consensus stops
/// being fresh; zero if it is not valid now. `chance` is a random number from 0 to 1. Networks with
/// short intervals have short delays.
#[must_use]
pub fn fetch_delay(consensus: &Consensus, now: u64, chance: f64) -> Duration {
    let Consensus { valid_after, fresh_until, valid_until, .. } = *consensus;
    if now < valid_after || now > valid_until {
        return Duration::ZERO;
    }
    let interval = fresh_until.saturating_sub(valid_after);
    let slack = slack_s(interval);
    // No later than it is valid.
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
    use crate::fixture::NS;

    fn consensus(valid_after: u64, fresh: u64, valid: u64) -> Consensus {
        let mut consensus = Consensus::parse(NS).expect("a consensus");
        consensus.valid_after = valid_after;
        consensus.fresh_until = valid_after + fresh;
        consensus.valid_until = valid_after + valid;
        consensus
    }

    #[test]
    fn the_next_consensus_is_fetched_in_the_half_interval_after_this_one_is_fresh() {
        let public = consensus(10_000, 3_600, 3 * 3_600);
        assert_eq!(fetch_delay(&public, 10_000, 0.0), Duration::from_secs(3_600 + 120));
        assert_eq!(fetch_delay(&public, 10_000, 1.0), Duration::from_secs(3_600 + 120 + 1_800));
        assert_eq!(fetch_delay(&public, 14_000, 0.0), Duration::ZERO);
        let testing = consensus(10_000, 10, 200);
        assert_eq!(fetch_delay(&testing, 10_003, 0.0), Duration::from_secs(8));
        assert_eq!(fetch_delay(&testing, 10_003, 1.0), Duration::from_secs(13));
        let fleeting = consensus(10_000, 10, 10);
        assert!(fetch_delay(&fleeting, 10_000, 1.0) < Duration::from_secs(11));
    }

    #[test]
    fn an_invalid_consensus_is_replaced_at_once() {
        let consensus = consensus(100_000, 3_600, 3 * 3_600);
        assert_eq!(fetch_delay(&consensus, 99_999, 0.5), Duration::ZERO);
        assert_eq!(fetch_delay(&consensus, 100_000 + 3 * 3_600 + 1, 0.5), Duration::ZERO);
        assert!(is_reasonably_live(&consensus, 100_000 + 27 * 3_600));
        assert!(!is_reasonably_live(&consensus, 100_001 + 27 * 3_600));
        assert!(is_reasonably_live(&consensus, 100_000 - 24 * 3_600));
        assert!(!is_reasonably_live(&consensus, 0));
    }
}
