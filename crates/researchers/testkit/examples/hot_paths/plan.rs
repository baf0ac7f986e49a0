//! A coordinator's plan of a day.

use coordinator::plan::{Seed, TeamRoom};
use coordinator::policy::network_of;
use coordinator::{Arrival, Attempt, Params, Priority, SlotSchedule};
use onion::Rate;
use onion::identity::RsaId;
use std::hint::black_box;
use std::net::Ipv4Addr;

const RELAYS: u16 = 1000;
/// The slots of a day.
const SLOTS: u32 = 2618;

/// Plans days. Returns their number.
pub(crate) fn run(repetitions: u32) -> u64 {
    let arrivals: Vec<Arrival> = (0..RELAYS).map(arrival).collect();
    let team = TeamRoom { capacity: Rate::from_mbit_per_s(3000.0), at_once_max: 40 };
    let factor = Params::default().excess_factor();
    for _ in 0..repetitions {
        let seed = Seed::from_bytes([1; 32]);
        let arrivals = black_box(&arrivals);
        let schedule = SlotSchedule::memoryless(&seed, SLOTS, &[team], 0, factor, arrivals, 0);
        assert!(black_box(schedule).counts().waiting > 0);
    }
    repetitions.into()
}

/// A known relay of 1 to 500 Mbit/s. One in ten shares a machine with the one before it.
fn arrival(number: u16) -> Arrival {
    let id = |number: u16| {
        let mut bytes = [0; 20];
        bytes[..2].copy_from_slice(&number.wrapping_mul(40_503).to_be_bytes());
        RsaId(bytes)
    };
    let guess = Rate::from_mbit_per_s(500.0 / f64::from(1 + number % 500));
    Arrival {
        relay: id(number),
        together: id(if number % 10 == 9 { number - 1 } else { number }),
        priority: Priority::Known,
        first_seen_unix_s: 0,
        network: network_of(Ipv4Addr::LOCALHOST.into()),
        turn: Attempt::first(guess, 5),
        is_done: false,
        is_pending: false,
        // Some have not been measured for long.
        due_by: number.is_multiple_of(4).then_some(SLOTS / 2),
    }
}
