//! The send and receive capacity of a team's members, from an exchange between all of them (§4.2).

use crate::stats::median;
use alloc::vec::Vec;
use onion::Rate;

/// Traffic of one member with one other in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairSecond {
    /// Bytes that the member sent to the other.
    pub sent_bytes: u64,
    /// Bytes that the member received from the other.
    pub received_bytes: u64,
}

/// One member's report on its exchange with another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairTraffic {
    /// The other's index in the team.
    pub peer: u16,
    /// Each second of the test.
    pub seconds: Vec<PairSecond>,
    /// Whether the other was present to the end.
    pub is_complete: bool,
}

/// One member's report on its part of the exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberTraffic {
    /// Its index in the team.
    pub index: u16,
    /// Its exchange with each other member.
    pub pairs: Vec<PairTraffic>,
}

/// One member's capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamCapacity {
    /// Its index in the team.
    pub index: u16,
    /// Its simultaneous send and receive rate. `None` if no exchange with another member completed.
    pub capacity: Option<Rate>,
    /// The other members whose exchange with it did not complete. They add nothing: without them, the capacity is a
    /// lower bound. That does not affect accuracy, and only makes measurements slower (§4.2).
    pub missing: Vec<u16>,
}

/// The capacity of each member that has a report, in the order of the reports.
///
/// §4.2: "the capacity estimate is the median of the per-second speeds" of traffic that is "simultaneously sent and
/// received". A member's speed in second *j* is the smaller of all bytes that it sent and all that it received. Sent bytes
/// count only if the receiver reports them: bytes in the sender's buffers were not forwarded.
///
/// Both must have reported, over `seconds` seconds; otherwise the pair counts as missing.
#[must_use]
pub fn team_capacities(seconds: u32, reports: &[MemberTraffic]) -> Vec<TeamCapacity> {
    reports.iter().map(|report| capacity(seconds, report, reports)).collect()
}

fn capacity(seconds: u32, report: &MemberTraffic, reports: &[MemberTraffic]) -> TeamCapacity {
    let mut both: Vec<(u64, u64)> = (0..seconds).map(|_| (0, 0)).collect();
    let mut missing = Vec::new();
    let others = reports.iter().filter(|other| other.index != report.index);
    let mut counted = 0;
    for other in others {
        let there = whole_pair(seconds, report, other.index);
        let back = whole_pair(seconds, other, report.index);
        let (Some(there), Some(back)) = (there, back) else {
            missing.push(other.index);
            continue;
        };
        counted += 1;
        for ((sent, received), (ours, theirs)) in both.iter_mut().zip(there.iter().zip(back)) {
            *sent = sent.saturating_add(theirs.received_bytes);
            *received = received.saturating_add(ours.received_bytes);
        }
    }
    // Members that sent no report at all.
    let is_silent = |peer: &u16| reports.iter().all(|other| other.index != *peer);
    missing.extend(report.pairs.iter().map(|pair| pair.peer).filter(is_silent));
    missing.sort_unstable();
    missing.dedup();
    let mut speeds: Vec<u64> = both.iter().map(|(sent, received)| *sent.min(received)).collect();
    speeds.sort_unstable();
    let capacity = median(&speeds).filter(|_| counted > 0).map(Rate::from_byte_per_s);
    TeamCapacity { index: report.index, capacity, missing }
}

/// The seconds of a pair, if it has all.
fn whole_pair(seconds: u32, report: &MemberTraffic, peer: u16) -> Option<&[PairSecond]> {
    let pair = report.pairs.iter().find(|pair| pair.peer == peer)?;
    let is_whole = pair.is_complete && u32::try_from(pair.seconds.len()) == Ok(seconds);
    is_whole.then_some(&pair.seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    /// A member's report: for each peer, sent and received bytes of each second.
    fn member(index: u16, pairs: &[(u16, &[(u64, u64)])]) -> MemberTraffic {
        let pair = |(peer, seconds): &(u16, &[(u64, u64)])| PairTraffic {
            peer: *peer,
            seconds: seconds
                .iter()
                .map(|(sent, received)| PairSecond { sent_bytes: *sent, received_bytes: *received })
                .collect(),
            is_complete: true,
        };
        MemberTraffic { index, pairs: pairs.iter().map(pair).collect() }
    }

    fn bytes(found: &TeamCapacity) -> Option<u64> {
        found.capacity.map(Rate::as_byte_per_s)
    }

    #[test]
    fn a_capacity_is_the_median_second_of_two_way_traffic() {
        let reports = [
            member(0, &[(1, &[(99, 9), (99, 8), (99, 3)]), (2, &[(99, 10), (99, 1), (99, 10)])]),
            member(1, &[(0, &[(99, 2), (99, 10), (99, 10)]), (2, &[(5, 5), (5, 5), (5, 5)])]),
            member(2, &[(0, &[(99, 9), (99, 10), (99, 10)]), (1, &[(5, 5), (5, 5), (5, 5)])]),
        ];
        let found = team_capacities(3, &reports);
        // min(11, 19), min(20, 9), min(20, 13)
        assert_eq!(bytes(&found[0]), Some(11));
        assert!(found.iter().all(|found| found.missing.is_empty()));
    }

    #[test]
    fn bytes_that_were_sent_and_did_not_arrive_do_not_count() {
        let reports = [
            member(0, &[(1, &[(1000, 1000), (1000, 1000)])]),
            member(1, &[(0, &[(1000, 100), (1000, 100)])]),
        ];
        let found = team_capacities(2, &reports);
        assert_eq!(bytes(&found[0]), Some(100), "its uplink dropped the rest");
        assert_eq!(bytes(&found[1]), Some(100), "or the other's downlink did");
    }

    #[test]
    fn a_lost_member_is_missing_and_not_a_low_number() {
        let mut reports = vec![
            member(0, &[(1, &[(7, 7)]), (2, &[(7, 7)]), (3, &[(7, 7)])]),
            member(1, &[(0, &[(7, 7)]), (2, &[(7, 7)]), (3, &[(7, 7)])]),
            member(2, &[(0, &[(7, 7)]), (1, &[(7, 7)]), (3, &[(7, 7)])]),
        ];
        reports[2].pairs[0].is_complete = false;
        let found = team_capacities(1, &reports);
        assert_eq!((bytes(&found[0]), found[0].missing.clone()), (Some(7), vec![2, 3]));
        assert_eq!((bytes(&found[1]), found[1].missing.clone()), (Some(14), vec![3]));
        let alone = team_capacities(1, &reports[..1]);
        assert_eq!((alone[0].capacity, alone[0].missing.clone()), (None, vec![1, 2, 3]));
        assert_eq!(team_capacities(2, &reports)[0].capacity, None, "seconds are missing");
        assert!(team_capacities(60, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn a_members_report_cannot_raise_its_capacity_above_the_others_reports(
            claims in prop::collection::vec((any::<u64>(), any::<u64>()), 3),
            truths in prop::collection::vec((0u64..1000, 0u64..1000), 3),
        ) {
            let reports = [member(0, &[(1, &claims)]), member(1, &[(0, &truths)])];
            let most = truths.iter().map(|(_, received)| *received).max().unwrap_or(0);
            let found = team_capacities(3, &reports);
            prop_assert!(bytes(&found[0]).is_some_and(|capacity| capacity <= most));
        }
    }
}
