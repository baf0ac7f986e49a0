//! The daemon's environment, and its handling of a period's results.

use super::agreed::Seeds;
use super::network::{self, Network};
use super::publication::publish;
use super::shell::{Observer, Surroundings, Team};
use super::{Common, clock, events, reload_if_asked, suspects};
use cli::Error;
use coordinator::Consent;
use coordinator::journal::Entry;
use coordinator::period::{Event, NetworkView, Period, PublishedRelay, SlotSeed};
use link::unix_time_s;
use netdoc::bwfile::Written;
use std::thread::Scope;

impl Surroundings for Common<'_> {
    type Network = Network;

    fn network(&self) -> Result<Network, Error> {
        network::read(self.config, unix_time_s())
    }

    fn team(&self) -> &dyn Team {
        self.team
    }
}

/// The daemon in one period.
pub(super) struct Daemon<'scope, 'env> {
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) common: Common<'env>,
    /// The seeds of the slots, if there are slots.
    pub(super) seeds: Option<&'env Seeds>,
    pub(super) begin_unix_s: u64,
    /// The start of this process, in Unix seconds.
    pub(super) generator_started: u64,
    pub(super) network: Option<Network>,
    pub(super) written: Option<Written>,
    /// Whether another period follows, so that this one may end early.
    pub(super) repeats: bool,
    /// Whether the clock was set, so that results of this period may have wrong dates.
    pub(super) has_clock_jumped: bool,
    /// Whether a planned relay was not measured.
    pub(super) is_incomplete: bool,
    /// Whether the last bandwidth file could not be written.
    pub(super) is_unpublished: bool,
}

impl Observer<Network> for Daemon<'_, '_> {
    fn take_network(&mut self, network: Network) -> (NetworkView, Option<SlotSeed>) {
        if let Some(seeds) = self.seeds {
            seeds.set_shared_random(network.shared_random());
        }
        if network.confirms_clock {
            self.common.journal.correct_dates(unix_time_s());
            if let Some(seeds) = self.seeds
                && let Err(error) = super::publish_seeds(self.common, seeds)
            {
                super::log_error(&error, self.common.output);
            }
        }
        let seed = self
            .seeds
            .map(|seed| seed.of_period(self.begin_unix_s, self.common.config.period.as_secs()));
        let view = network.view.clone();
        self.network = Some(network);
        (view, seed)
    }

    fn show_network_failure(&mut self, error: &Error) {
        super::log_error(error, self.common.output);
    }

    fn note(&mut self, entry: Entry) {
        self.common.journal.note(entry);
    }

    fn publish(&mut self, period: &Period, relays: &[PublishedRelay]) {
        let Some(network) = self.network.as_ref().filter(|_| !self.has_clock_jumped) else {
            return;
        };
        let listed = period.listed(unix_time_s());
        let Common { config, journal, .. } = self.common;
        let published = publish(config, journal, network, relays, &listed, self.generator_started);
        self.is_unpublished = published.is_err();
        match published {
            Ok(written) => self.written = written.or_else(|| self.written.take()),
            Err(error) => super::log_error(&error, self.common.output),
        }
        self.common.journal.tidy(self.common.config, self.is_clock_right().then(unix_time_s));
    }

    fn show(&mut self, period: &Period, event: Event) {
        let Common { team, output, .. } = self.common;
        let planned = match event {
            Event::Planned { relays, .. } => Some(relays),
            _ => None,
        };
        self.is_incomplete |= matches!(event, Event::LeftOut(..) | Event::NotMeasured(_));
        events::show(period, event, |measurer| team.address(measurer), output);
        match (planned, self.seeds) {
            (Some(_), Some(_)) => self.look_for_suspects(period),
            (Some(relays), None) => tracing::info!("{relays} relays to be measured"),
            (None, _) => {}
        }
    }

    fn reloaded_consent(&mut self) -> Option<Consent> {
        reload_if_asked(self.common).then(|| self.common.config.consent())
    }

    fn must_end(&mut self) -> bool {
        let has_jumped = clock::has_jumped(self.common) && self.repeats;
        self.has_clock_jumped |= has_jumped;
        let stopped = self.common.config.check_stop_file();
        // A daemon logs it before the next period.
        if let Err(reason) = &stopped
            && !self.repeats
        {
            super::log_error(reason, self.common.output);
        }
        has_jumped || stopped.is_err()
    }
}

impl Daemon<'_, '_> {
    /// Whether a consensus is valid by the present time, which has not been set since it was read.
    pub(super) fn is_clock_right(&self) -> bool {
        !self.has_clock_jumped
            && self.network.as_ref().is_some_and(|network| network.confirms_clock)
    }

    /// Searches for relays that may share a machine, on a separate thread, so that it blocks nothing.
    fn look_for_suspects(&self, period: &Period) {
        let (common, begin_unix_s) = (self.common, self.begin_unix_s);
        let groups = period.groups();
        self.scope.spawn(move || suspects::look(common, begin_unix_s, &groups));
    }
}
