//! SOCKS requests of programs, and their replies.
//!
//! Replies equal C tor's, byte for byte (`socks-extensions` of torspec, RFC 1928, RFC 1929), on
//! which programs depend. [`greeting`] parses messages, [`hosts`] checks destinations, and this
//! file decides on requests. It does no I/O and must not know circuits.

mod greeting;
mod hosts;

pub(super) use greeting::{Greeting, Step};

use crate::path::Need;
use crate::pool::Isolation;
use hosts::{Host, Onion};
use onion::cell::msg::{BeginFlags, EndReason, Resolved};
use onion::client::Destination;
use std::net::IpAddr;

/// A status of a SOCKS 5 reply (RFC 1928 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(u8);

impl Status {
    pub(super) const SUCCEEDED: Self = Self(0);
    pub(super) const GENERAL_FAILURE: Self = Self(1);
    pub(super) const NOT_ALLOWED: Self = Self(2);
    pub(super) const HOST_UNREACHABLE: Self = Self(4);
    pub(super) const CONNECTION_REFUSED: Self = Self(5);
    pub(super) const TTL_EXPIRED: Self = Self(6);
    pub(super) const COMMAND_NOT_SUPPORTED: Self = Self(7);
    pub(super) const ADDRESS_TYPE_NOT_SUPPORTED: Self = Self(8);

    /// The reply for a stream that ended before it was open (tor-spec §6.3), as in C tor.
    pub(super) const fn from_reason(reason: EndReason) -> Self {
        match reason {
            EndReason::RESOLVE_FAILED | EndReason::NO_ROUTE => Self::HOST_UNREACHABLE,
            EndReason::CONNECT_REFUSED | EndReason::CONN_RESET | EndReason::DONE => {
                Self::CONNECTION_REFUSED
            }
            EndReason::EXIT_POLICY => Self::NOT_ALLOWED,
            EndReason::TIMEOUT => Self::TTL_EXPIRED,
            _ => Self::GENERAL_FAILURE,
        }
    }
}

/// The protocol of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// SOCKS 4 or 4a.
    V4,
    /// SOCKS 5. `is_ipv6`: the program is connected by IPv6, and replies contain an address of that
    /// family.
    V5 { is_ipv6: bool },
}

impl Dialect {
    /// A reply without an address.
    fn status(self, status: Status) -> Vec<u8> {
        match self {
            Self::V4 => {
                let is_granted = status == Status::SUCCEEDED;
                vec![0, if is_granted { 0x5a } else { 0x5b }, 0, 0, 0, 0, 0, 0]
            }
            Self::V5 { is_ipv6 } => {
                let (address_type, address_bytes) = if is_ipv6 { (4, 16) } else { (1, 4) };
                let mut reply = vec![5, status.0, 0, address_type];
                reply.resize(reply.len() + address_bytes + 2, 0);
                reply
            }
        }
    }

    /// The reply to RESOLVE or RESOLVE_PTR; `None` if there is no answer.
    fn answer(self, answer: Option<&Answer<'_>>) -> Vec<u8> {
        match (self, answer) {
            (Self::V4, Some(Answer::Address(IpAddr::V4(v4)))) => {
                [&[0, 0x5a, 0, 0][..], &v4.octets()].concat()
            }
            (Self::V4, _) => self.status(Status::GENERAL_FAILURE),
            (Self::V5 { .. }, Some(Answer::Address(IpAddr::V4(v4)))) => {
                [&[5, 0, 0, 1][..], &v4.octets(), &[0, 0]].concat()
            }
            (Self::V5 { .. }, Some(Answer::Address(IpAddr::V6(v6)))) => {
                [&[5, 0, 0, 4][..], &v6.octets(), &[0, 0]].concat()
            }
            (Self::V5 { .. }, Some(Answer::Name(name))) => {
                // A RESOLVED cell cannot hold longer names.
                let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
                let name = &name.as_bytes()[..usize::from(len)];
                [&[5, 0, 0, 3, len][..], name, &[0, 0]].concat()
            }
            // C tor leaves address type 0 here.
            (Self::V5 { .. }, None) => vec![5, Status::HOST_UNREACHABLE.0, 0, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// A DNS answer.
enum Answer<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// The command of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Connect,
    Resolve,
    /// RESOLVE_PTR.
    ResolveName,
}

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The reply to the program; empty where C tor sends none.
    pub(super) reply: Vec<u8>,
    /// The reason.
    pub(super) reason: String,
    /// The destination, if it could be parsed.
    pub(super) target: Option<String>,
}

/// The decision on a request.
pub(super) enum Verdict {
    /// It needs a circuit.
    Carry(Destination),
    /// The reply is known without a circuit.
    Answer(Vec<u8>),
    Refuse(Refusal),
}

/// A parsed request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    dialect: Dialect,
    act: Act,
    host: Host,
    port: u16,
    pub(super) isolation: Isolation,
    pub(super) need: Need,
    /// The destination, for display.
    pub(super) target: String,
}

impl Request {
    fn new(dialect: Dialect, act: Act, host: Host, port: u16, isolation: Isolation) -> Self {
        let is_ipv6 = host.address().is_some_and(|ip| ip.is_ipv6());
        let need = match act {
            Act::Connect => Need::Port { port, is_ipv6 },
            Act::Resolve | Act::ResolveName => Need::Lookup,
        };
        let target = match (act, is_ipv6) {
            (Act::Connect, false) => format!("{host}:{port}"),
            (Act::Connect, true) => format!("[{host}]:{port}"),
            _ => host.to_string(),
        };
        Self { dialect, act, host, port, isolation, need, target }
    }

    /// Whether it is a DNS query.
    pub(super) fn is_lookup(&self) -> bool {
        self.need == Need::Lookup
    }

    /// Decides on the request. With `rejects_internal`, C tor's `ClientRejectInternalAddresses` and
    /// `ClientDNSRejectInternalAddresses`, addresses of private networks are refused.
    pub(super) fn verdict(&self, rejects_internal: bool) -> Verdict {
        match self.decide(rejects_internal) {
            Ok(verdict) => verdict,
            Err((status, reason)) => Verdict::Refuse(Refusal {
                reply: self.refused(status),
                reason: reason.to_owned(),
                target: Some(self.target.clone()),
            }),
        }
    }

    /// In C tor's order (`connection_ap_handshake_rewrite_and_attach`).
    fn decide(&self, rejects_internal: bool) -> Result<Verdict, (Status, &'static str)> {
        let failure = |reason| Err((Status::GENERAL_FAILURE, reason));
        let address = self.host.address();
        let is_internal = self.host.is_internal() && rejects_internal;
        if self.host.ends_with("exit") {
            return failure("the notation `.exit` is disabled: it lets a web site choose the exit");
        }
        if self.act == Act::ResolveName && is_internal {
            return failure("nobody outside knows the name of an address of a private network");
        }
        if self.host.is_virtual() {
            return failure("the address is of the range that tor maps onion services to");
        }
        match self.host.onion() {
            Onion::Not => {}
            Onion::Valid => {
                return Err((Status::NOT_ALLOWED, "this client does not reach onion services"));
            }
            Onion::Invalid => return failure("that is not an address of an onion service"),
            // C tor asks an exit, which discloses the name; no such host exists (RFC 7686 §2).
            Onion::Rooted => {
                let reason = "a name under `.onion` or `.exit` never leaves the client";
                return Err((Status::HOST_UNREACHABLE, reason));
            }
        }
        if self.host.is_bracketed() {
            return failure("only an IPv6 address may be in brackets");
        }
        let destination = match (self.act, address) {
            (Act::Resolve, Some(ip)) => {
                return Ok(Verdict::Answer(self.dialect.answer(Some(&Answer::Address(ip)))));
            }
            (Act::Resolve, None) => Destination::Lookup(self.host.to_string()),
            (Act::ResolveName, address) => {
                Destination::Lookup(address.map(hosts::reverse_name).unwrap_or_default())
            }
            (Act::Connect, _) if self.port == 0 => return failure("port 0 is not a port"),
            (Act::Connect, _) if is_internal => {
                return failure("the destination is of a private network, which no exit reaches");
            }
            (Act::Connect, Some(IpAddr::V6(_))) if self.dialect == Dialect::V4 => {
                return Err((Status::NOT_ALLOWED, "SOCKS 4 has no IPv6 addresses"));
            }
            (Act::Connect, address) => {
                let flags = match address {
                    // C tor lets the exit choose the address family for a name, except for SOCKS 4.
                    None if self.dialect == Dialect::V4 => BeginFlags::default(),
                    Some(IpAddr::V4(_)) => BeginFlags::default(),
                    None => BeginFlags::IPV6_OK,
                    Some(IpAddr::V6(_)) => {
                        BeginFlags(BeginFlags::IPV6_OK.0 | BeginFlags::IPV4_NOT_OK.0)
                    }
                };
                Destination::Host(self.host.to_string(), self.port, flags)
            }
        };
        Ok(Verdict::Carry(destination))
    }

    /// The reply for an open stream.
    pub(super) fn granted(&self) -> Vec<u8> {
        self.dialect.status(Status::SUCCEEDED)
    }

    /// The reply for a stream that cannot be opened. For a query C tor never gives the reason.
    pub(super) fn refused(&self, status: Status) -> Vec<u8> {
        if self.is_lookup() { self.dialect.answer(None) } else { self.dialect.status(status) }
    }

    /// The reply to a query, from the data of a RESOLVED cell, and whether it has an answer. With
    /// `rejects_internal`, addresses of private networks are dropped.
    pub(super) fn answered(&self, data: &[u8], rejects_internal: bool) -> (Vec<u8>, bool) {
        let answers = Resolved::parse(data).unwrap_or_default();
        let wants_name = self.act == Act::ResolveName;
        let found = answers.iter().filter_map(|(answer, _)| match answer {
            Resolved::Name(name) if wants_name => Some(Answer::Name(name)),
            Resolved::Address(ip) if rejects_internal && hosts::is_internal(*ip) => None,
            Resolved::Address(ip) if !wants_name => Some(Answer::Address(*ip)),
            _ => None,
        });
        // If there are both, C tor returns the IPv4 address (`NoPreferIPv6`, its default).
        let found = found.min_by_key(|answer| matches!(answer, Answer::Address(IpAddr::V6(_))));
        let reply = self.dialect.answer(found.as_ref());
        (reply, found.is_some())
    }
}

#[cfg(test)]
mod tests;
