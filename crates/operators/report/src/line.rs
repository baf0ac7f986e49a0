//! The result of a relay as one line.

use crate::{Mode, RelayReport};

/// Describes the result of a relay in one line.
#[must_use]
pub fn line(report: &RelayReport) -> String {
    let name = &report.nickname;
    match (report.estimate_mbit_per_s, &report.error) {
        (Some(estimate), _) => {
            let verdict = match &report.inconclusive_reason {
                Some(reason) => format!("inconclusive: {reason}"),
                None if report.mode == Mode::Transit => {
                    "conclusive, without client traffic".to_owned()
                }
                None => "conclusive".to_owned(),
            };
            let rounds = if report.rounds == 1 { "round" } else { "rounds" };
            let cpu = report.relay_cpu_share.map_or_else(String::new, |share| {
                format!(" (its process at {:.0} % of a core)", share * 100.0)
            });
            format!("{name}: {estimate:.2} Mbit/s after {} {rounds}{cpu}, {verdict}", report.rounds)
        }
        (None, error) => format!("{name}: {}", error.as_deref().unwrap_or("no estimate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_line_has_the_estimate_or_the_reason_for_none() {
        let text = line(&testing::conclusive());
        assert_eq!(text, "steady: 240.00 Mbit/s after 2 rounds, conclusive");
        let starved =
            RelayReport { relay_cpu_share: Some(0.5), rounds: 1, ..testing::inconclusive() };
        let text = line(&starved);
        let expected = "unbounded: 240.00 Mbit/s after 1 round (its process at 50 % of a core), \
                        inconclusive: the team is too small";
        assert_eq!(text, expected);
        assert_eq!(line(&testing::failed()), "broken: the relay forged a cell");
    }
}
