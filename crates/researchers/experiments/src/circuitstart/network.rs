//! Hop-by-hop windows in a whole simulated network, compared with Tor's own end-to-end windows.

use super::Options;
use crate::common::Session;
use crate::error::Result;
use crate::simulated::Comparison;
use onion::flow::hop::HopWindows;
use report::experiment::ExperimentReport;
use std::path::Path;
use tornet::network::Network;

/// The windows of all relays and clients; the others are compared with the first.
const VARIANTS: [&str; 4] = ["vegas", "fixed", "circuitstart", "vegas-circuitstart"];

/// Chooses end-to-end congestion control (proposal 324) or fixed windows, with or without hop-by-hop windows.
fn chosen(mut network: Network, variant: &str) -> Network {
    let choices = &mut network.choices;
    choices.has_congestion_control = variant.starts_with("vegas");
    choices.hop_windows =
        variant.ends_with("circuitstart").then_some(HopWindows::CircuitStartAgain);
    network
}

pub(super) fn run(
    options: &Options,
    path: &Path,
    session: Session<'_>,
) -> Result<ExperimentReport> {
    let comparison = Comparison {
        name: "circuitstart-network",
        text: include_str!("../../../../../docs/experiments/circuitstart-network.md"),
        folder: "circuitstart-runs",
        conditions: String::new(),
        variants: &VARIANTS,
        choose: &chosen,
        claims: &|_| Vec::new(),
    };
    comparison.run(&options.simulated.runs, path, session, |_| Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_all_combinations_of_windows() {
        let network = Network::default;
        let all = VARIANTS.map(|variant| {
            let choices = chosen(network(), variant).choices;
            (choices.has_congestion_control, choices.hop_windows.is_some())
        });
        assert_eq!(all, [(true, false), (false, false), (false, true), (true, true)]);
    }
}
