//! Runs one hot path of FlashFlow. `scripts/instructions` counts its instructions.
//!
//! ```sh
//! cargo run --release -p testkit --example hot_paths -- relayed-cell-tor1 3
//! ```
//!
//! Without arguments, the program prints the names of all paths. With a path and a number of repetitions, it runs the path and prints the
//! number of units, such as cells. All input is fixed, so that each run executes the same instructions. The cost of a unit follows from two
//! runs with different numbers of repetitions: in their difference, handshakes and other preparations cancel out.

mod consensus;
mod load;
mod network;
mod plan;
mod relay;

use onion::node::SocketState;
use relay::Cryptography;
use std::process::ExitCode;

/// The paths by name, and the unit of each.
const PATHS: [(&str, Path); 6] = [
    // A cell through a relay, from the bytes of one link to those of another, with either relay cryptography.
    ("relayed-cell-tor1", |repetitions| relay::run(Cryptography::Tor1, repetitions)),
    ("relayed-cell-cgo", |repetitions| relay::run(Cryptography::Cgo, repetitions)),
    // A cell that a load generator sends and receives.
    ("load-cell", load::run),
    // A cell with data that a relay sends to the next host, in a network in virtual time.
    ("simulated-cell-hop", network::run),
    // A consensus of 1,000 relays.
    ("consensus", consensus::run),
    // The slots of 1,000 relays in a day.
    ("plan", plan::run),
];

/// Runs this number of repetitions. Returns the number of units.
type Path = fn(u32) -> u64;

/// A socket that sends everything at once.
const FAST_SOCKET: SocketState = SocketState {
    cwnd_segments: 100_000,
    unacked_segments: 0,
    mss_bytes: 1448,
    notsent_bytes: 0,
    unwritten_bytes: 0,
    rtt_us: 1000,
};

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the output of a program")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = |name: &str| PATHS.iter().find(|(known, _)| *known == name).map(|(_, path)| path);
    match arguments.as_slice() {
        [] => PATHS.iter().for_each(|(name, _)| println!("{name}")),
        [name, repetitions] => {
            let (Some(path), Ok(repetitions)) = (path(name), repetitions.parse()) else {
                eprintln!("hot_paths: no such path, or not a number: {name} {repetitions}");
                return ExitCode::FAILURE;
            };
            println!("{}", path(repetitions));
        }
        _ => {
            eprintln!("usage: hot_paths [PATH REPETITIONS]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
