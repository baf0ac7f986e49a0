//! Free ports.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::spec::AUTHORITIES;

/// The ports of one authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthorityPorts {
    pub(crate) or: SocketAddr,
    pub(crate) dir: SocketAddr,
}

/// Ports reserved until this is dropped.
///
/// Only the authorities' ports are chosen in advance, because all configurations contain them; tor chooses all
/// others (`auto`). Between the drop and tor's start another program may take a port, so the caller must be
/// prepared to try again.
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
        let listener = TcpListener::bind((at, 0))?;
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
