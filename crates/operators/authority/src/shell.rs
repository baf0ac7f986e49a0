//! The shell of a period: threads, links to relays, and a clock around a
//! [`Period`], which decides. The daemon, `flashflow measure` and the demo differ in their
//! [`Surroundings`] and in who [observes](Observer).

use cli::Error;
use coordinator::journal::Entry;
use coordinator::period::{
    Action, Answer, Ending, Event, Knowledge, MeasurementId, MeasurerConfig, NetworkView, Now,
    Period, PeriodConfig, ProbeAnswer, PublishedRelay, SlotSeed,
};
use coordinator::{Consent, MeasurerId, MemberReport, OrderTerms, Record, RoundOrder};
use link::{Clock, NodeThread};
use measurer::member::MemberError;
use measurer::{LocalTeam, Member, OrderReport, Site, give_order, probe};
use onion::Duration;
use onion::measure::load::Target;
use onion::measure::order::OrderLink;
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;

/// Maximum delay until the operator's signals are noticed.
const SIGNAL_LATENCY: Duration = Duration::from_millis(200);

/// The measurers of a period.
pub trait Team: Sync {
    /// The measurers as a period needs them.
    fn configured(&self) -> Vec<MeasurerConfig>;

    /// Queries a measurer's abilities, with at most this number of sockets to each relay. It may block.
    ///
    /// # Errors
    /// The measurer cannot be used.
    fn ask(&self, measurer: MeasurerId, sockets: u32) -> Result<Answer, String>;

    /// A measurer for one round; `None` if there is no such measurer.
    ///
    /// # Errors
    /// This machine cannot have one.
    fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError>;
}

impl Team for LocalTeam {
    fn configured(&self) -> Vec<MeasurerConfig> {
        self.configured()
    }

    fn ask(&self, _: MeasurerId, _: u32) -> Result<Answer, String> {
        Ok(self.abilities())
    }

    fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError> {
        self.member(measurer)
    }
}

/// The team and the network of a period.
pub trait Surroundings: Sync {
    /// A consensus, and what its reader needs of it later.
    type Network: Send + 'static;

    /// Reads the consensus. It may block.
    ///
    /// # Errors
    /// There is none, or it is not believed.
    fn network(&self) -> Result<Self::Network, Error>;

    /// The measurers.
    fn team(&self) -> &dyn Team;
}

/// A team, and a network that does not change.
pub struct FixedNetwork<'t> {
    /// The measurers.
    pub team: &'t dyn Team,
    /// The network.
    pub view: NetworkView,
}

impl Surroundings for FixedNetwork<'_> {
    type Network = NetworkView;

    fn network(&self) -> Result<NetworkView, Error> {
        Ok(self.view.clone())
    }

    fn team(&self) -> &dyn Team {
        self.team
    }
}

/// Receives what a period decides and finds out.
pub trait Observer<N> {
    /// A consensus was read: its view, and the seed of the slots if there are slots.
    fn take_network(&mut self, network: N) -> (NetworkView, Option<SlotSeed>);

    /// The consensus cannot be read.
    fn show_network_failure(&mut self, error: &Error);

    /// Records an entry of the journal.
    fn note(&mut self, entry: Entry);

    /// Writes a bandwidth file.
    fn publish(&mut self, period: &Period, relays: &[PublishedRelay]);

    /// Shows the operator an event.
    fn show(&mut self, period: &Period, event: Event);

    /// The new list of consent, if the operator had it read again.
    fn reloaded_consent(&mut self) -> Option<Consent>;

    /// Whether the period must end early: the calendar clock was set, and what it is now is known once it begins again; or all
    /// measurements are stopped.
    fn must_end(&mut self) -> bool {
        false
    }
}

/// The initial state of a period.
pub struct Beginning {
    /// Its configuration.
    pub config: PeriodConfig,
    /// The relays that may be measured.
    pub consent: Consent,
    /// The state before it.
    pub knowledge: Knowledge,
    /// The seed of the coordinator's key.
    pub key_seed: [u8; 32],
}

/// The end of a period.
pub struct PeriodEnd {
    /// Whether it ended early: the operator ended it, or the clock was set.
    pub is_interrupted: bool,
    /// The results of its relays.
    pub records: Vec<Record>,
}

/// An event for the period.
enum Input<N> {
    Network(Result<Box<N>, Error>),
    Measurer(MeasurerId, Result<Answer, String>),
    Probe(MeasurementId, ProbeAnswer),
    Report(MeasurementId, MeasurerId, u32, MemberReport),
    Order(MeasurementId, u32, OrderReport),
}

/// The threads and sessions of a measurement.
#[derive(Default)]
struct Hands {
    members: BTreeMap<MeasurerId, Box<dyn Member>>,
    /// The link on which the relay got its order.
    order: Option<NodeThread<OrderLink>>,
}

impl Hands {
    fn stop(&mut self) {
        self.members.values_mut().for_each(|member| member.stop());
        // Last, otherwise the relay would report a cancellation to the measurers.
        self.order = None;
    }
}

struct Shell<'o, 'scope, 'env, S: Surroundings> {
    scope: &'scope Scope<'scope, 'env>,
    surroundings: &'env S,
    observer: &'o mut dyn Observer<S::Network>,
    key_seed: [u8; 32],
    /// The maximum number of sockets to a relay.
    sockets: u32,
    clock: Clock,
    site: Site,
    period: Period,
    hands: BTreeMap<MeasurementId, Hands>,
    /// The reason why the consensus is unavailable.
    error: Option<Error>,
    sender: Sender<Input<S::Network>>,
    inputs: Receiver<Input<S::Network>>,
}

/// Runs one period, until it ends or `stop` is set.
///
/// # Errors
/// The period cannot begin: the consensus is unavailable, no measurer answers, or no relay may be measured.
pub fn play<'scope, 'env, S: Surroundings>(
    scope: &'scope Scope<'scope, 'env>,
    surroundings: &'env S,
    observer: &mut dyn Observer<S::Network>,
    beginning: Beginning,
    stop: &AtomicBool,
) -> Result<PeriodEnd, Error> {
    let Beginning { config, consent, knowledge, key_seed } = beginning;
    let clock = Clock::start();
    let site = Site::new().map_err(measurer::TeamError::from)?;
    let (sender, inputs) = channel();
    let shell = Shell {
        scope,
        surroundings,
        observer,
        key_seed,
        sockets: config.params.sockets,
        clock,
        site,
        period: Period::new(now(clock), config, consent, knowledge),
        hands: BTreeMap::new(),
        error: None,
        sender,
        inputs,
    };
    shell.until_ended(stop)
}

fn now(clock: Clock) -> Now {
    let instant = clock.now();
    Now { instant, unix: Duration::from_micros(clock.unix_us(instant)) }
}

/// Fresh random bytes.
///
/// # Errors
/// The operating system has none.
pub fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

impl<'scope, S: Surroundings> Shell<'_, 'scope, '_, S> {
    fn until_ended(mut self, stop: &AtomicBool) -> Result<PeriodEnd, Error> {
        let mut is_winding_up = false;
        loop {
            while let Some(action) = self.period.poll_action() {
                if let Action::Ended(ending) = action {
                    return self.end(ending);
                }
                self.act(action);
            }
            if stop.load(Ordering::Relaxed) && !is_winding_up {
                is_winding_up = true;
                self.period.wind_up(now(self.clock));
                continue;
            }
            if let Some(consent) = self.observer.reloaded_consent() {
                self.period.refresh(consent);
                continue;
            }
            let time = now(self.clock);
            let next = self.period.poll_timeout(time);
            let wait = next.map_or(SIGNAL_LATENCY, |at| at.saturating_since(time.instant));
            let input = self.inputs.recv_timeout(wait.min(SIGNAL_LATENCY));
            // Before the period learns the time: it would take a jump for time that has passed.
            if !is_winding_up && self.observer.must_end() {
                is_winding_up = true;
                self.period.wind_up(now(self.clock));
            }
            match input {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.period.handle_timeout(now(self.clock));
                }
            }
        }
    }

    fn take(&mut self, input: Input<S::Network>) {
        let now = now(self.clock);
        match input {
            Input::Network(Ok(network)) => {
                let (view, seed) = self.observer.take_network(*network);
                self.period.handle_network(now, view, seed);
            }
            Input::Network(Err(error)) => {
                self.observer.show_network_failure(&error);
                self.error = Some(error);
                self.period.handle_network_failed(now);
            }
            Input::Measurer(measurer, answer) => self.period.handle_measurer(now, measurer, answer),
            Input::Probe(measurement, answer) => {
                self.period.handle_probe(now, measurement, answer);
            }
            Input::Report(measurement, measurer, round, report) => {
                self.period.handle_report(now, measurement, measurer, round, report);
            }
            Input::Order(measurement, round, OrderReport::Event(event)) => {
                self.period.handle_order_event(now, measurement, round, event);
            }
            Input::Order(measurement, _, OrderReport::Broken(detail)) => {
                self.period.handle_own_failure(now, measurement, detail);
            }
        }
    }

    /// Runs a blocking task on a separate thread, and sends its result as an event.
    fn ask(&self, work: impl FnOnce() -> Input<S::Network> + Send + 'scope) {
        let sender = self.sender.clone();
        self.scope.spawn(move || {
            // The receiver is gone if the period has ended.
            let _ = sender.send(work());
        });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::FetchNetwork => {
                let surroundings = self.surroundings;
                self.ask(move || Input::Network(surroundings.network().map(Box::new)));
            }
            Action::AskMeasurer(measurer) => {
                let (surroundings, sockets) = (self.surroundings, self.sockets);
                self.ask(move || {
                    Input::Measurer(measurer, surroundings.team().ask(measurer, sockets))
                });
            }
            Action::Probe { measurement, address, timeout } => {
                self.ask(move || Input::Probe(measurement, probe(address, timeout)));
            }
            Action::GiveOrder { measurement, target, terms } => {
                self.give_order(measurement, target, &terms);
            }
            Action::Prepare { measurement, measurer, round, order } => {
                self.prepare(measurement, measurer, round, order);
            }
            Action::Start { measurement, delay } => self.start(measurement, delay),
            Action::Stop { measurement } => {
                if let Some(mut hands) = self.hands.remove(&measurement) {
                    hands.stop();
                }
            }
            Action::Journal(entry) => self.observer.note(entry),
            Action::Publish(relays) => self.observer.publish(&self.period, &relays),
            Action::Event(event) => self.observer.show(&self.period, event),
            Action::Ended(_) => {}
        }
    }

    fn give_order(&mut self, measurement: MeasurementId, target: Target, terms: &OrderTerms) {
        let hands = self.hands.entry(measurement).or_default();
        // An earlier attempt's link closes first.
        hands.order = None;
        let (sender, round) = (self.sender.clone(), terms.round);
        let report = move |report| {
            // The receiver is gone once the period is over.
            let _ = sender.send(Input::Order(measurement, round, report));
        };
        let key_seed = self.key_seed;
        let given = random().map_err(|error| error.to_string()).and_then(|random| {
            let given = give_order(target, terms, key_seed, random, &self.site, report);
            given.map_err(|error| error.to_string())
        });
        match given {
            Ok(thread) => hands.order = Some(thread),
            Err(detail) => self.period.handle_own_failure(now(self.clock), measurement, detail),
        }
    }

    fn prepare(
        &mut self,
        measurement: MeasurementId,
        measurer: MeasurerId,
        round: u32,
        order: RoundOrder,
    ) {
        let sender = self.sender.clone();
        let reports = Arc::new(move |report| {
            // The receiver is gone once the period is over.
            let _ = sender.send(Input::Report(measurement, measurer, round, report));
        });
        let prepared = self.surroundings.team().member(measurer).and_then(|member| {
            let Some(mut member) = member else { return Ok(()) };
            let prepared = member.prepare(order, reports);
            self.hands.entry(measurement).or_default().members.insert(measurer, member);
            prepared
        });
        if let Err(MemberError(detail)) = prepared {
            let now = now(self.clock);
            self.period.handle_lost_measurer(now, measurement, measurer, detail);
        }
    }

    fn start(&mut self, measurement: MeasurementId, delay: Duration) {
        let Some(hands) = self.hands.get_mut(&measurement) else { return };
        let at = self.clock.now() + delay;
        for member in hands.members.values_mut() {
            member.start(at.saturating_since(self.clock.now()));
        }
    }

    fn end(self, ending: Ending) -> Result<PeriodEnd, Error> {
        let failed = |problem: String| Err(Error::Failed(problem));
        match ending {
            Ending::Complete | Ending::Interrupted => Ok(PeriodEnd {
                is_interrupted: ending == Ending::Interrupted,
                records: self.period.records().cloned().collect(),
            }),
            Ending::NoNetwork => {
                Err(self.error.unwrap_or_else(|| Error::Failed("there is no consensus".to_owned())))
            }
            Ending::NoMeasurer => failed("no measurer of the team can be used".to_owned()),
            Ending::NoRelay(what, None) => failed(format!(
                "{what}: no relay may be measured: none is on a private address or has opted in"
            )),
            Ending::NoRelay(what, Some(reason)) => {
                failed(format!("{what}: no relay may be measured: {reason}"))
            }
            Ending::NoConsent(error) => Err(error.into()),
        }
    }
}
