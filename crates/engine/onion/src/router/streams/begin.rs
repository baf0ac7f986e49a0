//! Opening streams: BEGIN and BEGIN_DIR (tor-spec §6.2).

use super::lookup::{ANSWER_TTL_S, clean_name};
use super::{BeginRequest, State, Stream, StreamKind};
use crate::cell::msg::{Begin, BeginFlags, Connected, DestroyReason, End as StreamEnd, EndReason};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, Layer as _, StreamId};
use crate::flow::control::{CircuitEnd, Flow};
use crate::node::{ConnId, Dial, DnsQuery, Security};
use crate::router::circuits::{CircuitIndex, End, Hop, RelayTunnel};
use crate::router::dos::{StreamLimit, bucket};
use crate::router::eviction::Neighbour;
use crate::router::links::Link;
use crate::router::{Behavior, Core};
use crate::tunnel::{Leg, Tunnel};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use rand_core::Rng;

/// Maximum number of streams of one circuit; more are refused.
const STREAMS_PER_CIRCUIT_MAX: usize = 1024;

/// The share of directory streams in all streams: one in this number.
const DIRECTORY_PART: usize = 4;
/// Streams to the directory, at most. The directory's server has more places, so this is where it is decided whose stream ends for
/// another: here the streams' links are known. Connections whose streams have just ended may exceed it for a moment.
pub const DIRECTORY_STREAMS_MAX: usize = 1_000;

/// The TTL for addresses that the client specified.
pub(super) const ANY_FAMILY: BeginFlags = BeginFlags(BeginFlags::IPV6_OK.0);

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles BEGIN: a client requests a stream to a destination.
    pub(crate) fn begin_stream(&mut self, index: CircuitIndex, stream_id: StreamId, data: &[u8]) {
        if self.is_stream_known(index, stream_id) {
            return;
        }
        if let Err(end) = self.open_stream(index, stream_id, data) {
            self.send_end(index, stream_id, end);
        }
    }

    fn open_stream(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        data: &[u8],
    ) -> Result<(), StreamEnd> {
        let exit = self.config.exit.as_ref();
        let exit = exit
            .filter(|exit| !exit.policy.is_closed())
            .ok_or(StreamEnd::of(EndReason::EXIT_POLICY))?;
        let allows_single_hop = exit.allows_single_hop;
        let begin = Begin::parse(data).map_err(|_| StreamEnd::of(EndReason::TOR_PROTOCOL))?;
        if !allows_single_hop && self.comes_from_client(index) {
            return Err(StreamEnd::of(EndReason::TOR_PROTOCOL));
        }
        if !self.comes_from_known(index) {
            return Err(StreamEnd::of(EndReason::MISC));
        }
        let asked = BeginRequest { port: begin.port, flags: begin.flags };
        if let Ok(ip) = begin.host.parse::<IpAddr>() {
            let to = self.choose(&[ip], BeginRequest { flags: ANY_FAMILY, ..asked })?;
            self.make_room(index, StreamKind::Exit)?;
            self.dial_stream(index, stream_id, to, true);
            return Ok(());
        }
        let name = clean_name(begin.host).ok_or(StreamEnd::of(EndReason::RESOLVE_FAILED))?;
        let tunnel = self.asking_tunnel(index).ok_or(StreamEnd::of(EndReason::MISC))?;
        self.make_room(index, StreamKind::Exit)?;
        let (now, conn) = (self.outputs.now(), self.conns.reserve());
        let lookup = self.streams.ask(now, tunnel, conn, DnsQuery::Addresses(name));
        self.add_stream(index, stream_id, conn, State::Resolving { lookup, asked });
        Ok(())
    }

    /// Handles BEGIN_DIR: a client requests a stream to the directory server.
    pub(crate) fn begin_directory_stream(&mut self, index: CircuitIndex, stream_id: StreamId) {
        if self.is_stream_known(index, stream_id) {
            return;
        }
        // As in C tor since 0.4.9.7: linked circuits are for exit streams.
        if self.end_mut(index).is_some_and(|end| end.is_linked) {
            return self.send_end(index, stream_id, StreamEnd::of(EndReason::TOR_PROTOCOL));
        }
        let directory = self.config.directory.ok_or(StreamEnd::of(EndReason::NOT_DIRECTORY));
        match directory.and_then(|to| self.make_room(index, StreamKind::Directory).map(|()| to)) {
            Ok(to) => self.dial_stream(index, stream_id, to, false),
            Err(end) => self.send_end(index, stream_id, end),
        }
    }

    /// The shell has connected to a destination.
    pub(crate) fn handle_stream_connected(&mut self, conn: ConnId) {
        let Some((index, stream_id)) = self.circuit_of(conn) else { return };
        let Some(stream) = self.conns.stream_mut(conn) else { return };
        let State::Connecting { to, reports_address } = stream.state else { return };
        stream.state = State::Open;
        stream.since = self.outputs.now();
        let mut data = Vec::new();
        Connected { to: reports_address.then_some((to.ip(), ANSWER_TTL_S)) }.encode_into(&mut data);
        self.originate(index, RelayCommand::CONNECTED, stream_id, &data);
        // Data that the client has sent already.
        self.streams.wake(&mut self.conns, conn);
        self.send_signals(conn);
        self.streams.wake_reading(&mut self.conns, conn);
    }

    /// The first of these addresses that the client accepts and the policy allows.
    pub(super) fn choose(
        &self,
        addresses: &[IpAddr],
        asked: BeginRequest,
    ) -> Result<SocketAddr, StreamEnd> {
        let exit = self.config.exit.as_ref().ok_or(StreamEnd::of(EndReason::EXIT_POLICY))?;
        let takes_v4 = !asked.flags.contains(BeginFlags::IPV4_NOT_OK);
        let takes_v6 = asked.flags.contains(BeginFlags::IPV6_OK);
        let prefers_v6 = asked.flags.contains(BeginFlags::IPV6_PREFERRED);
        let canonical = addresses.iter().map(IpAddr::to_canonical);
        let mut taken: Vec<IpAddr> =
            canonical.filter(|ip| if ip.is_ipv6() { takes_v6 } else { takes_v4 }).collect();
        // Stable, except for the address families.
        taken.sort_by_key(|ip| ip.is_ipv6() != prefers_v6);
        let first = *taken.first().ok_or(StreamEnd::of(EndReason::RESOLVE_FAILED))?;
        let is_allowed = |to: &SocketAddr| (exit.ipv6 || to.is_ipv4()) && exit.policy.allows(*to);
        let mut all = taken.iter().map(|ip| SocketAddr::new(*ip, asked.port));
        let refused = Some((first, ANSWER_TTL_S));
        let to =
            all.find(is_allowed).ok_or(StreamEnd { reason: EndReason::EXIT_POLICY, refused })?;
        // As in C tor: a reason after which a client does not try the next exit.
        if self.config.relays.forbid(to) {
            return Err(StreamEnd::of(EndReason::CONNECT_REFUSED));
        }
        Ok(to)
    }

    fn dial_stream(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        to: SocketAddr,
        reports_address: bool,
    ) {
        let conn = self.conns.reserve();
        self.add_stream(index, stream_id, conn, State::Connecting { to, reports_address });
        self.to_dial.push_back(Dial { conn, to, security: Security::Plain });
    }

    pub(super) fn add_stream(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        conn: ConnId,
        state: State,
    ) {
        let now = self.outputs.now();
        let Some(end) = self.end_mut(index) else { return };
        let kind = match state {
            State::Connecting { reports_address: false, .. } => StreamKind::Directory,
            _ => StreamKind::Exit,
        };
        let (tunnel, flow) = (end.tunnel, end.leg.flow.stream(CircuitEnd::Exit));
        if let Some(tunnel) = self.tunnels.get_mut(tunnel) {
            tunnel.streams.add(stream_id, conn);
        }
        let stream = Stream::new(now, tunnel, stream_id, state, flow);
        self.conns.add_stream(conn, Stream { kind, ..stream });
        let source = self.source(index, kind);
        self.streams.handle_added(kind, source, tunnel, conn);
        self.totals.streams += 1;
    }

    /// The circuit's end at this relay, created by the first message that needs it.
    pub(crate) fn end_mut(&mut self, index: CircuitIndex) -> Option<&mut End> {
        let circuit = self.circuits.get_mut(index)?;
        let Hop::Relay(layer) = &circuit.hop else { return None };
        if circuit.end.is_none() {
            let flow = Flow::new(self.config.flows.end(&self.congestion, circuit.agreed));
            let leg = Leg::new(flow, layer.format(), self.config.queue_limit_cells);
            let streams = Tunnel::default();
            let tunnel = RelayTunnel { circuit: index, is_set: false, streams, begins: None };
            let tunnel = self.tunnels.add(tunnel);
            circuit.end = Some(Box::new(End { leg, tunnel, is_linked: false }));
        }
        circuit.end.as_deref_mut()
    }

    /// The streams of the tunnel that a circuit is a leg of.
    pub(crate) fn tunnel_of(&self, index: CircuitIndex) -> Option<&Tunnel<ConnId>> {
        let end = self.circuits.get(index)?.end.as_ref()?;
        self.tunnels.get(end.tunnel).map(|tunnel| &tunnel.streams)
    }

    /// The circuit that carries a stream's cells, and the stream ID; `None` if the stream is closed.
    pub(crate) fn circuit_of(&self, conn: ConnId) -> Option<(CircuitIndex, StreamId)> {
        let stream = self.conns.stream(conn).filter(|stream| stream.state.has_circuit())?;
        Some((self.tunnels.get(stream.tunnel)?.circuit, stream.stream_id))
    }

    pub(super) fn is_stream_known(&self, index: CircuitIndex, stream_id: StreamId) -> bool {
        self.find_stream(index, stream_id).is_some()
    }

    /// Admits another stream if the relay is not shutting down and there is space. A quarter of the space is
    /// reserved for directory streams.
    ///
    /// If there is no space, the circuit with most streams gives one up for a circuit with fewer, so that a greedy
    /// client leaves each other circuit as much as any one of its own has. Directory streams are shared among
    /// neighbours first: many links and circuits with one stream each cost an attacker little, and get no more
    /// than the share of one address.
    pub(super) fn make_room(
        &mut self,
        index: CircuitIndex,
        kind: StreamKind,
    ) -> Result<(), StreamEnd> {
        if self.is_shutting_down {
            return Err(StreamEnd::of(EndReason::HIBERNATING));
        }
        self.admit_stream(index)?;
        let on_circuit = self.tunnel_of(index).map_or(0, Tunnel::len);
        if on_circuit >= STREAMS_PER_CIRCUIT_MAX {
            // "Resource limit" would keep an honest client away for hours.
            return Err(StreamEnd::of(EndReason::MISC));
        }
        let all = self.config.streams_max as usize;
        let of_directory = all / DIRECTORY_PART;
        let room = match kind {
            StreamKind::Directory => of_directory.min(DIRECTORY_STREAMS_MAX),
            StreamKind::Exit => all - of_directory,
        };
        if self.streams.count(kind) < room {
            return Ok(());
        }
        let tunnel = self.end_mut(index).map(|end| end.tunnel);
        let source = self.source(index, kind);
        let richer = tunnel.and_then(|tunnel| self.streams.richer_than(kind, source, tunnel));
        let richer = richer.ok_or(StreamEnd::of(EndReason::RESOURCE_LIMIT))?;
        self.cut_stream(richer, StreamEnd::of(EndReason::RESOURCE_LIMIT));
        Ok(())
    }

    /// The neighbour that a stream of this kind is counted for.
    fn source(&self, index: CircuitIndex, kind: StreamKind) -> Option<Neighbour> {
        match kind {
            StreamKind::Directory => {
                let conn = self.circuits.get(index)?.back.conn;
                Some(self.neighbour(conn, self.conns.link(conn)?))
            }
            StreamKind::Exit => None,
        }
    }

    /// Whether the circuit is within the consensus' limit on new streams per second. The circuit may be
    /// destroyed afterwards.
    fn admit_stream(&mut self, index: CircuitIndex) -> Result<(), StreamEnd> {
        let Some(defence) = self.client_addresses.params().streams else { return Ok(()) };
        let StreamLimit { per_s, burst, closes_circuit } = defence;
        let now = self.outputs.now();
        let tunnel = self.end_mut(index).map(|end| end.tunnel);
        let tunnel = tunnel.and_then(|tunnel| self.tunnels.get_mut(tunnel));
        let Some(RelayTunnel { begins, .. }) = tunnel else { return Ok(()) };
        let begins = begins.get_or_insert_with(|| Box::new(bucket(per_s, burst, now)));
        if begins.available_bytes(now) > 0 {
            begins.take(1);
            return Ok(());
        }
        self.totals.refused_streams += 1;
        if closes_circuit {
            self.destroy(index, DestroyReason::RESOURCE_LIMIT, None);
        }
        Err(StreamEnd::of(EndReason::RESOURCE_LIMIT))
    }

    /// Whether the circuit's previous hop is a listed relay, or absent.
    pub(super) fn comes_from_known(&self, index: CircuitIndex) -> bool {
        let back = self.circuits.get(index).map(|circuit| circuit.back.conn);
        let peer = back.and_then(|conn| self.conns.link(conn)).and_then(Link::peer);
        peer.is_none_or(|peer| self.config.relays.trust(&peer.rsa))
    }

    /// Whether the circuit's previous hop is not a relay: this relay would be the only hop, and know both ends.
    pub(super) fn comes_from_client(&self, index: CircuitIndex) -> bool {
        let back = self.circuits.get(index).map(|circuit| circuit.back.conn);
        let link = back.and_then(|conn| self.conns.link(conn));
        link.is_none_or(|link| link.peer().is_none())
    }
}
