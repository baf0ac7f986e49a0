//! A router, links of clients and relays to it, and a relay that it dials.

mod receiving;

use onion::Duration;
use onion::Instant;
use onion::cell::msg::LinkPadding;
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::ClientHop;
use onion::link::Authentication;
use onion::node::{CloseCause, Node};
use onion::router::{Parameters, RouterConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use testkit::fixture::{FAST_SECRET, Fixture, RUN};
use testkit::vectors;

/// The index of a link, in order of creation.
pub(crate) type LinkIndex = usize;

/// The cells received on a link.
#[derive(Default)]
pub(crate) struct LinkRecord {
    hops: BTreeMap<CircId, ClientHop>,
    /// Arrival times of PADDING cells, and how long the link was idle before each.
    pub(crate) padding: Vec<(Instant, Duration)>,
    /// All other cells.
    pub(crate) received: Vec<(CircId, Command)>,
}

impl LinkRecord {
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.padding.iter().map(|(_, pause)| *pause).collect()
    }
}

/// A router and its peers. The scheduler runs after each event, so that no cells stay queued.
pub(crate) struct World {
    /// The addresses that the dialled relay claims in NETINFO.
    pub(crate) claims: Vec<IpAddr>,
    /// Whether the dialled relay closes connections before the link handshake.
    pub(crate) refuses: bool,
    fixture: Fixture<ChaCha8Rng>,
    /// By link.
    pub(crate) records: Vec<LinkRecord>,
}

testkit::deref_to_fixture!(World);

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

pub(crate) fn config() -> RouterConfig {
    vectors::IDENTITIES.config()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with_config(config())
    }

    pub(crate) fn with_config(config: RouterConfig) -> Self {
        let rng = ChaCha8Rng::from_seed([1; 32]);
        Self {
            claims: vec![[10, 0, 0, 2].into()],
            refuses: false,
            fixture: Fixture::new(vectors::IDENTITIES.clone(), config, rng),
            records: Vec::new(),
        }
    }

    /// With a client's link, and a circuit on it that the router extends.
    pub(crate) fn with_client() -> (Self, LinkIndex) {
        Self::with_parameters(&[])
    }

    /// Like [`Self::with_client`], under these consensus parameters.
    pub(crate) fn with_parameters(parameters: &[(&str, i32)]) -> (Self, LinkIndex) {
        let mut world = Self::new();
        world.set_parameters(parameters);
        let client = world.accept(Authentication::Anonymous);
        world.build(client, CIRCUIT);
        (world, client)
    }

    pub(crate) fn set_parameters(&mut self, parameters: &[(&str, i32)]) {
        self.router.set_parameters(Parameters::from_consensus(parameters.iter().copied()));
    }

    fn dial(&mut self, authentication: Authentication) -> LinkIndex {
        self.fixture.dial(Some(authentication), [7; 32])
    }

    /// A client or an authenticating relay dials the router.
    pub(crate) fn accept(&mut self, authentication: Authentication) -> LinkIndex {
        let index = self.dial(authentication);
        self.exchange(index);
        assert!(self.peers[index].is_open());
        index
    }

    pub(crate) fn accept_relay(&mut self) -> LinkIndex {
        self.accept(Authentication::AsRelay(Arc::clone(&vectors::IDENTITIES.other)))
    }

    /// A client whose VERSIONS offers link protocol 4 only.
    pub(crate) fn accept_version_4(&mut self) -> LinkIndex {
        let index = self.dial(Authentication::Anonymous);
        self.take_versions(index);
        self.deliver_bytes(index, &[0, 0, 7, 0, 2, 0, 4]);
        self.exchange(index);
        assert!(self.peers[index].is_open());
        index
    }

    /// A client that sends PADDING_NEGOTIATE before the link is open.
    pub(crate) fn accept_early_negotiation(&mut self) -> LinkIndex {
        let index = self.dial(Authentication::Anonymous);
        let versions = self.take_versions(index);
        // Without the router's answer, it does not send NETINFO.
        self.peers[index].reads = false;
        self.deliver_bytes(index, &versions);
        let mut cell = [0; onion::cell::CELL_LEN];
        cell[4..7].copy_from_slice(&[Command::PADDING_NEGOTIATE.get(), 0, 2]);
        self.deliver_bytes(index, &cell);
        self.advance(RUN);
        index
    }

    /// The VERSIONS cell of a peer that dials.
    fn take_versions(&mut self, index: LinkIndex) -> [u8; 9] {
        let mut versions = [0; 9];
        let channel = self.peers[index].channel.as_mut().expect("an initiator");
        assert_eq!(channel.poll_transmit(&mut versions), versions.len());
        versions
    }

    pub(crate) fn send_cell(
        &mut self,
        index: LinkIndex,
        circ_id: CircId,
        command: Command,
        body: &[u8],
    ) {
        self.queue(index, circ_id, command, body);
        self.exchange(index);
    }

    /// Transmits a peer's queued cells, and receives the answers.
    fn exchange(&mut self, index: LinkIndex) {
        self.fixture.exchange(index);
        self.advance(RUN);
    }

    pub(crate) fn negotiate(
        &mut self,
        index: LinkIndex,
        is_wanted: bool,
        low_ms: u16,
        high_ms: u16,
    ) {
        let mut body = Vec::new();
        LinkPadding { is_wanted, low_ms, high_ms }.encode_into(&mut body);
        self.send_cell(index, CircId::LINK, Command::PADDING_NEGOTIATE, &body);
    }

    /// Creates a circuit that ends at the router.
    pub(crate) fn create(&mut self, index: LinkIndex, circ_id: CircId) {
        self.send_cell(index, circ_id, Command::CREATE_FAST, &FAST_SECRET);
        assert!(self.records[index].hops.contains_key(&circ_id), "created");
    }

    /// Creates a circuit, and extends it from the router to another relay.
    pub(crate) fn extend(&mut self, index: LinkIndex, circ_id: CircId) {
        self.send_extend(index, circ_id);
        let last = self.records[index].received.last();
        assert_eq!(last, Some(&(circ_id, Command::RELAY)), "extended");
    }

    pub(crate) fn send_extend(&mut self, index: LinkIndex, circ_id: CircId) {
        self.create(index, circ_id);
        let data = vectors::IDENTITIES.extend2([10, 0, 0, 2, 35, 41]);
        self.send_message(index, circ_id, Command::RELAY_EARLY, RelayCommand::EXTEND2, &data);
    }

    /// Extends a circuit, and sends a cell beyond the next hop.
    pub(crate) fn build(&mut self, index: LinkIndex, circ_id: CircId) {
        self.extend(index, circ_id);
        self.send_cell(index, circ_id, Command::RELAY_EARLY, &[8; BODY_LEN]);
    }

    /// Sends a message to the router on a circuit.
    pub(crate) fn send_message(
        &mut self,
        index: LinkIndex,
        circ_id: CircId,
        cell: Command,
        command: RelayCommand,
        data: &[u8],
    ) {
        let hop = self.records[index].hops.get_mut(&circ_id).expect("a circuit");
        let mut body = RelayMessage { command, stream_id: 0, data }.to_body().expect("fits");
        hop.encrypt(&mut body);
        self.send_cell(index, circ_id, cell, &body);
    }

    /// The circuit that the router created last on a link that it dialled.
    pub(crate) fn created_by_router(&self, index: LinkIndex) -> CircId {
        let mut all = self.records[index].received.iter().rev();
        all.find(|(_, command)| *command == Command::CREATE2).expect("opened").0
    }

    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        self.receive_all();
        // Peers answer at the time of each event, not at the end.
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            let wait = at - self.now;
            self.fixture.advance(wait);
            self.receive_all();
        }
        let left = end - self.now;
        self.fixture.advance(left);
    }

    /// Lets this time pass. Returns the pauses before the PADDING cells of a link.
    pub(crate) fn pauses_in(&mut self, index: LinkIndex, time: Duration) -> Vec<Duration> {
        self.records[index].padding.clear();
        self.advance(time);
        self.records[index].pauses()
    }

    pub(crate) fn close_link(&mut self, index: LinkIndex) {
        self.close(index, CloseCause::ByPeer);
    }

    pub(crate) fn is_closed(&self, index: LinkIndex) -> bool {
        self.peers[index].conn.is_none()
    }

    /// Removes the links from this index on; new links reuse the indexes.
    pub(crate) fn forget_from(&mut self, index: LinkIndex) {
        self.peers.truncate(index);
        self.records.truncate(index);
    }
}
