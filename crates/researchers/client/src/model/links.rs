use super::directory::SKEW_MAX_S;
use super::{Link, MODEL_AGE_MAX_S, Model, Pair, THROUGHPUT_MAX_KB_S};
use dirmgr::LinkObservations;
use netdoc::RsaId;
use std::collections::BTreeMap;

/// Derives a model of throughputs from the signed link observations of relays (Panchenko et al.,
/// §V-B).
///
/// - The throughput from one relay to another is the minimum of what one reports as sent and the
///   other as received. A relay that lies alone cannot exceed the other end's report. Links
///   reported by one end only are dropped.
/// - The throughput of a link is the maximum of both directions: it is a lower bound of the
///   capacity.
/// - It is limited by the capacity of either end, if `capacity_kb_s` has capacities; relays without
///   one are then dropped. Two relays that collude gain no more than by transferring what they can.
///
/// For each relay the latest report counts, if at `unix_time_s` it is at most a day old and not
/// from the future. The model has the age of the oldest report that counts.
#[must_use]
pub fn of_links(
    accounts: &[LinkObservations],
    capacity_kb_s: impl Fn(&RsaId) -> Option<f64>,
    unix_time_s: u64,
) -> Model {
    let mut latest: BTreeMap<RsaId, &LinkObservations> = BTreeMap::new();
    let is_present = |account: &&LinkObservations| {
        account.until_unix_s <= unix_time_s.saturating_add(SKEW_MAX_S)
            && account.until_unix_s.saturating_add(MODEL_AGE_MAX_S) >= unix_time_s
    };
    for account in accounts.iter().filter(is_present) {
        let known = latest.entry(account.relay).or_insert(account);
        if known.until_unix_s < account.until_unix_s {
            *known = account;
        }
    }
    // Bytes sent and received from the first to the second, by the relay that reports them.
    let mut sent: BTreeMap<(RsaId, RsaId), u64> = BTreeMap::new();
    let mut received = sent.clone();
    for account in latest.values() {
        for link in &account.links {
            // If a relay reports a link twice, the minimum counts.
            let least = |known: &mut u64, reported: u64| *known = (*known).min(reported);
            least(sent.entry((account.relay, link.relay)).or_insert(u64::MAX), link.sent_kb_s);
            least(
                received.entry((link.relay, account.relay)).or_insert(u64::MAX),
                link.received_kb_s,
            );
        }
    }
    let mut links: BTreeMap<Pair, Link> = BTreeMap::new();
    for ((from, to), sent_kb_s) in sent {
        let Some(received_kb_s) = received.get(&(from, to)) else { continue };
        let [Some(one), Some(other)] = [from, to].map(|relay| capacity_kb_s(&relay)) else {
            continue;
        };
        // Rounded to powers of two, far below 2⁵³.
        let carried = sent_kb_s.min(*received_kb_s) as f64;
        let carried = carried.min(one).min(other).min(THROUGHPUT_MAX_KB_S);
        if carried > 0.0 {
            let link = links.entry(Pair::new(from, to)).or_default();
            link.throughput_kb_s = Some(
                link.throughput_kb_s
                    .map_or(carried, |throughput_kb_s| throughput_kb_s.max(carried)),
            );
        }
    }
    let oldest = latest.values().map(|account| account.until_unix_s.min(unix_time_s)).min();
    Model::new(oldest.unwrap_or(unix_time_s), BTreeMap::new(), links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdir::tests::{netdir, relay};
    use crate::strategy::{Position, Strategy as _, Throughput};
    use dirmgr::ObservedLink;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn name(number: u8) -> RsaId {
        RsaId([number; 20])
    }

    fn account(relay: u8, until_unix_s: u64, links: &[(u8, u64, u64)]) -> LinkObservations {
        let link = |(relay, sent_kb_s, received_kb_s): &(u8, u64, u64)| ObservedLink {
            relay: name(*relay),
            sent_kb_s: *sent_kb_s,
            received_kb_s: *received_kb_s,
        };
        let links = links.iter().map(link).collect();
        LinkObservations { relay: name(relay), until_unix_s, links }
    }

    const ANY: fn(&RsaId) -> Option<f64> = |_| Some(f64::INFINITY);

    fn between(model: &Model, a: u8, b: u8) -> Option<f64> {
        model.links().get(&Pair::new(name(a), name(b)))?.throughput_kb_s
    }

    #[test]
    fn throughput_is_the_lower_report_of_both_ends_in_the_faster_direction() {
        let old = account(1, 5, &[(2, 4096, 4096)]);
        let now = account(1, 9, &[(2, 1024, 512), (3, 8, 8)]);
        let other = account(2, 9, &[(1, 256, 128), (3, 0, 0)]);
        let model = of_links(&[old, now, other], ANY, 9);
        // From 2 to 1: 256 sent, 512 reported as received. From 1 to 2: 1024 and 128. Only 1
        // reports 3.
        assert_eq!(between(&model, 1, 2), Some(256.0));
        assert_eq!((between(&model, 1, 3), model.links().len()), (None, 1));
    }

    #[test]
    fn old_and_future_reports_do_not_count_and_a_model_is_as_old_as_its_oldest_report() {
        let now = 10 * MODEL_AGE_MAX_S;
        let both = |one_s: u64, other_s: u64| {
            let accounts = [account(1, one_s, &[(2, 64, 64)]), account(2, other_s, &[(1, 64, 64)])];
            of_links(&accounts, ANY, now)
        };
        let model = both(now - 100, now - MODEL_AGE_MAX_S);
        assert_eq!((model.links().len(), model.made_unix_s()), (1, now - MODEL_AGE_MAX_S));
        assert_eq!(both(now, now + SKEW_MAX_S).made_unix_s(), now);
        assert!(both(now, now - MODEL_AGE_MAX_S - 1).links().is_empty());
        assert!(both(now, now + SKEW_MAX_S + 1).links().is_empty());
        // A report from a clock that was ahead does not hide later ones.
        let ahead = account(1, now + MODEL_AGE_MAX_S, &[(2, 1, 1)]);
        let [one, other] = [account(1, now, &[(2, 64, 64)]), account(2, now, &[(1, 64, 64)])];
        assert_eq!(between(&of_links(&[ahead, one, other], ANY, now), 1, 2), Some(64.0));
    }

    #[test]
    fn clients_prefer_the_middle_whose_links_were_seen_to_carry_more() {
        let accounts = [
            account(1, 1, &[(3, 512, 512), (4, 64, 64)]),
            account(2, 1, &[(3, 512, 512), (4, 64, 64)]),
            account(3, 1, &[(1, 512, 512), (2, 512, 512)]),
            // It reports the fastest links of all.
            account(4, 1, &[(1, 1 << 40, 1 << 40), (2, 1 << 40, 1 << 40)]),
        ];
        let strategy = Throughput::new(Arc::new(of_links(&accounts, ANY, 1)), 1.0);
        let network = netdir([1, 2, 3, 4].map(relay));
        let (first, exit) = (relay(1), relay(2));
        let weight =
            |middle| strategy.weight(&network, &relay(middle), Position::Middle, &[&first, &exit]);
        assert!(weight(3) >= weight(4) * 7.9, "{} and {}", weight(3), weight(4));
    }

    /// Reports of relays 0 to 5 about their links with each other.
    fn reports() -> impl Strategy<Value = Vec<(u8, u8, u64, u64)>> {
        let rate = || prop_oneof![9 => 0_u64..20_000, 1 => any::<u64>()];
        prop::collection::vec((0_u8..6, 0_u8..6, rate(), rate()), 0..60)
    }

    fn accounts(reports: &[(u8, u8, u64, u64)]) -> Vec<LinkObservations> {
        let of = |relay| {
            let own = reports.iter().filter(|report| report.0 == relay);
            account(relay, 1, &own.map(|report| (report.1, report.2, report.3)).collect::<Vec<_>>())
        };
        (0..6).map(of).collect()
    }

    proptest! {
        /// Relay 0 is honest: whatever others report, none of its links exceeds its own report.
        #[test]
        fn no_link_looks_better_than_its_honest_end_reports(reports in reports()) {
            let model = of_links(&accounts(&reports), ANY, 1);
            for (pair, link) in model.links() {
                let [a, b] = pair.ends().map(|end| end.0[0]);
                prop_assert!(a != b);
                let other = if a == 0 { b } else { continue };
                let own = reports.iter().filter(|report| (report.0, report.1) == (0, other));
                let most = own.map(|report| report.2.max(report.3)).max();
                prop_assert!(link.throughput_kb_s <= most.map(|kb_s| kb_s as f64), "{link:?} {most:?}");
            }
        }

        /// All collude: no link exceeds the capacity of its slower end, and relays without a
        /// capacity have no links.
        #[test]
        fn all_liars_together_gain_no_more_than_their_capacity(
            reports in reports(), capacities in prop::collection::vec(prop::option::of(0_u32..10_000), 6),
        ) {
            let capacity = |relay: &RsaId| capacities[usize::from(relay.0[0])].map(f64::from);
            let model = of_links(&accounts(&reports), capacity, 1);
            for (pair, link) in model.links() {
                for end in pair.ends() {
                    prop_assert!(link.throughput_kb_s <= capacity(end), "{link:?}");
                }
            }
        }
    }
}
