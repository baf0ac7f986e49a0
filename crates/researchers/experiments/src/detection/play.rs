//! A year of probing.

use super::network::{DAY_S, Network};
use super::{Cell, Settings};
use crate::columns::rounded;
use coordinator::{CircuitOutcome, ProbedCircuit, ServiceTest};
use onion::Rate;
use onion::identity::RsaId;
use report::experiment::{Case, CaseVerdict};
use serde::Serialize;
use std::collections::BTreeSet;

/// The size of a download, in bytes.
const DOWNLOAD_BYTES: u64 = 100_000;

/// The estimate of each relay in Mbit/s: more than most downloads reach, so that their median is what counts.
const ESTIMATE_MBIT: f64 = 100.0;

/// The share of liars to be found within a week, at least.
const FOUND: f64 = 0.9;

/// The share of honest relays that may be suspected in a year.
const SUSPECTED: f64 = 0.001;

/// The result of a simulated year.
#[derive(Debug)]
pub(super) struct Played {
    relays: u32,
    pub(super) liars: usize,
    /// For each liar that was suspected, the days from its beginning until then, rounded up.
    pub(super) delays_days: Vec<u32>,
    honest: usize,
    /// Relays that were suspected while they were honest, of which some lied later.
    honest_suspected: usize,
}

#[derive(Serialize)]
struct Columns {
    circuits_a_day: u64,
    downloads_gb_a_day: Option<f64>,
    liars: usize,
    found_in_a_week_share: Option<f64>,
    found_in_four_weeks_share: Option<f64>,
    found_share: Option<f64>,
    median_days_until_found: Option<u32>,
    honest_relays: usize,
    honest_suspected: usize,
    honest_suspected_percent: Option<f64>,
}

/// Plays a network; `None` if it is interrupted.
pub(super) fn play(
    cell: Cell,
    settings: Settings,
    is_interrupted: impl Fn() -> bool,
) -> Option<Played> {
    let mut network = Network::new(cell.lie, settings);
    let mut test = ServiceTest::default();
    let mut delays_days = Vec::new();
    let circuits = u64::from(settings.relays * cell.circuits_a_relay_and_day);
    for day in 0..u64::from(settings.days) {
        if is_interrupted() {
            return None;
        }
        for number in 0..circuits {
            let now_s = day * DAY_S + number * DAY_S / circuits;
            let path = network.path();
            let outcome = match network.download(now_s, path) {
                Some(rate) => CircuitOutcome::Worked {
                    download: Some(Rate::from_mbit_per_s(rate * 8.0 / 1e6)),
                },
                None => CircuitOutcome::Failed,
            };
            let path = path.map(|relay| network.relays[relay].id);
            let slowest_estimate = Some(Rate::from_mbit_per_s(ESTIMATE_MBIT));
            let circuit =
                ProbedCircuit { ended_unix_s: now_s, path: &path, outcome, slowest_estimate };
            test.add(&circuit, |_| false);
        }
        let suspected: BTreeSet<RsaId> =
            test.suspicions().map(|suspicion| suspicion.relay).collect();
        let ended_s = (day + 1) * DAY_S;
        let relays = network.relays.iter_mut().filter(|relay| suspected.contains(&relay.id));
        delays_days.extend(relays.filter_map(|relay| relay.suspect(ended_s)));
    }
    let honest = || network.relays.iter().filter(|relay| relay.lies_from_s.is_none());
    delays_days.sort_unstable();
    Some(Played {
        relays: settings.relays,
        liars: network.relays.len() - honest().count(),
        delays_days,
        honest: honest().count(),
        honest_suspected: network.relays.iter().filter(|relay| relay.is_falsely_suspected).count(),
    })
}

impl Played {
    pub(super) fn share(part: usize, whole: usize) -> f64 {
        part as f64 / whole.max(1) as f64
    }

    fn found_within(&self, days: u32) -> f64 {
        let found = self.delays_days.iter().filter(|delay| **delay <= days).count();
        Self::share(found, self.liars)
    }

    pub(super) fn case(&self, cell: Cell) -> Case {
        let circuits_a_day = u64::from(self.relays * cell.circuits_a_relay_and_day);
        let in_a_week = self.found_within(7);
        let suspected = Self::share(self.honest_suspected, self.honest);
        let of_liars = |share: f64| if self.liars > 0 { rounded(share, 3) } else { None };
        let columns = Columns {
            circuits_a_day,
            downloads_gb_a_day: rounded((circuits_a_day * DOWNLOAD_BYTES) as f64 / 1e9, 2),
            liars: self.liars,
            found_in_a_week_share: of_liars(in_a_week),
            found_in_four_weeks_share: of_liars(self.found_within(28)),
            found_share: of_liars(Self::share(self.delays_days.len(), self.liars)),
            median_days_until_found: self.delays_days.get(self.delays_days.len() / 2).copied(),
            honest_relays: self.honest,
            honest_suspected: self.honest_suspected,
            honest_suspected_percent: rounded(100.0 * suspected, 4),
        };
        let held = suspected <= SUSPECTED && (!cell.must_be_found() || in_a_week >= FOUND);
        let detail = format!(
            "{:.1} % of {} found within a week, {} of {} honest ones suspected",
            100.0 * in_a_week,
            report::plural(self.liars as u64, "liar"),
            self.honest_suspected,
            self.honest
        );
        Case::named(cell.to_string()).ended(CaseVerdict::of(held), detail).with(&columns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detection::{CIRCUITS, Lie};

    fn small(lie: Lie, circuits_a_relay_and_day: u32) -> (Played, Case) {
        let settings = Settings { relays: 300, days: 60, seed: 1 };
        let cell = Cell { lie, circuits_a_relay_and_day };
        let played = play(cell, settings, || false).expect("not interrupted");
        let case = played.case(cell);
        (played, case)
    }

    #[test]
    fn liars_are_found_in_a_small_network_with_enough_circuits_and_no_honest_relay_is_suspected() {
        let (played, case) = small(Lie::DropAll, CIRCUITS);
        assert_eq!(case.verdict, CaseVerdict::Held, "{}", case.detail);
        assert!(played.liars > 5 && played.honest_suspected == 0, "{played:?}");
        let (slow, _) = small(Lie::Throttle, CIRCUITS);
        assert!(slow.found_within(28) >= FOUND && slow.honest_suspected == 0, "{slow:?}");
        let (few, _) = small(Lie::DropAll, 1);
        assert!(few.found_within(7) < FOUND, "{few:?}");
        let (framing, case) = small(Lie::Frame, CIRCUITS);
        assert_eq!((framing.honest_suspected, case.verdict), (0, CaseVerdict::Held));
    }

    #[test]
    fn a_year_is_judged_by_both_shares() {
        let played = |found_in_days: u32, honest_suspected| Played {
            relays: 1000,
            liars: 10,
            delays_days: vec![found_in_days; 9],
            honest: 1000,
            honest_suspected,
        };
        let verdict = |lie, played: Played| {
            played.case(Cell { lie, circuits_a_relay_and_day: CIRCUITS }).verdict
        };
        assert_eq!(verdict(Lie::DropAll, played(7, 1)), CaseVerdict::Held);
        assert_eq!(verdict(Lie::DropAll, played(8, 1)), CaseVerdict::Missed);
        assert_eq!(verdict(Lie::DropHalf, played(8, 1)), CaseVerdict::Held);
        assert_eq!(verdict(Lie::DropHalf, played(7, 2)), CaseVerdict::Missed);
    }

    #[test]
    fn a_play_can_be_interrupted() {
        let cell = Cell { lie: Lie::None, circuits_a_relay_and_day: 1 };
        assert!(play(cell, Settings { relays: 100, days: 50, seed: 1 }, || true).is_none());
    }
}
