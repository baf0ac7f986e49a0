//! A C tor relay that joins a network from another host.

use crate::client::Client;
use crate::clock::Deadline;
use crate::error::LabError;
use crate::network::Network;
use crate::torrc::{RESOLV_CONF, quoted};
use hex::FromHex;
use std::net::Ipv4Addr;
use std::time::Duration;

/// A C tor relay of a [`Network`] that runs on another host. It is an exit without restrictions, and ends with
/// this value, or with the network.
#[derive(Debug)]
pub struct JoinedRelay {
    tor: Client,
    rsa: [u8; 20],
}

impl JoinedRelay {
    /// Starts it in the network namespace of this thread, at its `address`, and waits until it can build circuits.
    /// The consensus lists it some seconds later: see [`Network::wait_until_known`].
    ///
    /// # Errors
    /// [`LabError`] if tor ends, does not answer, or is not ready within `patience`.
    pub fn start(
        network: &Network,
        nickname: &str,
        address: Ipv4Addr,
        patience: Duration,
    ) -> Result<Self, LabError> {
        Self::start_with(network, nickname, address, &[], patience)
    }

    /// Starts it like [`start`](Self::start), with additional lines of configuration, such as a rate limit.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(
        network: &Network,
        nickname: &str,
        address: Ipv4Addr,
        extra: &[String],
        patience: Duration,
    ) -> Result<Self, LabError> {
        let resolver = quoted("", &network.dir().join(RESOLV_CONF));
        let mut lines = vec![
            format!("Nickname {nickname}"),
            "ClientOnly 0".to_owned(),
            format!("ORPort {address}:auto"),
            format!("Address {address}"),
            format!("OutboundBindAddress {address}"),
            "AssumeReachable 1".to_owned(),
            "ExtendAllowPrivateAddresses 1".to_owned(),
            "ExitRelay 1".to_owned(),
            "ExitPolicyRejectPrivate 0".to_owned(),
            "ExitPolicy accept *:*".to_owned(),
            "ServerDNSDetectHijacking 0".to_owned(),
            format!("ServerDNSResolvConfFile {resolver}"),
            "ContactInfo a private network on one machine, made by FlashFlow".to_owned(),
        ];
        lines.extend_from_slice(extra);
        let mut tor = Client::start(network, nickname, &lines, &[], patience)?;
        let failed = LabError::control(nickname);
        let fingerprint = tor.control().get_info("fingerprint").map_err(failed)?;
        let rsa = <[u8; 20]>::from_hex(&fingerprint).map_err(|_| LabError::BadFile {
            path: network.dir().join(nickname),
            expected: "a relay with a fingerprint",
        })?;
        Ok(Self { tor, rsa })
    }

    /// Waits until it knows these relays ([`Network::wait_until_known`] covers only the network's own nodes). Until
    /// then it refuses streams of circuits from them.
    ///
    /// # Errors
    /// [`LabError`] if tor ends, does not answer, or does not know them within `patience`.
    pub fn wait_until_it_knows(
        &mut self,
        relays: &[[u8; 20]],
        patience: Duration,
    ) -> Result<(), LabError> {
        self.tor.wait_until_ready(relays, Deadline::after(patience))
    }

    /// Its RSA fingerprint.
    #[must_use]
    pub const fn rsa(&self) -> [u8; 20] {
        self.rsa
    }

    /// Its process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.tor.pid()
    }
}
