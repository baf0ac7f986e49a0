//! The shell of a period: threads, sessions with measurers, links to relays, files and clocks around a
//! [`Period`](coordinator::period::Period), which decides.

use super::agreed::Seeds;
use super::network::{self, Network};
use super::{Common, PeriodResult, suspects};
use cli::Error;
use coordinator::period::{
    Action, Answer, Ending, Event, Knowledge, MeasurementId, Now, Period, PeriodConfig,
    ProbeAnswer, Timing,
};
use coordinator::{
    Counts, Failure, MeasurerId, MemberReport, OrderTerms, Progress, RelayIndex, RoundOrder,
};
use link::{Clock, NodeThread, unix_time_s};
use measurer::member::MemberError;
use measurer::{Member, OrderReport, Site, give_order, probe};
use onion::Duration;
use onion::measure::load::Target;
use onion::measure::order::OrderLink;
use rand::TryRng as _;
use rand::rngs::SysRng;
use report::RelayReport;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, Scope};
use terminal::measuring;

/// Maximum delay until the operator's signals are noticed.
const SIGNAL_LATENCY: Duration = Duration::from_millis(200);

/// An event for the period.
enum Input {
    Network(Result<Box<Network>, Error>),
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
        self.members.values_mut().for_each(|it| it.stop());
        // Last, otherwise the relay would report a cancellation to the measurers.
        self.order = None;
    }
}

struct Shell<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    common: Common<'env>,
    seeds: Option<&'env Seeds>,
    timing: Timing,
    begin_unix_s: u64,
    generator_started: u64,
    clock: Clock,
    site: Site,
    period: Period,
    hands: BTreeMap<MeasurementId, Hands>,
    network: Option<Box<Network>>,
    /// The reason why the consensus is unavailable.
    error: Option<Error>,
    written: Option<netdoc::bwfile::Written>,
    sender: Sender<Input>,
    inputs: Receiver<Input>,
}

/// Runs one period. `generator_started` is the start of this process, in Unix seconds.
pub(super) fn play(
    common: Common<'_>,
    config: PeriodConfig,
    knowledge: Knowledge,
    seeds: Option<&Seeds>,
    generator_started: u64,
) -> Result<PeriodResult, Error> {
    common.output.doing("asking the measurers, and fetching the consensus");
    let clock = Clock::start();
    let site = Site::new().map_err(measurer::TeamError::from)?;
    let (timing, begin_unix_s) = (config.timing, config.bounds.begin_unix_s);
    let consent = common.config.consent();
    thread::scope(|scope| {
        let (sender, inputs) = channel();
        let period = Period::new(now(clock), config, consent, knowledge);
        let shell = Shell {
            scope,
            common,
            seeds,
            timing,
            begin_unix_s,
            generator_started,
            clock,
            site,
            period,
            hands: BTreeMap::new(),
            network: None,
            error: None,
            written: None,
            sender,
            inputs,
        };
        shell.until_ended()
    })
}

fn now(clock: Clock) -> Now {
    let instant = clock.now();
    Now { instant, unix: Duration::from_micros(clock.unix_us(instant)) }
}

/// Fresh random bytes.
pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| Error::Random(error.to_string()))?;
    Ok(bytes)
}

impl<'scope> Shell<'scope, '_> {
    fn until_ended(mut self) -> Result<PeriodResult, Error> {
        let mut is_winding_up = false;
        loop {
            while let Some(action) = self.period.poll_action() {
                if let Action::Ended(ending) = action {
                    return self.end(ending);
                }
                self.act(action);
            }
            if self.common.interrupt.is_requested() && !is_winding_up {
                is_winding_up = true;
                self.period.wind_up(now(self.clock));
                continue;
            }
            if super::reload_if_asked(self.common) {
                self.period.refresh(self.common.config.consent());
                continue;
            }
            let time = now(self.clock);
            let next = self.period.poll_timeout(time);
            let wait = next.map_or(SIGNAL_LATENCY, |at| at.saturating_since(time.instant));
            match self.inputs.recv_timeout(wait.min(SIGNAL_LATENCY)) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.period.handle_timeout(now(self.clock));
                }
            }
        }
    }

    fn take(&mut self, input: Input) {
        let now = now(self.clock);
        match input {
            Input::Network(Ok(network)) => {
                let seeds = self.seeds.filter(|_| self.timing == Timing::Slots);
                if let Some(seeds) = seeds {
                    seeds.set_shared_random(network.shared_random());
                }
                let seed = seeds.map(|it| it.of_period(self.begin_unix_s));
                let view = network.view.clone();
                self.network = Some(network);
                self.period.handle_network(now, view, seed);
            }
            Input::Network(Err(error)) => {
                self.common.output.error(&error);
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
    fn ask(&self, work: impl FnOnce() -> Input + Send + 'scope) {
        let sender = self.sender.clone();
        self.scope.spawn(move || {
            // The receiver is gone if the period has ended.
            let _ = sender.send(work());
        });
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::FetchNetwork => {
                let config = self.common.config;
                self.ask(move || {
                    Input::Network(network::read(config, unix_time_s()).map(Box::new))
                });
            }
            Action::AskMeasurer(measurer) => {
                let (team, sockets) = (self.common.team, self.common.config.params.sockets);
                self.ask(move || Input::Measurer(measurer, team.ask(measurer, sockets)));
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
            Action::Journal(entry) => self.common.journal.note(entry),
            Action::Publish(relays) => self.publish(&relays),
            Action::Event(event) => self.show(event),
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
        let key_seed = self.common.config.secret.seed();
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
        let Some(mut member) = self.common.team.member(measurer) else { return };
        let prepared = member.prepare(order, reports);
        self.hands.entry(measurement).or_default().members.insert(measurer, member);
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

    fn publish(&mut self, relays: &[coordinator::period::PublishedRelay]) {
        let Some(network) = &self.network else { return };
        let listed = self.period.listed();
        match super::publish(self.common, network, relays, &listed, self.generator_started) {
            Ok(written) => self.written = written.or_else(|| self.written.take()),
            Err(error) => self.common.output.error(&error),
        }
        self.common.journal.tidy(self.common.config, unix_time_s());
    }

    fn end(self, ending: Ending) -> Result<PeriodResult, Error> {
        let failed = |problem: String| Err(Error::Failed(problem));
        match ending {
            Ending::Complete | Ending::Interrupted => Ok(PeriodResult {
                is_interrupted: ending == Ending::Interrupted,
                records: self.period.records().cloned().collect(),
                written: self.written,
            }),
            Ending::NoNetwork => {
                Err(self.error.unwrap_or_else(|| Error::Failed("there is no consensus".to_owned())))
            }
            Ending::NoMeasurer => failed("no measurer of the team can be used".to_owned()),
            Ending::NoRelay(what) => failed(format!(
                "{what}: no relay may be measured: none is on a private address or has opted in"
            )),
            Ending::NoConsent(error) => Err(error.into()),
        }
    }
}

// The operator's output.
impl Shell<'_, '_> {
    fn show(&self, event: Event) {
        let Common { team, output, .. } = self.common;
        match event {
            Event::Measurer(id, Ok(capacity)) => {
                output.step(format!("measurer {}: {capacity}", address(team.address(id))));
            }
            Event::Measurer(_, Err(problem)) => {
                output.step(format!("without a measurer: {problem}"));
            }
            Event::MeasurerBack(measurer, capacity) => {
                output.step(format!("{measurer} is back, with {capacity}"));
            }
            Event::MeasurerLost(measurer, record) => {
                let name = &record.relay.nickname;
                output.step(format!("{measurer} ({name}) has failed: {record}"));
            }
            Event::MeasurerLeftOut(measurer, record) => {
                let name = &record.relay.nickname;
                output.step(match record.failure() {
                    Some(Failure::OutOfReach { detail }) => {
                        format!("{name}: {measurer} does not reach it, and another does: {detail}")
                    }
                    _ => format!("{name}: it is measured without {measurer}: {record}"),
                });
            }
            Event::Planned { relays, at_once_max } => {
                if at_once_max < u32::MAX {
                    output.step(format!("at most {at_once_max} relays are measured at once"));
                }
                match self.timing {
                    Timing::Greedy => output.step(format!("{relays} relays to be measured")),
                    Timing::Slots => self.look_for_suspects(),
                }
            }
            Event::Counts(counts) => output.step(in_words(counts)),
            Event::Progress(relay, progress) => self.show_progress(relay, progress),
            Event::MeasurementEnded(record) => measuring::show_accounts(&record, output),
            Event::RelayDone(record) => {
                let report = RelayReport::from(&*record);
                output.step(report::line(&report));
                output.record(|| report.value("relay"));
            }
            Event::NotMeasured(left) => {
                output.step(format!("no measurer is left: {left} relays are not measured"));
            }
        }
    }

    /// Looks for relays that may share a machine, on a separate thread, so that it blocks nothing.
    fn look_for_suspects(&self) {
        let (common, begin_unix_s) = (self.common, self.begin_unix_s);
        let groups = self.period.groups();
        self.scope.spawn(move || suspects::look(common, begin_unix_s, &groups));
    }

    fn show_progress(&self, relay: RelayIndex, progress: Progress) {
        let output = self.common.output;
        let Some(relay) = self.period.relay(relay) else { return };
        let name = &relay.nickname;
        match progress {
            Progress::Preparing { round, allocated, sockets } => {
                let mbit_per_s = allocated.as_mbit_per_s();
                output.doing(format!(
                    "{name}: round {round}: opening {sockets} sockets for {mbit_per_s:.0} Mbit/s"
                ));
            }
            Progress::Started { round } => output.doing(format!("{name}: round {round}: started")),
            Progress::Second { round, index, measured } => {
                let mbit_per_s = measured.as_mbit_per_s();
                let (second, of) = (index + 1, self.common.config.params.seconds);
                output.doing(format!(
                    "{name}: round {round}, second {second} of {of}: {mbit_per_s:.1} Mbit/s"
                ));
                output.record(|| {
                    json!({
                        "type": "second", "nickname": name,
                        "fingerprint": relay.id().to_string(), "round": round,
                        "second": index, "measured_mbit_per_s": mbit_per_s,
                    })
                });
            }
        }
    }
}

fn address(address: Option<SocketAddr>) -> String {
    address.map(|it| it.to_string()).unwrap_or_default()
}

/// The progress of the period; never the future schedule.
fn in_words(counts: Counts) -> String {
    let Counts { waiting, running, done, without_slot } = counts;
    format!(
        "{waiting} relays wait for their slots, {running} are being measured, {done} are done with for this period; \
         {without_slot} have no slot in it"
    )
}
