mod parties;
mod streams;

use crate::input::Input;
use onion::cell::msg::{Create2, HANDSHAKE_NTOR, parse_created2};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::crypto::ntor_v3;
use onion::link::Authentication;
use onion::measure::protocol::{CoordinatorKey, Message};
use onion::measure::target::TargetParams;
use onion::node::{CloseCause, Node};
use onion::router::{RateLimit, RouterConfig};
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use streams::{HELD_BYTES_MAX, Hop, STREAMS_MAX, StreamCounts};
use testkit::fixture::{FAST_SECRET, Fixture, RUN, ReceivedCell};
use testkit::vectors::IDENTITIES;

/// The limit on the cells of a circuit's queue in one direction.
const QUEUE_LIMIT_CELLS: u32 = 20;

/// The limit under the other consensus: the lowest that parameters permit.
const QUEUE_LIMIT_CELLS_MOST: u32 = 50;

/// The limit on queued bytes of control cells of one link, with tolerance.
const CONTROL_MAX: usize = (1 << 20) + 8192;

const COORDINATOR: [u8; 32] = [0xc0; 32];
const MEASURERS: [[u8; 32]; 2] = [[0xa0; 32], [0xa1; 32]];

/// The state of a link's peer.
#[derive(Default)]
struct Link {
    hops: BTreeMap<CircId, Hop>,
    /// The last circuit that the router created on the link.
    created: Option<CircId>,
    /// Whether the router has accepted a measurer's proof.
    is_measurer: bool,
}

/// The numbers of messages, cells and bytes that peers have received.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    accepted: u32,
    proven: u32,
    echoed_cells: u64,
    seconds: u32,
    errors: u32,
    padding_cells: u32,
    streams: StreamCounts,
}

struct World {
    fixture: Fixture<ChaCha8Rng>,
    /// By link.
    links: Vec<Link>,
    /// Pending ntor v3 handshakes, by link and circuit.
    pending: BTreeMap<(usize, CircId), ntor_v3::Client>,
    /// RELAY and RELAY_EARLY cells sent to the router.
    relay_cells: u64,
    counts: Counts,
}

testkit::deref_to_fixture!(World);

/// Clients, relays, destinations, measurers and coordinators send anything in any order. The router never panics,
/// never names a closed link, becomes idle, respects its limits, sends only valid cells, echoes no more cells than
/// it received, and holds no state once every peer is gone.
pub fn router(data: &[u8]) {
    run(data);
}

fn run(data: &[u8]) -> Counts {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.apply(&mut input);
    }
    world.end()
}

fn target_params(is_allowed: bool) -> TargetParams {
    TargetParams {
        is_allowed,
        coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
        measurements_per_period: 3,
        max_duration: Duration::from_secs(10),
        ..TargetParams::default()
    }
}

fn limit(choice: u8) -> Option<RateLimit> {
    let rate = match choice % 4 {
        0 => return None,
        1 => Rate::from_mbit_per_s(1.0),
        2 => Rate::from_bit_per_s(9),
        _ => Rate::MAX,
    };
    Some(RateLimit { rate, burst_bytes: u64::from(choice) * 100 })
}

impl World {
    fn new(input: &mut Input<'_>) -> Self {
        let config = RouterConfig {
            target: target_params(true),
            limit: limit(input.u8()),
            queue_limit_cells: QUEUE_LIMIT_CELLS,
            exit: Some(streams::exit()),
            directory: Some(SocketAddr::from(([127, 0, 0, 1], 9030))),
            streams_max: STREAMS_MAX,
            held_bytes_max: HELD_BYTES_MAX,
            ..IDENTITIES.config()
        };
        let rng = ChaCha8Rng::from_seed([5; 32]);
        let mut fixture = Fixture::new(IDENTITIES.clone(), config, rng);
        fixture.burst_max_bytes =
            |circuits| circuits * QUEUE_LIMIT_CELLS_MOST as usize * CELL_LEN + CONTROL_MAX;
        Self {
            fixture,
            links: Vec::new(),
            pending: BTreeMap::new(),
            relay_cells: 0,
            counts: Counts::default(),
        }
    }

    /// Applies one event, after which the scheduler usually runs.
    fn apply(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        self.apply_one(choice % 26, input);
        self.settle();
        if (choice / 26).is_multiple_of(2) {
            self.advance(RUN);
        }
        self.receive_all();
    }

    fn apply_one(&mut self, op: u8, input: &mut Input<'_>) {
        let index = usize::from(input.u8());
        match op {
            0 => self.accept(index % 8 == 7),
            1 => self.send_order(index, input),
            2 => self.send_proof(index, input),
            3 => self.send_cell(index, circ_id(input), Command::CREATE_FAST, &FAST_SECRET),
            4 => {
                let bytes = input.take(84);
                let mut body = Vec::new();
                Create2 { handshake_type: HANDSHAKE_NTOR, data: bytes }.encode_into(&mut body);
                self.send_cell(index, circ_id(input), Command::CREATE2, &body);
            }
            5 => {
                let (circ_id, cells) = (circ_id(input), input.u8() % 32);
                let command = if input.bool() { Command::RELAY_EARLY } else { Command::RELAY };
                for cell in 0..cells {
                    self.send_cell(index, circ_id, command, &[cell; BODY_LEN]);
                }
            }
            6 => self.send_circuit_message(index, input),
            7 => self.send_cell(index, circ_id(input), Command::DESTROY, &[input.u8()]),
            8 => {
                let (circ_id, command) = (circ_id(input), Command::new(input.u8()));
                let len = usize::from(input.u8());
                self.send_cell(index, circ_id, command, input.take(len));
            }
            9 => {
                let len = usize::from(input.u8());
                let bytes = input.take(len).to_vec();
                if let Some(index) = self.link(index) {
                    self.deliver_bytes(index, &bytes);
                }
            }
            10 => {
                // The driver may poll late.
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.handle_timeouts();
            }
            11 => {
                if let Some(index) = self.link(index) {
                    self.close(index, CloseCause::Reset);
                }
            }
            12 => self.answer_dial(index, input.bool()),
            13 => self.answer_create(index, input.u8()),
            14 => {
                let reads = !input.bool();
                if let Some(index) = self.link(index) {
                    self.peers[index].reads = reads;
                    if reads {
                        self.read(index, usize::MAX);
                    }
                }
            }
            16..25 => self.apply_to_streams(op - 16, index, input),
            25 => self.negotiate_padding(index, input),
            _ => {
                let now = self.now;
                self.router.set_limit(now, limit(input.u8()));
                self.router.set_target_params(target_params(index % 4 != 0));
            }
        }
    }

    /// The link that a number selects.
    fn link(&self, index: usize) -> Option<usize> {
        index.checked_rem(self.peers.len())
    }

    /// A peer dials the router; it sends nothing if `is_mute`.
    fn accept(&mut self, is_mute: bool) {
        let number = u8::try_from(self.peers.len() % 256).unwrap_or(0);
        let index = self.dial((!is_mute).then_some(Authentication::Anonymous), [number; 32]);
        self.exchange(index);
    }

    fn send_cell(&mut self, index: usize, circ_id: CircId, command: Command, body: &[u8]) {
        let Some(index) = self.link(index).filter(|index| self.peers[*index].is_open()) else {
            return;
        };
        let fits = body.len() <= BODY_LEN || command.is_variable_length();
        let body = if fits { body } else { &body[..BODY_LEN] };
        self.relay_cells += u64::from(matches!(command, Command::RELAY | Command::RELAY_EARLY));
        self.fixture.send_cell(index, circ_id, command, body);
        self.receive_all();
    }

    fn handle_timeouts(&mut self) {
        let mut timeouts = 0;
        let now = self.now;
        while self.router.poll_timeout().is_some_and(|at| at <= now) {
            timeouts += 1;
            assert!(timeouts < 1000, "too many timeouts");
            self.router.handle_timeout(now);
            self.settle();
        }
    }

    /// The peers process the router's cells, all of which must be valid.
    fn receive_all(&mut self) {
        let held_bytes = self.router.queued_bytes();
        assert!(held_bytes <= HELD_BYTES_MAX, "{held_bytes} bytes held");
        self.links.resize_with(self.peers.len(), Link::default);
        for index in 0..self.links.len() {
            while let Some(cell) = self.peers[index].received.pop_front() {
                self.receive(index, &cell);
            }
        }
        while self.router.poll_event().is_some() {}
        self.dialled.clear();
        self.closed.clear();
        self.readable.clear();
    }

    fn receive(&mut self, index: usize, cell: &ReceivedCell) {
        let link = &mut self.links[index];
        match cell.command {
            Command::CREATED_FAST => {
                if let Some(keys) = cell.fast_keys() {
                    link.hops.insert(cell.circ_id, Hop::new(&keys, 100));
                }
            }
            Command::CREATE2 => link.created = Some(cell.circ_id),
            Command::PADDING => {
                assert_eq!((cell.circ_id, link.is_measurer), (CircId::LINK, false));
                self.counts.padding_cells += 1;
            }
            Command::RELAY if link.is_measurer => self.counts.echoed_cells += 1,
            Command::RELAY => self.receive_relay(index, cell.circ_id, &cell.body),
            Command::CREATED2 => {
                let answer = parse_created2(&cell.body).expect("readable");
                self.receive_created(index, cell.circ_id, answer);
            }
            Command::DESTROY => {
                link.hops.remove(&cell.circ_id);
            }
            Command::MEASURE => match Message::parse(&cell.body).expect("readable") {
                Message::Accepted { .. } => self.counts.accepted += 1,
                Message::Proven => {
                    link.is_measurer = true;
                    self.counts.proven += 1;
                }
                Message::ClientSecond(..) => self.counts.seconds += 1,
                Message::Error { .. } => self.counts.errors += 1,
                other => panic!("{other:?}"),
            },
            _ => {}
        }
    }

    /// Closes every link: no state may remain. Returns the counts.
    fn end(mut self) -> Counts {
        for index in 0..self.peers.len() {
            self.close(index, CloseCause::ByPeer);
        }
        self.end_destinations();
        self.handle_timeouts();
        assert_eq!(self.router.open_circuits(), 0);
        assert_eq!(self.router.poll_timeout(), None, "a timeout is left");
        let totals = *self.router.totals();
        assert!(totals.measured_bytes <= self.relay_cells * CELL_LEN as u64);
        assert!(self.delivered_bytes <= self.relay_cells * BODY_LEN as u64);
        assert!(self.peers.iter().all(|end| end.conn.is_none()));
        self.counts.streams.delivered_bytes = self.delivered_bytes;
        self.counts
    }
}

/// A circuit ID of either side, or the link's.
fn circ_id(input: &mut Input<'_>) -> CircId {
    match input.u8() % 16 {
        15 => CircId::LINK,
        number @ 12..15 => CircId::new(number.into()),
        number => CircId::of_initiator(u32::from(number) + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_the_states_they_are_named_after() {
        for (target, name, content) in crate::seeds() {
            if target != "router" {
                continue;
            }
            let counts = run(&content);
            let reached = match name {
                "echo" => counts.seconds == 2 && counts.echoed_cells == 62 && counts.errors == 0,
                "limited-echo" => counts.seconds == 2 && counts.echoed_cells > 0,
                "violation" => counts.proven == 2 && counts.errors == 3,
                "refused" => counts.accepted == 0 && counts.errors == 3,
                "transit" | "full" | "waiting" => counts.errors == 0,
                "padding" => counts.padding_cells == 2,
                "streams" => {
                    let StreamCounts { connected, ended, resolved, sendmes, .. } = counts.streams;
                    let bytes = (counts.streams.data_bytes, counts.streams.delivered_bytes);
                    (connected, ended, resolved, sendmes) == (3, 1, 1, 3)
                        && bytes == (20_000, 120 * 498)
                }
                "windows" => counts.streams.data_bytes > 600 * 400 && counts.streams.ended == 0,
                "congestion" => counts.streams.data_bytes > 150 * 400 && counts.streams.sendmes > 3,
                "forged" => counts.streams.connected == 1 && counts.streams.data_bytes == 0,
                "shed" => counts.streams.connected == 2 && counts.streams.delivered_bytes == 0,
                other => panic!("no expectation for {other}"),
            };
            assert!(reached, "{name}: {counts:?}");
        }
    }
}
