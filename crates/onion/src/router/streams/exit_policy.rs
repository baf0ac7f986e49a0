//! Where an exit lets streams go.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::str::FromStr;

/// Streams to destinations, as far as a relay offers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitConfig {
    /// Where they may lead.
    pub policy: ExitPolicy,
    /// Whether they may lead to IPv6 addresses (C tor: `IPv6Exit`).
    pub ipv6: bool,
    /// Whether clients may use the relay as their only hop. Tor's relays refuse: whoever does it
    /// attracts attackers of relays and of clients. For test networks.
    pub allows_single_hop: bool,
}

/// Which addresses a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// All: `*`.
    Any,
    /// All of IPv4: `*4`.
    AnyIpv4,
    /// All of IPv6: `*6`.
    AnyIpv6,
    /// Those that begin with so many bits of this one.
    Net(IpAddr, u8),
}

impl Addresses {
    /// Whether `address` is one of them.
    #[must_use]
    pub fn contain(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::Any, _) | (Self::AnyIpv4, IpAddr::V4(_)) | (Self::AnyIpv6, IpAddr::V6(_)) => {
                true
            }
            (Self::Net(IpAddr::V4(net), bits), IpAddr::V4(v4)) => {
                let differing = net.to_bits() ^ v4.to_bits();
                differing.leading_zeros() >= u32::from(bits)
            }
            (Self::Net(IpAddr::V6(net), bits), IpAddr::V6(v6)) => {
                let differing = net.to_bits() ^ v6.to_bits();
                differing.leading_zeros() >= u32::from(bits)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::AnyIpv4 => f.write_str("*4"),
            Self::AnyIpv6 => f.write_str("*6"),
            Self::Net(IpAddr::V4(v4), 32) => v4.fmt(f),
            Self::Net(IpAddr::V4(v4), bits) => write!(f, "{v4}/{bits}"),
            Self::Net(IpAddr::V6(v6), 128) => write!(f, "[{v6}]"),
            Self::Net(IpAddr::V6(v6), bits) => write!(f, "[{v6}]/{bits}"),
        }
    }
}

/// One rule: the first that fits decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRule {
    /// Lets pass, or refuses.
    pub accepts: bool,
    /// For these addresses.
    pub addresses: Addresses,
    /// And these ports.
    pub ports: RangeInclusive<u16>,
}

impl ExitRule {
    fn fits(&self, to: SocketAddr) -> bool {
        self.addresses.contain(to.ip()) && self.ports.contains(&to.port())
    }
}

/// As in a torrc and in server descriptors (dir-spec §2.1.3): `reject 10.0.0.0/8:*`.
impl fmt::Display for ExitRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.accepts { "accept" } else { "reject" };
        write!(f, "{verb} {}:", self.addresses)?;
        let (first, last) = (*self.ports.start(), *self.ports.end());
        match (first, last) {
            (0 | 1, u16::MAX) => f.write_str("*"),
            _ if first == last => write!(f, "{first}"),
            _ => write!(f, "{first}-{last}"),
        }
    }
}

/// Why a rule cannot be read. Whoever wrote the configuration is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    rule: String,
    problem: &'static str,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, problem } = self;
        write!(f, "exit policy \"{rule}\": {problem}; a rule is like \"accept *:80\" or ")?;
        f.write_str("\"reject 10.0.0.0/8:1-1023\"")
    }
}

impl core::error::Error for RuleError {}

/// Reads `accept` or `reject`, addresses, ports: `accept *:80`, `reject 10.0.0.0/8:*`,
/// `accept [2001:db8::]/32:443-444`. `accept6` and `reject6` are about IPv6 alone.
impl FromStr for ExitRule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let error = |problem| RuleError { rule: rule.to_string(), problem };
        let (verb, pattern) = rule.trim().split_once(' ').ok_or(error("no address"))?;
        let (accepts, is_ipv6) = match verb {
            "accept" => (true, false),
            "reject" => (false, false),
            "accept6" => (true, true),
            "reject6" => (false, true),
            _ => return Err(error("it begins with neither accept nor reject")),
        };
        let (addresses, ports) = pattern.trim().rsplit_once(':').ok_or(error("no port"))?;
        let addresses = match parse_addresses(addresses).ok_or(error("no such addresses"))? {
            Addresses::Any if is_ipv6 => Addresses::AnyIpv6,
            Addresses::AnyIpv4 | Addresses::Net(IpAddr::V4(_), _) if is_ipv6 => {
                return Err(error("an IPv4 address in a rule about IPv6"));
            }
            addresses => addresses,
        };
        let ports = parse_ports(ports).ok_or(error("no such ports"))?;
        Ok(Self { accepts, addresses, ports })
    }
}

fn parse_addresses(text: &str) -> Option<Addresses> {
    let (address, bits) = match text {
        "*" => return Some(Addresses::Any),
        "*4" => return Some(Addresses::AnyIpv4),
        "*6" => return Some(Addresses::AnyIpv6),
        _ => text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits))),
    };
    let (address, most) = match address.strip_prefix('[') {
        Some(rest) => (IpAddr::V6(rest.strip_suffix(']')?.parse().ok()?), 128),
        None => (IpAddr::V4(address.parse().ok()?), 32),
    };
    let bits = match bits {
        None => most,
        Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
    };
    Some(Addresses::Net(address, bits))
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| is_number && *port > 0)
    };
    if text == "*" {
        return Some(1..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// Rules in their order. What none of them fits is refused; the default refuses all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    rules: Vec<ExitRule>,
}

/// Networks that are not of the public Internet, as C tor's `ExitPolicyRejectPrivate` has them; to them
/// are added the shared address space of RFC 6598 and what is translated to IPv4 (RFC 6052).
const PRIVATE: [(IpAddr, u8); 14] = [
    (v4(0, 0, 0, 0), 8),
    (v4(169, 254, 0, 0), 16),
    (v4(127, 0, 0, 0), 8),
    (v4(192, 168, 0, 0), 16),
    (v4(10, 0, 0, 0), 8),
    (v4(172, 16, 0, 0), 12),
    (v4(100, 64, 0, 0), 10),
    (v4(224, 0, 0, 0), 3),
    (v6(0), 8),
    (v6(0xfc00), 7),
    (v6(0xfe80), 10),
    (v6(0xfec0), 10),
    (v6(0xff00), 8),
    (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 96),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0))
}

/// Whether an address is not of the public Internet, also in the guise of IPv6.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    let address = address.to_canonical();
    PRIVATE.iter().any(|(net, bits)| Addresses::Net(*net, *bits).contain(address))
}

impl ExitPolicy {
    /// These rules, and none before them: an exit on the Internet wants
    /// [`rejecting_private`](Self::rejecting_private) as well.
    #[must_use]
    pub const fn new(rules: Vec<ExitRule>) -> Self {
        Self { rules }
    }

    /// Everything goes: for tests.
    #[must_use]
    pub fn accept_all() -> Self {
        let rule = ExitRule { accepts: true, addresses: Addresses::Any, ports: 1..=u16::MAX };
        Self::new(Vec::from([rule]))
    }

    /// The same, with private networks and the relay's `own` addresses refused first.
    #[must_use]
    pub fn rejecting_private(mut self, own: &[IpAddr]) -> Self {
        let own = own.iter().map(|ip| Addresses::Net(*ip, if ip.is_ipv4() { 32 } else { 128 }));
        let private = PRIVATE.iter().map(|(net, bits)| Addresses::Net(*net, *bits));
        let all = private.chain(own);
        let rules =
            all.map(|addresses| ExitRule { accepts: false, addresses, ports: 1..=u16::MAX });
        self.rules = rules.chain(self.rules).collect();
        self
    }

    /// The rules, the first that fits decides. For a descriptor "reject *:*" is to be added.
    #[must_use]
    pub fn rules(&self) -> &[ExitRule] {
        &self.rules
    }

    /// Whether streams may lead there. Addresses of IPv4 in the guise of IPv6 count as IPv4.
    #[must_use]
    pub fn allows(&self, to: SocketAddr) -> bool {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        to.port() > 0
            && self.rules.iter().find(|rule| rule.fits(to)).is_some_and(|rule| rule.accepts)
    }

    /// Whether there is nowhere to go.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.rules.iter().any(|rule| rule.accepts)
    }
}

#[cfg(test)]
mod tests;
