mod world;

use crate::input::Input;
use crate::progress::Progress;
use onion::Duration;
use onion::cell::CELL_LEN;
use onion::node::{CloseCause, ListenerId, Node};
use world::{Link, Tls, World};

/// Bytes, closes, strangers and timeouts in any order: the measurement never panics, never names a closed
/// connection, always ends or waits for an event, and never counts more than it received.
pub fn transit(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Progress {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    world.settle();
    while !input.is_empty() {
        world.apply(&mut input);
        world.settle();
    }
    world.run_without_input();
    world.progress
}

impl World {
    /// Applies one event that the fuzzer selects.
    fn apply(&mut self, input: &mut Input<'_>) {
        let op = input.u8() % 16;
        let index = usize::from(input.u8());
        match op {
            // Several honest steps.
            0..=2 => {
                for _ in 0..=input.u8() % 32 {
                    self.step_honestly();
                }
            }
            3 => self.connect(index),
            // Deliver some of the bytes in flight.
            4 => self.deliver(index, usize::from(input.u16())),
            5 => {
                let bytes = input.u8();
                let bytes = input.take(usize::from(bytes));
                self.feed(index, bytes);
            }
            // Alter, duplicate or drop bytes in flight to the measurement.
            6 => {
                let (at, mask) = (usize::from(input.u16()), input.u8());
                if let Some(link) = self.link(index)
                    && !link.to_us.is_empty()
                {
                    let at = at % link.to_us.len();
                    link.to_us[at] ^= mask;
                }
            }
            7 => {
                let (from, cells) = (usize::from(input.u16()), usize::from(input.u8() % 4));
                let is_copy = input.bool();
                if let Some(link) = self.link(index) {
                    let from = from.min(link.to_us.len());
                    let until = (from + cells * CELL_LEN).min(link.to_us.len());
                    if is_copy {
                        link.to_us.extend_from_within(from..until);
                    } else {
                        link.to_us.drain(from..until);
                    }
                }
            }
            8 => self.close(index, CloseCause::Reset),
            9 => {
                let listener = ListenerId(u32::try_from(index % 4).unwrap_or(0));
                if let Some(conn) = self.transit.handle_accepted(self.now, listener, &Tls) {
                    self.add(Link {
                        ours: Some(conn),
                        is_connected: true,
                        is_inbound: true,
                        ..Link::default()
                    });
                }
            }
            10 => self.wait_for_timeout(),
            11 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.handle_timeout_if_due();
            }
            12..=14 => {
                let at = self.now + Duration::from_millis(u64::from(input.u8()));
                self.transit.start(self.now, at);
                self.progress.is_started |= self.progress.is_ready;
            }
            _ => {
                if index == 77 {
                    self.transit.stop();
                    self.progress.is_over = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn the_seeds_reach_the_end_of_a_measurement() {
        let progress = |wanted: &str| {
            let seeds = crate::seeds().into_iter();
            let seed = seeds.filter(|(target, name, _)| *target == "transit" && *name == wanted);
            run(&seed.map(|(_, _, content)| content).next().expect("a seed"))
        };
        for name in ["good", "fast"] {
            let progress = progress(name);
            assert!(
                progress.is_finished && progress.seconds == 2 && progress.bytes > 514 * 100,
                "{progress:?}"
            );
        }
        for name in ["altered", "repeated", "lost"] {
            let progress = progress(name);
            assert!(
                progress.is_started && !progress.is_finished && progress.bytes == 0,
                "{name}: {progress:?}"
            );
        }
        let silent = progress("silent");
        assert!(!silent.is_ready && silent.is_over, "{silent:?}");
    }
}
