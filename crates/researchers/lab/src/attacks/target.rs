//! Permitted targets of attacks.

use super::AttackError;
use super::bomb::Interceptor;
use super::requests::DocumentNames;
use super::watchlist::Watchlist;
use onion::circuit::NextHop;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// The network of attackers' addresses: on loopback, but separate from all other addresses, because defences count by address.
pub const ATTACKERS: [u8; 2] = [127, 66];

/// A relay under attack, and another relay through which attacks may go. All addresses are on loopback.
#[derive(Clone, Debug)]
pub struct AttackTarget {
    relay: NextHop,
    via: NextHop,
    watchlist: Option<Arc<Watchlist>>,
    memory_mib: u32,
    names: Arc<DocumentNames>,
    dir_port: Option<SocketAddr>,
    interceptor: Option<Arc<Interceptor>>,
}

impl AttackTarget {
    /// Creates a target of a relay and another relay, through which attacks may go.
    ///
    /// # Errors
    /// One of the addresses is not on the loopback interface: this software attacks no other host.
    pub fn new(relay: NextHop, via: NextHop) -> Result<Self, AttackError> {
        check(relay.address)?;
        check(via.address)?;
        Ok(Self {
            relay,
            via,
            watchlist: None,
            memory_mib: 256,
            names: Arc::default(),
            dir_port: None,
            interceptor: None,
        })
    }

    /// Adds the relay's memory limit in MiB, and the documents that it has.
    pub fn with_documents(self, memory_mib: u32, names: DocumentNames) -> Self {
        Self { memory_mib, names: Arc::new(names), ..self }
    }

    /// Adds the relay's directory port.
    ///
    /// # Errors
    /// The address is not on the loopback interface.
    pub fn with_dir_port(self, address: SocketAddr) -> Result<Self, AttackError> {
        check(address)?;
        Ok(Self { dir_port: Some(address), ..self })
    }

    /// Adds a proxy on the path to the relay's directory authorities.
    pub fn with_interceptor(self, interceptor: Option<Arc<Interceptor>>) -> Self {
        Self { interceptor, ..self }
    }

    /// Adds the names of a DNS probing attack.
    pub fn with_watchlist(self, watchlist: Arc<Watchlist>) -> Self {
        Self { watchlist: Some(watchlist), ..self }
    }

    /// The names of a DNS probing attack.
    pub(super) fn watchlist(&self) -> Arc<Watchlist> {
        self.watchlist.clone().unwrap_or_default()
    }

    /// The relay's memory limit in MiB.
    pub(super) const fn memory_mib(&self) -> u32 {
        self.memory_mib
    }

    /// The documents that the relay has.
    pub(super) fn names(&self) -> &DocumentNames {
        &self.names
    }

    /// The relay's directory port.
    pub(super) const fn dir_port(&self) -> Option<SocketAddr> {
        self.dir_port
    }

    /// The proxy on the path to the relay's directory authorities.
    pub(super) fn interceptor(&self) -> Option<Arc<Interceptor>> {
        self.interceptor.clone()
    }

    /// The relay under attack.
    pub(super) const fn relay(&self) -> &NextHop {
        &self.relay
    }

    /// The relay through which some attacks go.
    pub(super) const fn via(&self) -> &NextHop {
        &self.via
    }
}

fn check(address: SocketAddr) -> Result<(), AttackError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    Err(AttackError::NotOnLoopback(address))
}

/// The attacker's address with this number.
pub(super) fn address_of(number: u32) -> IpAddr {
    let [.., high, low] = number.to_be_bytes();
    let [first, second] = ATTACKERS;
    // Zero and 255 at the end are addresses like any other on loopback.
    Ipv4Addr::new(first, second, high, low).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::identity::{RelayIds, RsaId};

    #[test]
    fn a_target_outside_of_loopback_is_refused() {
        let hop = |address: &str| NextHop {
            address: address.parse().expect("an address"),
            ids: RelayIds { rsa: RsaId([1; 20]), ed25519: None },
            onion_key: [0; 32],
        };
        let here = hop("127.0.0.1:9001");
        AttackTarget::new(here, here).expect("loopback");
        for other in ["192.0.2.1:9001", "10.0.0.1:9001", "[2001:db8::1]:9001", "0.0.0.0:9001"] {
            AttackTarget::new(hop(other), here).expect_err("not on loopback");
            AttackTarget::new(here, hop(other)).expect_err("not on loopback");
            let target = AttackTarget::new(here, here).expect("loopback");
            target.with_dir_port(hop(other).address).expect_err("not on loopback");
        }
    }

    #[test]
    fn attackers_have_separate_addresses_on_loopback() {
        assert_eq!(address_of(0), IpAddr::from([127, 66, 0, 0]));
        assert_eq!(address_of(258), IpAddr::from([127, 66, 1, 2]));
        assert!(address_of(u32::MAX).is_loopback());
    }
}
