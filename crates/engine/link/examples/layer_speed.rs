//! Prints the time of a relay's layer for a cell, on one core: with keystreams (tor1) and with Counter Galois Onion.
//!
//! ```sh
//! cargo run --release -p link --example layer_speed
//! ```
//!
//! Both are timed in turns; the median of the turns is printed. A relayed cell is for another hop. A cell for the
//! relay, or from it, also needs a digest (tor1) or a key update.

use link::Clock;
use onion::cell::{BODY_LEN, Command};
use onion::crypto::{CgoKeys, LayerKeys, Layers, RelayLayer, fast};
use std::hint::black_box;

/// Cells in a turn, and the number of turns. The cells stay in the second-level cache, as those that a relay has just received, and most turns end
/// before another program interrupts them.
const CELLS: u32 = 200;
const TURNS: usize = 1001;

/// A cell.
type Body = [u8; BODY_LEN];

/// The timed operations.
const OPERATIONS: [&str; 4] =
    ["forward, relayed", "forward, for the relay", "backward, relayed", "backward, from the relay"];

struct Timed {
    name: &'static str,
    keys: LayerKeys,
    ns: [Vec<f64>; OPERATIONS.len()],
}

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() {
    let clock = Clock::start();
    let tor1 = fast::respond(&[1; 20], [2; 20]).1.into();
    let cgo = CgoKeys::from_material(&std::array::from_fn(|at| at.to_le_bytes()[0])).into();
    let timed = |name, keys| Timed { name, keys, ns: Default::default() };
    let mut both = [timed("tor1", tor1), timed("CGO", cgo)];
    for _ in 0..TURNS {
        for Timed { keys, ns, .. } in &mut both {
            for (operation, ns) in ns.iter_mut().enumerate() {
                ns.push(turn(&clock, keys, operation));
            }
        }
    }
    println!("{:26}{:>12}{:>12}{:>9}", "ns for a cell", both[0].name, both[1].name, "ratio");
    for (operation, name) in OPERATIONS.iter().enumerate() {
        let [a, b] = both.each_mut().map(|timed| median(&mut timed.ns[operation]));
        println!("{name:26}{a:>12.0}{b:>12.0}{:>9.1}", b / a);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds for a cell.
fn turn(clock: &Clock, keys: &LayerKeys, operation: usize) -> f64 {
    let mut relay = RelayLayer::new(keys);
    let mut layers = Layers::default();
    layers.push(keys);
    // Made before, since sealing costs as much as opening.
    let mut cells: Vec<Body> = (0..CELLS).map(|_| [1; BODY_LEN]).collect();
    if operation == 1 {
        cells.iter_mut().for_each(|cell| layers.seal(0, Command::RELAY, cell));
    }
    let start = clock.now();
    for cell in &mut cells {
        match operation {
            0 => assert!(!black_box(&mut relay).decrypt(Command::RELAY, cell)),
            1 => assert!(black_box(&mut relay).decrypt(Command::RELAY, cell)),
            2 => black_box(&mut relay).pass_back(cell),
            _ => black_box(&mut relay).originate(cell),
        }
        black_box(cell);
    }
    (clock.now() - start).as_secs_f64() * 1e9 / f64::from(CELLS)
}
