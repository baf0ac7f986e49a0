//! The measurers of the team: their abilities, and whether they answer.

use super::{Answer, MeasurerConfig, Now};
use crate::allocation::MeasurerId;
use crate::journal::{MeasurerHealth, MeasurerState};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use onion::{Duration, Instant, Rate};

/// The number of attempts with a failed measurer, each after a pause.
const CHECKS: u32 = 6;
const CHECK_PAUSE: Duration = Duration::from_secs(3);
/// The pause between further attempts: it may return at any time, for example when its clock has been set right.
const SLOW_PAUSE: Duration = Duration::from_secs(60);

/// The state of the team's measurers.
#[derive(Clone, Debug)]
pub(super) struct Measurers {
    configured: Vec<MeasurerConfig>,
    /// The last report of each.
    answers: BTreeMap<MeasurerId, Answer>,
    /// Measurers with an outstanding query.
    asked: BTreeSet<MeasurerId>,
    checks: BTreeMap<MeasurerId, Check>,
}

#[derive(Clone, Copy, Debug)]
struct Check {
    left: u32,
    next: Instant,
    /// Whether the first attempts have failed.
    is_slow: bool,
}

impl Measurers {
    pub(super) fn new(configured: Vec<MeasurerConfig>) -> Self {
        let (answers, asked, checks) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { configured, answers, asked, checks }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = MeasurerId> + use<> {
        (0..self.configured.len()).map(MeasurerId)
    }

    pub(super) fn get(&self, measurer: MeasurerId) -> Option<&MeasurerConfig> {
        self.configured.get(measurer.0)
    }

    /// Their public keys, as the store names them.
    pub(super) fn keys(&self) -> Vec<String> {
        self.configured.iter().map(|measurer| measurer.name.clone()).collect()
    }

    /// The assumed maximum capacity of each.
    pub(super) fn limits(&self) -> Vec<Rate> {
        self.configured.iter().map(|measurer| measurer.limit).collect()
    }

    /// The host of each, by a number: those at one address share a host.
    pub(super) fn hosts(&self) -> Vec<Option<u32>> {
        let first = |at: &MeasurerConfig| {
            let found =
                self.configured.iter().position(|other| other.address.ip() == at.address.ip());
            found.and_then(|place| u32::try_from(place).ok())
        };
        self.configured.iter().map(first).collect()
    }

    pub(super) fn ask(&mut self, measurer: MeasurerId) {
        self.asked.insert(measurer);
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// A measurer has answered, or cannot be queried. Returns its capacity: its report, limited by the configuration;
    /// zero if it cannot be queried.
    pub(super) fn handle_answer(
        &mut self,
        now: Now,
        measurer: MeasurerId,
        answer: Result<Answer, &str>,
    ) -> Option<Rate> {
        self.asked.remove(&measurer);
        match answer {
            Ok(answer) => {
                self.checks.remove(&measurer);
                self.answers.insert(measurer, answer);
                Some(answer.capacity.min(self.get(measurer)?.limit))
            }
            Err(_) => {
                if let Some(check) = self.checks.get_mut(&measurer) {
                    check.is_slow = check.left == 0;
                    let pause = if check.is_slow { SLOW_PAUSE } else { CHECK_PAUSE };
                    check.next = now.instant + pause;
                }
                None
            }
        }
    }

    /// A measurer has failed, or has never answered: it is queried again, at first often.
    pub(super) fn check(&mut self, now: Now, measurer: MeasurerId) {
        let next = now.instant + CHECK_PAUSE;
        let check = Check { left: CHECKS, next, is_slow: false };
        let known = self.checks.entry(measurer).or_insert(check);
        if known.is_slow {
            *known = check;
        }
    }

    /// Whether a measurer may soon be back.
    pub(super) fn is_checking(&self) -> bool {
        self.checks.values().any(|check| !check.is_slow)
    }

    /// The measurers to query now.
    pub(super) fn poll_checks(&mut self, now: Now) -> Vec<MeasurerId> {
        let asked = &self.asked;
        let is_due = |(id, check): &(&MeasurerId, &mut Check)| {
            check.next <= now.instant && (check.left > 0 || check.is_slow) && !asked.contains(id)
        };
        let due = self.checks.iter_mut().filter(is_due);
        let due: Vec<MeasurerId> = due
            .map(|(id, check)| {
                check.left = check.left.saturating_sub(1);
                *id
            })
            .collect();
        self.asked.extend(due.iter().copied());
        due
    }

    /// When to call [`poll_checks`](Self::poll_checks).
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let pending = self.checks.iter().filter(|(id, _)| !self.asked.contains(id));
        pending.map(|(_, check)| check.next).min()
    }

    /// The number of relays that the team measures at once: the minimum of the measurers' limits and the operator's,
    /// since each measurer may take part in any measurement. A measurer that has not answered sets no limit.
    pub(super) fn at_once_max(&self, configured: Option<u32>) -> u32 {
        let reported = self.answers.values().map(|answer| answer.at_once_max);
        reported.chain(configured).min().unwrap_or(u32::MAX)
    }

    /// The journal entry for a measurer that has answered, or has not.
    pub(super) fn health(
        &self,
        now: Now,
        measurer: MeasurerId,
        answer: Result<Rate, String>,
    ) -> Option<MeasurerHealth> {
        let configured = self.get(measurer)?;
        let state = if answer.is_ok() { MeasurerState::Up } else { MeasurerState::Down };
        let (capacity, detail) = match answer {
            Ok(capacity) => (capacity, String::new()),
            Err(detail) => (Rate::ZERO, detail),
        };
        Some(MeasurerHealth {
            key: configured.name.clone(),
            place: measurer.0,
            address: alloc::format!("{}", configured.address),
            capacity,
            state,
            detail,
            at_unix_s: now.unix_s(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::measure::protocol::MeasurerKey;

    #[test]
    fn a_measurer_that_fails_is_asked_for_as_long_as_it_fails() {
        let at = |seconds: u64| Now {
            instant: Instant::from_millis(1000 * seconds),
            unix: Duration::from_secs(1_800_000_000 + seconds),
        };
        let configured = MeasurerConfig {
            name: String::new(),
            key: MeasurerKey([7; 32]),
            address: ([127, 0, 0, 1], 7100).into(),
            limit: Rate::from_mbit_per_s(100.0),
        };
        let mut measurers = Measurers::new([configured].into());
        let id = MeasurerId(0);
        measurers.check(at(0), id);
        let mut asked = Vec::new();
        for second in 0..300 {
            if !measurers.poll_checks(at(second)).is_empty() {
                asked.push(second);
                assert_eq!(measurers.handle_answer(at(second), id, Err("down")), None);
            }
        }
        assert_eq!(asked, [3, 6, 9, 12, 15, 18, 78, 138, 198, 258]);
        assert!(!measurers.is_checking(), "not soon");
        let answer = Answer { capacity: Rate::from_mbit_per_s(5.0), at_once_max: 1 };
        measurers.ask(id);
        assert_eq!(measurers.handle_answer(at(300), id, Ok(answer)), Some(answer.capacity));
        assert_eq!(measurers.poll_timeout(), None);
    }
}
