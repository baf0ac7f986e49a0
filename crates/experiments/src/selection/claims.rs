//! What the paper says of its strategies in numbers, judged: table III, and the three correlations.

use super::correlation::Correlation;
use super::judge::{of, rate, rounded, rtt_ms, setup_ms};
use crate::factor::{Factor, interval_verdict};
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
        let verdict = match (interval_verdict(factor.interval, 1.0, paper), users) {
            (_, Users::Absent) if depends_on_users => CaseVerdict::Skipped,
            (_, Users::TooFewOrMany) if depends_on_users => CaseVerdict::Inconclusive,
            (verdict, _) => verdict,
        };
        with_interval(
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

/// A value, its interval, the paper's, and whether that is within.
fn with_interval(
    case: Case,
    name: &str,
    value: f64,
    interval: Option<(f64, f64)>,
    paper: f64,
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
            Case::named(format!("correlation: {name}")),
            "correlation",
            found.coefficient,
            found.interval,
            paper,
        )
        .column("circuits", found.count)
        .ended(
            interval_verdict(found.interval, 0.0, paper),
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
    fn all_three_of_table_iii_are_judged_where_users_load_the_network_as_in_the_paper() {
        use CaseVerdict::{Held, Inconclusive, Missed, Skipped};
        let (slow, fast) = (circuits((900, 500, 11.0)), circuits((400, 300, 45.0)));
        let judged = |uniform, weighted, users| verdicts(&table_iii(uniform, weighted, users));
        assert_eq!(judged(&slow, &fast, Users::AsInPaper), [Held, Held, Held]);
        assert_eq!(judged(&fast, &slow, Users::AsInPaper), [Missed, Missed, Missed]);
        assert_eq!(judged(&slow, &slow, Users::AsInPaper), [Inconclusive; 3]);
        // Without the condition, the result says nothing either way.
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
