//! Prints the relays of a consensus with the largest weights, and their share of all weights.
//!
//! ```sh
//! cargo run -p flashflow-netdoc --example largest_relays -- CONSENSUS
//! ```
#![expect(clippy::print_stdout, reason = "an example")]

use flashflow_netdoc::{Consensus, Flag};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: largest_relays CONSENSUS")?;
    let consensus = Consensus::parse(&std::fs::read(path)?)?;
    let mut relays: Vec<_> =
        consensus.routers().iter().filter(|router| router.is_measurable()).collect();
    relays.sort_by_key(|relay| std::cmp::Reverse(relay.bandwidth_kb_s));
    let total: f64 = relays.iter().filter_map(|relay| relay.bandwidth_kb_s).map(f64::from).sum();
    for relay in relays.iter().take(10) {
        let weight = relay.bandwidth_kb_s.unwrap_or(0);
        let share = 100.0 * f64::from(weight) / total;
        let exit = if relay.flags.contains(Flag::Exit) { "exit" } else { "" };
        println!(
            "{} {:<20}{weight:>9} KB/s {share:>6.2} % {exit}",
            relay.fingerprint, relay.nickname
        );
    }
    Ok(())
}
