//! What the paper says of its strategies in numbers, judged: table III, and the three correlations.

use super::correlation::Correlation;
use super::judge::{of, rate, rounded, rtt_ms, setup_ms};
use crate::simulated::Interval;
use client::probe::Probed;
use report::experiment::{Case, CaseVerdict};

type Value = fn(&Probed) -> Option<f64>;

/// Whether users loaded the network as in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    /// Nobody was asked to: set-up and round trips have no reason to differ.
    Absent,
    /// They were there, but slow relays were not full, or fast ones were.
    TooFewOrMany,
    /// Slow relays were full, and fast ones were not.
    AsInPaper,
}

/// On which side of the middle a whole interval lies: the paper's, the other, or on both.
fn side(interval: Option<(f64, f64)>, middle: f64, paper: f64) -> CaseVerdict {
    let Some((low, high)) = interval else { return CaseVerdict::Inconclusive };
    if low <= middle && middle <= high {
        return CaseVerdict::Inconclusive;
    }
    if (low > middle) == (paper > middle) { CaseVerdict::Held } else { CaseVerdict::Missed }
}

/// A quotient of two means, with its interval of 95 %: by the errors of both (delta method), of its logarithm, since times have long tails.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Factor {
    value: f64,
    interval: Option<(f64, f64)>,
}

impl Factor {
    fn of(part: Interval, whole: Interval) -> Self {
        let value = part.mean / whole.mean;
        let relative = |it: Interval| Some(it.half_width? / it.mean);
        let width = relative(part).zip(relative(whole)).map(|(a, b)| a.hypot(b));
        let width = width.filter(|it| it.is_finite());
        Self { value, interval: width.map(|it| (value * (-it).exp(), value * it.exp())) }
    }
}

/// Table III: each of its three values a case.
pub(super) fn table_iii(uniform: &[Probed], weighted: &[Probed], users: Users) -> Vec<Case> {
    let values: [(&str, Value, f64); 3] = [
        ("set-up", setup_ms, 3.33 / 6.31),
        ("round trip", rtt_ms, 1.09 / 1.61),
        ("throughput", rate, 45.33 / 11.04),
    ];
    let case = |(name, value, paper): (&str, Value, f64)| {
        let factor = Factor::of(of(weighted, value), of(uniform, value));
        let depends_on_users = name != "throughput";
        let verdict = match (side(factor.interval, 1.0, paper), users) {
            (_, Users::Absent) if depends_on_users => CaseVerdict::Skipped,
            (_, Users::TooFewOrMany) if depends_on_users => CaseVerdict::Inconclusive,
            (verdict, _) => verdict,
        };
        let interval = factor
            .interval
            .map_or_else(String::new, |(low, high)| format!(" ({low:.2} to {high:.2})"));
        with_interval(
            Case::new(format!("table III: {name}, weighted over uniform"), None, None),
            "factor",
            (factor.value, factor.interval, paper),
        )
        .ended(verdict, format!("× {:.2}{interval}; paper × {paper:.2}", factor.value))
    };
    values.into_iter().map(case).collect()
}

/// A value, its interval, the paper's, and whether that is within.
fn with_interval(
    case: Case,
    name: &str,
    (value, interval, paper): (f64, Option<(f64, f64)>, f64),
) -> Case {
    case.column(name, rounded(value))
        .column(&format!("{name}_low"), interval.and_then(|it| rounded(it.0)))
        .column(&format!("{name}_high"), interval.and_then(|it| rounded(it.1)))
        .column(&format!("{name}_paper"), rounded(paper))
        .column("paper_is_within", interval.map(|(low, high)| (low..=high).contains(&paper)))
}

/// Figures 5 and 6: over uniform and weighted circuits, as in the paper.
pub(super) fn correlations(all: &[&Probed]) -> Vec<Case> {
    let asked: [(&str, Value, Value, f64); 3] = [
        ("set-up and round trip", setup_ms, rtt_ms, 0.47),
        ("throughput and round trip", rate, rtt_ms, -0.34),
        ("set-up and throughput", setup_ms, rate, -0.16),
    ];
    let case = |(name, x, y, paper): (&str, Value, Value, f64)| {
        let pairs: Vec<(f64, f64)> = all.iter().filter_map(|it| Some((x(it)?, y(it)?))).collect();
        let found = Correlation::of(&pairs);
        with_interval(
            Case::new(format!("correlation: {name}"), None, None),
            "correlation",
            (found.coefficient, found.interval, paper),
        )
        .column("circuits", found.count)
        .ended(
            side(found.interval, 0.0, paper),
            format!("{found} of {} circuits; paper {paper}", found.count),
        )
    };
    asked.into_iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::Fingerprint;
    use onion::Duration;

    /// A circuit of one hop, so set up, with such a round trip and throughput.
    fn circuit(setup_ms: u64, rtt_ms: u64, throughput_kb_s: f64) -> Probed {
        Probed {
            path: vec![Fingerprint::from_bytes([1; 20])],
            hop_times: vec![Duration::from_millis(setup_ms)],
            rtts: vec![vec![Duration::from_millis(rtt_ms)]],
            throughput_kb_s: Some(throughput_kb_s),
            ..Probed::default()
        }
    }

    fn circuits(base: (u64, u64, f64)) -> Vec<Probed> {
        let noisy = |it: u64| circuit(base.0 + it % 3, base.1 + it % 5, base.2 + (it % 2) as f64);
        (0..12).map(noisy).collect()
    }

    fn verdicts(cases: &[Case]) -> Vec<CaseVerdict> {
        cases.iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn an_interval_across_the_middle_decides_nothing() {
        assert_eq!(side(Some((0.1, 0.9)), 0.0, 0.47), CaseVerdict::Held);
        assert_eq!(side(Some((-0.9, -0.1)), 0.0, 0.47), CaseVerdict::Missed);
        assert_eq!(side(Some((-0.9, -0.1)), 0.0, -0.34), CaseVerdict::Held);
        assert_eq!(side(Some((-0.1, 0.9)), 0.0, 0.47), CaseVerdict::Inconclusive);
        assert_eq!(side(None, 0.0, 0.47), CaseVerdict::Inconclusive);
        assert_eq!(side(Some((0.4, 0.9)), 1.0, 0.53), CaseVerdict::Held);
        assert_eq!(side(Some((1.1, 9.0)), 1.0, 0.53), CaseVerdict::Missed);
    }

    #[test]
    fn a_factor_is_as_unsure_as_both_its_parts_and_never_negative() {
        let exact = Interval { mean: 4.0, half_width: Some(0.0), count: 9 };
        let unsure = Interval { mean: 2.0, half_width: Some(3.0), count: 3 };
        let Factor { value, interval: Some((low, high)) } = Factor::of(unsure, exact) else {
            panic!("no interval");
        };
        assert!((value - 0.5).abs() < 1e-9 && low > 0.0, "{low}");
        // The quotient times and over e to the power of 1.5.
        assert!(
            (high / value - 4.481_689).abs() < 1e-5 && (value / low * value - high).abs() < 1e-9
        );
        let one = Interval { mean: 2.0, half_width: None, count: 1 };
        assert_eq!(Factor::of(one, exact).interval, None);
    }

    #[test]
    fn all_three_of_table_iii_are_judged_where_users_load_the_network_as_in_the_paper() {
        use CaseVerdict::{Held, Inconclusive, Missed, Skipped};
        let (slow, fast) = (circuits((900, 500, 11.0)), circuits((400, 300, 45.0)));
        let judged = |uniform, weighted, users| verdicts(&table_iii(uniform, weighted, users));
        assert_eq!(judged(&slow, &fast, Users::AsInPaper), [Held, Held, Held]);
        assert_eq!(judged(&fast, &slow, Users::AsInPaper), [Missed, Missed, Missed]);
        assert_eq!(judged(&slow, &slow, Users::AsInPaper), [Inconclusive; 3]);
        // Where the condition is not there, what comes out says nothing, whichever way.
        assert_eq!(judged(&fast, &slow, Users::TooFewOrMany), [Inconclusive, Inconclusive, Missed]);
        assert_eq!(judged(&slow, &fast, Users::TooFewOrMany), [Inconclusive, Inconclusive, Held]);
        assert_eq!(judged(&slow, &fast, Users::Absent), [Skipped, Skipped, Held]);
    }

    #[test]
    fn correlations_are_judged_by_their_sign() {
        use CaseVerdict::{Held, Inconclusive, Missed};
        let all: Vec<Probed> =
            (1..20).map(|it| circuit(it * 90 + it % 2 * 20, it * 50, 100.0 - it as f64)).collect();
        let all: Vec<&Probed> = all.iter().collect();
        assert_eq!(verdicts(&correlations(&all)), [Held, Held, Held]);
        assert_eq!(verdicts(&correlations(&all[..3])), [Inconclusive; 3]);
        let other: Vec<Probed> = (1..20)
            .map(|it| circuit(it * 90, 2000 - it * 50, it as f64 + (it % 3) as f64))
            .collect();
        let other: Vec<&Probed> = other.iter().collect();
        assert_eq!(verdicts(&correlations(&other)), [Missed, Held, Missed]);
    }
}
