mod parties;
mod streams;

use crate::input::Input;
use crate::links::Recorded;
use crate::vectors::RecordedTls;
use onion::cell::msg::{Create2, CreatedFast, HANDSHAKE_NTOR, parse_created2};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::crypto::fast;
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession};
use onion::measure::protocol::{CoordinatorKey, Message};
use onion::measure::target::TargetParams;
use onion::node::{CloseCause, ConnId, Dial, ListenerId, Node, Security};
use onion::router::schedule::SchedulerConfig;
use onion::router::{RateLimit, Router, RouterConfig, RouterEvent};
use onion::{Duration, Instant, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use streams::{Beyond, HELD_BYTES_MAX, Hop, STREAMS_MAX, StreamsHeard};

/// More than any honest reaction takes.
const POLLS_MAX: u32 = 50_000;

/// Cells that may wait on a circuit in one direction.
const QUEUE_LIMIT_CELLS: u32 = 20;

/// The same with another consensus: its least bound.
const QUEUE_LIMIT_CELLS_MOST: u32 = 50;

/// What control cells of one link may wait, and what is still let in beyond that.
const CONTROL_MAX: usize = (1 << 20) + 8192;

const COORDINATOR: [u8; 32] = [0xc0; 32];
const MEASURERS: [[u8; 32]; 2] = [[0xa0; 32], [0xa1; 32]];

/// TLS in name only, another for each link.
#[derive(Clone)]
struct Tls<'a> {
    recorded: &'a RecordedTls,
    exported: [u8; 32],
}

impl TlsSession for Tls<'static> {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.recorded.peer_certificate()
    }

    fn export_keying_material(&self, _: &[u8], _: &[u8]) -> Option<[u8; 32]> {
        Some(self.exported)
    }

    fn peer_address(&self) -> Option<IpAddr> {
        Some([10, 0, 0, 9].into())
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// A link of the router's, and who is at its other end.
struct Link {
    conn: Option<ConnId>,
    /// The router's dial has been answered.
    is_connected: bool,
    channel: Option<Channel>,
    exported: [u8; 32],
    /// The other end does not read.
    is_full: bool,
    hops: BTreeMap<CircId, Hop>,
    /// The latest circuit that the router has begun on it.
    begun: Option<CircId>,
    heard: Heard,
}

/// What a link has heard of the measurement.
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
    router: Router<ChaCha8Rng>,
    now: Instant,
    links: Vec<Link>,
    known: BTreeMap<ConnId, usize>,
    beyond: Beyond,
    delivered_bytes: u64,
    relay_cells: u64,
    told: Vec<RouterEvent>,
}

/// Cells, messages, streams, silence and time in any order, from clients, relays, destinations, measurers and
/// coordinators: the router never panics, never names a link that is gone, comes to rest, keeps its bounds, says
/// only what can be read, sends back no more than it got, and keeps nothing once all are gone.
pub fn router(data: &[u8]) {
    play(data);
}

fn play(data: &[u8]) -> Heard {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    while !input.is_empty() {
        world.apply(&mut input);
        world.settle();
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
        let recorded = Recorded::get();
        let config = RouterConfig {
            target: target_params(true),
            limit: limit(input.u8()),
            queue_limit_cells: QUEUE_LIMIT_CELLS,
            // Cells leave at once: the harness does not wait for runs.
            scheduler: SchedulerConfig::vanilla(),
            exit: Some(streams::exit()),
            directory: Some(SocketAddr::from(([127, 0, 0, 1], 9030))),
            streams_max: STREAMS_MAX,
            held_bytes_max: HELD_BYTES_MAX,
            ..RouterConfig::new(Arc::clone(&recorded.own), recorded.now_s)
        };
        let rng = ChaCha8Rng::from_seed([5; 32]);
        Self {
            router: Router::new(config, rng, Instant::ORIGIN),
            now: Instant::ORIGIN,
            links: Vec::new(),
            known: BTreeMap::new(),
            beyond: Beyond::default(),
            delivered_bytes: 0,
            relay_cells: 0,
            told: Vec::new(),
        }
    }

    fn tls(&self) -> Tls<'static> {
        let number = u8::try_from(self.links.len() % 256).unwrap_or(0);
        Tls { recorded: &Recorded::get().own_tls, exported: [number; 32] }
    }

    fn apply(&mut self, input: &mut Input<'_>) {
        let op = input.u8() % 26;
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
                self.feed(place, &bytes);
            }
            10 => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.handle_timeouts();
            }
            11 => self.close(place, CloseCause::Reset),
            12 => self.answer_dial(place, input.bool()),
            13 => self.answer_create(place, input.u8()),
            14 => {
                let is_full = input.bool();
                if let Some(link) = self.link(place) {
                    link.is_full = is_full;
                    if !is_full {
                        let place = place % self.links.len();
                        self.flush(place);
                    }
                }
            }
            16..25 => self.apply_to_streams(op - 16, place, input),
            25 => self.ask_for_padding(place, input),
            _ => {
                self.router.set_limit(self.now, limit(input.u8()));
                self.router.set_target_params(target_params(place % 4 != 0));
            }
        }
    }

    fn link(&mut self, place: usize) -> Option<&mut Link> {
        let place = place.checked_rem(self.links.len())?;
        Some(&mut self.links[place])
    }

    /// Somebody dials the router, and says nothing if `is_mute`.
    fn accept(&mut self, is_mute: bool) {
        let recorded = Recorded::get();
        let tls = self.tls();
        let conn = self.router.handle_accepted(self.now, ListenerId(0), &tls);
        let own = &recorded.own;
        let expected = ExpectedPeer { ids: own.ids(), address: [10, 0, 0, 1].into() };
        let channel = (!is_mute).then(|| {
            let anonymous = Authentication::Anonymous;
            Channel::initiator(expected, anonymous, &tls, [1; 24], recorded.now_s).expect("usable")
        });
        self.add(conn, true, channel, tls.exported);
    }

    fn add(
        &mut self,
        conn: Option<ConnId>,
        is_connected: bool,
        channel: Option<Channel>,
        exported: [u8; 32],
    ) {
        let place = self.links.len();
        if let Some(conn) = conn {
            assert!(self.known.insert(conn, place).is_none(), "{conn:?} is known");
        }
        self.links.push(Link {
            conn,
            is_connected,
            channel,
            exported,
            is_full: false,
            hops: BTreeMap::new(),
            begun: None,
            heard: Heard::default(),
        });
        self.exchange(place);
    }

    /// Hands over what the other end of a link has to say.
    fn exchange(&mut self, place: usize) {
        let mut buffer = [0; 16_384];
        loop {
            let Some(channel) = &mut self.links[place].channel else { return };
            let len = channel.poll_transmit(&mut buffer);
            if len == 0 {
                return;
            }
            self.feed(place, &buffer[..len]);
            self.settle();
        }
    }

    fn feed(&mut self, place: usize, bytes: &[u8]) {
        let Some(link) = self.link(place) else { return };
        if let Some(conn) = link.conn.filter(|_| link.is_connected) {
            self.router.handle_bytes(self.now, conn, bytes);
        }
    }

    fn say(&mut self, place: usize, circ_id: CircId, command: Command, body: &[u8]) {
        let Some(link) = self.link(place) else { return };
        let Some(channel) = link.channel.as_mut().filter(|channel| channel.is_open()) else {
            return;
        };
        let fits = body.len() <= BODY_LEN || command.is_variable_length();
        channel.send(circ_id, command, if fits { body } else { &body[..BODY_LEN] });
        self.relay_cells += u64::from(matches!(command, Command::RELAY | Command::RELAY_EARLY));
        let place = place % self.links.len();
        self.exchange(place);
    }

    fn close(&mut self, place: usize, cause: CloseCause) {
        let Some(link) = self.link(place) else { return };
        link.channel = None;
        if let Some(conn) = link.conn.take() {
            self.known.remove(&conn);
            self.router.handle_closed(self.now, conn, cause);
        }
    }

    fn handle_timeouts(&mut self) {
        let mut timeouts = 0;
        while self.router.poll_timeout().is_some_and(|at| at <= self.now) {
            timeouts += 1;
            assert!(timeouts < 1000, "timeouts without end");
            self.router.handle_timeout(self.now);
            self.settle();
        }
    }

    /// Does all that the router wants, until it is quiet.
    fn settle(&mut self) {
        self.settle_polls();
        self.router.check_accounts();
    }

    fn settle_polls(&mut self) {
        for _ in 0..POLLS_MAX {
            if let Some(Dial { conn, security, .. }) = self.router.poll_dial(self.now) {
                if security == Security::Plain {
                    self.add_destination(conn);
                    continue;
                }
                // It may have been given up since.
                let exported = self.tls().exported;
                self.add(Some(conn), false, None, exported);
            } else if let Some(lookup) = self.router.poll_lookup() {
                self.beyond.questions.push(lookup.id);
            } else if let Some(conn) = self.router.poll_writable() {
                if self.flush_destination(conn) {
                    continue;
                }
                let place = self.known.get(&conn).copied();
                self.flush(place.unwrap_or_else(|| panic!("{conn:?} is not known")));
            } else if let Some(conn) = self.router.poll_close() {
                if self.close_destination(conn) {
                    continue;
                }
                let place = self.known.remove(&conn);
                let place = place.unwrap_or_else(|| panic!("{conn:?} is not known"));
                self.links[place].conn = None;
                self.links[place].channel = None;
            } else if let Some(conn) = self.router.poll_readable() {
                self.check_readable(conn);
            } else {
                let held_bytes = self.router.queued_bytes();
                assert!(held_bytes <= HELD_BYTES_MAX, "it holds {held_bytes} bytes");
                while let Some(event) = self.router.poll_event() {
                    self.told.push(event);
                }
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// Takes what the router has for a link, unless nobody reads it.
    fn flush(&mut self, place: usize) {
        let mut buffer = [0; 16_384];
        let mut taken = 0;
        while let Some(conn) = self.links[place].conn
            && self.links[place].is_connected
            && !self.links[place].is_full
        {
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                break;
            }
            taken += len;
            self.hear(place, &buffer[..len]);
        }
        let circuits = self.router.open_circuits();
        let most = circuits * QUEUE_LIMIT_CELLS_MOST as usize * CELL_LEN + CONTROL_MAX;
        assert!(taken <= most, "{taken} bytes waited for {circuits} circuits");
    }

    /// The other end reads what the router says: there is nothing that it cannot read.
    fn hear(&mut self, place: usize, mut bytes: &[u8]) {
        // The channel leaves its link, since its cells borrow from it.
        let Some(mut channel) = self.links[place].channel.take() else { return };
        while let Some(cell) = channel.handle_bytes(&mut bytes).expect("readable") {
            let link = &mut self.links[place];
            match cell.command {
                Command::CREATED_FAST => {
                    let created = CreatedFast::parse(cell.body).expect("readable");
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
                Command::RELAY => self.hear_relay(place, cell.circ_id, cell.body),
                Command::CREATED2 => {
                    let answer = parse_created2(cell.body).expect("readable");
                    self.hear_created(place, cell.circ_id, answer);
                }
                Command::DESTROY => {
                    link.hops.remove(&cell.circ_id);
                }
                Command::MEASURE => match Message::parse(cell.body).expect("readable") {
                    Message::Accepted { .. } => link.heard.accepted += 1,
                    Message::Proven => link.heard.proven += 1,
                    Message::ClientSecond(_) => link.heard.seconds += 1,
                    Message::Error { .. } => link.heard.errors += 1,
                    other => panic!("{other:?}"),
                },
                _ => {}
            }
        }
        // The link's handshake goes on.
        let mut buffer = vec![0; channel.queued_len()];
        let len = channel.poll_transmit(&mut buffer);
        self.links[place].channel = Some(channel);
        if len > 0 {
            self.feed(place, &buffer[..len]);
        }
    }

    /// All go: nothing is left. Gives what was heard in all.
    fn end(mut self) -> Heard {
        for place in 0..self.links.len() {
            self.close(place, CloseCause::ByPeer);
            self.settle();
        }
        self.end_destinations();
        self.handle_timeouts();
        assert_eq!(self.router.open_circuits(), 0);
        assert_eq!(self.router.poll_timeout(), None, "it waits for something");
        let totals = *self.router.totals();
        assert!(totals.measured_bytes <= self.relay_cells * CELL_LEN as u64, "made up");
        assert!(self.delivered_bytes <= self.relay_cells * BODY_LEN as u64, "made up");
        assert!(self.known.is_empty());
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

/// The numbers of either side, and the link's own.
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
