//! Legs that stop delivering although their links are open.

use crate::cell_model::CellModel;
use crate::client::application::Application;
use crate::client::circuit::Passage;
use crate::client::core::Core;
use crate::client::event::CircuitNumber;
use crate::time::Duration;
use alloc::vec::Vec;
use rand_core::Rng;

/// The interval of checks of sets that wait for a leg.
pub(crate) const LEG_CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// A set waits for a leg: schedules a check.
    pub(crate) fn schedule_leg_check(&mut self) {
        self.leg_check_at.get_or_insert(self.now + LEG_CHECK_INTERVAL);
    }

    /// Gives up legs that block their sets, if a check is due.
    pub(crate) fn check_leg_timeouts(&mut self) {
        let now = self.now;
        if self.leg_check_at.is_none_or(|at| now < at) {
            return;
        }
        self.leg_check_at = None;
        let mut silent = Vec::new();
        for (number, Passage { set, .. }) in &mut self.passages {
            let Some(set) = set else { continue };
            silent.extend(set.conflux.take_timed_out_leg(now).map(|leg| (*number, leg)));
        }
        for (number, leg) in silent {
            self.give_up_leg(number, leg);
        }
        let is_waiting =
            |passage: &Passage<S>| passage.set.as_ref().is_some_and(|set| set.conflux.is_waiting());
        if self.passages.values().any(is_waiting) {
            self.schedule_leg_check();
        }
    }

    /// The last hop waits for messages of these legs, which deliver nothing. The client decides, so that the
    /// two ends do not give up different legs. The last leg stays.
    pub(super) fn give_up_timed_out(&mut self, number: CircuitNumber, silent: &[u8]) {
        for leg in silent {
            let legs = self.set_mut(number).map(|set| set.conflux.legs());
            let legs: Vec<u8> = legs.into_iter().flatten().collect();
            if legs.len() > 1 && legs.contains(leg) {
                self.give_up_leg(number, *leg);
            }
        }
    }
}
