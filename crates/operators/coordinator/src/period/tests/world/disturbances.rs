//! Crashes, lost and lying measurers, steps of the wall clock, and withdrawn consent.

use super::*;

/// A disturbance in a period.
#[derive(Clone, Debug)]
pub(in super::super) enum Happening {
    /// The coordinator is killed, and starts again.
    Crash,
    /// A measurer is gone for two minutes.
    MeasurerLost(usize),
    /// A measurer claims more than it was assigned, for two minutes.
    MeasurerLies(usize),
    /// The wall clock steps by this number of seconds.
    ClockSet(i64),
    /// The next consensus is unavailable.
    NoConsensus,
}

impl World {
    /// Every relay is on the opt-in list.
    pub(in super::super) fn list_all(&mut self) {
        self.is_listed = true;
        let lines: String =
            self.relays.iter().map(|relay| format!("{}\n", relay.ids.rsa)).collect();
        let listed = Consent::local_only().with_list(&lines).expect("fingerprints");
        self.period.refresh(listed);
    }

    /// The operator empties the opt-in list, and no newer consensus is available.
    pub(in super::super) fn withdraw_consent(&mut self) {
        self.has_no_consensus = true;
        self.period.refresh(Consent::local_only());
    }

    pub(super) fn disturb(&mut self, happening: &Happening) {
        const TWO_MINUTES: Duration = Duration::from_secs(120);
        match *happening {
            Happening::Crash => self.crash(),
            Happening::MeasurerLost(place) => {
                self.lost.insert(place);
                self.later(TWO_MINUTES, Event::MeasurerBack(place));
            }
            Happening::MeasurerLies(place) => {
                self.lying.insert(place);
                self.later(TWO_MINUTES, Event::MeasurerBack(place));
            }
            Happening::ClockSet(by_s) => self.skew_s += by_s,
            Happening::NoConsensus => self.has_no_consensus = true,
        }
    }

    /// The process is killed: outstanding requests are not answered.
    fn crash(&mut self) {
        self.loads.clear();
        self.events
            .retain(|_, event| matches!(event, Event::Happening(_) | Event::MeasurerBack(_)));
        self.processes += 1;
        (self.launched, self.failed) = (0, BTreeMap::new());
        let config = config(self.bounds, &self.options, self.processes);
        let begin_unix_s = self.bounds.begin_unix_s;
        let knowledge = self.journal.knowledge(&self.history, &config.measurers, begin_unix_s);
        assert_eq!(self.period.history, knowledge.history, "another history after a restart");
        self.period = Period::new(self.time(), config, consent(&self.options), knowledge);
    }
}
