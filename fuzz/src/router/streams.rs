//! What clients, destinations and names do with streams.

use super::{World, circ_id};
use crate::input::Input;
use crate::links::Recorded;
use onion::cell::msg::{Begin, BeginFlags, Create2, HANDSHAKE_NTOR_V3, Sendme};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::ntor_v3::extension::Request;
use onion::crypto::{ClientHop, HopKeys, ntor_v3};
use onion::node::{Answer, CloseCause, ConnId, LookupId, Node};
use onion::router::{ExitConfig, ExitPolicy};
use std::collections::BTreeMap;

/// Streams at once.
pub(super) const STREAMS_MAX: u32 = 12;

/// Bytes that the router may hold.
pub(super) const HELD_BYTES_MAX: usize = 100_000;

/// A circuit, as its client sees it.
pub(super) struct Hop {
    pub(super) client: ClientHop,
    /// DATA cells for each SENDME.
    increment: usize,
    /// DATA cells that have come.
    data_cells: usize,
    /// Tags that SENDMEs must have, the next one first.
    tags: Vec<[u8; 20]>,
}

impl Hop {
    pub(super) fn new(keys: &HopKeys, increment: usize) -> Self {
        Self { client: ClientHop::new(keys), increment, data_cells: 0, tags: Vec::new() }
    }
}

/// A connection to a destination.
#[derive(Default)]
struct Destination {
    is_connected: bool,
    /// It does not read.
    is_full: bool,
    received: usize,
}

/// All that is beyond the router.
#[derive(Default)]
pub(super) struct Beyond {
    destinations: BTreeMap<ConnId, Destination>,
    pub(super) questions: Vec<LookupId>,
    /// Clients of ntor of version 3 that wait for their answer, by link and circuit.
    pending: BTreeMap<(usize, CircId), ntor_v3::Client>,
}

/// What clients have heard on streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamsHeard {
    pub(super) connected: u32,
    pub(super) ended: u32,
    pub(super) resolved: u32,
    pub(super) sendmes: u32,
    pub(super) signals: u32,
    pub(super) data_bytes: u64,
    /// Of them, by destinations.
    pub(super) delivered_bytes: u64,
}

pub(super) fn exit() -> ExitConfig {
    let policy = "reject 192.0.2.66:*".parse().into_iter().chain("accept *:*".parse());
    ExitConfig { policy: ExitPolicy::new(policy.collect()), ipv6: true, allows_single_hop: true }
}

impl World {
    /// One thing that concerns streams.
    pub(super) fn apply_to_streams(&mut self, op: u8, place: usize, input: &mut Input<'_>) {
        match op {
            0 => self.begin(place, input),
            1 => {
                let (circ_id, stream_id) = (circ_id(input), input.u16() % 8);
                let (cells, len) = (input.u8(), usize::from(input.u16()) % (MAX_DATA_LEN + 1));
                for _ in 0..cells {
                    self.tell(
                        place,
                        circ_id,
                        RelayCommand::DATA,
                        stream_id,
                        &[7; MAX_DATA_LEN][..len],
                    );
                }
            }
            2 => {
                let (circ_id, stream_id) = (circ_id(input), input.u16() % 8);
                let (command, len) = (RelayCommand(input.u8() % 48), usize::from(input.u8()));
                let data = input.take(len).to_vec();
                self.tell(place, circ_id, command, stream_id, &data);
            }
            3 => self.acknowledge(place, input),
            4 => self.meet(place, input.u8()),
            5 => self.feed_destination(place, usize::from(input.u16())),
            6 => self.answer(place, input.u8()),
            7 => {
                let is_full = input.bool();
                if let Some(conn) = self.destination(place)
                    && let Some(destination) = self.beyond.destinations.get_mut(&conn)
                {
                    destination.is_full = is_full;
                    self.flush_destination(conn);
                }
            }
            _ => self.create_with_congestion_control(place, circ_id(input)),
        }
    }

    /// Says something to the router on a circuit, with the right digest.
    fn tell(
        &mut self,
        place: usize,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        let Some(link) = self.link(place) else { return };
        let Some(hop) = link.hops.get_mut(&circ_id) else { return };
        let Ok(mut body) = (RelayMessage { command, stream_id, data }).to_body() else { return };
        hop.client.encrypt(&mut body);
        self.say(place, circ_id, Command::RELAY, &body);
    }

    fn begin(&mut self, place: usize, input: &mut Input<'_>) {
        let (circ_id, stream_id, kind) = (circ_id(input), input.u16() % 8, input.u8());
        let hosts = ["192.0.2.1", "2001:db8::1", "a.example", "192.0.2.66", "4.4.8.8.in-addr.arpa"];
        let host = hosts[usize::from(kind / 4) % hosts.len()];
        let mut data = Vec::new();
        let command = match kind % 4 {
            0 | 1 => {
                let flags = BeginFlags(u32::from(kind) % 8);
                Begin { host, port: 80, flags }.encode_into(&mut data);
                RelayCommand::BEGIN
            }
            2 => {
                data.extend_from_slice(host.as_bytes());
                RelayCommand::RESOLVE
            }
            _ => RelayCommand::BEGIN_DIR,
        };
        self.tell(place, circ_id, command, stream_id, &data);
    }

    /// A SENDME: of a stream, forged, or with the tag that it must have.
    fn acknowledge(&mut self, place: usize, input: &mut Input<'_>) {
        let (circ_id, how) = (circ_id(input), input.u8());
        let Some(link) = self.link(place) else { return };
        let Some(hop) = link.hops.get_mut(&circ_id) else { return };
        let mut data = Vec::new();
        let stream_id = match how % 8 {
            0 => u16::from(how / 8),
            1 => {
                Sendme::Tagged(&[how; 20]).encode_into(&mut data);
                0
            }
            _ if hop.tags.is_empty() => return,
            _ => {
                Sendme::Tagged(&hop.tags.remove(0)).encode_into(&mut data);
                0
            }
        };
        self.tell(place, circ_id, RelayCommand::SENDME, stream_id, &data);
    }

    fn destination(&self, place: usize) -> Option<ConnId> {
        let place = place.checked_rem(self.beyond.destinations.len())?;
        self.beyond.destinations.keys().nth(place).copied()
    }

    /// A connection to a destination stands, or is gone.
    fn meet(&mut self, place: usize, how: u8) {
        let Some(conn) = self.destination(place) else { return };
        let Some(destination) = self.beyond.destinations.get_mut(&conn) else { return };
        if how % 8 < 5 {
            if !core::mem::replace(&mut destination.is_connected, true) {
                self.router.handle_plain_connected(self.now, conn);
            }
            return;
        }
        let causes = [CloseCause::ByPeer, CloseCause::Refused, CloseCause::Reset];
        let cause = causes[usize::from(how % 8 - 5)].clone();
        self.beyond.destinations.remove(&conn);
        self.router.handle_closed(self.now, conn, cause);
    }

    /// A destination sends as much of this as the router takes, and more where it must not.
    fn feed_destination(&mut self, place: usize, len: usize) {
        let Some(conn) = self.destination(place) else { return };
        let is_connected =
            |it: &Self| it.beyond.destinations.get(&conn).is_some_and(|it| it.is_connected);
        let is_greedy = len % 64 == 63;
        let mut left = len;
        while left > 0 && is_connected(self) {
            let limit = self.router.receive_limit(conn);
            let len = if is_greedy { left } else { limit.min(left) };
            if len == 0 {
                return;
            }
            self.router.handle_bytes(self.now, conn, &vec![9; len]);
            left -= len;
            self.settle();
        }
    }

    fn answer(&mut self, place: usize, how: u8) {
        let Some(place) = place.checked_rem(self.beyond.questions.len()) else { return };
        let id = self.beyond.questions.remove(place);
        let (v4, v6) = ([192, 0, 2, how].into(), [how; 16].into());
        self.router.handle_answer(
            self.now,
            id,
            match how % 8 {
                0 => Answer::NoSuchName,
                1 => Answer::Failed,
                2 => Answer::Name("a.example".into(), 60),
                3 => Answer::Addresses(vec![v6, v4], how.into()),
                4 => Answer::Addresses(vec![v6], 0),
                _ => Answer::Addresses(vec![v4], 60),
            },
        );
    }

    fn create_with_congestion_control(&mut self, place: usize, circ_id: CircId) {
        let own = &Recorded::get().own;
        let keys = ntor_v3::RelayKeys { ed25519_id: own.ed25519.0, onion_key: own.onion_key() };
        let request = Request { wants_congestion_control: true, wants_protocols: false };
        let client = ntor_v3::Client::new(keys, [8; 32], &request.encode()).expect("a good key");
        let mut body = Vec::new();
        let create = Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: client.data() };
        create.encode_into(&mut body);
        if let Some(link) = place.checked_rem(self.links.len()) {
            self.beyond.pending.insert((link, circ_id), client);
            self.say(place, circ_id, Command::CREATE2, &body);
        }
    }

    /// The router has answered a CREATE2.
    pub(super) fn hear_created(&mut self, place: usize, circ_id: CircId, answer: &[u8]) {
        let Some(client) = self.beyond.pending.remove(&(place, circ_id)) else { return };
        if let Ok((_, keys)) = client.finish(answer) {
            self.links[place].hops.insert(circ_id, Hop::new(&keys, 31));
        }
    }

    /// A relay cell has come to its client: from the router, or from beyond it.
    pub(super) fn hear_relay(&mut self, place: usize, circ_id: CircId, body: &[u8]) {
        let link = &mut self.links[place];
        let Some(hop) = link.hops.get_mut(&circ_id) else { return };
        let Ok(mut body) = <[u8; BODY_LEN]>::try_from(body) else { return };
        if hop.client.decrypt(&mut body).is_err() {
            return;
        }
        let message = RelayMessage::parse(&body).expect("readable");
        let heard = &mut link.heard.streams;
        match message.command {
            RelayCommand::DATA => {
                assert!(!message.data.is_empty() && message.stream_id > 0);
                hop.data_cells += 1;
                if hop.data_cells.is_multiple_of(hop.increment) {
                    hop.tags.push(hop.client.received_tag());
                }
                heard.data_bytes += message.data.len() as u64;
            }
            RelayCommand::CONNECTED => heard.connected += 1,
            RelayCommand::END => heard.ended += 1,
            RelayCommand::RESOLVED => heard.resolved += 1,
            RelayCommand::SENDME => heard.sendmes += 1,
            RelayCommand::XOFF | RelayCommand::XON => heard.signals += 1,
            RelayCommand::EXTENDED2
            | RelayCommand::TRUNCATED
            | RelayCommand::PADDING_NEGOTIATED => {}
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn add_destination(&mut self, conn: ConnId) {
        let is_new = self.beyond.destinations.insert(conn, Destination::default()).is_none();
        assert!(is_new && !self.known.contains_key(&conn), "{conn:?} is known");
    }

    /// Takes what the router has for a destination; false if it is none.
    pub(super) fn flush_destination(&mut self, conn: ConnId) -> bool {
        let Some(destination) = self.beyond.destinations.get_mut(&conn) else { return false };
        let mut buffer = [0; 16_384];
        while destination.is_connected && !destination.is_full {
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                break;
            }
            destination.received += len;
            self.delivered_bytes += len as u64;
        }
        true
    }

    /// The router closes the connection to a destination; false if it is none.
    pub(super) fn close_destination(&mut self, conn: ConnId) -> bool {
        self.beyond.destinations.remove(&conn).is_some()
    }

    /// A connection that may be read again.
    pub(super) fn check_readable(&self, conn: ConnId) {
        assert!(self.beyond.destinations[&conn].is_connected, "{conn:?} is not connected");
        assert!(self.router.receive_limit(conn) > 0, "{conn:?} takes nothing");
    }

    /// All destinations go.
    pub(super) fn end_destinations(&mut self) {
        while let Some((conn, _)) = self.beyond.destinations.pop_first() {
            self.router.handle_closed(self.now, conn, CloseCause::Reset);
            self.settle();
        }
        assert_eq!((self.router.open_streams(), self.router.queued_bytes()), (0, 0));
    }
}
