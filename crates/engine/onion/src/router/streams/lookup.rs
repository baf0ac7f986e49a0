//! DNS queries for streams and for RESOLVE (tor-spec §6.4).

use super::exit_policy::is_refused;
use super::{State, StreamKind};
use crate::cell::msg::{End as StreamEnd, EndReason, Resolved};
use crate::cell::relay::RelayCommand;
use crate::cell_model::{CellModel, StreamId};
use crate::node::{Dial, DnsAnswer, DnsQuery, LookupId, Security};
use crate::router::circuits::{CircuitIndex, TunnelIndex};
use crate::router::{Behavior, Core};
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use rand_core::Rng;

/// The TTL of all answers to clients, as in C tor: constant. The remaining time of a shared cache would reveal
/// whether and when another client made the same query.
pub(super) const ANSWER_TTL_S: u32 = 60;

/// Maximum length of a name, in bytes (RFC 1035).
const NAME_MAX: usize = 253;

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// Handles RESOLVE: a client requests the addresses of a name, or the name of an address.
    pub(crate) fn resolve(&mut self, index: CircuitIndex, stream_id: StreamId, data: &[u8]) {
        if self.is_stream_known(index, stream_id) {
            return;
        }
        match self.judge_question(index, data) {
            Ok((tunnel, question)) => {
                let (now, conn) = (self.outputs.now(), self.conns.reserve());
                let lookup = self.streams.ask(now, tunnel, conn, question);
                self.add_stream(index, stream_id, conn, State::Asking { lookup });
            }
            Err(answer) => self.send_resolved(index, stream_id, &[answer]),
        }
    }

    /// The query, or the answer if it is known.
    fn judge_question(
        &mut self,
        index: CircuitIndex,
        data: &[u8],
    ) -> Result<(TunnelIndex, DnsQuery), Resolved<'static>> {
        const ERROR: Resolved<'static> = Resolved::Error;
        let name = data.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = core::str::from_utf8(name).map_err(|_| ERROR)?;
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Err(Resolved::Address(ip));
        }
        // A relay that is not an exit resolves nothing, as in C tor.
        let exit =
            self.config.exit.as_ref().filter(|exit| !exit.policy.is_closed()).ok_or(ERROR)?;
        // Nor for circuits that may have no streams.
        if !exit.allows_single_hop && self.comes_from_client(index) {
            return Err(ERROR);
        }
        // A relay that is unknown now may be in the next consensus: NXDOMAIN would be wrong.
        if !self.comes_from_known(index) {
            return Err(Resolved::TransientError);
        }
        let name = clean_name(name).ok_or(ERROR)?;
        let question = match reverse(&name) {
            Some(Some(ip)) if is_public(ip) => DnsQuery::Name(ip),
            Some(_) => return Err(ERROR),
            None => DnsQuery::Addresses(name),
        };
        let tunnel = self.asking_tunnel(index).ok_or(Resolved::TransientError)?;
        self.make_room(index, StreamKind::Exit).map_err(|_| Resolved::TransientError)?;
        Ok((tunnel, question))
    }

    /// The tunnel of a circuit, if it may make another query.
    pub(super) fn asking_tunnel(&mut self, index: CircuitIndex) -> Option<TunnelIndex> {
        let tunnel = self.end_mut(index)?.tunnel;
        self.streams.may_ask(tunnel).then_some(tunnel)
    }

    /// Handles a DNS answer.
    pub(crate) fn handle_lookup(&mut self, id: LookupId, answer: &DnsAnswer) {
        let Some(conn) = self.streams.take_asker(id) else { return };
        let Some(stream) = self.conns.stream(conn) else { return };
        let state = stream.state;
        let Some((index, stream_id)) = self.circuit_of(conn) else { return };
        match state {
            State::Resolving { asked, .. } => {
                let chosen = match answer {
                    DnsAnswer::Addresses(addresses) => self.choose(addresses, asked),
                    _ => Err(StreamEnd::of(EndReason::RESOLVE_FAILED)),
                };
                match chosen {
                    Ok(to) => {
                        if let Some(stream) = self.conns.stream_mut(conn) {
                            stream.state = State::Connecting { to, reports_address: true };
                        }
                        self.to_dial.push_back(Dial { conn, to, security: Security::Plain });
                    }
                    Err(end) => self.end_stream(conn, end),
                }
            }
            State::Asking { .. } => {
                self.forget_stream(conn);
                self.send_resolved(index, stream_id, &resolved(answer));
            }
            _ => {}
        }
    }

    fn send_resolved(
        &mut self,
        index: CircuitIndex,
        stream_id: StreamId,
        answers: &[Resolved<'_>],
    ) {
        let mut data = Vec::new();
        answers.iter().for_each(|answer| answer.encode_into(ANSWER_TTL_S, &mut data));
        self.originate(index, RelayCommand::RESOLVED, stream_id, &data);
    }
}

/// The content of a RESOLVED: one address of each family, as in C tor.
fn resolved(answer: &DnsAnswer) -> Vec<Resolved<'_>> {
    match answer {
        DnsAnswer::Addresses(addresses) => {
            let first = |is_v6| addresses.iter().find(|ip| ip.is_ipv6() == is_v6);
            let found = [first(false), first(true)].into_iter().flatten();
            found.map(|ip| Resolved::Address(*ip)).collect()
        }
        DnsAnswer::Name(name) if name.len() <= NAME_MAX => Vec::from([Resolved::Name(name)]),
        DnsAnswer::Failed => Vec::from([Resolved::TransientError]),
        DnsAnswer::Name(_) | DnsAnswer::NoSuchName => Vec::from([Resolved::Error]),
    }
}

/// A valid name, in lower case.
pub(super) fn clean_name(name: &str) -> Option<String> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_known);
    let has_labels =
        name.trim_end_matches('.').split('.').all(|label| (1..64).contains(&label.len()));
    (is_name && has_labels).then(|| name.to_ascii_lowercase())
}

/// The address in a name like `4.3.2.1.in-addr.arpa`: `Some(None)` if the name is of that kind and malformed,
/// `None` if it is another name.
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

/// Whether an address belongs to the public Internet: names of others are not disclosed.
fn is_public(ip: IpAddr) -> bool {
    !is_refused(ip)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reverse_names_are_recognized() {
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
    fn only_valid_names_are_queried() {
        assert_eq!(clean_name("Www.Example.COM").as_deref(), Some("www.example.com"));
        let long = "a".repeat(64);
        for bad in ["", ".", "a..b", "a b", "a/b", "ä.de", "a\n", "[::1]", &long] {
            assert_eq!(clean_name(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_names_never_panic(name: String) {
            let _ = (clean_name(&name), reverse(&name));
            let _ = (reverse(&alloc::format!("{name}.ip6.arpa")), reverse(&alloc::format!("{name}.in-addr.arpa")));
        }
    }
}
