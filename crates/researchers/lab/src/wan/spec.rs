//! The specification of a network.

use super::path::{Bottleneck, WanPath};
use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// The TCP congestion control of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// NewReno: RFC 5681 and 6582.
    Reno,
    /// RFC 9438: Linux's default.
    Cubic,
    /// BBR version 1, as in Linux.
    Bbr,
}

impl Congestion {
    /// All values, in alphabetical order.
    pub const ALL: [Self; 3] = [Self::Bbr, Self::Cubic, Self::Reno];

    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Congestion {
    type Err = String;

    /// From the kernel's name for it.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|congestion| congestion.name() == name);
        found.ok_or_else(|| "not one of bbr, cubic and reno".to_owned())
    }
}

/// Minimum, initial and maximum size of the kernel's buffers of a TCP socket, in bytes, as in `tcp_rmem` and
/// `tcp_wmem`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketBuffer {
    /// The size under memory pressure.
    pub min: u64,
    /// The initial size.
    pub initial: u64,
    /// The maximum size.
    pub max: u64,
}

/// A host's access link, which all its paths share. The default has no bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The bottleneck of packets that the host sends.
    pub upload: Option<Bottleneck>,
    /// The bottleneck of packets that the host receives.
    pub download: Option<Bottleneck>,
}

impl Access {
    /// An equal bottleneck in each direction.
    #[must_use]
    pub const fn both(bottleneck: Bottleneck) -> Self {
        Self { upload: Some(bottleneck), download: Some(bottleneck) }
    }

    pub(super) fn problem(self) -> Option<String> {
        [self.upload, self.download].into_iter().flatten().find_map(Bottleneck::problem)
    }
}

/// A host of the network.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Other addresses of its interface, such as one for each relay that runs there.
    pub more_addresses: Vec<Ipv4Addr>,
    /// Its congestion control; that of this machine if `None`.
    pub congestion: Option<Congestion>,
    /// Its access link.
    pub access: Access,
    /// Receive buffers of its sockets; the kernel's default if `None`.
    pub tcp_rmem: Option<SocketBuffer>,
    /// Send buffers of its sockets; the kernel's default if `None`.
    pub tcp_wmem: Option<SocketBuffer>,
}

impl HostSpec {
    /// A host with this name and address, and the kernel's defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, address: Ipv4Addr) -> Self {
        Self {
            name: name.into(),
            address,
            more_addresses: Vec::new(),
            congestion: None,
            access: Access::default(),
            tcp_rmem: None,
            tcp_wmem: None,
        }
    }

    /// Adds addresses.
    #[must_use]
    pub fn with_addresses(mut self, addresses: impl IntoIterator<Item = Ipv4Addr>) -> Self {
        self.more_addresses.extend(addresses);
        self
    }

    /// All its addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        [self.address].into_iter().chain(self.more_addresses.iter().copied())
    }

    /// Sets the congestion control.
    #[must_use]
    pub fn with_congestion(self, congestion: Congestion) -> Self {
        Self { congestion: Some(congestion), ..self }
    }

    /// Sets the access link.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }
}

/// A network: hosts, and a path for each ordered pair of them.
#[derive(Clone, Debug)]
pub struct WanSpec {
    /// The hosts.
    pub hosts: Vec<HostSpec>,
    /// The default path.
    pub default_path: WanPath,
    /// Paths from one host to another, by name.
    pub paths: Vec<(String, String, WanPath)>,
    /// The seed of all random decisions.
    pub seed: u64,
    /// The MTU in bytes, including the IP header.
    pub mtu: u16,
    /// Maximum number of packets in flight: each occupies an MTU of memory.
    pub packets_max: u32,
}

impl WanSpec {
    /// The default of [`packets_max`](Self::packets_max): a gigabit per second for a second and a half.
    pub const PACKETS_MAX: u32 = 131_072;

    /// A network of these hosts with perfect paths and packets of 1500 bytes.
    #[must_use]
    pub fn new(hosts: Vec<HostSpec>) -> Self {
        Self {
            hosts,
            default_path: WanPath::default(),
            paths: Vec::new(),
            seed: 0,
            mtu: 1500,
            packets_max: Self::PACKETS_MAX,
        }
    }

    /// The first host of a [`pair`](Self::pair).
    pub const NEAR: &str = "near";

    /// The second host of a [`pair`](Self::pair).
    pub const FAR: &str = "far";

    /// A network of two hosts, `near` at 10.77.0.1 and `far` at 10.77.0.2, with this path in both directions.
    #[must_use]
    pub fn pair(path: WanPath) -> Self {
        let hosts = [(Self::NEAR, 1), (Self::FAR, 2)];
        let hosts = hosts.map(|(name, at)| HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)));
        Self { default_path: path, ..Self::new(hosts.into()) }
    }

    /// Sets the path from one host to another.
    #[must_use]
    pub fn with_path(mut self, from: &str, to: &str, path: WanPath) -> Self {
        self.paths.push((from.to_owned(), to.to_owned(), path));
        self
    }

    /// Sets the seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The path from one host to another, by their numbers: the last one that was set.
    pub(super) fn path(&self, from: usize, to: usize) -> WanPath {
        let is_it = |name: &str, number: usize| self.hosts[number].name == name;
        let named = self.paths.iter().rev().find(|(a, b, _)| is_it(a, from) && is_it(b, to));
        named.map_or(self.default_path, |&(_, _, path)| path)
    }

    /// Why the specification is invalid.
    pub(super) fn problem(&self) -> Option<String> {
        /// The maximum number of hosts.
        const HOSTS_MAX: usize = 1 << 12;
        /// The minimum MTU of IPv4.
        const MTU_MIN: u16 = 576;
        if self.hosts.is_empty() || self.hosts.len() > HOSTS_MAX {
            return Some(format!("{} hosts", self.hosts.len()));
        }
        if self.mtu < MTU_MIN || self.packets_max == 0 {
            return Some(format!("an MTU of {}, {} packets", self.mtu, self.packets_max));
        }
        let mut addresses = BTreeSet::new();
        for (number, host) in self.hosts.iter().enumerate() {
            if self.hosts[..number].iter().any(|other| other.name == host.name) {
                return Some(format!("two hosts `{}`", host.name));
            }
            if let Some(twice) = host.addresses().find(|address| !addresses.insert(*address)) {
                return Some(format!("two hosts or interfaces at {twice}"));
            }
            if let Some(problem) = host.access.problem() {
                return Some(format!("`{}`: {problem}", host.name));
            }
        }
        let is_host = |name: &String| self.hosts.iter().any(|host| &host.name == name);
        for (from, to, path) in &self.paths {
            if !is_host(from) || !is_host(to) {
                return Some(format!("a path from `{from}` to `{to}`, which are not both hosts"));
            }
            if let Some(problem) = path.problem() {
                return Some(format!("from `{from}` to `{to}`: {problem}"));
            }
        }
        self.default_path.problem()
    }
}
