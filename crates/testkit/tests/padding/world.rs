//! A router, clients' and relays' links to it, and a relay that it dials.

mod hearing;

use onion::Duration;
use onion::Instant;
use onion::cell::msg::{Create2, Extend2, HANDSHAKE_NTOR, LinkPadding, link_specifier};
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
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use testkit::fixture::{Fixture, RUN};
use testkit::vectors;

/// A link by the order in which they came to be.
pub(crate) type NodeIndex = usize;

/// What has come on a link.
#[derive(Default)]
pub(crate) struct Heard {
    hops: BTreeMap<CircId, ClientHop>,
    /// When PADDING cells have come, and how long nothing had passed before.
    pub(crate) padded: Vec<(Instant, Duration)>,
    /// The router's dial is closed before the link is open.
    pub(crate) came: Vec<(CircId, Command)>,
}

impl Heard {
    pub(crate) fn pauses(&self) -> Vec<Duration> {
        self.padded.iter().map(|(_, pause)| *pause).collect()
    }
}

/// After each act the scheduler has a run, so that all is heard that is said.
pub(crate) struct World {
    /// Where the relay that it dials says to be.
    pub(crate) claims: Vec<IpAddr>,
    /// That relay closes each connection before the link is open.
    pub(crate) refuses: bool,
    fixture: Fixture<ChaCha8Rng>,
    /// By the places of links.
    pub(crate) heard: Vec<Heard>,
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

pub(crate) const CIRCUIT: CircId = CircId::of_initiator(1);

pub(crate) fn config() -> RouterConfig {
    vectors::PARTIES.config()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: RouterConfig) -> Self {
        let rng = ChaCha8Rng::from_seed([1; 32]);
        Self {
            claims: vec![[10, 0, 0, 2].into()],
            refuses: false,
            fixture: Fixture::new(vectors::PARTIES.clone(), config, rng),
            heard: Vec::new(),
        }
    }

    /// With a client's link, and a circuit on it that goes on from the router.
    pub(crate) fn with_client() -> (Self, NodeIndex) {
        Self::new_with(&[])
    }

    /// With another consensus.
    pub(crate) fn new_with(parameters: &[(&str, i32)]) -> (Self, NodeIndex) {
        let mut world = Self::new();
        world.set(parameters);
        let client = world.accept(Authentication::Anonymous);
        world.build(client, CIRCUIT);
        (world, client)
    }

    pub(crate) fn set(&mut self, parameters: &[(&str, i32)]) {
        self.router.set_parameters(Parameters::from_consensus(parameters.iter().copied()));
    }

    fn dial(&mut self, authentication: Authentication) -> NodeIndex {
        self.fixture.dial(Some(authentication), [7; 32])
    }

    /// A client dials the router, or a relay that proves who it is.
    pub(crate) fn accept(&mut self, authentication: Authentication) -> NodeIndex {
        let place = self.dial(authentication);
        self.exchange(place);
        assert!(self.ends[place].is_open());
        place
    }

    pub(crate) fn accept_relay(&mut self) -> NodeIndex {
        self.accept(Authentication::AsRelay(Arc::clone(&vectors::PARTIES.other)))
    }

    /// A client of which the router hears that it knows version 4 of the link protocol only.
    pub(crate) fn accept_version_4(&mut self) -> NodeIndex {
        let place = self.dial(Authentication::Anonymous);
        self.take_versions(place);
        self.feed(place, &[0, 0, 7, 0, 2, 0, 4]);
        self.exchange(place);
        assert!(self.ends[place].is_open());
        place
    }

    /// A client that negotiates before the link is open.
    pub(crate) fn accept_hasty(&mut self) -> NodeIndex {
        let place = self.dial(Authentication::Anonymous);
        let versions = self.take_versions(place);
        // It would go on with NETINFO.
        self.ends[place].reads = false;
        self.feed(place, &versions);
        let mut cell = [0; onion::cell::CELL_LEN];
        cell[4..7].copy_from_slice(&[Command::PADDING_NEGOTIATE.get(), 0, 2]);
        self.feed(place, &cell);
        self.pass(RUN);
        place
    }

    /// VERSIONS, which is the first that the other end of a link would say.
    fn take_versions(&mut self, place: NodeIndex) -> [u8; 9] {
        let mut versions = [0; 9];
        let channel = self.ends[place].channel.as_mut().expect("it has dialled");
        assert_eq!(channel.poll_transmit(&mut versions), versions.len());
        versions
    }

    pub(crate) fn say(&mut self, place: NodeIndex, circ_id: CircId, command: Command, body: &[u8]) {
        self.queue(place, circ_id, command, body);
        self.exchange(place);
    }

    /// Hands over what the other end of a link has to say, and hears what is said to that.
    fn exchange(&mut self, place: NodeIndex) {
        self.fixture.exchange(place);
        self.pass(RUN);
    }

    pub(crate) fn negotiate(
        &mut self,
        place: NodeIndex,
        is_wanted: bool,
        low_ms: u16,
        high_ms: u16,
    ) {
        let mut body = Vec::new();
        LinkPadding { is_wanted, low_ms, high_ms }.encode_into(&mut body);
        self.say(place, CircId::LINK, Command::PADDING_NEGOTIATE, &body);
    }

    /// A circuit that ends at the router.
    pub(crate) fn create(&mut self, place: NodeIndex, circ_id: CircId) {
        self.say(place, circ_id, Command::CREATE_FAST, &[3; 20]);
        assert!(self.heard[place].hops.contains_key(&circ_id), "created");
    }

    /// A circuit that goes on from the router to another relay.
    pub(crate) fn extend(&mut self, place: NodeIndex, circ_id: CircId) {
        self.ask_to_extend(place, circ_id);
        let last = self.heard[place].came.last();
        assert_eq!(last, Some(&(circ_id, Command::RELAY)), "extended");
    }

    pub(crate) fn ask_to_extend(&mut self, place: NodeIndex, circ_id: CircId) {
        self.create(place, circ_id);
        let address = [10, 0, 0, 2, 35, 41];
        let link_specifiers: Vec<(u8, &[u8])> = vec![
            (link_specifier::IPV4, &address),
            (link_specifier::RSA_IDENTITY, &vectors::PARTIES.other.rsa.0),
        ];
        let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &[7; 84] };
        let mut data = Vec::new();
        Extend2 { link_specifiers, create }.encode_into(&mut data);
        self.say_message(place, circ_id, Command::RELAY_EARLY, RelayCommand::EXTEND2, &data);
    }

    /// With a hop beyond the next one: the link is used.
    pub(crate) fn build(&mut self, place: NodeIndex, circ_id: CircId) {
        self.extend(place, circ_id);
        self.say(place, circ_id, Command::RELAY_EARLY, &[8; BODY_LEN]);
    }

    /// Says something to the router on a circuit.
    pub(crate) fn say_message(
        &mut self,
        place: NodeIndex,
        circ_id: CircId,
        cell: Command,
        command: RelayCommand,
        data: &[u8],
    ) {
        let hop = self.heard[place].hops.get_mut(&circ_id).expect("a circuit");
        let mut body = RelayMessage { command, stream_id: 0, data }.to_body().expect("fits");
        hop.encrypt(&mut body);
        self.say(place, circ_id, cell, &body);
    }

    /// The circuit that the router has opened last on the link that it dialled.
    pub(crate) fn opened_by_router(&self, place: NodeIndex) -> CircId {
        let mut all = self.heard[place].came.iter().rev();
        all.find(|(_, command)| *command == Command::CREATE2).expect("opened").0
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.hear_all();
        // Answers that follow events in between are sent when those events happen.
        while let Some(at) = self.router.poll_timeout().filter(|at| *at <= end) {
            let wait = at - self.now;
            self.fixture.pass(wait);
            self.hear_all();
        }
        let left = end - self.now;
        self.fixture.pass(left);
    }

    /// The pauses before all PADDING cells that come on a link in this time.
    pub(crate) fn pauses_in(&mut self, place: NodeIndex, time: Duration) -> Vec<Duration> {
        self.heard[place].padded.clear();
        self.pass(time);
        self.heard[place].pauses()
    }

    pub(crate) fn hang_up(&mut self, place: NodeIndex) {
        self.close(place, CloseCause::ByPeer);
    }

    pub(crate) fn is_closed(&self, place: NodeIndex) -> bool {
        self.ends[place].conn.is_none()
    }

    /// Links from this place on are gone, and their places are taken again.
    pub(crate) fn forget_from(&mut self, place: NodeIndex) {
        self.ends.truncate(place);
        self.heard.truncate(place);
    }
}
