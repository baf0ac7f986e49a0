//! What is tried, and with how much.

use super::{Limit, Mode, Options};
use coordinator::Params;
use measurer::{TeamOptions, free_cores};
use onion::Rate;

/// What is taken for the capacity of a relay without limit before it is measured for the first time.
const UNLIMITED_GUESS: Rate = Rate::from_bit_per_s(500_000_000);

/// What teams have for a relay without limit: far more than goes through this machine, so that its
/// processors are the bound and not what was allotted.
const UNLIMITED_TEAM: Rate = Rate::from_bit_per_s(20_000_000_000);

/// All that is tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) runs: u32,
    pub(super) limits: Vec<Option<Rate>>,
    pub(super) teams: Vec<u32>,
    pub(super) modes: Vec<Mode>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) mode: Mode,
    pub(super) limit: Option<Rate>,
    pub(super) measurers: u32,
    /// From one.
    pub(super) run: u32,
}

impl Plan {
    pub(super) fn new(options: &Options, is_quick: bool) -> Self {
        let or = |given: &[u32], quick: &[u32], full: &[u32]| {
            let default = if is_quick { quick } else { full };
            sorted(if given.is_empty() { default } else { given }.to_vec())
        };
        let limits = match (options.limits.as_slice(), is_quick) {
            ([], true) => &[Some(10.0), Some(250.0), None].map(Limit)[..],
            ([], false) => &[Some(10.0), Some(100.0), Some(250.0), Some(500.0), None].map(Limit),
            (given, _) => given,
        };
        // The unlimited come last.
        let order = |Limit(mbit): &Limit| mbit.unwrap_or(f64::INFINITY);
        let mut limits = limits.to_vec();
        limits.sort_by(|one, two| order(one).total_cmp(&order(two)));
        limits.dedup();
        let modes = match options.modes.as_slice() {
            [] => vec![Mode::Echo, Mode::Transit],
            given => sorted(given.to_vec()),
        };
        Self {
            seconds: options.seconds.unwrap_or(if is_quick { 8 } else { 30 }),
            runs: options.runs.unwrap_or(if is_quick { 2 } else { 7 }),
            limits: limits.iter().map(|limit| limit.0.map(Rate::from_mbit_per_s)).collect(),
            teams: or(&options.teams, &[1, 3], &[1, 2, 3]),
            modes,
        }
    }

    pub(super) fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    pub(super) fn team_max(&self) -> u32 {
        self.teams.iter().copied().max().unwrap_or(1)
    }

    pub(super) fn runs_in_all(&self) -> usize {
        let settings = self.modes.len() * self.limits.len() * self.teams.len();
        settings * usize::try_from(self.runs).unwrap_or(usize::MAX)
    }

    /// What a measurer must be able to do when it is alone.
    pub(super) fn capacity(&self) -> Rate {
        let runs = 1..=self.runs.min(3);
        let needed = |limit: &Option<Rate>| {
            let limit = *limit;
            runs.clone().map(move |run| self.team_capacity(limit, run))
        };
        self.limits.iter().flat_map(needed).max().unwrap_or(UNLIMITED_TEAM)
    }

    /// Of each measurer: half of the processors are for the relay.
    pub(super) fn pumps(&self) -> u32 {
        (free_cores() / (2 * self.team_max())).max(1)
    }

    /// What the whole team has: *f* times what is expected in the last round, so that this takes all
    /// measurers (§6.2: each has its share of what is needed, and no more).
    pub(super) fn team_capacity(&self, limit: Option<Rate>, run: u32) -> Rate {
        let Some(limit) = limit else { return UNLIMITED_TEAM };
        limit.scaled(self.params().excess_factor() * factor(run).max(1.0))
    }

    /// *z₀*: right, too low and too high in turn.
    pub(super) fn guess(limit: Option<Rate>, last_estimate: Option<Rate>, run: u32) -> Rate {
        limit.or(last_estimate).unwrap_or(UNLIMITED_GUESS).scaled(factor(run))
    }
}

/// The first guess in a run, over what is right.
const fn factor(run: u32) -> f64 {
    match run % 3 {
        1 => 1.0,
        2 => 0.5,
        _ => 2.0,
    }
}

impl Setting {
    /// Such as `echo 250 Mbit/s, 2 measurers, run 3`.
    pub(super) fn name(&self) -> String {
        let Self { mode, limit, measurers, run } = self;
        format!("{} {}, {}, run {run}", mode.word(), capacity(*limit), team(*measurers))
    }
}

/// A limit in words.
pub(super) fn capacity(limit: Option<Rate>) -> String {
    limit.map_or_else(
        || "without limit".to_owned(),
        |limit| format!("{} Mbit/s", limit.as_mbit_per_s()),
    )
}

/// A team in words.
pub(super) fn team(measurers: u32) -> String {
    if measurers == 1 { "1 measurer".to_owned() } else { format!("{measurers} measurers") }
}

fn sorted<T: Ord>(mut values: Vec<T>) -> Vec<T> {
    values.sort_unstable();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            seconds: None,
            runs: None,
            limits: Vec::new(),
            teams: Vec::new(),
            modes: Vec::new(),
        }
    }

    #[test]
    fn by_default_the_plan_is_the_issues() {
        let plan = Plan::new(&options(), false);
        let limits = [10.0, 100.0, 250.0, 500.0].map(|mbit| Some(Rate::from_mbit_per_s(mbit)));
        assert_eq!(plan.limits, [&limits[..], &[None]].concat());
        assert_eq!((plan.seconds, plan.teams.as_slice()), (30, &[1, 2, 3][..]));
        assert_eq!(plan.runs_in_all(), 2 * 5 * 3 * 7);
        assert!(Plan::new(&options(), true).runs_in_all() < 30);
    }

    #[test]
    fn what_is_given_counts_and_is_put_in_order() {
        let given = Options {
            limits: [None, Some(50.0), Some(5.0), Some(50.0)].map(Limit).to_vec(),
            teams: vec![3, 1, 3],
            modes: vec![Mode::Transit, Mode::Echo],
            ..options()
        };
        let plan = Plan::new(&given, true);
        let limits = [5.0, 50.0].map(|mbit| Some(Rate::from_mbit_per_s(mbit)));
        assert_eq!(plan.limits, [&limits[..], &[None]].concat());
        assert_eq!(plan.teams, [1, 3]);
        assert_eq!(plan.modes, [Mode::Echo, Mode::Transit]);
    }

    /// Whatever the guess is, the last round can be conclusive for a relay that keeps to its limit,
    /// and takes the whole team.
    #[test]
    fn the_team_is_what_the_last_round_takes() {
        let plan = Plan::new(&options(), false);
        let limit = Some(Rate::from_mbit_per_s(100.0));
        for run in 1..=6 {
            let team = plan.team_capacity(limit, run);
            assert!(team <= plan.capacity());
            let conclusive = plan.params().conclusive_limit(team).as_mbit_per_s();
            assert!(conclusive > 104.9, "{conclusive}");
            let guess = Plan::guess(limit, None, run);
            let needed = guess.scaled(plan.params().excess_factor()).as_mbit_per_s();
            let [team, needed] = [team.as_mbit_per_s(), needed];
            // Half of it where the guess is half.
            let share = if run % 3 == 2 { 0.5 } else { 1.0 };
            assert!((needed / team - share).abs() < 1e-6, "run {run}: {needed} of {team}");
        }
        assert_eq!(Plan::guess(None, limit, 2), Rate::from_mbit_per_s(50.0));
    }

    #[test]
    fn a_run_is_named_in_words() {
        let limit = Some(Rate::from_mbit_per_s(250.0));
        let setting = Setting { mode: Mode::Echo, limit, measurers: 2, run: 3 };
        assert_eq!(setting.name(), "echo 250 Mbit/s, 2 measurers, run 3");
        let setting = Setting { mode: Mode::Transit, limit: None, measurers: 1, run: 1 };
        assert_eq!(setting.name(), "transit without limit, 1 measurer, run 1");
    }
}
