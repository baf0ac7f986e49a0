//! Claims about descriptors before and after a campaign, and the report.

use crate::reporting::{self, parameter, rule};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../../../../docs/experiments/speed-test.md");

/// Minimum share of its limit that a measured relay advertises afterwards. C tor forwards some 8 % less than its limit.
const MEASURED_MIN: f64 = 0.75;
/// Maximum share of its limit that another relay advertises: its clients send a twentieth.
const CONTROL_MAX: f64 = 0.3;

/// Kind of a relay, which decides the claim about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) is_tor: bool,
    pub(super) is_measured: bool,
}

/// The observed bandwidths in a relay's descriptors.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) limit_mbit_per_s: f64,
    pub(super) claim: Claim,
    pub(super) before_mbit_per_s: Option<f64>,
    /// Observed bandwidth when all were measured, and the day was not over.
    pub(super) after_campaign_mbit_per_s: Option<f64>,
    /// Observed bandwidth when all have published again.
    pub(super) after_mbit_per_s: Option<f64>,
}

/// Results of the experiment.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// The estimates, by relay.
    pub(super) campaign_mbit_per_s: BTreeMap<String, Option<f64>>,
    cases: Vec<Case>,
    /// Sums over the measured relays, and over the others: limit, before and after.
    sums_mbit_per_s: [[f64; 3]; 2],
}

impl Results {
    pub(super) fn add(&mut self, it: Observed) -> Case {
        let (verdict, detail) = judge(&it);
        let after = it.after_mbit_per_s;
        let sums = &mut self.sums_mbit_per_s[usize::from(!it.claim.is_measured)];
        let parts = [Some(it.limit_mbit_per_s), it.before_mbit_per_s, after];
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum += part.unwrap_or(0.0);
        }
        let estimate = self.campaign_mbit_per_s.get(&it.name).copied().flatten();
        let case = Case::new(it.name, Some(it.limit_mbit_per_s), after)
            .ended(verdict, detail)
            .column("measured_mbit_per_s", estimate)
            .column("observed_before_mbit_per_s", it.before_mbit_per_s)
            .column("observed_after_campaign_mbit_per_s", it.after_campaign_mbit_per_s)
            .column("observed_after_mbit_per_s", after);
        self.cases.push(case.clone());
        case
    }

    pub(super) fn report(self, seconds: u32) -> ExperimentReport {
        let [measured, others] = self.sums_mbit_per_s;
        let answer = format!(
            "Measured relays with limits of {:.0} Mbit/s in all advertised {:.1} Mbit/s before and {:.1} afterwards; other relays with the same \
             limits {:.1} and {:.1}.",
            measured[0], measured[1], measured[2], others[1], others[2],
        );
        ExperimentReport {
            answer,
            promise: Promise::Decided {
                held: reporting::claim_holds(&self.cases),
                rule: rule(TEXT),
            },
            parameters: vec![
                parameter("seconds of a measurement", seconds),
                parameter("load of clients", "a twentieth of the limit"),
            ],
            cases: self.cases,
            ..reporting::report("speed-test", TEXT)
        }
    }
}

fn judge(it: &Observed) -> (CaseVerdict, String) {
    let Some(after) = it.after_mbit_per_s else {
        return (CaseVerdict::Failed, "the authority has no descriptor of it".to_owned());
    };
    let share = |mbit: f64| mbit / it.limit_mbit_per_s;
    // A relay of C tor does not count the current day.
    let early = it.after_campaign_mbit_per_s.filter(|it| *it > 0.0);
    match (it.claim, early) {
        (Claim { is_tor: true, .. }, Some(early)) => (
            CaseVerdict::Missed,
            format!("it advertised {early:.1} Mbit/s before its day was over"),
        ),
        (Claim { is_measured: true, .. }, _) if share(after) < MEASURED_MIN => {
            (CaseVerdict::Missed, "it was measured but advertises too little".to_owned())
        }
        (Claim { is_measured: false, .. }, _) if share(after) > CONTROL_MAX => {
            (CaseVerdict::Missed, "it was not measured but advertises too much".to_owned())
        }
        _ => (CaseVerdict::Held, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(claim: Claim, after_campaign: f64, after: f64) -> CaseVerdict {
        let observed = Observed {
            name: "one".to_owned(),
            limit_mbit_per_s: 100.0,
            claim,
            before_mbit_per_s: Some(0.0),
            after_campaign_mbit_per_s: Some(after_campaign),
            after_mbit_per_s: Some(after),
        };
        judge(&observed).0
    }

    #[test]
    fn only_measured_relays_advertise_more_and_c_tor_only_after_its_day() {
        use CaseVerdict::{Held, Missed};
        let tor = |is_measured| Claim { is_tor: true, is_measured };
        let ours = |is_measured| Claim { is_tor: false, is_measured };
        assert_eq!(verdict(tor(true), 0.0, 92.0), Held);
        assert_eq!(verdict(tor(true), 0.0, 70.0), Missed);
        assert_eq!(verdict(tor(true), 92.0, 92.0), Missed);
        assert_eq!(verdict(tor(false), 0.0, 5.0), Held);
        assert_eq!(verdict(tor(false), 0.0, 92.0), Missed);
        assert_eq!(verdict(ours(true), 5.0, 99.0), Held);
        assert_eq!(verdict(ours(true), 5.0, 5.0), Missed);
        assert_eq!(verdict(ours(false), 5.0, 5.0), Held);
    }
}
