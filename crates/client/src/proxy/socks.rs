//! SOCKS requests, as programs make them, and answers to them.

use crate::path::Need;
use crate::pool::Isolation;
use onion::cell::msg::{BeginFlags, EndReason, Resolved};
use onion::client::Destination;
use std::net::IpAddr;
use tor_socksproto::{
    Buffer, Handshake as _, NextStep, SocksAddr, SocksAuth, SocksCmd, SocksProxyHandshake,
    SocksRequest, SocksStatus,
};

/// A program that has not said yet what it wants.
pub(super) struct Greeting {
    handshake: SocksProxyHandshake,
    buffer: Buffer,
}

/// What has become of a greeting.
pub(super) enum Step {
    /// More is to come.
    More,
    /// The program wants this, and has sent these bytes behind it.
    Wants(Request, Vec<u8>),
    /// It speaks no SOCKS that we know.
    Refused,
}

/// What a program wants.
#[derive(Clone, Debug)]
pub(super) struct Request {
    socks: SocksRequest,
    pub(super) isolation: Isolation,
    pub(super) need: Need,
    /// Where it leads, for people.
    pub(super) target: String,
}

impl Greeting {
    pub(super) fn new() -> Self {
        Self { handshake: SocksProxyHandshake::new(), buffer: Buffer::new() }
    }

    /// How many bytes it takes now.
    pub(super) fn room(&mut self) -> usize {
        self.buffer.unfilled_slice().len()
    }

    /// Takes what has come; what is to be answered is put to the end of `answer`.
    pub(super) fn handle_bytes(&mut self, mut input: &[u8], answer: &mut Vec<u8>) -> Step {
        loop {
            match self.handshake.step(&mut self.buffer) {
                Err(_) => return Step::Refused,
                Ok(NextStep::Send(reply)) => answer.extend_from_slice(&reply),
                Ok(NextStep::Finished(finished)) => {
                    let (socks, mut rest) = finished.into_output_and_vec();
                    rest.extend_from_slice(input);
                    return Step::Wants(Request::new(socks), rest);
                }
                Ok(NextStep::Recv(_)) if input.is_empty() => return Step::More,
                Ok(NextStep::Recv(mut more)) => {
                    let room = more.buf();
                    let len = room.len().min(input.len());
                    room[..len].copy_from_slice(&input[..len]);
                    input = &input[len..];
                    if more.note_received(len).is_err() {
                        return Step::Refused;
                    }
                }
            }
        }
    }
}

impl Request {
    fn new(socks: SocksRequest) -> Self {
        let isolation = Isolation(match socks.auth() {
            SocksAuth::Username(name, password) => Some((name.clone(), password.clone())),
            SocksAuth::Socks4(name) => Some((name.clone(), Vec::new())),
            _ => None,
        });
        let is_ipv6 = address(socks.addr()).is_some_and(|ip| ip.is_ipv6());
        let is_stream = socks.command() == SocksCmd::CONNECT;
        let need = match is_stream {
            true => Need::Port { port: socks.port(), is_ipv6 },
            false => Need::Lookup,
        };
        let host = socks.addr().to_string();
        // Who reads of it may read it on a terminal.
        let host = host.escape_debug();
        let target = match (is_stream, is_ipv6) {
            (false, _) => host.to_string(),
            (true, false) => format!("{host}:{}", socks.port()),
            (true, true) => format!("[{host}]:{}", socks.port()),
        };
        Self { socks, isolation, need, target }
    }

    /// Whether it is a question to the domain name system.
    pub(super) fn is_lookup(&self) -> bool {
        self.need == Need::Lookup
    }

    /// What the stream is to lead to; why there can be none.
    pub(super) fn destination(&self) -> Result<Destination, &'static str> {
        let host = self.socks.addr();
        let name = host.to_string().trim_end_matches('.').to_ascii_lowercase();
        // A colon in a name would end it within BEGIN.
        let is_odd = |it: char| it.is_whitespace() || it.is_control() || it == ':';
        if address(host).is_none() && name.contains(is_odd) {
            return Err("that is no host name");
        }
        if name.ends_with(".onion") {
            return Err("onion services are none of this client's business");
        }
        match self.socks.command() {
            SocksCmd::CONNECT => {
                // What C tor asks for: both families, where the name decides.
                let is_name = address(host).is_none();
                let is_ipv6 = address(host).is_some_and(|ip| ip.is_ipv6());
                let flags =
                    if is_name || is_ipv6 { BeginFlags::IPV6_OK } else { BeginFlags::default() };
                let host = address(host).map_or_else(|| host.to_string(), |ip| ip.to_string());
                Ok(Destination::Host(host, self.socks.port(), flags))
            }
            SocksCmd::RESOLVE => Ok(Destination::Lookup(host.to_string())),
            SocksCmd::RESOLVE_PTR => address(host)
                .map(|ip| Destination::Lookup(reverse_name(ip)))
                .ok_or("only an address has a name to be asked for"),
            _ => Err("only CONNECT, RESOLVE and RESOLVE_PTR are known"),
        }
    }

    /// The answer that the stream leads to its destination.
    pub(super) fn granted(&self) -> Vec<u8> {
        self.reply(SocksStatus::SUCCEEDED, None)
    }

    /// The answer that there will be no stream.
    pub(super) fn refused(&self, status: SocksStatus) -> Vec<u8> {
        self.reply(status, None)
    }

    /// The answer to a question: the data of a RESOLVED. Whether it was one.
    pub(super) fn answered(&self, data: &[u8]) -> (Vec<u8>, bool) {
        let answers = Resolved::parse(data).unwrap_or_default();
        let found = answers.iter().find_map(|(answer, _)| match answer {
            Resolved::Address(ip) => Some(SocksAddr::Ip(*ip)),
            Resolved::Name(name) => (*name).to_owned().try_into().ok().map(SocksAddr::Hostname),
            _ => None,
        });
        match &found {
            Some(address) => (self.reply(SocksStatus::SUCCEEDED, Some(address)), true),
            None => (self.refused(SocksStatus::HOST_UNREACHABLE), false),
        }
    }

    fn reply(&self, status: SocksStatus, address: Option<&SocksAddr>) -> Vec<u8> {
        // It fails for no address that came as one.
        self.socks.reply(status, address).unwrap_or_default()
    }
}

/// The status that says why a stream ended before it began (tor-spec §6.3, RFC 1928 §6; C tor's choice).
pub(super) const fn status_of(reason: EndReason) -> SocksStatus {
    match reason {
        EndReason::RESOLVE_FAILED | EndReason::NO_ROUTE => SocksStatus::HOST_UNREACHABLE,
        EndReason::CONNECT_REFUSED | EndReason::CONN_RESET => SocksStatus::CONNECTION_REFUSED,
        EndReason::EXIT_POLICY => SocksStatus::NOT_ALLOWED,
        EndReason::TIMEOUT => SocksStatus::TTL_EXPIRED,
        _ => SocksStatus::GENERAL_FAILURE,
    }
}

/// An address, also where it came as a name.
fn address(host: &SocksAddr) -> Option<IpAddr> {
    match host {
        SocksAddr::Ip(ip) => Some(*ip),
        SocksAddr::Hostname(name) => name.as_ref().parse().ok(),
    }
}

/// The name under which the domain name system keeps an address's name (RFC 1035 §3.5, RFC 3596 §2.5).
fn reverse_name(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests;
