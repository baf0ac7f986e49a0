//! Clients that want a relay to have less: many circuits that use it while it is measured.

use super::relays::start;
use super::{AdversarySettings, Cell, Context, GAIN, Kind, MEASURERS, RATIO, TOLERANCE};
use crate::error::Result;
use crate::testbed::{self, Testbed};
use crate::wan_site::Relays;
use authority::one_relay::Request;
use coordinator::{Mode, Outcome, Params, PathParams};
use lab::load::{ClientLoad, ClientTraffic};
use onion::measure::load::Target;
use onion::{Duration, Rate};
use report::experiment::{Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series};
use std::net::Ipv4Addr;
use terminal::Output;

/// The number of circuits of a client that starves a relay, over this number of links.
const CIRCUITS: u32 = 400;
const LINKS: u32 = 20;

/// The rate of its traffic, relative to the relay's limit: it takes what it gets.
const GREED: f64 = 4.0;

/// The number of circuits of honest clients.
const HONEST_CIRCUITS: u32 = 40;

/// The relays of the curve.
const OURS: &str = "ours";
const TOR: &str = "C tor";

/// The guess of the relay's capacity, relative to its limit.
const GUESS: f64 = 1.5;

/// A shorter round has no seconds with few circuits, which show competition.
const SECONDS_MIN: u32 = 10;

/// The minimum of a conclusive estimate, relative to the truth.
const CONCLUSIVE_MIN: f64 = 0.9;

/// How a relay is measured while a client starves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// In transit, by a caller that knows nothing of clients.
    Transit,
    /// In transit, by a caller that wrongly asserts that there are none.
    TransitAsserted,
    /// By echo.
    Echo,
}

/// When the client begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// Long before the measurement.
    Earlier,
    /// It waits with idle circuits, and notices the start of the measurement.
    OnDemand,
}

/// A relay that is measured while clients use it.
#[derive(Clone, Copy, Debug)]
struct Part {
    name: &'static str,
    way: Way,
    begins: Begins,
    /// The number of the clients' circuits.
    circuits: u32,
    /// The rate of their traffic, relative to the relay's limit.
    rate: f64,
}

impl Part {
    const fn greedy(name: &'static str, way: Way, begins: Begins) -> Self {
        Self { name, way, begins, circuits: CIRCUITS, rate: GREED }
    }

    const fn honest(name: &'static str, rate: f64) -> Self {
        let (way, begins) = (Way::Transit, Begins::Earlier);
        Self { name, way, begins, circuits: HONEST_CIRCUITS, rate }
    }
}

const PARTS: [Part; 9] = [
    Part::greedy("client-starves-transit", Way::Transit, Begins::Earlier),
    Part::greedy("client-starves-transit-on-demand", Way::Transit, Begins::OnDemand),
    Part::greedy("client-starves-transit-asserted", Way::TransitAsserted, Begins::Earlier),
    Part::greedy(
        "client-starves-transit-asserted-on-demand",
        Way::TransitAsserted,
        Begins::OnDemand,
    ),
    Part::greedy("client-starves-echo", Way::Echo, Begins::Earlier),
    Part::greedy("client-starves-echo-on-demand", Way::Echo, Begins::OnDemand),
    Part::honest("clients-use-10-percent", 0.1),
    Part::honest("clients-use-50-percent", 0.5),
    Part::honest("clients-use-80-percent", 0.8),
];

/// The result of a part.
struct Measured {
    outcome: Outcome,
    /// The reason that the clients' traffic ended.
    failure: Option<String>,
}

/// The names of the parts.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|part| part.name)
}

/// Each part once, with a separate honest relay; and the curve of estimates in transit by the number of client circuits.
pub(super) fn cells(settings: &AdversarySettings) -> Vec<Cell> {
    let part = |part: &Part| {
        let (part, name) = (*part, part.name);
        Cell::new(Kind::Starving, name, move |context| run(context, part, name, None))
    };
    let point = |(relay, count): (&'static str, u32)| {
        let name = format!("{relay}, {count} client circuits");
        let greedy = Part::greedy("", Way::TransitAsserted, Begins::OnDemand);
        let part = Part { circuits: count, ..greedy };
        let attempt = {
            let name = name.clone();
            move |context: &Context<'_>| run(context, part, &name, Some(relay))
        };
        Cell { needs_tor: relay == TOR, ..Cell::new(Kind::Starving, name, attempt) }
    };
    let chosen = PARTS.iter().filter(|part| settings.has_chosen(part.name)).map(part);
    let counts = &settings.client_circuits;
    let curve =
        [OURS, TOR].into_iter().flat_map(|relay| counts.iter().map(move |count| (relay, *count)));
    chosen.chain(curve.map(point)).collect()
}

/// Starts the relay of C tor's curve.
pub(super) fn start_tor(limit: Rate, testbed: &Testbed, output: &Output) -> Result<Relays> {
    Relays::start(crate::mode::Mode::Transit, &[Some(limit)], Ipv4Addr::LOCALHOST, testbed, output)
}

/// Measures a relay while its clients use it; `curve` is the relay's software if the part is a point of a curve.
fn run(context: &Context<'_>, part: Part, name: &str, curve: Option<&str>) -> Result<Case> {
    let limit = context.settings.limit;
    let measured = match context.tor {
        Some(tor) => {
            let (request, ..) = tor.subject(0, limit, Params::default(), context.testbed)?;
            let Request { router, .. } = request;
            measure(context, Target { address: router.address, ids: router.ids }, part, name)?
        }
        None => {
            let relay = start(context, None, u32::MAX)?;
            let measured = measure(context, relay.target(), part, name)?;
            relay.stop()?;
            measured
        }
    };
    let case = judge(name.to_owned(), limit, part.way, &measured);
    let case = curve.into_iter().fold(case, |case, relay| case.column("relay", relay));
    Ok(case.column("client_circuits", part.circuits))
}

fn measure(context: &Context<'_>, target: Target, part: Part, name: &str) -> Result<Measured> {
    let Part { way, begins, circuits, rate, .. } = part;
    let limit = context.settings.limit;
    let links = circuits.min(LINKS);
    let traffic = ClientTraffic {
        rate: limit.scaled(rate),
        links,
        circuits_per_link: circuits.div_ceil(links.max(1)),
        begins_at_once: begins == Begins::Earlier,
    };
    context.doing(format!("{name}: opening {circuits} client circuits"));
    let clients = ClientLoad::start(target, traffic, context.testbed.clock())?;
    if begins == Begins::Earlier {
        context.session.interrupt.wait(Duration::from_secs(5));
    }
    let params = Params {
        seconds: context.settings.seconds.max(SECONDS_MIN),
        ratio: RATIO,
        may_have_clients: way != Way::TransitAsserted,
        ..testbed::params(SECONDS_MIN)
    };
    let guess = limit.scaled(GUESS);
    let request = match way {
        Way::Echo => context.testbed.echo_request(target, guess, params),
        Way::Transit | Way::TransitAsserted => Request { params, ..Request::new(target, guess) },
    };
    let team = context.testbed.team(MEASURERS);
    let outcome = context.measure(name, &team, request, &mut || clients.flow())?;
    Ok(Measured { outcome, failure: clients.failure() })
}

/// A conclusive estimate must be right, and none may be above the truth.
fn judge(name: String, truth: Rate, way: Way, measured: &Measured) -> Case {
    let Measured { outcome, failure } = measured;
    let estimate = outcome.estimate();
    let is_conclusive = estimate.map(coordinator::Estimate::is_conclusive);
    let mbit = estimate.map(|estimate| estimate.capacity.as_mbit_per_s());
    // By echo, the relay's report on its clients counts up to their share.
    let max = if way == Way::Echo { GAIN } else { 1.0 };
    let min = if is_conclusive == Some(true) { CONCLUSIVE_MIN } else { 0.0 };
    let bounds = min..=max * (1.0 + TOLERANCE);
    let case = Case::judged(name, truth.as_mbit_per_s(), mbit, bounds);
    let case = match estimate.map(|estimate| estimate.inconclusive) {
        Some(Some(reason)) if case.verdict == CaseVerdict::Held => {
            case.ended(CaseVerdict::Held, format!("a lower bound: {reason}"))
        }
        Some(_) => case,
        None => case.ended(CaseVerdict::Failed, outcome.to_string()),
    };
    let case = match failure {
        Some(problem) => case.ended(CaseVerdict::Failed, format!("its clients failed: {problem}")),
        None => case,
    };
    let conclusive_ratio = case.ratio.filter(|_| is_conclusive == Some(true));
    case.column("conclusive", is_conclusive).column("conclusive_ratio", conclusive_ratio)
}

/// The lowest estimate that was called conclusive, in a sentence.
pub(super) fn answer(cases: &[Case]) -> String {
    let ratio = |case: &Case| {
        let ratio = case.value("conclusive_ratio").and_then(serde_json::Value::as_f64)?;
        Some((ratio, case.name.clone()))
    };
    let lowest = cases.iter().filter_map(ratio).min_by(|one, other| one.0.total_cmp(&other.0));
    lowest.map_or_else(
        || " No estimate was called conclusive.".to_owned(),
        |(ratio, name)| {
            format!(" The lowest estimate that was called conclusive is {ratio:.3} of the truth ({name}).")
        },
    )
}

/// The estimates of the curve.
pub(super) fn figure(cases: &[&Case]) -> Option<ExperimentFigure> {
    let points = |relay: &str| {
        let of_relay =
            cases.iter().filter(|case| case.value("relay").is_some_and(|value| *value == relay));
        let point = |case: &&Case| {
            let count = case.value("client_circuits").and_then(serde_json::Value::as_f64)?;
            Some((count, case.ratio?))
        };
        of_relay.filter_map(point).collect::<Vec<_>>()
    };
    let (ours, tor) = (points(OURS), points(TOR));
    let circuits = |(count, _): &(f64, f64)| *count;
    let most = ours.iter().chain(&tor).map(circuits).fold(1.0, f64::max);
    if ours.is_empty() && tor.is_empty() {
        return None;
    }
    // A rate limit is divided among links.
    let near = PathParams::at_distance(Mode::Transit, Rate::ZERO, Duration::ZERO, SECONDS_MIN);
    let own = f64::from(near.first_sockets);
    let share = |count: f64| (count, own / (own + count.min(LINKS.into())));
    let steps = (0..=60u32).map(|step| most.powf(f64::from(step) / 60.0));
    let x = Axis::new("client circuits").log();
    let y = Axis::new("estimate ÷ truth").showing(0.0, 1.1);
    let figure = ExperimentFigure::new("starving", "Estimates while a client starves a relay", x, y)
        .with(Series::line("share by links", Role::Truth, steps.map(share).collect()))
        .with(Series::dots("ours", Role::Measurement, ours))
        .with(Series::dots("C tor", Role::Nth(1), tor))
        .mark(On::Y, CONCLUSIVE_MIN, "0.9", Role::Problem)
        .caption(
            "The estimate in transit while a client downloads over these circuits, on 20 links at most, relative to the relay's \
             rate limit; and the share of the measurement's 8 links among all.",
        );
    Some(figure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::{Estimate, Inconclusive, Spread};

    fn measured(mbit: f64, inconclusive: Option<Inconclusive>) -> Measured {
        let capacity = Rate::from_mbit_per_s(mbit);
        let outcome = Outcome::Measured(Estimate {
            mode: Mode::Transit,
            capacity,
            inconclusive,
            rounds: 1,
            allocated: capacity,
            params: Params::default(),
            seconds: Vec::new(),
            spread: Spread::default(),
            checked_cells: 0,
        });
        Measured { outcome, failure: None }
    }

    #[test]
    fn only_a_low_estimate_that_is_called_conclusive_is_a_miss() {
        let verdict = |mbit, inconclusive| {
            let truth = Rate::from_mbit_per_s(100.0);
            judge("case".to_owned(), truth, Way::Transit, &measured(mbit, inconclusive)).verdict
        };
        assert_eq!(verdict(25.0, Some(Inconclusive::ClientsUnknown)), CaseVerdict::Held);
        assert_eq!(verdict(25.0, None), CaseVerdict::Missed);
        assert_eq!(verdict(95.0, None), CaseVerdict::Held);
        assert_eq!(verdict(120.0, Some(Inconclusive::ClientsUnknown)), CaseVerdict::Missed);
    }
}
