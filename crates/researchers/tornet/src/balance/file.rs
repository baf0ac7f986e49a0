use super::{Balancer, Conditions, Weighing};
use crate::error::Error;
use crate::network::Network;
use crate::shadow;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Weights from a file: a bandwidth file with nicknames (`nick=`), as written by tornettools, or a table with
/// the columns `relay` and `weight`, as written by runs (`relays.csv`). Without a file: the network's current
/// weights.
#[derive(Clone, Debug, Default)]
pub struct WeightsFile(pub Option<PathBuf>);

#[derive(Deserialize)]
struct Row {
    relay: String,
    weight: u64,
}

impl Balancer for WeightsFile {
    fn name(&self) -> &'static str {
        if self.0.is_some() { "file" } else { "network" }
    }

    fn weigh(&self, network: &Network, _: &Conditions<'_>) -> Result<Weighing, Error> {
        let weights = self.read(network)?;
        Ok(Weighing { balancer: self.name().into(), weights, ..Weighing::default() })
    }
}

impl WeightsFile {
    /// The weights of a network's relays, in their order.
    ///
    /// # Errors
    /// If the file cannot be read, lacks a relay, or contains a weight that a consensus cannot have.
    pub fn read(&self, network: &Network) -> Result<Vec<u64>, Error> {
        let Some(path) = &self.0 else {
            return Ok(network.relays.iter().map(|relay| relay.weight).collect());
        };
        let known = read(path)?;
        let bad = |problem: String| Error::malformed(path, problem);
        let weight = |relay: &crate::network::Relay| match known.get(&relay.site.name) {
            None => Err(bad(format!("it has no weight for relay {:?}", relay.site.name))),
            Some(weight) if *weight > u64::from(u32::MAX) => Err(bad(format!(
                "a weight of {weight} for relay {:?} is no weight",
                relay.site.name
            ))),
            Some(weight) => Ok(*weight),
        };
        network.relays.iter().map(weight).collect()
    }
}

fn read(path: &PathBuf) -> Result<BTreeMap<String, u64>, Error> {
    if path.extension().is_some_and(|extension| extension == "csv") {
        let text = crate::error::read(path)?;
        let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
        let rows = rows.map(|row| row.map(|Row { relay, weight }| (relay, weight)));
        return rows
            .collect::<Result<_, csv::Error>>()
            .map_err(|error| Error::malformed(path, error));
    }
    let all = shadow::weights(path)?;
    Ok(all.into_iter().map(|(name, (_, weight))| (name, weight)).collect())
}
