//! TGen's Markov models, in GraphML.

use crate::error::{Error, read};
use crate::graphml::{Attributes, Graph};
use sim::world::{Delay, MarkovModel, Observation, State};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads a model.
///
/// # Errors
/// If there is no such file, or it is malformed.
pub fn read_model(path: &Path) -> Result<MarkovModel, Error> {
    parse(&read(path)?).map_err(|problem| Error::malformed(path, problem))
}

/// Reads a model of flows or streams, which must not begin them endlessly at the same instant.
///
/// # Errors
/// If there is no such file, it is malformed, or it has reachable states from which nothing ends and nothing
/// pauses.
pub fn read_paced_model(path: &Path) -> Result<MarkovModel, Error> {
    let text = read(path)?;
    let parsed = parse_named(&text).and_then(|(model, ids)| match endless(&model) {
        Some(state) => Err(format!(
            "state {}: from here on each step follows the one before at once, and none is the last: a run would not end. Give an emission a pause",
            ids[state]
        )),
        None => Ok(model),
    });
    parsed.map_err(|problem| Error::malformed(path, problem))
}

/// Parses a model.
///
/// # Errors
/// The problem.
pub fn parse(text: &str) -> Result<MarkovModel, String> {
    Ok(parse_named(text)?.0)
}

/// With the IDs of its states.
fn parse_named(text: &str) -> Result<(MarkovModel, Vec<String>), String> {
    let graph = Graph::parse(text)?;
    let mut model = MarkovModel::default();
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    let mut ids = Vec::new();
    let mut observations: BTreeMap<&str, Observation> = BTreeMap::new();
    let mut start = None;
    for (id, of) in &graph.nodes {
        let name = of.get("name").map(String::as_str).unwrap_or_default();
        match of.get("type").map(String::as_str) {
            Some("state") => {
                if name == "start" {
                    start = Some(model.states.len());
                }
                states.insert(id, model.states.len());
                ids.push(id.clone());
                model.states.push(State::default());
            }
            Some("observation") => {
                let observation = match name {
                    "+" => Observation::ToServer,
                    "-" => Observation::ToClient,
                    "F" => Observation::End,
                    other => return Err(format!("node {id}: no such observation: {other:?}")),
                };
                observations.insert(id, observation);
            }
            other => return Err(format!("node {id}: no such type: {other:?}")),
        }
    }
    model.start = start.ok_or("no state has the name \"start\"")?;
    for (source, target, of) in &graph.edges {
        let at = |problem: &str| format!("edge {source} to {target}: {problem}");
        let from = *states.get(source.as_str()).ok_or_else(|| at("the source is not a state"))?;
        let weight =
            at_least(number(of, "weight"), "weight", 0.0).map_err(|problem| at(&problem))?;
        match of.get("type").map(String::as_str) {
            Some("transition") => {
                let to =
                    states.get(target.as_str()).ok_or_else(|| at("the target is not a state"))?;
                model.states[from].transitions.push((weight, *to));
            }
            Some("emission") => {
                let observation = observations.get(target.as_str());
                let observation =
                    *observation.ok_or_else(|| at("the target is not an observation"))?;
                let delay = delay(of).map_err(|problem| at(&problem))?;
                model.states[from].emissions.push((weight, observation, delay));
            }
            _ => return Err(at("neither a transition nor an emission")),
        }
    }
    for (id, state) in ids.iter().zip(&model.states) {
        let all_zero =
            |weights: &[f64]| !weights.is_empty() && weights.iter().all(|weight| *weight <= 0.0);
        let transitions: Vec<f64> =
            state.transitions.iter().map(|transition| transition.0).collect();
        let emissions: Vec<f64> = state.emissions.iter().map(|emission| emission.0).collect();
        if all_zero(&transitions) || all_zero(&emissions) {
            return Err(format!(
                "state {id}: weight: all weights of its transitions or emissions are 0"
            ));
        }
    }
    Ok((model, ids))
}

/// A reachable state from which nothing ends and nothing pauses.
fn endless(model: &MarkovModel) -> Option<usize> {
    let successors = |state: usize| {
        let all = model.states[state].transitions.iter();
        all.filter(|(weight, _)| *weight > 0.0).map(|(_, to)| *to)
    };
    let reachable = |from: usize| {
        let mut all = BTreeSet::new();
        let mut open: Vec<usize> = successors(from).collect();
        while let Some(state) = open.pop() {
            if all.insert(state) {
                open.extend(successors(state));
            }
        }
        all
    };
    // A state without transition or emission ends the walk, like one that emits the end.
    let goes_on_at_once = |state: usize| {
        let current = &model.states[state];
        let is_instant = |(weight, observation, delay): &(f64, Observation, Delay)| {
            *weight <= 0.0 || (*observation != Observation::End && never_pauses(*delay))
        };
        !current.emissions.is_empty()
            && !current.transitions.is_empty()
            && current.emissions.iter().all(is_instant)
    };
    let is_endless = |state: &usize| {
        goes_on_at_once(*state) && reachable(*state).into_iter().all(goes_on_at_once)
    };
    reachable(model.start).into_iter().find(is_endless)
}

/// Whether a pause is less than a nanosecond, or nearly always so.
fn never_pauses(delay: Delay) -> bool {
    /// Microseconds.
    const NONE: f64 = 1e-3;
    match delay {
        Delay::Uniform(_, high) => high < NONE,
        Delay::Normal(mean, deviation) => mean + 8.0 * deviation < NONE,
        Delay::LogNormal(mean, deviation) => mean + 8.0 * deviation < NONE.ln(),
        Delay::Exponential(rate) => 40.0 / rate < NONE,
        Delay::Pareto(scale, shape) => scale * (40.0 / shape).exp() < NONE,
    }
}

fn number(of: &Attributes, name: &str) -> Result<f64, String> {
    let text = of.get(name).ok_or_else(|| format!("no {name}"))?;
    let number: f64 = text.parse().map_err(|_| format!("{name} is not a number: {text:?}"))?;
    number.is_finite().then_some(number).ok_or_else(|| format!("{name} has no bound"))
}

/// Returns `number`, or an error if it is below `least`.
fn at_least(number: Result<f64, String>, name: &str, least: f64) -> Result<f64, String> {
    let number = number?;
    (number >= least)
        .then_some(number)
        .ok_or_else(|| format!("{name} is {number}: not {least} or more"))
}

/// Parameters as accepted by TGen.
fn delay(of: &Attributes) -> Result<Delay, String> {
    let any = |name: &str| number(of, &format!("param_{name}"));
    let not_negative = |name: &str| at_least(any(name), &format!("param_{name}"), 0.0);
    let positive = |name: &str| {
        let number = any(name)?;
        let problem = || format!("param_{name} is {number}: not more than 0");
        (number > 0.0).then_some(number).ok_or_else(problem)
    };
    Ok(match of.get("distribution").map(String::as_str).unwrap_or_default() {
        "uniform" => {
            let (low, high) = (any("low")?, any("high")?);
            if low > high {
                return Err(format!("param_low is {low}, more than param_high {high}"));
            }
            Delay::Uniform(low, high)
        }
        "normal" => Delay::Normal(not_negative("location")?, not_negative("scale")?),
        "lognormal" => Delay::LogNormal(not_negative("location")?, not_negative("scale")?),
        "exponential" => Delay::Exponential(positive("rate")?),
        "pareto" => Delay::Pareto(not_negative("scale")?, positive("shape")?),
        other => return Err(format!("no such distribution: {other:?}")),
    })
}
