//! Streams of clients, destinations and DNS lookups.

use super::{World, circ_id};
use crate::input::Input;
use onion::cell::msg::{Begin, BeginFlags, Sendme};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayFormat, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{ClientHop, HopKeys};
use onion::node::{CloseCause, ConnId, DnsAnswer, Node};
use onion::router::{ExitConfig, ExitPolicy};
use testkit::vectors::IDENTITIES;

/// The limit on concurrent streams.
pub(super) const STREAMS_MAX: u32 = 12;

/// The router's memory limit in bytes.
pub(super) const HELD_BYTES_MAX: usize = 100_000;

/// A circuit, as its client sees it.
pub(super) struct Hop {
    pub(super) client: ClientHop,
    /// The number of DATA cells that a SENDME acknowledges.
    increment: usize,
    /// Received DATA cells.
    data_cells: usize,
    /// Expected tags of SENDMEs, the next one first.
    tags: Vec<[u8; 20]>,
}

impl Hop {
    pub(super) fn new(keys: &HopKeys, increment: usize) -> Self {
        Self { client: ClientHop::new(keys), increment, data_cells: 0, tags: Vec::new() }
    }
}

/// The messages and bytes of streams that clients have received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamCounts {
    pub(super) connected: u32,
    pub(super) ended: u32,
    pub(super) resolved: u32,
    pub(super) sendmes: u32,
    pub(super) signals: u32,
    pub(super) data_bytes: u64,
    /// Bytes that destinations have received.
    pub(super) delivered_bytes: u64,
}

pub(super) fn exit() -> ExitConfig {
    let policy = "reject 192.0.2.66:*".parse().into_iter().chain("accept *:*".parse());
    ExitConfig { policy: ExitPolicy::new(policy.collect()), ipv6: true, allows_single_hop: true }
}

impl World {
    /// Applies one event that concerns streams.
    pub(super) fn apply_to_streams(&mut self, op: u8, index: usize, input: &mut Input<'_>) {
        match op {
            0 => self.begin(index, input),
            1 => {
                let (circ_id, stream_id) = (circ_id(input), input.u16() % 8);
                let (cells, len) = (input.u8(), usize::from(input.u16()) % (MAX_DATA_LEN + 1));
                for _ in 0..cells {
                    self.send_message(
                        index,
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
                self.send_message(index, circ_id, command, stream_id, &data);
            }
            3 => self.acknowledge(index, input),
            4 => self.connect_or_close(index, input.u8()),
            5 => self.feed_destination(index, usize::from(input.u16())),
            6 => self.answer(index, input.u8()),
            7 => {
                let reads = !input.bool();
                if let Some(conn) = self.find_destination(index) {
                    self.destination(conn).reads = reads;
                    if self.destination(conn).is_connected {
                        self.flush(conn);
                    }
                }
            }
            _ => self.create_with_congestion_control(index, circ_id(input)),
        }
    }

    /// Sends a message with a correct digest to the router on a circuit.
    fn send_message(
        &mut self,
        index: usize,
        circ_id: CircId,
        command: RelayCommand,
        stream_id: u16,
        data: &[u8],
    ) {
        let Some(hop) = self.hop(index, circ_id) else { return };
        let Ok(mut body) = (RelayMessage { command, stream_id, data }).to_body() else { return };
        hop.client.encrypt(&mut body);
        self.send_cell(index, circ_id, Command::RELAY, &body);
    }

    fn begin(&mut self, index: usize, input: &mut Input<'_>) {
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
        self.send_message(index, circ_id, command, stream_id, &data);
    }

    /// A SENDME: for a stream, forged, or with the expected tag.
    fn acknowledge(&mut self, index: usize, input: &mut Input<'_>) {
        let (circ_id, how) = (circ_id(input), input.u8());
        let Some(hop) = self.hop(index, circ_id) else { return };
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
        self.send_message(index, circ_id, RelayCommand::SENDME, stream_id, &data);
    }

    /// A circuit, as its client sees it.
    pub(super) fn hop(&mut self, index: usize, circ_id: CircId) -> Option<&mut Hop> {
        let index = self.link(index)?;
        self.links[index].hops.get_mut(&circ_id)
    }

    fn find_destination(&self, index: usize) -> Option<ConnId> {
        let index = index.checked_rem(self.destinations.len())?;
        self.destinations.keys().nth(index).copied()
    }

    /// Opens, refuses or closes a connection to a destination.
    fn connect_or_close(&mut self, index: usize, how: u8) {
        let Some(conn) = self.find_destination(index) else { return };
        if how % 8 < 5 {
            if !self.destination(conn).is_connected {
                self.connect(conn);
            }
            return;
        }
        let causes = [CloseCause::ByPeer, CloseCause::Refused, CloseCause::Reset];
        self.close_destination(conn, causes[usize::from(how % 8 - 5)].clone());
    }

    /// A destination sends the bytes that the router accepts; or all, as an incorrect driver would.
    fn feed_destination(&mut self, index: usize, len: usize) {
        let Some(conn) = self.find_destination(index) else { return };
        if !self.destination(conn).is_connected || len == 0 {
            return;
        }
        let (now, data) = (self.now, vec![9; len]);
        if len % 64 == 63 {
            self.router.handle_bytes(now, conn, &data);
        } else {
            self.send_from(conn, &data);
        }
    }

    fn answer(&mut self, index: usize, how: u8) {
        let Some(index) = index.checked_rem(self.queries.len()) else { return };
        // Answers may arrive in another order than queries.
        self.queries.rotate_left(index);
        let (v4, v6) = ([192, 0, 2, how].into(), [how; 16].into());
        self.fixture.answer(match how % 8 {
            0 => DnsAnswer::NoSuchName,
            1 => DnsAnswer::Failed,
            2 => DnsAnswer::Name("a.example".into()),
            3 => DnsAnswer::Addresses(vec![v6, v4]),
            4 => DnsAnswer::Addresses(vec![v6]),
            _ => DnsAnswer::Addresses(vec![v4]),
        });
    }

    fn create_with_congestion_control(&mut self, index: usize, circ_id: CircId) {
        let (client, body) = IDENTITIES.congestion_control_handshake();
        if let Some(link) = self.link(index) {
            self.pending.insert((link, circ_id), client);
            self.send_cell(index, circ_id, Command::CREATE2, &body);
        }
    }

    /// A client receives CREATED2.
    pub(super) fn receive_created(&mut self, index: usize, circ_id: CircId, answer: &[u8]) {
        let Some(client) = self.pending.remove(&(index, circ_id)) else { return };
        if let Ok((_, keys)) = client.finish(answer, RelayFormat::V0)
            && let Some(keys) = keys.tor1()
        {
            self.links[index].hops.insert(circ_id, Hop::new(keys, 31));
        }
    }

    /// A client receives a relay cell: from the router, or from a hop beyond it.
    pub(super) fn receive_relay(&mut self, index: usize, circ_id: CircId, body: &[u8]) {
        let link = &mut self.links[index];
        let Some(hop) = link.hops.get_mut(&circ_id) else { return };
        let Ok(mut body) = <[u8; BODY_LEN]>::try_from(body) else { return };
        if hop.client.decrypt(&mut body).is_err() {
            return;
        }
        let message = RelayMessage::parse(&body).expect("readable");
        let counts = &mut self.counts.streams;
        match message.command {
            RelayCommand::DATA => {
                assert!(!message.data.is_empty() && message.stream_id > 0);
                hop.data_cells += 1;
                if hop.data_cells.is_multiple_of(hop.increment) {
                    hop.tags.push(hop.client.received_tag());
                }
                counts.data_bytes += message.data.len() as u64;
            }
            RelayCommand::CONNECTED => counts.connected += 1,
            RelayCommand::END => counts.ended += 1,
            RelayCommand::RESOLVED => counts.resolved += 1,
            RelayCommand::SENDME => counts.sendmes += 1,
            RelayCommand::XOFF | RelayCommand::XON => counts.signals += 1,
            RelayCommand::EXTENDED2
            | RelayCommand::TRUNCATED
            | RelayCommand::PADDING_NEGOTIATED => {}
            other => panic!("{other:?}"),
        }
    }

    /// Closes all destinations.
    pub(super) fn end_destinations(&mut self) {
        while let Some(conn) = self.find_destination(0) {
            self.close_destination(conn, CloseCause::Reset);
        }
        assert_eq!((self.router.open_streams(), self.router.queued_bytes()), (0, 0));
    }
}
