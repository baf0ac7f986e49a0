//! One authority or relay of a running network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onion::Rate;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::control::{BwWatch, Control};
use crate::error::LabError;
use crate::process;
use crate::torrc::COOKIE;

/// The role of a node in addition to relaying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A directory authority. It relays as well.
    Authority,
    /// None.
    Relay,
}

/// One tor process of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub(crate) role: Role,
    pub(crate) nickname: String,
    #[serde(with = "as_hex")]
    pub(crate) rsa: [u8; 20],
    #[serde(with = "as_hex")]
    pub(crate) ed25519: [u8; 32],
    #[serde(with = "as_optional_hex")]
    pub(crate) v3_identity: Option<[u8; 20]>,
    pub(crate) or_addr: SocketAddr,
    pub(crate) dir_addr: Option<SocketAddr>,
    pub(crate) control_addr: SocketAddr,
    pub(crate) pid: u32,
    pub(crate) limit_bit_per_s: Option<u64>,
    pub(crate) dir: PathBuf,
}

impl Node {
    /// Its address and identities, as the target of a measurement.
    #[must_use]
    pub const fn target(&self) -> Target {
        let ids = RelayIds { rsa: RsaId(self.rsa), ed25519: Some(Ed25519Id(self.ed25519)) };
        Target { address: self.or_addr, ids }
    }

    /// Authority or relay.
    #[must_use]
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Nickname.
    #[must_use]
    pub fn nickname(&self) -> &str {
        &self.nickname
    }

    /// RSA fingerprint: SHA-1 of the RSA identity key.
    #[must_use]
    pub const fn rsa(&self) -> [u8; 20] {
        self.rsa
    }

    /// RSA fingerprint in upper case hexadecimal, as bandwidth files have it.
    #[must_use]
    pub fn rsa_hex(&self) -> String {
        hex::encode_upper(self.rsa)
    }

    /// Ed25519 identity key.
    #[must_use]
    pub const fn ed25519(&self) -> [u8; 32] {
        self.ed25519
    }

    /// The fingerprint of an authority's v3 identity key, which identifies its votes.
    #[must_use]
    pub const fn v3_identity(&self) -> Option<[u8; 20]> {
        self.v3_identity
    }

    /// The OR address.
    #[must_use]
    pub const fn or_addr(&self) -> SocketAddr {
        self.or_addr
    }

    /// The address of an authority's directory (HTTP).
    #[must_use]
    pub const fn dir_addr(&self) -> Option<SocketAddr> {
        self.dir_addr
    }

    /// The control port.
    #[must_use]
    pub const fn control_addr(&self) -> SocketAddr {
        self.control_addr
    }

    /// Process identifier.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// The configured `RelayBandwidthRate`.
    #[must_use]
    pub fn limit(&self) -> Option<Rate> {
        self.limit_bit_per_s.map(Rate::from_bit_per_s)
    }

    /// The node's folder: its `torrc`, its `log`, its keys.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens a control connection.
    ///
    /// # Errors
    /// [`LabError::Control`] if tor does not answer.
    pub fn control(&self) -> Result<Control, LabError> {
        Control::connect(self.control_addr, &self.dir.join(COOKIE))
            .map_err(LabError::control(&self.nickname))
    }

    /// Subscribes to its bandwidth events, one each second, on a separate control connection.
    ///
    /// # Errors
    /// [`LabError::Control`] if tor does not answer.
    pub fn watch_bandwidth(&self) -> Result<BwWatch, LabError> {
        BwWatch::new(self.control()?).map_err(LabError::control(&self.nickname))
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        process::is_ours(self.pid, self.network_dir())
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        if self.is_alive() {
            process::signal(self.pid, Signal::KILL);
            process::wait_for_exit(self.pid, Duration::from_secs(10));
        }
    }

    /// Processor time used so far, in user and kernel mode, usually in steps of 10 ms; `None` once the process
    /// has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.is_alive().then(|| process::cpu_time(self.pid)).flatten()
    }

    pub(crate) fn network_dir(&self) -> &Path {
        self.dir.parent().unwrap_or(&self.dir)
    }
}

/// Keys are in upper case hexadecimal, as in tor.
mod as_hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode_upper(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        decode(&String::deserialize(from)?)
    }

    pub(super) fn decode<E: Error, const N: usize>(text: &str) -> Result<[u8; N], E> {
        let mut bytes = [0; N];
        hex::decode_to_slice(text, &mut bytes).map_err(E::custom)?;
        Ok(bytes)
    }
}

/// Serializes an optional key.
mod as_optional_hex {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<[u8; 20]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.map(hex::encode_upper).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<[u8; 20]>, D::Error> {
        Option::<String>::deserialize(from)?.map(|text| super::as_hex::decode(&text)).transpose()
    }
}
