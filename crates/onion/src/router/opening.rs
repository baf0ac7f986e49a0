//! How streams begin: BEGIN, BEGIN_DIR and RESOLVE (tor-spec §6.2, §6.4).

use super::circuit::Hop;
use super::streams::{Asked, Edge, State, Stream};
use super::{Conduct, Router, is_private};
use crate::cell::msg::{Begin, BeginFlags, Connected, End, EndReason, Resolved};
use crate::cell::relay::RelayCommand;
use crate::node::{Answer, ConnId, Dial, LookupId, Question, Security};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use rand_core::Rng;

/// Streams of one circuit at a time; more are refused.
pub(super) const STREAMS_PER_CIRCUIT_MAX: usize = 1024;

/// For how long an address holds that the client itself has named (C tor: `DEFAULT_DNS_TTL`).
const NAMED_TTL_S: u32 = 30 * 60;

/// For how long an error holds (C tor: `MIN_DNS_TTL`).
const ERROR_TTL_S: u32 = 5 * 60;

/// Bytes of a name, at most (RFC 1035).
const NAME_MAX: usize = 253;

const fn end(reason: EndReason) -> End {
    End { reason, refused: None }
}

impl<R: Rng, C: Conduct> Router<R, C> {
    /// A client asks for a stream to a destination.
    pub(super) fn begin_stream(&mut self, number: u32, stream_id: u16, data: &[u8]) {
        if self.is_stream_known(number, stream_id) {
            return;
        }
        if let Err(end) = self.open_stream(number, stream_id, data) {
            self.send_end(number, stream_id, end);
        }
    }

    fn open_stream(&mut self, number: u32, stream_id: u16, data: &[u8]) -> Result<(), End> {
        let exit = self.config.exit.as_ref();
        let exit =
            exit.filter(|exit| !exit.policy.is_closed()).ok_or(end(EndReason::EXIT_POLICY))?;
        let allows_single_hop = exit.allows_single_hop;
        let begin = Begin::parse(data).map_err(|_| end(EndReason::TOR_PROTOCOL))?;
        if !allows_single_hop && self.comes_from_client(number) {
            return Err(end(EndReason::TOR_PROTOCOL));
        }
        self.check_room(number)?;
        let asked = Asked { port: begin.port, flags: begin.flags };
        if let Ok(ip) = begin.host.parse::<IpAddr>() {
            let to = self.choose(&[ip], NAMED_TTL_S, Asked { flags: ANY_FAMILY, ..asked })?;
            self.dial_stream(number, stream_id, to, Some(NAMED_TTL_S));
            return Ok(());
        }
        let name = clean_name(begin.host).ok_or(end(EndReason::RESOLVE_FAILED))?;
        let conn = self.links.reserve();
        let lookup = self.streams.ask(conn, Question::Addresses(name));
        self.add_stream(number, stream_id, conn, State::Resolving { lookup, asked });
        Ok(())
    }

    /// A client asks for a stream to our directory server.
    pub(super) fn begin_directory_stream(&mut self, number: u32, stream_id: u16) {
        if self.is_stream_known(number, stream_id) {
            return;
        }
        let directory = self.config.directory.ok_or(end(EndReason::NOT_DIRECTORY));
        match directory.and_then(|to| self.check_room(number).map(|()| to)) {
            Ok(to) => self.dial_stream(number, stream_id, to, None),
            Err(end) => self.send_end(number, stream_id, end),
        }
    }

    /// A client asks for the addresses of a name, or for the name of an address.
    pub(super) fn resolve(&mut self, number: u32, stream_id: u16, data: &[u8]) {
        if self.is_stream_known(number, stream_id) {
            return;
        }
        match self.judge_question(number, data) {
            Ok(question) => {
                let conn = self.links.reserve();
                let lookup = self.streams.ask(conn, question);
                self.add_stream(number, stream_id, conn, State::Asking { lookup });
            }
            Err((answer, ttl_s)) => self.send_resolved(number, stream_id, &[answer], ttl_s),
        }
    }

    /// What to ask, or the answer if it is known.
    fn judge_question(
        &mut self,
        number: u32,
        data: &[u8],
    ) -> Result<Question, (Resolved<'static>, u32)> {
        const ERROR: (Resolved<'static>, u32) = (Resolved::Error, ERROR_TTL_S);
        let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = core::str::from_utf8(name).map_err(|_| ERROR)?;
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Err((Resolved::Address(ip), NAMED_TTL_S));
        }
        // Who lets nobody out looks nothing up, as in C tor.
        if self.config.exit.as_ref().is_none_or(|exit| exit.policy.is_closed()) {
            return Err(ERROR);
        }
        self.check_room(number).map_err(|_| (Resolved::TransientError, ERROR_TTL_S))?;
        let name = clean_name(name).ok_or(ERROR)?;
        match reverse(&name) {
            Some(Some(ip)) if is_public(ip) => Ok(Question::Name(ip)),
            Some(_) => Err(ERROR),
            None => Ok(Question::Addresses(name)),
        }
    }

    /// An answer of the domain name system.
    pub(super) fn handle_lookup(&mut self, id: LookupId, answer: &Answer) {
        let Some(conn) = self.streams.take_asker(id) else { return };
        let Some(stream) = self.streams.get(conn) else { return };
        let (number, stream_id) = (stream.circuit, stream.stream_id);
        match stream.state {
            State::Resolving { asked, .. } => {
                let chosen = match answer {
                    Answer::Addresses(addresses, ttl_s) => {
                        self.choose(addresses, *ttl_s, asked).map(|to| (to, *ttl_s))
                    }
                    _ => Err(end(EndReason::RESOLVE_FAILED)),
                };
                match chosen {
                    Ok((to, ttl_s)) => {
                        if let Some(stream) = self.streams.get_mut(conn) {
                            stream.state = State::Connecting { to, ttl_s: Some(ttl_s) };
                        }
                        self.to_dial.push_back(Dial { conn, to, security: Security::Plain });
                    }
                    Err(end) => self.end_stream(conn, end),
                }
            }
            State::Asking { .. } => {
                self.forget_stream(conn);
                let (answers, ttl_s) = resolved(answer);
                self.send_resolved(number, stream_id, &answers, ttl_s);
            }
            _ => {}
        }
    }

    /// The shell has connected to a destination.
    pub(super) fn handle_stream_connected(&mut self, conn: ConnId) {
        let now = self.now;
        let Some(stream) = self.streams.get_mut(conn) else { return };
        let State::Connecting { to, ttl_s } = stream.state else { return };
        let (number, stream_id) = (stream.circuit, stream.stream_id);
        stream.state = State::Open;
        stream.since = now;
        let mut data = Vec::new();
        Connected { to: ttl_s.map(|ttl_s| (to.ip(), ttl_s)) }.encode_into(&mut data);
        self.originate(number, RelayCommand::CONNECTED, stream_id, &data);
        // What the client has sent already.
        self.streams.wake(conn);
        self.send_signals(conn);
        self.streams.wake_reading(conn);
    }

    /// The first of these addresses that the client takes and the policy allows.
    fn choose(&self, addresses: &[IpAddr], ttl_s: u32, asked: Asked) -> Result<SocketAddr, End> {
        let exit = self.config.exit.as_ref().ok_or(end(EndReason::EXIT_POLICY))?;
        let takes_v4 = !asked.flags.contains(BeginFlags::IPV4_NOT_OK);
        let takes_v6 = asked.flags.contains(BeginFlags::IPV6_OK);
        let prefers_v6 = asked.flags.contains(BeginFlags::IPV6_PREFERRED);
        let canonical = addresses.iter().map(IpAddr::to_canonical);
        let mut taken: Vec<IpAddr> =
            canonical.filter(|ip| if ip.is_ipv6() { takes_v6 } else { takes_v4 }).collect();
        // The order stays but for the families'.
        taken.sort_by_key(|ip| ip.is_ipv6() != prefers_v6);
        let first = *taken.first().ok_or(end(EndReason::RESOLVE_FAILED))?;
        let is_allowed = |to: &SocketAddr| (exit.ipv6 || to.is_ipv4()) && exit.policy.allows(*to);
        let mut all = taken.iter().map(|ip| SocketAddr::new(*ip, asked.port));
        let refused = Some((first, ttl_s));
        let to = all.find(is_allowed).ok_or(End { reason: EndReason::EXIT_POLICY, refused })?;
        // As C tor: a reason after which a client does not try the next exit.
        if self.config.relays.contain(to) {
            return Err(end(EndReason::CONNECT_REFUSED));
        }
        Ok(to)
    }

    fn dial_stream(&mut self, number: u32, stream_id: u16, to: SocketAddr, ttl_s: Option<u32>) {
        let conn = self.links.reserve();
        self.add_stream(number, stream_id, conn, State::Connecting { to, ttl_s });
        self.to_dial.push_back(Dial { conn, to, security: Security::Plain });
    }

    fn add_stream(&mut self, number: u32, stream_id: u16, conn: ConnId, state: State) {
        let now = self.now;
        let Some(edge) = self.edge_mut(number) else { return };
        edge.add(stream_id, conn);
        let stream = Stream::new(now, number, stream_id, state, edge.flow.exit_stream());
        self.streams.add(conn, stream);
        self.totals.streams += 1;
    }

    /// The circuit's end here. It takes memory from the first message on that needs it.
    pub(super) fn edge_mut(&mut self, number: u32) -> Option<&mut Edge> {
        let circuit = self.circuits.get_mut(number)?;
        if matches!(circuit.hop, Hop::Echo(_)) {
            return None;
        }
        let queue_limit_cells = self.config.queue_limit_cells;
        let flow = &mut circuit.flow;
        let new = || Box::new(Edge::new(core::mem::take(flow), queue_limit_cells));
        Some(circuit.edge.get_or_insert_with(new))
    }

    fn is_stream_known(&self, number: u32, stream_id: u16) -> bool {
        self.find_stream(number, stream_id).is_some()
    }

    /// Whether there is room for another stream.
    fn check_room(&mut self, number: u32) -> Result<(), End> {
        if self.streams.len() >= self.config.streams_max as usize {
            return Err(end(EndReason::RESOURCE_LIMIT));
        }
        let on_circuit = self.edge_mut(number).map_or(0, |edge| edge.len());
        if on_circuit >= STREAMS_PER_CIRCUIT_MAX {
            // "Resource limit" would keep an honest client from us for hours.
            return Err(end(EndReason::MISC));
        }
        Ok(())
    }

    /// Whether the circuit's previous hop is no relay: we would be its only hop, and know both ends.
    fn comes_from_client(&mut self, number: u32) -> bool {
        let back = self.circuits.get_mut(number).map(|circuit| circuit.back.conn);
        let link = back.and_then(|conn| self.links.get_mut(conn));
        link.is_none_or(|link| link.peer().is_none())
    }

    fn send_resolved(&mut self, number: u32, stream_id: u16, answers: &[Resolved<'_>], ttl_s: u32) {
        let mut data = Vec::new();
        answers.iter().for_each(|answer| answer.encode_into(ttl_s, &mut data));
        self.originate(number, RelayCommand::RESOLVED, stream_id, &data);
    }
}

/// For addresses that the client has named itself.
const ANY_FAMILY: BeginFlags = BeginFlags(BeginFlags::IPV6_OK.0);

/// What a RESOLVED says: of each family one address, as in C tor.
fn resolved(answer: &Answer) -> (Vec<Resolved<'_>>, u32) {
    match answer {
        Answer::Addresses(addresses, ttl_s) => {
            let first = |is_v6| addresses.iter().find(|ip| ip.is_ipv6() == is_v6);
            let found = [first(false), first(true)].into_iter().flatten();
            (found.map(|ip| Resolved::Address(*ip)).collect(), *ttl_s)
        }
        Answer::Name(name, ttl_s) if name.len() <= NAME_MAX => {
            (Vec::from([Resolved::Name(name)]), *ttl_s)
        }
        Answer::Failed => (Vec::from([Resolved::TransientError]), ERROR_TTL_S),
        Answer::Name(..) | Answer::NoSuchName => (Vec::from([Resolved::Error]), ERROR_TTL_S),
    }
}

/// A name that may be asked for, in lower case.
fn clean_name(name: &str) -> Option<String> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_known);
    let has_labels =
        name.trim_end_matches('.').split('.').all(|label| (1..64).contains(&label.len()));
    (is_name && has_labels).then(|| name.to_ascii_lowercase())
}

/// The address in a name like `4.3.2.1.in-addr.arpa`: none if the name is of that kind and names
/// none, and outermost none if it is of another kind.
fn reverse(name: &str) -> Option<Option<IpAddr>> {
    let name = name.trim_end_matches('.');
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let mut octets = labels.rsplit('.').map(|label| label.parse::<u8>().ok());
        let address = [(); 4].map(|()| octets.next().flatten());
        let [Some(a), Some(b), Some(c), Some(d)] = address else { return Some(None) };
        return Some(octets.next().is_none().then(|| Ipv4Addr::new(a, b, c, d).into()));
    }
    let labels = name.strip_suffix(".ip6.arpa")?;
    let mut bits = 0u128;
    let mut count = 0;
    for label in labels.rsplit('.') {
        let digit = (label.len() == 1).then(|| u8::from_str_radix(label, 16).ok()).flatten();
        let Some(digit) = digit.filter(|_| count < 32) else { return Some(None) };
        bits = bits << 4 | u128::from(digit);
        count += 1;
    }
    Some((count == 32).then(|| Ipv6Addr::from_bits(bits).into()))
}

/// Whether an address is of the public Internet: of others nobody is told a name.
fn is_public(ip: IpAddr) -> bool {
    !is_private(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_addresses_are_told_from_others() {
        let ip = |text: &str| Some(Some(text.parse::<IpAddr>().expect("an address")));
        assert_eq!(reverse("4.3.2.1.in-addr.arpa"), ip("1.2.3.4"));
        let v6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.";
        assert_eq!(reverse(v6), ip("2001:db8::1"));
        for bad in
            ["3.2.1.in-addr.arpa", "5.4.3.2.1.in-addr.arpa", "256.3.2.1.in-addr.arpa", "1.ip6.arpa"]
        {
            assert_eq!(reverse(bad), Some(None), "{bad}");
        }
        assert_eq!(reverse("in-addr.arpa.example.com"), None);
        assert!(is_public([8, 8, 8, 8].into()) && !is_public([127, 0, 0, 1].into()));
    }

    #[test]
    fn only_names_are_asked_for() {
        assert_eq!(clean_name("Www.Example.COM").as_deref(), Some("www.example.com"));
        let long = "a".repeat(64);
        for bad in ["", ".", "a..b", "a b", "a/b", "ä.de", "a\n", "[::1]", &long] {
            assert_eq!(clean_name(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_name_panics(name: String) {
            let _ = (clean_name(&name), reverse(&name));
            let _ = (reverse(&alloc::format!("{name}.ip6.arpa")), reverse(&alloc::format!("{name}.in-addr.arpa")));
        }
    }
}
