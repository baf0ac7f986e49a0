//! Runs a load balancer on a network. Arguments: its folder, scale, balancer, seed. For profiling: builds
//! faster than the whole program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use tornet::balance::{Balancer, Capacities, Conditions, FlashFlow, TorFlow, WeightsFile};
use tornet::errors::{network_capacity_error, network_weight_error, relay_capacity_error};
use tornet::network::Network;

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn main() -> Result<(), tornet::Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize| arguments.get(place).and_then(|it| it.parse::<f64>().ok());
    let path = arguments.get(1).map_or(".", String::as_str);
    let network = Network::read(Path::new(path))?.without_authorities();
    let network = network.scaled(number(2).unwrap_or(1.0));
    let progress = |second: u32, wall: std::time::Duration| {
        if second.is_multiple_of(10) {
            eprintln!("{second} s in {wall:?}");
        }
    };
    let stop = AtomicBool::new(false);
    let how =
        Conditions { seed: 1, threads: 1, seconds_max: 2000, stop: &stop, progress: &progress };
    let weighing = match arguments.get(3).map(String::as_str) {
        Some("ideal") => Capacities.weigh(&network, &how)?,
        Some("torflow") => TorFlow::default().weigh(&network, &how)?,
        Some("flashflow") => FlashFlow::default().weigh(&network, &how)?,
        _ => WeightsFile::default().weigh(&network, &how)?,
    };
    let capacities = network.capacities();
    let weights: Vec<f64> = weighing.weights.iter().map(|it| *it as f64).collect();
    println!("NWE {:?}", network_weight_error(&weights, &capacities));
    if let Some(estimates) = &weighing.estimates_bit_per_s {
        let estimates: Vec<f64> =
            estimates.iter().map(|it| it.unwrap_or_default() as f64).collect();
        println!("NCE {:?}", network_capacity_error(&estimates, &capacities));
        for ((relay, estimate), capacity) in network.relays.iter().zip(&estimates).zip(&capacities)
        {
            let error = relay_capacity_error(*estimate, *capacity).unwrap_or_default();
            println!(
                "{} {:.1} of {:.1}: {error:.3}",
                relay.site.name,
                estimate * 1e-6,
                capacity * 1e-6
            );
        }
    } else {
        for ((relay, weight), capacity) in network.relays.iter().zip(&weights).zip(&capacities) {
            println!("{} {:.1} of {:.1}", relay.site.name, weight * 8e-3, capacity * 1e-6);
        }
    }
    println!(
        "{} s, {} not measured; {:?}",
        weighing.simulated_s, weighing.not_measured, weighing.notes
    );
    Ok(())
}
