//! Messages that open and end streams (tor-spec §6.2, §6.3, §6.4).

use crate::cell::reader::{Malformed, Reader};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The flags of a BEGIN (§6.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BeginFlags(pub u32);

impl BeginFlags {
    /// IPv6 addresses are acceptable.
    pub const IPV6_OK: Self = Self(1);
    /// IPv4 addresses are not acceptable.
    pub const IPV4_NOT_OK: Self = Self(1 << 1);
    /// IPv6 is preferred over IPv4.
    pub const IPV6_PREFERRED: Self = Self(1 << 2);

    /// Whether all of these flags are set.
    #[must_use]
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

/// BEGIN: opens a stream to a destination (§6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin<'a> {
    /// A hostname, or an address without brackets.
    pub host: &'a str,
    /// Never zero.
    pub port: u16,
    /// Which addresses of the name may be used.
    pub flags: BeginFlags,
}

impl<'a> Begin<'a> {
    /// Reads the data of a BEGIN.
    ///
    /// # Errors
    /// If it has no host and port terminated by a zero byte.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = |problem| Malformed { message: "BEGIN", problem };
        let end = data.iter().position(|byte| *byte == 0).ok_or(malformed("no end of address"))?;
        let address = core::str::from_utf8(&data[..end]).map_err(|_| malformed("not text"))?;
        let (host, port) = address.rsplit_once(':').ok_or(malformed("no port"))?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or(malformed("a bracket is not closed"))?,
            None => host,
        };
        let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse().ok().filter(|port| is_number && *port > 0);
        if host.is_empty() {
            return Err(malformed("no host"));
        }
        let flags = data[end + 1..].first_chunk().map_or(0, |flags| u32::from_be_bytes(*flags));
        Ok(Self { host, port: port.ok_or(malformed("no port"))?, flags: BeginFlags(flags) })
    }

    /// Appends the data.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let is_v6 = self.host.contains(':');
        let (open, close) = if is_v6 { ("[", "]") } else { ("", "") };
        out.extend_from_slice(format!("{open}{}{close}:{}\0", self.host, self.port).as_bytes());
        if self.flags != BeginFlags::default() {
            out.extend_from_slice(&self.flags.0.to_be_bytes());
        }
    }
}

/// CONNECTED: a stream is open (§6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connected {
    /// The destination's address and its TTL in seconds. `None` for directory streams.
    pub to: Option<(IpAddr, u32)>,
}

impl Connected {
    /// Reads the data of a CONNECTED.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        if data.is_empty() {
            return Ok(Self { to: None });
        }
        let mut reader = Reader::new("CONNECTED", data);
        let v4: [u8; 4] = reader.take_array()?;
        let address = if v4 != [0; 4] {
            IpAddr::V4(v4.into())
        } else if reader.take_u8()? == 6 {
            IpAddr::V6(reader.take_array::<16>()?.into())
        } else {
            return Err(reader.malformed("unknown type of address"));
        };
        // Very old relays omit the TTL.
        let ttl_s = reader.take_u32().unwrap_or(0);
        Ok(Self { to: Some((address, ttl_s)) })
    }

    /// Appends the data.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        let Some((address, ttl_s)) = self.to else { return };
        match address {
            IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
            IpAddr::V6(v6) => {
                out.extend_from_slice(&[0, 0, 0, 0, 6]);
                out.extend_from_slice(&v6.octets());
            }
        }
        out.extend_from_slice(&ttl_s.to_be_bytes());
    }
}

/// Why a stream ended (§6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndReason(pub u8);

#[allow(missing_docs, reason = "each is the reason of that name in tor-spec §6.3")]
impl EndReason {
    pub const MISC: Self = Self(1);
    pub const RESOLVE_FAILED: Self = Self(2);
    pub const CONNECT_REFUSED: Self = Self(3);
    pub const EXIT_POLICY: Self = Self(4);
    pub const DESTROY: Self = Self(5);
    pub const DONE: Self = Self(6);
    pub const TIMEOUT: Self = Self(7);
    pub const NO_ROUTE: Self = Self(8);
    pub const HIBERNATING: Self = Self(9);
    pub const INTERNAL: Self = Self(10);
    pub const RESOURCE_LIMIT: Self = Self(11);
    pub const CONN_RESET: Self = Self(12);
    pub const TOR_PROTOCOL: Self = Self(13);
    pub const NOT_DIRECTORY: Self = Self(14);
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::MISC => "no other reason fits",
            Self::RESOLVE_FAILED => "the name does not resolve",
            Self::CONNECT_REFUSED => "the destination refuses the connection",
            Self::EXIT_POLICY => "the exit policy forbids it",
            Self::DESTROY => "the circuit is being destroyed",
            Self::DONE => "done",
            Self::TIMEOUT => "no answer in time",
            Self::NO_ROUTE => "no route to the destination",
            Self::HIBERNATING => "the relay hibernates",
            Self::INTERNAL => "internal error",
            Self::RESOURCE_LIMIT => "resource limit",
            Self::CONN_RESET => "the destination reset the connection",
            Self::TOR_PROTOCOL => "protocol violation",
            Self::NOT_DIRECTORY => "the relay serves no directory",
            Self(other) => return write!(f, "reason {other}"),
        };
        write!(f, "{name} (reason {})", self.0)
    }
}

/// END: a stream is closed (§6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The reason.
    pub reason: EndReason,
    /// With [`EndReason::EXIT_POLICY`]: the address that the policy rejects, and its TTL in seconds, if the
    /// relay has resolved it.
    pub refused: Option<(IpAddr, u32)>,
}

impl End {
    /// With this reason and no address.
    #[must_use]
    pub const fn of(reason: EndReason) -> Self {
        Self { reason, refused: None }
    }

    /// Reads the data of an END. Without a reason it is "misc", as in C tor.
    #[must_use]
    pub fn parse(data: &[u8]) -> Self {
        let Some((reason, rest)) = data.split_first() else {
            return Self::of(EndReason::MISC);
        };
        let reason = EndReason(*reason);
        let ttl_s = |rest: &[u8]| rest.first_chunk().map_or(0, |ttl| u32::from_be_bytes(*ttl));
        let refused = match rest.len() {
            _ if reason != EndReason::EXIT_POLICY => None,
            4 | 8 => rest.first_chunk::<4>().map(|v4| (IpAddr::from(*v4), ttl_s(&rest[4..]))),
            16 | 20 => rest.first_chunk::<16>().map(|v6| (IpAddr::from(*v6), ttl_s(&rest[16..]))),
            _ => None,
        };
        Self { reason, refused }
    }

    /// Appends the data.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.push(self.reason.0);
        let Some((address, ttl_s)) = self.refused else { return };
        push_octets(address, out);
        out.extend_from_slice(&ttl_s.to_be_bytes());
    }
}

/// One answer in a RESOLVED (§6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved<'a> {
    /// An address of the name.
    Address(IpAddr),
    /// The name of the address.
    Name(&'a str),
    /// A temporary failure: a later query may succeed.
    TransientError,
    /// NXDOMAIN: the name does not exist.
    Error,
    /// Another type of answer.
    Unknown(u8),
}

const TYPE_NAME: u8 = 0;
const TYPE_IPV4: u8 = 4;
const TYPE_IPV6: u8 = 6;
const TYPE_TRANSIENT_ERROR: u8 = 0xf0;
const TYPE_ERROR: u8 = 0xf1;

/// The text that C tor sends with errors.
const ERROR_TEXT: &[u8] = b"Error resolving hostname";

impl<'a> Resolved<'a> {
    /// Reads the data of a RESOLVED: answers, with the TTL of each in seconds.
    ///
    /// # Errors
    /// If it is truncated, or an address has the wrong length.
    pub fn parse(data: &'a [u8]) -> Result<Vec<(Self, u32)>, Malformed> {
        let mut reader = Reader::new("RESOLVED", data);
        let mut answers = Vec::new();
        while !reader.rest().is_empty() {
            let answer_type = reader.take_u8()?;
            let len = usize::from(reader.take_u8()?);
            let content = reader.take(len)?;
            let malformed = reader.malformed("an answer of wrong length");
            let answer = match answer_type {
                TYPE_NAME => {
                    let name = core::str::from_utf8(content);
                    Self::Name(name.map_err(|_| reader.malformed("a name that is not text"))?)
                }
                TYPE_IPV4 => {
                    let v4: [u8; 4] = content.try_into().map_err(|_| malformed)?;
                    Self::Address(Ipv4Addr::from(v4).into())
                }
                TYPE_IPV6 => {
                    let v6: [u8; 16] = content.try_into().map_err(|_| malformed)?;
                    Self::Address(Ipv6Addr::from(v6).into())
                }
                TYPE_TRANSIENT_ERROR => Self::TransientError,
                TYPE_ERROR => Self::Error,
                other => Self::Unknown(other),
            };
            answers.push((answer, reader.take_u32()?));
        }
        Ok(answers)
    }

    /// Appends the answer with a TTL of `ttl_s` seconds. Names are truncated to 255 bytes.
    pub fn encode_into(&self, ttl_s: u32, out: &mut Vec<u8>) {
        let mut octets = Vec::new();
        let (answer_type, content) = match self {
            Self::Address(address) => {
                push_octets(*address, &mut octets);
                (if address.is_ipv4() { TYPE_IPV4 } else { TYPE_IPV6 }, &octets[..])
            }
            Self::Name(name) => (TYPE_NAME, &name.as_bytes()[..name.len().min(255)]),
            Self::TransientError => (TYPE_TRANSIENT_ERROR, ERROR_TEXT),
            Self::Error => (TYPE_ERROR, ERROR_TEXT),
            Self::Unknown(answer_type) => (*answer_type, &[][..]),
        };
        out.push(answer_type);
        super::push_len_u8(out, content.len());
        out.extend_from_slice(content);
        out.extend_from_slice(&ttl_s.to_be_bytes());
    }
}

fn push_octets(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
    }
}

#[cfg(test)]
mod tests;
