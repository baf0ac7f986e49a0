//! Free ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;

use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng};

use crate::spec::AUTHORITIES;

/// Ports below those that Linux chooses for connections and for listeners without a port (32768 to 60999), such as the
/// `auto` ports of the tors that start at the same time.
const BELOW_EPHEMERAL: Range<u16> = 10_000..32_768;
/// Random ports that are tried before one is left to the kernel.
const ATTEMPTS: u32 = 100;

/// The ports of one authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthorityPorts {
    pub(crate) or: SocketAddr,
    pub(crate) dir: SocketAddr,
}

/// Ports reserved until this is dropped.
///
/// Only the authorities' ports are chosen in advance, because all configurations contain them; tor chooses all
/// others (`auto`). Between the drop and tor's start another program may take a port, which is improbable but possible:
/// the caller must be prepared to try again.
#[derive(Debug)]
pub(crate) struct Reserved {
    listeners: Vec<TcpListener>,
    ports: Vec<AuthorityPorts>,
}

impl Reserved {
    /// Reserves the ports of all authorities, at this address.
    pub(crate) fn new(at: Ipv4Addr) -> io::Result<Self> {
        let mut reserved = Self { listeners: Vec::new(), ports: Vec::new() };
        for _ in AUTHORITIES {
            let ports = AuthorityPorts { or: reserved.one(at)?, dir: reserved.one(at)? };
            reserved.ports.push(ports);
        }
        Ok(reserved)
    }

    fn one(&mut self, at: Ipv4Addr) -> io::Result<SocketAddr> {
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(io::Error::other)?;
        let below = (0..ATTEMPTS)
            .find_map(|_| TcpListener::bind((at, rng.random_range(BELOW_EPHEMERAL))).ok());
        let listener = below.map_or_else(|| TcpListener::bind((at, 0)), Ok)?;
        let address = listener.local_addr()?;
        self.listeners.push(listener);
        Ok(address)
    }

    /// The reserved ports, in the order of the authorities.
    pub(crate) fn ports(&self) -> &[AuthorityPorts] {
        &self.ports
    }

    /// Replaces one of the ports by one that another program uses.
    #[cfg(test)]
    pub(crate) fn with_taken(mut self, taken: SocketAddr) -> Self {
        self.ports[0].dir = taken;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_reserved_until_dropped() {
        let is_free_again = || {
            let reserved = Reserved::new(Ipv4Addr::LOCALHOST).expect("free ports");
            let first = reserved.ports()[0];
            assert_eq!(reserved.ports().len(), AUTHORITIES.len());
            assert!(TcpListener::bind(first.or).is_err());
            drop(reserved);
            TcpListener::bind(first.or).is_ok()
        };
        // Another test may take a released port, but not ten times in a row.
        assert!((0..10).any(|_| is_free_again()));
    }
}
