//! The measurement of a single relay: a period that has no other.

use super::one_by_one;
use super::shell::{self, Beginning, FixedNetwork, Observer, Team};
use super::stop_file;
use cli::Error;
use coordinator::journal::Entry;
use coordinator::period::{
    Event, Knowledge, NetworkView, Period, PeriodConfig, PublishedRelay, Router, SlotSeed,
};
use coordinator::{Consent, Defences, Mode, Params, PathParams, ROUNDS_ALLOWED, Record};
use onion::Rate;
use onion::measure::load::Target;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::thread;

/// A relay to measure, and how.
#[derive(Clone)]
pub struct Request {
    /// The relay.
    pub router: Router,
    /// The source of its address, for messages.
    pub source: String,
    /// Its limits for a single address.
    pub defences: Defences,
    /// How it is loaded.
    pub mode: Mode,
    /// Its expected capacity.
    pub guess: Rate,
    /// Parameters of the measurement.
    pub params: Params,
    /// The requirements of the path to it; derived from its round trip if `None`.
    pub path: Option<PathParams>,
    /// Whether links authenticate as a relay's even where that is not needed.
    pub always_authenticate: bool,
    /// The minimum number of measurers of the first turn, if the team has them.
    pub measurers_min: u32,
    /// Whether a measurement that failed by a measurer's fault is repeated.
    pub repeats_failures: bool,
    /// The seed of the coordinator's key, which a participating relay must allow.
    pub key_seed: [u8; 32],
    /// The number of rounds that it allows in a period if it participates.
    pub echo_rounds: u32,
    /// The relays that may be measured.
    pub consent: Consent,
    /// The folder of a coordinator, whose [stop file](crate::stop_file) ends the measurement.
    pub coordinator_folder: Option<PathBuf>,
}

impl Request {
    /// A relay on this machine or in a private network, to be measured in transit.
    #[must_use]
    pub fn new(target: Target, guess: Rate) -> Self {
        Self {
            router: Router {
                ids: target.ids,
                nickname: target.ids.rsa.to_string(),
                address: target.address,
                is_authority: false,
                is_running: true,
                weight_kb_s: None,
            },
            source: "the relay's address".to_owned(),
            defences: Defences::default(),
            mode: Mode::Transit,
            guess,
            params: Params::default(),
            path: None,
            always_authenticate: false,
            measurers_min: 1,
            repeats_failures: true,
            key_seed: [0; 32],
            echo_rounds: ROUNDS_ALLOWED,
            consent: Consent::local_only(),
            coordinator_folder: None,
        }
    }

    /// The request to measure it as an echo, by the coordinator with this key.
    #[must_use]
    pub fn by_echo(self, key_seed: [u8; 32]) -> Self {
        Self { mode: Mode::Echo, key_seed, ..self }
    }
}

/// Measures one relay, and shows the events. Returns `None` if `stop` was set.
///
/// # Errors
/// The relay may not be measured, or this machine or all measurers are to blame. A failed measurement is a result and no error.
pub fn measure(
    team: &dyn Team,
    request: Request,
    show: &mut dyn FnMut(&Period, Event),
    stop: &AtomicBool,
) -> Result<Option<Record>, Error> {
    let Request { router, source, defences, mode, guess, params, consent, .. } = request;
    let id = router.ids.rsa;
    let config = PeriodConfig {
        always_authenticate: request.always_authenticate,
        path: request.path,
        measurers_min: request.measurers_min,
        repeats_failures: request.repeats_failures,
        ..one_by_one(params, guess, team.configured(), request.echo_rounds)?
    };
    let knowledge = Knowledge::default();
    let beginning = Beginning { config, consent, knowledge, key_seed: request.key_seed };
    let view = NetworkView {
        valid_after_unix_s: 0,
        source,
        signers: None,
        routers: vec![router],
        named: Some(BTreeSet::from([id])),
        echo: (mode == Mode::Echo).then_some(id).into_iter().collect(),
        families: Vec::new(),
        policy_relays: None,
        defences,
    };
    let surroundings = FixedNetwork { team, view };
    let mut observer = Shown { show, folder: request.coordinator_folder };
    let end =
        thread::scope(|scope| shell::play(scope, &surroundings, &mut observer, beginning, stop))?;
    if end.is_interrupted {
        return Ok(None);
    }
    let record = end.records.into_iter().next();
    let none = || Error::Failed("the relay was not measured: no measurer is left".to_owned());
    record.map(Some).ok_or_else(none)
}

/// Shows events, and stores nothing.
struct Shown<'a> {
    show: &'a mut dyn FnMut(&Period, Event),
    folder: Option<PathBuf>,
}

impl Observer<NetworkView> for Shown<'_> {
    fn take_network(&mut self, network: NetworkView) -> (NetworkView, Option<SlotSeed>) {
        (network, None)
    }

    /// The network is fixed.
    fn show_network_failure(&mut self, _: &Error) {}

    fn note(&mut self, _: Entry) {}

    fn publish(&mut self, _: &Period, _: &[PublishedRelay]) {}

    fn show(&mut self, period: &Period, event: Event) {
        (self.show)(period, event);
    }

    fn reloaded_consent(&mut self) -> Option<Consent> {
        None
    }

    fn must_end(&mut self) -> bool {
        self.folder.as_deref().is_some_and(|folder| stop_file::check(folder).is_err())
    }
}
