use super::{Balancer, Conditions, Weighing};
use crate::error::Error;
use crate::network::Network;
use crate::shadow;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Weights from a file: a bandwidth file with nicknames (`nick=`), as tornettools writes them, or a table with the columns `relay` and `weight`, as runs write it (`relays.csv`).
/// Without a file: those that the network has.
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
        let weights = match &self.0 {
            None => network.relays.iter().map(|it| it.weight).collect(),
            Some(path) => {
                let known = read(path)?;
                let missing = |name: &str| {
                    Error::malformed(path, format!("it has no weight for relay {name:?}"))
                };
                let weight = |it: &crate::network::Relay| {
                    known.get(&it.site.name).copied().ok_or_else(|| missing(&it.site.name))
                };
                network.relays.iter().map(weight).collect::<Result<_, _>>()?
            }
        };
        Ok(Weighing { balancer: self.name().into(), weights, ..Weighing::default() })
    }
}

fn read(path: &PathBuf) -> Result<BTreeMap<String, u64>, Error> {
    if path.extension().is_some_and(|it| it == "csv") {
        let text = crate::error::read(path)?;
        let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
        let rows = rows.map(|row| row.map(|Row { relay, weight }| (relay, weight)));
        return rows.collect::<Result<_, csv::Error>>().map_err(|it| Error::malformed(path, it));
    }
    let all = shadow::weights(path)?;
    Ok(all.into_iter().map(|(name, (_, weight))| (name, weight)).collect())
}
