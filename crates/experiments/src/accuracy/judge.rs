//! Whether a run held.

use super::plan::Setting;
use crate::error::Error;
use crate::mode::Mode;
use crate::trial::{BOUNDS, Tried};
use onion::Rate;
use report::experiment::{Case, CaseVerdict};

/// Stock tor passes some 92 % of its limit. With less than this share of its limit it was not
/// loaded, whatever was found.
const LOADED: f64 = 0.92 * *BOUNDS.start();

/// The case of a run, and what this machine had to do with it if it did not hold.
pub(super) fn case(
    setting: &Setting,
    guess: Rate,
    tried: Result<&Tried, &Error>,
) -> (Case, Option<String>) {
    let limit = setting.limit.map(Rate::as_mbit_per_s);
    let tried = match tried {
        Ok(tried) => tried,
        Err(error) => {
            let case = Case::new(setting.name(), limit, None);
            let case = case.ended(CaseVerdict::Failed, error.to_string());
            return (with_setting(case, setting, guess), None);
        }
    };
    let said = tried.said_mbit();
    let sent = tried.sent_mbit().filter(|mbit| *mbit > 0.0);
    let truth = match setting.mode {
        Mode::Echo => limit.or(sent),
        Mode::Transit => sent,
    };
    let doubt = tried.doubt(limit.is_some());
    let found = Found { limit, truth, sent, estimate: tried.estimate_mbit() };
    let case = found.judged(setting);
    let case = match tried.estimate() {
        None => case.ended(CaseVerdict::Failed, tried.outcome.to_string()),
        Some(_) => Tried::doubted(case, doubt.as_deref()),
    };
    let case = with_setting(case, setting, guess)
        .column("rounds", tried.estimate().map(|estimate| estimate.rounds))
        .column("conclusive", doubt.is_none() && tried.estimate().is_some())
        .column("relay_said_mbit_per_s", said)
        .column("kernel_sent_mbit_per_s", sent);
    // A busy machine makes for too little, never for too much.
    let is_high = case.ratio.is_some_and(|ratio| ratio > *BOUNDS.end());
    let starvation = tried.starvation().filter(|_| !is_high);
    let scatter = tried.scatter().filter(|_| truth == sent);
    let why: Vec<String> = starvation.into_iter().chain(scatter).collect();
    (tried.with_loads(case), (!why.is_empty()).then(|| why.join("; ")))
}

/// What a run found, in Mbit/s.
struct Found {
    limit: Option<f64>,
    truth: Option<f64>,
    /// By the kernel.
    sent: Option<f64>,
    estimate: Option<f64>,
}

impl Found {
    fn judged(&self, setting: &Setting) -> Case {
        let Some(truth) = self.truth else {
            let case = Case::new(setting.name(), None, self.estimate);
            return case.ended(CaseVerdict::Failed, "the relay sent nothing, by the kernel");
        };
        let case = Case::judged(setting.name(), truth, self.estimate, BOUNDS);
        let (Mode::Transit, Some(limit), Some(sent)) = (setting.mode, self.limit, self.sent) else {
            return case;
        };
        let share = sent / limit;
        if case.verdict == CaseVerdict::Held && share < LOADED {
            let share = share * 100.0;
            let detail = format!("tor sent but {share:.0} % of its limit");
            return case.ended(CaseVerdict::Missed, detail);
        }
        case
    }
}

fn with_setting(case: Case, setting: &Setting, guess: Rate) -> Case {
    case.column("mode", setting.mode.word())
        .column("limit_mbit_per_s", setting.limit.map(Rate::as_mbit_per_s))
        .column("measurers", setting.measurers)
        .column("run", setting.run)
        .column("guess_mbit_per_s", guess.as_mbit_per_s())
}

/// Whether there is nothing to explain but what the case says itself.
pub(super) fn is_good(case: &Case) -> bool {
    matches!(case.verdict, CaseVerdict::Held | CaseVerdict::Inconclusive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Load;
    use crate::trial::{Quarter, TriedSecond};
    use coordinator::{Estimate, Outcome, Params, Spread};
    use onion::Instant;

    fn verdict(mode: Mode, limit: Option<f64>, sent: f64, estimate: f64) -> CaseVerdict {
        let rate = limit.map(Rate::from_mbit_per_s);
        let setting = Setting { mode, limit: rate, measurers: 1, run: 1 };
        let truth = if mode == Mode::Echo { limit.unwrap_or(sent) } else { sent };
        let found = Found { limit, truth: Some(truth), sent: Some(sent), estimate: Some(estimate) };
        found.judged(&setting).verdict
    }

    #[test]
    fn an_echo_is_held_against_its_limit_and_others_against_what_they_sent() {
        use CaseVerdict::{Held, Missed};
        assert_eq!(verdict(Mode::Echo, Some(100.0), 100.0, 97.0), Held);
        assert_eq!(verdict(Mode::Echo, Some(100.0), 80.0, 80.0), Missed);
        assert_eq!(verdict(Mode::Echo, None, 800.0, 790.0), Held);
        assert_eq!(verdict(Mode::Echo, None, 700.0, 790.0), Missed, "it did not send that");
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 91.0), Held);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 92.0, 100.0), Missed);
        assert_eq!(verdict(Mode::Transit, Some(100.0), 70.0, 69.0), Missed, "was not loaded");
        assert_eq!(verdict(Mode::Transit, None, 700.0, 690.0), Held);
    }

    /// A relay of which 100 Mbit/s were found, as it says itself, and that sent but half of that.
    fn boaster() -> Tried {
        let rate = Rate::from_mbit_per_s;
        let second = |number: u64| TriedSecond {
            end: Instant::from_millis(1000 * number),
            measured: rate(100.0),
            said: Some(rate(100.0)),
            sent: rate(50.0),
            quarters: [Quarter::default(); 4],
        };
        let outcome = Outcome::Measured(Estimate {
            mode: coordinator::Mode::Echo,
            capacity: rate(100.0),
            inconclusive: None,
            rounds: 1,
            allocated: rate(400.0),
            params: Params::default(),
            seconds: Vec::new(),
            spread: Spread::default(),
            checked_cells: 0,
        });
        let load = Load { used: 1.0, ..Load::default() };
        Tried {
            outcome,
            seconds: (1..=5).map(second).collect(),
            load,
            measurers: Vec::new(),
            sockets: None,
            hindered: Vec::new(),
        }
    }

    #[test]
    fn no_relay_is_taken_at_its_word() {
        for mode in [Mode::Echo, Mode::Transit] {
            let setting = Setting { mode, limit: None, measurers: 1, run: 1 };
            let (case, _) = case(&setting, Rate::ZERO, Ok(&boaster()));
            assert_eq!((case.truth_mbit_per_s, case.verdict), (Some(50.0), CaseVerdict::Missed));
        }
    }

    #[test]
    fn a_run_of_which_nothing_is_known_failed() {
        let setting = Setting { mode: Mode::Transit, limit: None, measurers: 1, run: 1 };
        let found = Found { limit: None, truth: None, sent: None, estimate: Some(1.0) };
        assert_eq!(found.judged(&setting).verdict, CaseVerdict::Failed);
        let broken = Error::Failed("no team".to_owned());
        let (case, why) = case(&setting, Rate::ZERO, Err(&broken));
        assert_eq!((case.verdict, case.detail.as_str()), (CaseVerdict::Failed, "no team"));
        assert_eq!(why, None);
    }
}
