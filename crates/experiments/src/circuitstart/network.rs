//! Windows from hop to hop over a whole simulated network, compared with Tor's own from end to end.

use super::Options;
use crate::common::Session;
use crate::error::Result;
use crate::simulated::Comparison;
use onion::flow::hop::HopWindows;
use report::experiment::ExperimentReport;
use std::path::Path;
use tornet::network::Network;

/// What all relays and clients have, as in names of files; the others are compared with the first.
const VARIANTS: [&str; 4] = ["vegas", "fixed", "circuitstart", "vegas-circuitstart"];

/// Congestion control from end to end (proposal 324), or windows of 1,000 cells; and in addition windows from hop to hop, or none.
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
        text: include_str!("../../../../docs/experiments/circuitstart-network.md"),
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
    fn variants_are_all_four_that_there_are() {
        let network = Network::default;
        let all = VARIANTS.map(|variant| {
            let choices = chosen(network(), variant).choices;
            (choices.has_congestion_control, choices.hop_windows.is_some())
        });
        assert_eq!(all, [(true, false), (false, false), (false, true), (true, true)]);
    }
}
