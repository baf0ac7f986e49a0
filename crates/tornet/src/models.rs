//! TGen's Markov models, in GraphML.

use crate::error::{Error, read};
use crate::graphml::{Attributes, Graph};
use sim::world::{Delay, MarkovModel, Observation, State};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads a model.
///
/// # Errors
/// Where there is no file, or it is no model.
pub fn read_model(path: &Path) -> Result<MarkovModel, Error> {
    parse(&read(path)?).map_err(|problem| Error::malformed(path, problem))
}

/// Parses a model.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<MarkovModel, String> {
    let graph = Graph::parse(text)?;
    let mut model = MarkovModel::default();
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
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
        let from = *states.get(source.as_str()).ok_or_else(|| at("the source is no state"))?;
        let weight = number(of, "weight").map_err(|problem| at(&problem))?;
        match of.get("type").map(String::as_str) {
            Some("transition") => {
                let to = states.get(target.as_str()).ok_or_else(|| at("the target is no state"))?;
                model.states[from].transitions.push((weight, *to));
            }
            Some("emission") => {
                let observation = observations.get(target.as_str());
                let observation = *observation.ok_or_else(|| at("the target is no observation"))?;
                let delay = delay(of).map_err(|problem| at(&problem))?;
                model.states[from].emissions.push((weight, observation, delay));
            }
            _ => return Err(at("neither a transition nor an emission")),
        }
    }
    Ok(model)
}

fn number(of: &Attributes, name: &str) -> Result<f64, String> {
    let text = of.get(name).ok_or_else(|| format!("no {name}"))?;
    let number: f64 = text.parse().map_err(|_| format!("{name} is no number: {text:?}"))?;
    number.is_finite().then_some(number).ok_or_else(|| format!("{name} has no bound"))
}

fn delay(of: &Attributes) -> Result<Delay, String> {
    let number = |name: &str| number(of, &format!("param_{name}"));
    Ok(match of.get("distribution").map(String::as_str).unwrap_or_default() {
        "uniform" => Delay::Uniform(number("low")?, number("high")?),
        "normal" => Delay::Normal(number("location")?, number("scale")?),
        "lognormal" => Delay::LogNormal(number("location")?, number("scale")?),
        "exponential" => Delay::Exponential(number("rate")?),
        "pareto" => Delay::Pareto(number("scale")?, number("shape")?),
        other => return Err(format!("no such distribution: {other:?}")),
    })
}
