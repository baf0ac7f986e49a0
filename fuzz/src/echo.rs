use crate::input::Input;
use crate::links::Recorded;
use crate::progress::Progress;
use crate::target::{Links, Subject};
use onion::cell::CELL_LEN;
use onion::measure::load::{LoadConfig, LoadGenerator, Pace, ReturnPath, Target};
use onion::measure::order::{OrderConfig, OrderEvent, OrderLink};
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// Limit on the actions that one event may cause.
const POLLS_MAX: u32 = 50_000;

const NONCE: Nonce = Nonce([9; 32]);
const SEED: [u8; 32] = [7; 32];

fn target() -> Target {
    let own = &Recorded::get().own;
    Target { address: SocketAddr::from(([10, 0, 0, 1], 9001)), ids: own.ids() }
}

/// For any messages of an echoing relay, the load generator never panics, obeys the contract of nodes, ends or
/// waits for an event, and never counts more cells than it received.
pub fn echo(data: &[u8]) {
    run(Input::new(data), generator);
}

/// For any messages of a relay under an order, its coordinator's link never panics, obeys the contract of
/// nodes, and reports a consistent sequence of events.
pub fn order(data: &[u8]) {
    run(Input::new(data), order_link);
}

fn generator(input: &mut Input<'_>) -> (Measuring, Instant) {
    let rates = [Rate::from_mbit_per_s(50.0), Rate::from_bit_per_s(9), Rate::ZERO, Rate::MAX];
    let config = LoadConfig {
        held_back: None,
        few_circuits: None,
        target: target(),
        return_path: ReturnPath::Echo { nonce: NONCE, key_seed: SEED },
        sockets: 1 + u32::from(input.u8() % 3),
        circuits_per_socket: 1 + u32::from(input.u8() % 3),
        pace: Pace { burst: u32::from(input.u8() % 3), per_s: NonZeroU32::MIN },
        second_tries: 2,
        seconds: u32::from(input.u8() % 12),
        rate: input.choose(&rates),
        window_cap_cells: input.choose(&[40, 20, 1, 0]),
        check_one_in: NonZeroU32::new(u32::from(input.u8() % 4)).unwrap_or(NonZeroU32::MIN),
        setup_timeout: Duration::from_millis(u64::from(input.u16())),
        stall_timeout: Duration::from_millis(u64::from(input.u16())),
        unix_time_s: Recorded::get().now_s,
    };
    let now = Instant::ORIGIN;
    let node = LoadGenerator::new(config, ChaCha8Rng::from_seed([input.u8(); 32]), now);
    (Measuring { node, progress: Progress::default() }, now)
}

fn order_link(input: &mut Input<'_>) -> (Ordering, Instant) {
    let seconds = u16::from(input.u8() % 5) + 1;
    let order = Order {
        coordinator: CoordinatorKey::of_seed(&SEED),
        target: target().ids,
        measurers: vec![MeasurerKey::of_seed(&SEED)],
        seconds,
        client_share: ClientShare::DEFAULT,
        sockets: 1,
        expires_unix_s: Recorded::get().now_s,
        nonce: NONCE,
    };
    let config = OrderConfig {
        target: target(),
        order,
        key_seed: SEED,
        accept_timeout: Duration::from_millis(u64::from(input.u16())),
        random: [4; 24],
        unix_time_s: Recorded::get().now_s,
    };
    let node = OrderLink::new(config, Instant::ORIGIN);
    (
        Ordering { node, seconds, is_accepted: false, reported_seconds: 0, is_over: false },
        Instant::ORIGIN,
    )
}

fn run<S: Subject>(mut input: Input<'_>, begin: impl Fn(&mut Input<'_>) -> (S, Instant)) -> S {
    let proves = !input.bool();
    let (subject, now) = begin(&mut input);
    let mut links = Links::new(subject, now, NONCE, proves);
    links.settle(POLLS_MAX);
    while !input.is_empty() {
        links.apply(&mut input);
        links.settle(POLLS_MAX);
    }
    links.run_without_input(POLLS_MAX);
    links.into_subject()
}

/// A load generator and its events.
struct Measuring {
    node: LoadGenerator<ChaCha8Rng>,
    progress: Progress,
}

impl Subject for Measuring {
    type Node = LoadGenerator<ChaCha8Rng>;

    fn node(&mut self) -> &mut Self::Node {
        &mut self.node
    }

    fn start(&mut self, now: Instant, at: Instant) {
        self.node.start(now, at);
        self.progress.is_started |= self.progress.is_ready;
    }

    fn stop(&mut self) {
        self.node.stop();
        self.progress.is_over = true;
    }

    fn settle(&mut self, fed_cells: u64) {
        while let Some(event) = self.node.poll_event() {
            self.progress.take(&event);
        }
        assert_eq!(self.node.is_over(), self.progress.is_over);
        assert!(
            self.progress.bytes <= fed_cells * CELL_LEN as u64,
            "more bytes counted than received"
        );
    }

    fn is_over(&self) -> bool {
        self.progress.is_over
    }

    fn waits_for_others(&self) -> bool {
        self.progress.is_ready && !self.progress.is_started
    }
}

/// A coordinator's link and its events.
struct Ordering {
    node: OrderLink,
    seconds: u16,
    is_accepted: bool,
    reported_seconds: u16,
    is_over: bool,
}

impl Subject for Ordering {
    type Node = OrderLink;

    fn node(&mut self) -> &mut Self::Node {
        &mut self.node
    }

    fn start(&mut self, _now: Instant, _at: Instant) {}

    fn stop(&mut self) {
        self.node.stop();
        self.is_over = true;
    }

    fn settle(&mut self, _fed_cells: u64) {
        while let Some(event) = self.node.poll_event() {
            assert!(
                !self.is_over && self.reported_seconds < self.seconds
                    || event == OrderEvent::Finished
            );
            match event {
                OrderEvent::Accepted => {
                    assert!(!self.is_accepted);
                    self.is_accepted = true;
                }
                OrderEvent::ClientSecond(second, _) => {
                    assert!(self.is_accepted && second.second == self.reported_seconds);
                    self.reported_seconds += 1;
                }
                OrderEvent::Finished => assert_eq!(self.reported_seconds, self.seconds),
                OrderEvent::Failed(failure) => {
                    assert!(!failure.to_string().is_empty());
                    self.is_over = true;
                }
            }
        }
        // A target may close the link once everything is reported.
        self.is_over |= self.reported_seconds == self.seconds && self.node.is_over();
        assert_eq!(self.node.is_over(), self.is_over);
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn waits_for_others(&self) -> bool {
        self.is_accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(target: &str, wanted: &str) -> Vec<u8> {
        let seeds = crate::seeds().into_iter();
        let mut seed = seeds.filter(|(known, name, _)| *known == target && *name == wanted);
        seed.next().expect("a seed").2
    }

    #[test]
    fn the_seeds_reach_the_end_of_a_measurement() {
        for name in ["good", "fast"] {
            let content = seed("echo", name);
            let progress = run(Input::new(&content), generator).progress;
            assert!(progress.is_finished && progress.bytes > 0, "{name}: {progress:?}");
        }
        for name in ["altered", "ahead", "refused", "not-proven"] {
            let content = seed("echo", name);
            let progress = run(Input::new(&content), generator).progress;
            assert!(progress.is_over && !progress.is_finished, "{name}: {progress:?}");
        }
    }

    #[test]
    fn the_seeds_of_orders_reach_their_last_second() {
        let progress = |name: &str| {
            let content = seed("order", name);
            let subject = run(Input::new(&content), order_link);
            (subject.is_accepted, subject.reported_seconds)
        };
        assert_eq!(progress("good"), (true, 2));
        assert_eq!(progress("other-nonce"), (false, 0));
        assert_eq!(progress("twice"), (true, 1));
        assert_eq!(progress("refused"), (false, 0));
    }
}
