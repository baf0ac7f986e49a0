//! Which network a client's command uses.

use crate::error::Error;
use clap::Args;
use netdoc::Fingerprint;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Which network to use, by its directory authorities.
#[derive(Clone, Debug, Args)]
pub(crate) struct Authorities {
    /// Directory authority, by address and directory port; may be repeated.
    #[arg(long = "authority", value_name = "ADDRESS:PORT", value_delimiter = ',', required_unless_present_any = ["network", "public"])]
    authorities: Vec<SocketAddr>,
    /// Fingerprint of an authority's identity key (v3ident) whose signatures count; may be repeated. Without, the authorities are
    /// believed who they are.
    #[arg(long = "identity", value_name = "FP", value_delimiter = ',')]
    identities: Vec<Fingerprint>,
    /// A private network of `flashflow lab up`, by its folder.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["authorities", "identities"])]
    network: Option<PathBuf>,
    /// Use the public Tor network, whose authorities are built in. It is not for hiding: see above.
    #[arg(long, conflicts_with_all = ["authorities", "identities", "network"])]
    pub(crate) public: bool,
}

impl Authorities {
    /// Where they are, and whose signatures count.
    pub(crate) fn find(&self) -> Result<(Vec<SocketAddr>, BTreeSet<Fingerprint>), Error> {
        let (authorities, identities): (_, Vec<Fingerprint>) = match &self.network {
            Some(network) => {
                let (addresses, identities) = lab::status(network)?.authorities();
                (addresses, identities.into_iter().map(Fingerprint::from_bytes).collect())
            }
            None if self.public => {
                let (addresses, identities) = relay::public_authorities();
                (addresses, identities.into_iter().collect())
            }
            None => (self.authorities.clone(), self.identities.clone()),
        };
        if let Some(address) = authorities.iter().find(|it| !self.public && is_public(it.ip())) {
            return Err(Error::Usage(format!(
                "--authority {address} is of no private network: this client is for research, and \
                 uses the public network only if told so with --public"
            )));
        }
        Ok((authorities, identities.into_iter().collect()))
    }
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
