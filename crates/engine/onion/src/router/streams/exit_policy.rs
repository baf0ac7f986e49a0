//! Exit policies.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::ops::RangeInclusive;
use core::str::FromStr;

/// The exit configuration of a relay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitConfig {
    /// The permitted destinations.
    pub policy: ExitPolicy,
    /// Whether IPv6 destinations are permitted (C tor: `IPv6Exit`).
    pub ipv6: bool,
    /// Whether clients may use the relay as their only hop. Tor's relays refuse, since single-hop exits attract
    /// attackers of relays and of clients. For test networks.
    pub allows_single_hop: bool,
}

/// The addresses of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// All: `*`.
    Any,
    /// All of IPv4: `*4`.
    AnyIpv4,
    /// All of IPv6: `*6`.
    AnyIpv6,
    /// A prefix: addresses that begin with this number of bits of the address.
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

/// One rule: the first match decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitRule {
    /// Whether it accepts or rejects.
    pub accepts: bool,
    /// The addresses.
    pub addresses: Addresses,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl ExitRule {
    fn fits(&self, to: SocketAddr) -> bool {
        self.addresses.contain(to.ip()) && self.ports.contains(&to.port())
    }
}

/// The format of a torrc and of server descriptors (dir-spec §2.1.3): `reject 10.0.0.0/8:*`.
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

/// Why a rule cannot be parsed. The author of the configuration is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    rule: String,
    problem: &'static str,
}

impl RuleError {
    fn new(rule: &str, problem: &'static str) -> Self {
        Self { rule: rule.to_string(), problem }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, problem } = self;
        write!(f, "exit policy \"{rule}\": {problem}; a rule is like \"accept *:80\" or ")?;
        f.write_str("\"reject 10.0.0.0/8:1-1023\"")
    }
}

impl core::error::Error for RuleError {}

impl ExitRule {
    /// Parses rules as in tor's `ExitPolicy`: one or several, separated by commas. `private` stands for tor's
    /// private networks, each of which becomes a rule.
    ///
    /// ```
    /// use flashflow_onion::router::ExitRule;
    ///
    /// let rules = ExitRule::parse_list("reject 10.0.0.0/255.0.0.0:*, accept *").expect("rules");
    /// assert_eq!(rules[0].to_string(), "reject 10.0.0.0/8:*");
    /// assert_eq!(rules[1].to_string(), "accept *:*");
    /// ```
    ///
    /// # Errors
    /// [`RuleError`] names the malformed rule.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, RuleError> {
        let mut rules = Vec::new();
        for rule in text.split(',').map(str::trim).filter(|rule| !rule.is_empty()) {
            let Pattern { accepts, is_ipv6: _, addresses, ports } = Pattern::read(rule)?;
            if addresses != "private" {
                rules.push(rule.parse()?);
                continue;
            }
            let ports = parse_ports(ports.ok_or_else(|| RuleError::new(rule, "no port"))?)
                .ok_or_else(|| RuleError::new(rule, "no such ports"))?;
            let of = |(net, bits): &(IpAddr, u8)| Self {
                accepts,
                addresses: Addresses::Net(*net, *bits),
                ports: ports.clone(),
            };
            rules.extend(TOR_PRIVATE.iter().map(of));
        }
        if rules.is_empty() { Err(RuleError::new(text, "no rule")) } else { Ok(rules) }
    }
}

/// The parts of a rule's text.
struct Pattern<'a> {
    accepts: bool,
    /// Whether the rule applies to IPv6 only.
    is_ipv6: bool,
    addresses: &'a str,
    ports: Option<&'a str>,
}

impl<'a> Pattern<'a> {
    fn read(rule: &'a str) -> Result<Self, RuleError> {
        let error = |problem| RuleError::new(rule, problem);
        let mut words = rule.split_whitespace();
        let (accepts, is_ipv6) = match words.next() {
            Some("accept") => (true, false),
            Some("reject") => (false, false),
            Some("accept6") => (true, true),
            Some("reject6") => (false, true),
            _ => return Err(error("it begins with neither accept nor reject")),
        };
        let pattern = words.next().ok_or(error("no address"))?;
        if words.next().is_some() {
            return Err(error("more than one address"));
        }
        // The colons of an IPv6 address are in brackets.
        let bracket = pattern.find(']').unwrap_or(0);
        let colon = pattern[bracket..].find(':').map(|at| bracket + at);
        let (addresses, ports) = match colon {
            Some(at) => (&pattern[..at], Some(&pattern[at + 1..])),
            None => (pattern, None),
        };
        Ok(Self { accepts, is_ipv6, addresses, ports })
    }
}

/// Parses one rule as tor does: `accept *:80`, `accept [2001:db8::]/32:443-444`, `reject 10.0.0.0/255.0.0.0:*`.
/// Without ports it applies to all of them. `accept6` and `reject6` apply to IPv6 only.
impl FromStr for ExitRule {
    type Err = RuleError;

    fn from_str(rule: &str) -> Result<Self, RuleError> {
        let error = |problem| RuleError::new(rule, problem);
        let Pattern { accepts, is_ipv6, addresses, ports } = Pattern::read(rule)?;
        let addresses = match parse_addresses(addresses).ok_or(error("no such addresses"))? {
            Addresses::Any if is_ipv6 => Addresses::AnyIpv6,
            Addresses::AnyIpv4 | Addresses::Net(IpAddr::V4(_), _) if is_ipv6 => {
                return Err(error("an IPv4 address in a rule about IPv6"));
            }
            addresses => addresses,
        };
        let ports = parse_ports(ports.unwrap_or("*")).ok_or(error("no such ports"))?;
        Ok(Self { accepts, addresses, ports })
    }
}

fn parse_addresses(text: &str) -> Option<Addresses> {
    let (address, mask) = match text {
        "*" => return Some(Addresses::Any),
        "*4" => return Some(Addresses::AnyIpv4),
        "*6" => return Some(Addresses::AnyIpv6),
        _ => text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask))),
    };
    let address = match address.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse().ok()?,
        None => IpAddr::V4(address.parse().ok()?),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match mask {
        None => most,
        Some(mask) => parse_mask(mask).filter(|bits| *bits <= most)?,
    };
    // An IPv4-mapped destination counts as IPv4, and so does a rule.
    match (address, address.to_canonical()) {
        (IpAddr::V6(_), v4 @ IpAddr::V4(_)) => match bits {
            0..32 => Some(Addresses::Net(v4, bits)),
            96..=128 => Some(Addresses::Net(v4, bits - 96)),
            _ => None,
        },
        _ => Some(Addresses::Net(address, bits)),
    }
}

/// The length of a prefix, from a number or a contiguous IPv4 mask.
fn parse_mask(text: &str) -> Option<u8> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let mask = text.parse::<Ipv4Addr>().ok()?.to_bits();
    let bits = mask.leading_ones();
    (bits + mask.trailing_zeros() >= 32).then(|| u8::try_from(bits).ok()).flatten()
}

fn parse_ports(text: &str) -> Option<RangeInclusive<u16>> {
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| is_number && *port > 0)
    };
    if matches!(text, "" | "*") {
        return Some(1..=u16::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first)?, port(last)?);
    (first <= last).then_some(first..=last)
}

/// Rules in order. Addresses that match no rule are rejected; the default rejects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExitPolicy {
    rules: Vec<ExitRule>,
}

/// The networks of `private` in an exit policy: C tor's list, in its order.
const TOR_PRIVATE: [(IpAddr, u8); 11] = [
    (v4(0, 0, 0, 0), 8),
    (v4(169, 254, 0, 0), 16),
    (v4(127, 0, 0, 0), 8),
    (v4(192, 168, 0, 0), 16),
    (v4(10, 0, 0, 0), 8),
    (v4(172, 16, 0, 0), 12),
    (v6(0, 0), 8),
    (v6(0xfc00, 0), 7),
    (v6(0xfe80, 0), 10),
    (v6(0xfec0, 0), 10),
    (v6(0xff00, 0), 8),
];

/// Networks that are private here but not in C tor: the shared address space of RFC 6598, multicast and
/// reserved addresses of IPv4, and addresses translated to IPv4 (RFC 6052).
const PRIVATE_TOO: [(IpAddr, u8); 3] = [
    (v4(100, 64, 0, 0), 10),
    (v4(224, 0, 0, 0), 3),
    (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0)), 96),
];

/// Other networks that an exit rejects: addresses that a tunnel or translator on the path may turn into private
/// IPv4 addresses (6to4, Teredo, local-use NAT64 of RFC 8215), and those for benchmarks.
const TUNNELLED: [(IpAddr, u8); 5] = [
    (v4(198, 18, 0, 0), 15),
    (v6(0x2002, 0), 16),
    (v6(0x2001, 0), 32),
    (IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0)), 48),
    (IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0)), 48),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(first: u16, second: u16) -> IpAddr {
    IpAddr::V6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0))
}

fn is_in(nets: &[(IpAddr, u8)], address: IpAddr) -> bool {
    nets.iter().any(|(net, bits)| Addresses::Net(*net, *bits).contain(address))
}

/// Whether an address does not belong to the public Internet, also if it is IPv4-mapped.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    let address = address.to_canonical();
    is_in(&TOR_PRIVATE, address) || is_in(&PRIVATE_TOO, address)
}

/// Whether an exit that rejects private networks rejects an address: it is private, or may be translated to a
/// private one on the path.
#[must_use]
pub(super) fn is_refused(address: IpAddr) -> bool {
    is_private(address) || is_in(&TUNNELLED, address.to_canonical())
}

impl ExitPolicy {
    /// Only these rules: an exit on the Internet needs [`rejecting_private`](Self::rejecting_private) as well.
    #[must_use]
    pub const fn new(rules: Vec<ExitRule>) -> Self {
        Self { rules }
    }

    /// Accepts everything: for tests.
    #[must_use]
    pub fn accept_all() -> Self {
        let rule = ExitRule { accepts: true, addresses: Addresses::Any, ports: 1..=u16::MAX };
        Self::new(Vec::from([rule]))
    }

    /// Prepends rules that reject private networks, those that may be translated to them, and the relay's `own`
    /// addresses.
    #[must_use]
    pub fn rejecting_private(mut self, own: &[IpAddr]) -> Self {
        let own = own.iter().map(|ip| Addresses::Net(*ip, if ip.is_ipv4() { 32 } else { 128 }));
        let nets = TOR_PRIVATE.iter().chain(&PRIVATE_TOO).chain(&TUNNELLED);
        let all = nets.map(|(net, bits)| Addresses::Net(*net, *bits)).chain(own);
        let rules =
            all.map(|addresses| ExitRule { accepts: false, addresses, ports: 1..=u16::MAX });
        self.rules = rules.chain(self.rules).collect();
        self
    }

    /// The rules; the first match decides. In a descriptor "reject *:*" is to be appended.
    #[must_use]
    pub fn rules(&self) -> &[ExitRule] {
        &self.rules
    }

    /// Whether streams may lead to a destination. IPv4-mapped addresses count as IPv4.
    #[must_use]
    pub fn allows(&self, to: SocketAddr) -> bool {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        to.port() > 0
            && self.rules.iter().find(|rule| rule.fits(to)).is_some_and(|rule| rule.accepts)
    }

    /// Whether it rejects everything.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.rules.iter().any(|rule| rule.accepts)
    }
}

#[cfg(test)]
mod tests;
