//! Runs a network. Arguments: its folder, seconds, threads, a folder for results (`-` for none), scale, seed.
//! For profiling: builds faster than the whole program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use tornet::network::Network;
use tornet::run::{Plan, run};

fn main() -> Result<(), tornet::Error> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize| arguments.get(place).and_then(|argument| argument.parse().ok());
    let path = arguments.get(1).map_or(".", String::as_str);
    let seconds = number(2).unwrap_or(10);
    let threads = u16::try_from(number(3).unwrap_or(1)).unwrap_or(1);
    let network = Network::read(Path::new(path))?;
    let scale: Option<f64> = arguments.get(5).and_then(|argument| argument.parse().ok());
    let network = scale.map_or(network.clone(), |scale| network.scaled(scale));
    let seed = number(6).map_or(1, u64::from);
    let plan = Plan { seconds, warm_up_s: seconds / 3, threads, seed };
    let progress = |second: u32, wall: std::time::Duration| {
        if second.is_multiple_of(10) {
            eprintln!("{second} s in {wall:?}");
        }
    };
    let outcome = run(&network, &plan, &AtomicBool::new(false), &progress)?;
    let folder = arguments.get(4).filter(|argument| *argument != "-").map(Path::new);
    let summary = tornet::results::finish(&network, &plan, &outcome, folder)?;
    println!("{}", serde_json::to_string_pretty(&summary).unwrap_or_default());
    Ok(())
}
