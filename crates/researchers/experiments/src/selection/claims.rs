//! Claims of the paper with numbers: table III and the three correlations.

use super::judge::{DIGITS, of, rate, rounded, rtt_ms, setup_ms};
use crate::columns;
use crate::correlation::Correlation;
use crate::factor::{Factor, interval_verdict};
use client::probe::Probed;
use report::experiment::{Case, CaseVerdict};

type Value = fn(&Probed) -> Option<f64>;

/// The maximum rate of a slow relay, in Mbit/s.
pub(super) const SLOW_MBIT: f64 = 1.0;
/// The minimum rate of a fast relay, in Mbit/s.
pub(super) const FAST_MBIT: f64 = 8.0;
/// The minimum share of its limit that completed downloads, or in virtual time all bytes that it sends, use of a full relay. The rest are cell headers, TLS, and unfinished downloads.
const FULL: f64 = 0.6;
/// The maximum share of its limit that downloads use of a relay that is not loaded.
const FREE: f64 = 0.4;

/// The load of the network by users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UserLoad {
    /// No users: there is no reason why set-up and round trips should differ.
    None,
    /// Slow relays were not full, or fast ones were loaded.
    Different,
    /// Slow relays were full, and fast ones were not loaded.
    AsInPaper,
}

impl UserLoad {
    /// The load by the mean shares of their limits that slow and fast relays use.
    pub(super) fn from_shares(slow: f64, fast: f64) -> Self {
        if slow >= FULL && fast <= FREE { Self::AsInPaper } else { Self::Different }
    }
}

/// Table III: a case for each of its three values.
pub(super) fn table_iii(uniform: &[Probed], weighted: &[Probed], load: UserLoad) -> Vec<Case> {
    let values: [(&str, Value, f64); 3] = [
        ("set-up", setup_ms, 3.33 / 6.31),
        ("round trip", rtt_ms, 1.09 / 1.61),
        ("throughput", rate, 45.33 / 11.04),
    ];
    let case = |(name, value, paper): (&str, Value, f64)| {
        let factor = Factor::of_means(of(weighted, value), of(uniform, value));
        let depends_on_load = name != "throughput";
        let verdict = match (interval_verdict(factor.interval, 1.0, paper), load) {
            (_, UserLoad::None) if depends_on_load => CaseVerdict::Skipped,
            (_, UserLoad::Different) if depends_on_load => CaseVerdict::Inconclusive,
            (verdict, _) => verdict,
        };
        with_paper(
            Case::named(format!("table III: {name}, weighted over uniform")),
            "factor",
            factor.value,
            factor.interval,
            paper,
        )
        .ended(verdict, format!("{factor}; paper × {paper:.2}"))
    };
    values.into_iter().map(case).collect()
}

/// Adds a value with its interval, and the paper's value.
fn with_paper(
    case: Case,
    name: &str,
    value: f64,
    interval: Option<(f64, f64)>,
    paper: f64,
) -> Case {
    columns::with_interval(case, name, value, interval, DIGITS)
        .column(&format!("{name}_paper"), rounded(paper))
        .column("paper_is_within", interval.map(|(low, high)| (low..=high).contains(&paper)))
}

/// Figures 5 and 6, over uniform and weighted circuits.
pub(super) fn correlations(all: &[&Probed]) -> Vec<Case> {
    let claims: [(&str, Value, Value, f64); 3] = [
        ("set-up and round trip", setup_ms, rtt_ms, 0.47),
        ("throughput and round trip", rate, rtt_ms, -0.34),
        ("set-up and throughput", setup_ms, rate, -0.16),
    ];
    let case = |(name, x, y, paper): (&str, Value, Value, f64)| {
        let pairs: Vec<(f64, f64)> =
            all.iter().filter_map(|probed| Some((x(probed)?, y(probed)?))).collect();
        let correlation = Correlation::from_pairs(&pairs);
        with_paper(
            Case::named(format!("correlation: {name}")),
            "correlation",
            correlation.coefficient,
            correlation.interval,
            paper,
        )
        .column("circuits", correlation.count)
        .ended(
            interval_verdict(correlation.interval, 0.0, paper),
            format!("{correlation} of {} circuits; paper {paper}", correlation.count),
        )
    };
    claims.into_iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::RsaId;
    use onion::Duration;

    /// A circuit of one hop with this set-up time, round trip and throughput.
    fn circuit(setup_ms: u64, rtt_ms: u64, throughput_kb_s: f64) -> Probed {
        Probed {
            path: vec![RsaId([1; 20])],
            hop_times: vec![Duration::from_millis(setup_ms)],
            rtts: vec![vec![Duration::from_millis(rtt_ms)]],
            throughput_kb_s: Some(throughput_kb_s),
            ..Probed::default()
        }
    }

    fn circuits(base: (u64, u64, f64)) -> Vec<Probed> {
        let noisy = |number: u64| {
            circuit(base.0 + number % 3, base.1 + number % 5, base.2 + (number % 2) as f64)
        };
        (0..12).map(noisy).collect()
    }

    fn verdicts(cases: &[Case]) -> Vec<CaseVerdict> {
        cases.iter().map(|case| case.verdict).collect()
    }

    #[test]
    fn table_iii_is_judged_if_users_load_the_network_as_in_the_paper() {
        use CaseVerdict::{Held, Inconclusive, Missed, Skipped};
        let (slow, fast) = (circuits((900, 500, 11.0)), circuits((400, 300, 45.0)));
        let judged = |uniform, weighted, load| verdicts(&table_iii(uniform, weighted, load));
        assert_eq!(judged(&slow, &fast, UserLoad::AsInPaper), [Held, Held, Held]);
        assert_eq!(judged(&fast, &slow, UserLoad::AsInPaper), [Missed, Missed, Missed]);
        assert_eq!(judged(&slow, &slow, UserLoad::AsInPaper), [Inconclusive; 3]);
        // With a different load, set-up and round trip decide nothing.
        assert_eq!(judged(&fast, &slow, UserLoad::Different), [Inconclusive, Inconclusive, Missed]);
        assert_eq!(judged(&slow, &fast, UserLoad::Different), [Inconclusive, Inconclusive, Held]);
        assert_eq!(judged(&slow, &fast, UserLoad::None), [Skipped, Skipped, Held]);
    }

    #[test]
    fn users_load_slow_relays_and_no_fast_ones_as_in_the_paper() {
        assert_eq!(UserLoad::from_shares(0.7, 0.2), UserLoad::AsInPaper);
        for (slow, fast) in [(0.5, 0.2), (0.7, 0.5), (f64::NAN, 0.2), (0.7, f64::NAN)] {
            assert_eq!(UserLoad::from_shares(slow, fast), UserLoad::Different, "{slow} {fast}");
        }
    }

    #[test]
    fn correlations_are_judged_by_their_sign() {
        use CaseVerdict::{Held, Inconclusive, Missed};
        let all: Vec<Probed> = (1..20)
            .map(|number| {
                circuit(number * 90 + number % 2 * 20, number * 50, 100.0 - number as f64)
            })
            .collect();
        let all: Vec<&Probed> = all.iter().collect();
        assert_eq!(verdicts(&correlations(&all)), [Held, Held, Held]);
        assert_eq!(verdicts(&correlations(&all[..3])), [Inconclusive; 3]);
        let other: Vec<Probed> = (1..20)
            .map(|number| {
                circuit(number * 90, 2000 - number * 50, number as f64 + (number % 3) as f64)
            })
            .collect();
        let other: Vec<&Probed> = other.iter().collect();
        assert_eq!(verdicts(&correlations(&other)), [Missed, Held, Missed]);
    }
}
