mod parties;
mod streams;

use crate::input::Input;
use onion::cell::msg::{Create2, CreatedFast, HANDSHAKE_NTOR, parse_created2};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::crypto::fast;
use onion::crypto::ntor_v3;
use onion::link::Authentication;
use onion::measure::protocol::{CoordinatorKey, Message};
use onion::measure::target::TargetParams;
use onion::node::{CloseCause, Node};
use onion::router::{RateLimit, RouterConfig, RouterEvent};
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use streams::{HELD_BYTES_MAX, Hop, STREAMS_MAX, StreamsHeard};
use testkit::fixture::{Came, Fixture, RUN};
use testkit::vectors::PARTIES;

/// The most cells that a circuit may queue in one direction.
const QUEUE_LIMIT_CELLS: u32 = 20;

/// The most cells that a circuit may queue under the other consensus: the smallest permitted limit.
const QUEUE_LIMIT_CELLS_MOST: u32 = 50;

/// The limit on queued control cells of one link, and the tolerance beyond it.
const CONTROL_MAX: usize = (1 << 20) + 8192;

const COORDINATOR: [u8; 32] = [0xc0; 32];
const MEASURERS: [[u8; 32]; 2] = [[0xa0; 32], [0xa1; 32]];

/// Everything received on one of the router's links.
#[derive(Default)]
struct Link {
    hops: BTreeMap<CircId, Hop>,
    /// The last circuit that the router created on the link.
    begun: Option<CircId>,
    heard: Heard,
}

/// What a link has received about the measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    accepted: u32,
    proven: u32,
    echoed_cells: u64,
    seconds: u32,
    errors: u32,
    padding_cells: u32,
    streams: StreamsHeard,
}

struct World {
    fixture: Fixture<ChaCha8Rng>,
    /// By the indices of their ends.
    links: Vec<Link>,
    /// ntor-v3 clients that wait for an answer, by link and circuit.
    pending: BTreeMap<(usize, CircId), ntor_v3::Client>,
    relay_cells: u64,
    told: Vec<RouterEvent>,
}

impl Deref for World {
    type Target = Fixture<ChaCha8Rng>;

    fn deref(&self) -> &Self::Target {
        &self.fixture
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fixture
    }
}

/// Cells, messages, streams, silence and time in any order, from clients, relays, destinations, measurers and
/// coordinators: the router never panics, never names a closed link, becomes idle, respects its limits, sends only
/// valid cells, echoes no more than it received, and holds no state once every peer is gone.
pub fn router(data: &[u8]) {
    play(data);
}

fn play(data: &[u8]) -> Heard {
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
            ..PARTIES.config()
        };
        let rng = ChaCha8Rng::from_seed([5; 32]);
        let mut fixture = Fixture::new(PARTIES.clone(), config, rng);
        fixture.burst_max_bytes =
            |circuits| circuits * QUEUE_LIMIT_CELLS_MOST as usize * CELL_LEN + CONTROL_MAX;
        Self {
            fixture,
            links: Vec::new(),
            pending: BTreeMap::new(),
            relay_cells: 0,
            told: Vec::new(),
        }
    }

    /// Performs one act, after which the scheduler usually runs.
    fn apply(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        self.act(choice % 26, input);
        self.settle();
        if (choice / 26).is_multiple_of(2) {
            self.pass(RUN);
        }
        self.hear_all();
    }

    fn act(&mut self, op: u8, input: &mut Input<'_>) {
        let place = usize::from(input.u8());
        match op {
            0 => self.accept(place % 8 == 7),
            1 => self.order(place, input),
            2 => self.prove(place, input),
            3 => self.say(place, circ_id(input), Command::CREATE_FAST, &[3; 20]),
            4 => {
                let bytes = input.take(84);
                let mut body = Vec::new();
                Create2 { handshake_type: HANDSHAKE_NTOR, data: bytes }.encode_into(&mut body);
                self.say(place, circ_id(input), Command::CREATE2, &body);
            }
            5 => {
                let (circ_id, cells) = (circ_id(input), input.u8() % 32);
                let command = if input.bool() { Command::RELAY_EARLY } else { Command::RELAY };
                for cell in 0..cells {
                    self.say(place, circ_id, command, &[cell; BODY_LEN]);
                }
            }
            6 => self.message(place, input),
            7 => self.say(place, circ_id(input), Command::DESTROY, &[input.u8()]),
            8 => {
                let (circ_id, command) = (circ_id(input), Command::new(input.u8()));
                let len = usize::from(input.u8());
                self.say(place, circ_id, command, input.take(len));
            }
            9 => {
                let len = usize::from(input.u8());
                let bytes = input.take(len).to_vec();
                if let Some(place) = self.link(place) {
                    self.feed(place, &bytes);
                }
            }
            10 => {
                // The driver may poll late.
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.handle_timeouts();
            }
            11 => {
                if let Some(place) = self.link(place) {
                    self.close(place, CloseCause::Reset);
                }
            }
            12 => self.answer_dial(place, input.bool()),
            13 => self.answer_create(place, input.u8()),
            14 => {
                let reads = !input.bool();
                if let Some(place) = self.link(place) {
                    self.ends[place].reads = reads;
                    if reads {
                        self.read(place, usize::MAX);
                    }
                }
            }
            16..25 => self.apply_to_streams(op - 16, place, input),
            25 => self.ask_for_padding(place, input),
            _ => {
                let now = self.now;
                self.router.set_limit(now, limit(input.u8()));
                self.router.set_target_params(target_params(place % 4 != 0));
            }
        }
    }

    /// One of the links.
    fn link(&self, place: usize) -> Option<usize> {
        place.checked_rem(self.ends.len())
    }

    /// A peer dials the router; it sends nothing if `is_mute`.
    fn accept(&mut self, is_mute: bool) {
        let number = u8::try_from(self.ends.len() % 256).unwrap_or(0);
        let place = self.dial((!is_mute).then_some(Authentication::Anonymous), [number; 32]);
        self.exchange(place);
    }

    fn say(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        let Some(place) = self.link(place).filter(|place| self.ends[*place].is_open()) else {
            return;
        };
        let fits = body.len() <= BODY_LEN || command.is_variable_length();
        let body = if fits { body } else { &body[..BODY_LEN] };
        self.relay_cells += u64::from(matches!(command, Command::RELAY | Command::RELAY_EARLY));
        self.fixture.say(place, circ_id, command, body);
        self.hear_all();
    }

    fn handle_timeouts(&mut self) {
        let mut timeouts = 0;
        let now = self.now;
        while self.router.poll_timeout().is_some_and(|at| at <= now) {
            timeouts += 1;
            assert!(timeouts < 1000, "timeouts without end");
            self.router.handle_timeout(now);
            self.settle();
        }
    }

    /// The peers read what the router has sent; all of it must be valid.
    fn hear_all(&mut self) {
        let held_bytes = self.router.queued_bytes();
        assert!(held_bytes <= HELD_BYTES_MAX, "it holds {held_bytes} bytes");
        self.links.resize_with(self.ends.len(), Link::default);
        for place in 0..self.links.len() {
            while let Some(cell) = self.ends[place].came.pop_front() {
                self.hear(place, &cell);
            }
        }
        while let Some(event) = self.router.poll_event() {
            self.told.push(event);
        }
        self.dialled.clear();
        self.closed.clear();
        self.readable.clear();
    }

    fn hear(&mut self, place: usize, cell: &Came) {
        let link = &mut self.links[place];
        match cell.command {
            Command::CREATED_FAST => {
                let created = CreatedFast::parse(&cell.body).expect("readable");
                if let Ok(keys) = fast::Client::new([3; 20]).finish(&created) {
                    link.hops.insert(cell.circ_id, Hop::new(&keys, 100));
                }
            }
            Command::CREATE2 => link.begun = Some(cell.circ_id),
            Command::PADDING => {
                assert_eq!((cell.circ_id, link.heard.proven), (CircId::LINK, 0));
                link.heard.padding_cells += 1;
            }
            Command::RELAY if link.heard.proven > 0 => link.heard.echoed_cells += 1,
            Command::RELAY => self.hear_relay(place, cell.circ_id, &cell.body),
            Command::CREATED2 => {
                let answer = parse_created2(&cell.body).expect("readable");
                self.hear_created(place, cell.circ_id, answer);
            }
            Command::DESTROY => {
                link.hops.remove(&cell.circ_id);
            }
            Command::MEASURE => match Message::parse(&cell.body).expect("readable") {
                Message::Accepted { .. } => link.heard.accepted += 1,
                Message::Proven => link.heard.proven += 1,
                Message::ClientSecond(..) => link.heard.seconds += 1,
                Message::Error { .. } => link.heard.errors += 1,
                other => panic!("{other:?}"),
            },
            _ => {}
        }
    }

    /// Closes every link: no state may remain. Returns everything received.
    fn end(mut self) -> Heard {
        for place in 0..self.ends.len() {
            self.close(place, CloseCause::ByPeer);
        }
        self.end_destinations();
        self.handle_timeouts();
        assert_eq!(self.router.open_circuits(), 0);
        assert_eq!(self.router.poll_timeout(), None, "it waits for something");
        let totals = *self.router.totals();
        assert!(totals.measured_bytes <= self.relay_cells * CELL_LEN as u64, "made up");
        assert!(self.delivered_bytes <= self.relay_cells * BODY_LEN as u64, "made up");
        assert!(self.ends.iter().all(|end| end.conn.is_none()));
        let heard = self.links.iter().map(|link| link.heard);
        heard.fold(Heard::default(), |sum, link| Heard {
            accepted: sum.accepted + link.accepted,
            proven: sum.proven + link.proven,
            echoed_cells: sum.echoed_cells + link.echoed_cells,
            seconds: sum.seconds + link.seconds,
            errors: sum.errors + link.errors,
            padding_cells: sum.padding_cells + link.padding_cells,
            streams: StreamsHeard {
                connected: sum.streams.connected + link.streams.connected,
                ended: sum.streams.ended + link.streams.ended,
                resolved: sum.streams.resolved + link.streams.resolved,
                sendmes: sum.streams.sendmes + link.streams.sendmes,
                signals: sum.streams.signals + link.streams.signals,
                data_bytes: sum.streams.data_bytes + link.streams.data_bytes,
                delivered_bytes: sum.streams.delivered_bytes.max(self.delivered_bytes),
            },
        })
    }
}

/// The connection numbers of both sides, and the link's own number.
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
    fn the_seeds_reach_what_they_are_named_for() {
        for (target, name, content) in crate::seeds() {
            if target != "router" {
                continue;
            }
            let heard = play(&content);
            let reached = match name {
                "echo" => heard.seconds == 2 && heard.echoed_cells == 62 && heard.errors == 0,
                "limited-echo" => heard.seconds == 2 && heard.echoed_cells > 0,
                "violation" => heard.proven == 2 && heard.errors == 3,
                "refused" => heard.accepted == 0 && heard.errors == 3,
                "transit" | "full" | "waiting" => heard.errors == 0,
                "padding" => heard.padding_cells == 2,
                "streams" => {
                    let StreamsHeard { connected, ended, resolved, sendmes, .. } = heard.streams;
                    let bytes = (heard.streams.data_bytes, heard.streams.delivered_bytes);
                    (connected, ended, resolved, sendmes) == (3, 1, 1, 3)
                        && bytes == (20_000, 120 * 498)
                }
                "windows" => heard.streams.data_bytes > 600 * 400 && heard.streams.ended == 0,
                "congestion" => heard.streams.data_bytes > 150 * 400 && heard.streams.sendmes > 3,
                "forged" => heard.streams.connected == 1 && heard.streams.data_bytes == 0,
                "shed" => heard.streams.connected == 2 && heard.streams.delivered_bytes == 0,
                other => panic!("{other}: what is it for?"),
            };
            assert!(reached, "{name}: {heard:?}");
        }
    }
}
