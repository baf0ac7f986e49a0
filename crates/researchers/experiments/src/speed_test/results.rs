//! Claims about descriptors before and after a campaign.

use report::experiment::{Case, CaseVerdict};
use serde::{Deserialize, Serialize};

/// Minimum share of its limit that a measured relay advertises afterwards. C tor forwards some 8 % less than its limit.
const MEASURED_MIN: f64 = 0.75;
/// Maximum share of its limit that another relay advertises: its clients send a twentieth.
const CONTROL_MAX: f64 = 0.3;

/// Kind of a relay, which decides the claim about it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) is_tor: bool,
    pub(super) is_measured: bool,
}

/// The observed bandwidths in a relay's descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Observed {
    pub(super) name: String,
    pub(super) limit_mbit_per_s: f64,
    pub(super) claim: Claim,
    /// The estimate of the campaign.
    pub(super) measured_mbit_per_s: Option<f64>,
    pub(super) before_mbit_per_s: Option<f64>,
    /// Observed bandwidth when all were measured, and the day was not over.
    pub(super) after_campaign_mbit_per_s: Option<f64>,
    /// Observed bandwidth when all have published again.
    pub(super) after_mbit_per_s: Option<f64>,
}

impl Observed {
    pub(super) fn case(&self) -> Case {
        let (verdict, detail) = judge(self);
        let after = self.after_mbit_per_s;
        Case::new(self.name.as_str(), Some(self.limit_mbit_per_s), after)
            .ended(verdict, detail)
            .column("measured_mbit_per_s", self.measured_mbit_per_s)
            .column("observed_before_mbit_per_s", self.before_mbit_per_s)
            .column("observed_after_campaign_mbit_per_s", self.after_campaign_mbit_per_s)
            .column("observed_after_mbit_per_s", after)
    }
}

/// The answer in a sentence.
pub(super) fn answer(all: &[Observed]) -> String {
    let sum_mbit = |is_measured: bool, of: fn(&Observed) -> Option<f64>| -> f64 {
        all.iter().filter(|relay| relay.claim.is_measured == is_measured).filter_map(of).sum()
    };
    let (before, after) =
        (|relay: &Observed| relay.before_mbit_per_s, |relay: &Observed| relay.after_mbit_per_s);
    format!(
        "Measured relays with limits of {:.0} Mbit/s in all advertised {:.1} Mbit/s before and {:.1} afterwards; other relays with the same \
         limits {:.1} and {:.1}.",
        sum_mbit(true, |relay| Some(relay.limit_mbit_per_s)),
        sum_mbit(true, before),
        sum_mbit(true, after),
        sum_mbit(false, before),
        sum_mbit(false, after),
    )
}

fn judge(observed: &Observed) -> (CaseVerdict, String) {
    let Some(after) = observed.after_mbit_per_s else {
        return (CaseVerdict::Failed, "the authority has no descriptor of it".to_owned());
    };
    let share = |mbit: f64| mbit / observed.limit_mbit_per_s;
    // A relay of C tor does not count the current day.
    let early = observed.after_campaign_mbit_per_s.filter(|mbit| *mbit > 0.0);
    match (observed.claim, early) {
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
            measured_mbit_per_s: None,
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
