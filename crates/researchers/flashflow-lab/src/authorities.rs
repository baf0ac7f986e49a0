//! The network that a client's command uses.

use clap::{ArgGroup, Args};
use cli::Error;
use client::{Directories, OnionDirectory};
use dirmgr::public::{AuthorityRelay, authority_relays};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Which network to use, by its directory authorities.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("which-network").args(["authorities", "network", "public"]).multiple(true).required(true))]
pub(crate) struct Authorities {
    /// Directory authority; may be repeated. Without a fingerprint, the port is its directory port, for requests by plain HTTP. With
    /// one, it is its OR port, for requests in a circuit of one hop (BEGIN_DIR).
    #[arg(long = "authority", value_name = "ADDRESS:PORT[=FP]", value_delimiter = ',')]
    authorities: Vec<Directory>,
    /// Directory cache, by OR port and fingerprint; may be repeated. Until guards are chosen, fallbacks are asked before authorities.
    #[arg(long = "fallback", value_name = "ADDRESS:PORT=FP", value_delimiter = ',')]
    fallbacks: Vec<Directory>,
    /// Fingerprint of an authority's identity key (v3ident) whose signatures count; may be repeated. By default each authority is
    /// asked for its own, which is trusted.
    #[arg(long = "identity", value_name = "FP", value_delimiter = ',')]
    identities: Vec<RsaId>,
    /// Folder of a private network that `flashflow-lab lab up` made.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["authorities", "identities"])]
    network: Option<PathBuf>,
    /// Use the public Tor network, whose authorities are built in. This client does not protect your anonymity.
    #[arg(long, conflicts_with_all = ["authorities", "identities", "network"])]
    pub(crate) public: bool,
}

/// A directory, by its address; and its fingerprint, if that is the address of an OR port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Directory {
    address: SocketAddr,
    relay: Option<RsaId>,
}

impl FromStr for Directory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, relay) = match text.split_once('=') {
            Some((address, relay)) => (address, Some(relay)),
            None => (text, None),
        };
        let address =
            address.parse().map_err(|_| format!("`{address}` is not an address and port"))?;
        let relay = relay.map(|relay| {
            relay
                .parse()
                .map_err(|_| format!("`{relay}` is not a fingerprint (40 hexadecimal digits)"))
        });
        Ok(Self { address, relay: relay.transpose()? })
    }
}

impl Directory {
    fn onion(self) -> Option<OnionDirectory> {
        let rsa = self.relay?;
        Some(OnionDirectory { address: self.address, ids: RelayIds { rsa, ed25519: None } })
    }
}

/// A network to bootstrap from.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Directory addresses of its authorities.
    pub(crate) authorities: Vec<SocketAddr>,
    /// Identities of the authorities whose signatures count.
    pub(crate) identities: BTreeSet<RsaId>,
    /// Authorities and fallbacks with OR ports.
    pub(crate) directories: Directories,
}

impl Authorities {
    /// The network that the arguments name.
    pub(crate) fn find(&self) -> Result<Known, Error> {
        let mut known = match &self.network {
            Some(network) => of_lab(&lab::status(network)?),
            None if self.public => of_public(),
            None => Known {
                authorities: self.authorities.iter().map(|authority| authority.address).collect(),
                identities: self.identities.iter().copied().collect(),
                directories: Directories {
                    authorities: self
                        .authorities
                        .iter()
                        .filter_map(|authority| Some((authority.address, authority.onion()?)))
                        .collect(),
                    ..Directories::default()
                },
            },
        };
        let addresses = known.authorities.iter().copied();
        let mut all = addresses.chain(self.fallbacks.iter().map(|fallback| fallback.address));
        if let Some(address) = all.find(|address| !self.public && is_public(address.ip())) {
            return Err(Error::Usage(format!(
                "--authority {address} is a public address: this client is for research, and uses \
                 the public network only with --public"
            )));
        }
        let fallback = |directory: &Directory| {
            directory.onion().ok_or_else(|| {
                Error::Usage(format!(
                    "--fallback {0}: add its fingerprint: {0}=FP",
                    directory.address
                ))
            })
        };
        known.directories.fallbacks =
            self.fallbacks.iter().map(fallback).collect::<Result<_, _>>()?;
        known.directories.has_guards = true;
        Ok(known)
    }
}

/// A private network. All its authorities have OR ports.
fn of_lab(status: &lab::Status) -> Known {
    let (authorities, identities) = status.authorities();
    let onion = |node: &lab::Node| {
        let ids = RelayIds { rsa: RsaId(node.rsa()), ed25519: Some(Ed25519Id(node.ed25519())) };
        Some((node.dir_addr()?, OnionDirectory { address: node.or_addr(), ids }))
    };
    Known {
        authorities,
        identities: identities.into_iter().map(RsaId).collect(),
        directories: Directories {
            // Relays have no directory ports.
            authorities: status.nodes.iter().filter_map(onion).collect(),
            ..Directories::default()
        },
    }
}

/// The public network.
fn of_public() -> Known {
    let (authorities, identities) = dirmgr::public::authorities();
    let onion = |relay: AuthorityRelay| {
        let ids = RelayIds { rsa: relay.fingerprint, ed25519: None };
        (relay.directory, OnionDirectory { address: relay.or_port, ids })
    };
    let or_ports = authority_relays().into_iter().map(onion).collect();
    let directories = Directories { authorities: or_ports, ..Directories::default() };
    Known { authorities, identities: identities.into_iter().collect(), directories }
}

/// Whether an address may belong to the public network: it is not private, nor for documentation (RFC 5737, RFC 3849) and
/// tests of equipment (RFC 2544).
fn is_public(ip: IpAddr) -> bool {
    let is_test = match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_documentation() || matches!(v4.octets(), [198, 18 | 19, ..]),
        IpAddr::V6(v6) => matches!(v6.segments(), [0x2001, 0xdb8, ..]),
    };
    !is_test && !onion::router::is_private(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_an_address_and_with_a_fingerprint_that_of_an_or_port() {
        let plain: Directory = "127.0.0.1:7000".parse().expect("an address");
        assert_eq!((plain.relay, plain.onion()), (None, None));
        let fingerprint = "AB".repeat(20);
        let relay: Directory = format!("[::1]:9001={fingerprint}").parse().expect("both");
        let onion = relay.onion().expect("it has an OR port");
        assert_eq!((onion.address.port(), onion.ids.rsa), (9001, RsaId([0xAB; 20])));
        for wrong in ["", "127.0.0.1", "127.0.0.1:1=", "127.0.0.1:1=AB", "=AB"] {
            assert!(wrong.parse::<Directory>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_addresses_that_nobody_routes_are_private() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "198.18.0.1",
            "::1",
            "fd00::1",
            "2001:db8::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_public(private.parse().expect("an address")), "{private}");
        }
        for public in ["128.31.0.39", "217.196.147.77", "2001:678:558::1"] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
    }
}
