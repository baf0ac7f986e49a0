//! The configuration of a relay: a TOML file, command-line flags, or both.

mod exit;
mod flashflow;
#[cfg(test)]
pub(crate) mod tests;
mod values;

pub use exit::{ExitSection, ExitSettings};
pub use flashflow::{FlashFlowConfig, coordinator_key};

use crate::family::FamilyIds;
use netdoc::{Nickname, RsaId};
use onion::flow::hop::HopWindows;
use onion::router::schedule::SchedulerConfig;
use onion::router::{RateLimit, is_private};
use onion::{Duration, Rate};
use serde::Deserialize;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use values::{
    amount, check_metrics, held_bytes_max, hop_windows, link_observations, public_authorities,
    scheduler, shutdown_wait, threads,
};

/// The minimum rate that tor accepts for a relay: 75 KiB/s.
const LEAST_RATE: Rate = Rate::from_byte_per_s(75 * 1024);
/// The announced rate of a relay without a limit, as in tor's default `BandwidthRate`: 1 GiB/s.
const UNLIMITED: Rate = Rate::from_byte_per_s(1 << 30);
/// The longest contact, in bytes: descriptors must stay small.
const CONTACT_MAX: usize = 1_000;

/// Why a configuration is unusable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration: cannot read `{}`: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The file is not TOML, or has an unknown key or a value of another type.
    #[error("configuration: {what}: {reason}")]
    Syntax {
        /// Which file.
        what: String,
        /// The reason and the position.
        reason: String,
    },
    /// A setting without a default is missing.
    #[error("configuration: `{key}` is missing; set it in the file, or give --{flag}")]
    Missing {
        /// Its name in the file.
        key: &'static str,
        /// Its name on the command line.
        flag: &'static str,
    },
    /// A value is invalid.
    #[error("configuration: `{key}`: {reason}")]
    Invalid {
        /// Its name in the file.
        key: String,
        /// The reason.
        reason: String,
    },
}

fn invalid(key: &str, reason: impl fmt::Display) -> ConfigError {
    ConfigError::Invalid { key: key.to_owned(), reason: reason.to_string() }
}

/// The settings of a file or the command line; `None` if not set. `docs/relay.toml` is a commented
/// example with all of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// The relay's name: 1 to 19 letters and digits.
    pub nickname: Option<Nickname>,
    /// The IPv4 address at which others reach the relay.
    pub address: Option<Ipv4Addr>,
    /// The port at that address; 0, the default, for any that is free.
    pub or_port: Option<u16>,
    /// The address to listen on; by default `address`. Behind NAT it differs.
    pub listen: Option<IpAddr>,
    /// Folder of the long-term keys. In a file, relative to the file's folder.
    pub keys: Option<PathBuf>,
    /// `RelayBandwidthRate`, in Mbit/s; unlimited by default.
    pub rate_mbit_per_s: Option<f64>,
    /// `RelayBandwidthBurst`, in Mbit. By default, what the rate permits in a second.
    pub burst_mbit: Option<f64>,
    /// The cell scheduler: `kist` by default.
    pub scheduler: Option<SchedulerName>,
    /// `KISTSchedRunInterval`: the interval of KIST or KISTLite, 1 to 100 milliseconds; by default
    /// the consensus parameter, or else [`SchedulerConfig::INTERVAL`].
    pub scheduler_interval_ms: Option<u32>,
    /// Hop-by-hop windows with relays and clients that support them, by one of the names of
    /// [`HopWindows::NAMED`]; `off`, the default, for none.
    pub hop_windows: Option<String>,
    /// I/O threads: 1, the default, for one thread that does everything; more for that number in
    /// addition to the engine's thread.
    pub threads: Option<usize>,
    /// The operator's contact information.
    pub contact: Option<String>,
    /// `MyFamily`: fingerprints of the other relays of the same operator.
    pub my_family: Option<Vec<RsaId>>,
    /// `FamilyId`: the families whose keys are in the folder of keys; `["*"]` for all of them.
    pub family_ids: Option<FamilyIds>,
    /// Directory authorities to publish to: IP addresses with directory ports. None by default.
    pub authorities: Option<Vec<SocketAddr>>,
    /// Whether the relay joins the public network, with that network's authorities and identities.
    /// It requires the operator's explicit decision; otherwise a relay publishes nowhere, or in a
    /// private network.
    pub public_network: Option<bool>,
    /// `AssumeReachable`: publishes before a circuit through other relays has reached the relay's
    /// port. False by default.
    pub assume_reachable: Option<bool>,
    /// Fingerprints of the authorities' identity keys (`v3ident` in a `DirAuthority` line of tor):
    /// more than half of them must have signed a consensus. By default each authority states its
    /// own.
    pub authority_identities: Option<Vec<RsaId>>,
    /// Whether the relay serves consensuses and descriptors to clients; true by default, if it has
    /// authorities.
    pub directory: Option<bool>,
    /// Folder of fetched documents; by default `cache` in the folder of keys. In a file, relative
    /// to the file's folder.
    pub cache: Option<PathBuf>,
    /// Whether circuits may be extended to relays with private addresses. True by default if the
    /// relay's own address is private, since it then belongs to a private network.
    pub allow_private_addresses: Option<bool>,
    /// `MaxMemInQueues`: limit on memory used for clients and relays, in MiB. By default two fifths
    /// of the host's memory, or three quarters if that is less than 8 GiB; always between 256 MiB
    /// and 8 GiB.
    pub max_mem_in_queues_mib: Option<u32>,
    /// `ShutdownWaitLength`: time limit of a graceful shutdown; 30 seconds by default, 0 to stop at
    /// once.
    pub shutdown_wait_s: Option<u32>,
    /// The exit policy.
    #[serde(default)]
    pub exit: ExitSection,
    /// `MetricsPort`: the address of the Prometheus endpoint; none by default. A loopback or
    /// private address.
    pub metrics: Option<SocketAddr>,
    /// Whether `metrics` may be any other address: a public one, or `0.0.0.0` or `[::]` for all
    /// addresses of the host.
    pub public_metrics: Option<bool>,
    /// Interval at which the relay writes observations of its links to other relays into the file
    /// `link-observations` in the folder of keys, in seconds: at least 3600, in a private network
    /// at least 10. Off by default, and forbidden in the public network.
    pub link_observations_every_s: Option<u32>,
    /// Who may measure the relay.
    #[serde(default)]
    pub flashflow: FlashFlowConfig,
}

/// The name of a scheduler in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerName {
    /// KIST: asks the kernel how much each connection can send.
    #[default]
    Kist,
    /// KIST without asking the kernel.
    KistLite,
    /// Sends as much as each socket accepts.
    Vanilla,
}

impl RelayConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError::Read`] and [`ConfigError::Syntax`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let mut config = Self::parse(&text, &path.display().to_string())?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.keys = config.keys.map(|keys| folder.join(keys));
        config.cache = config.cache.map(|cache| folder.join(cache));
        Ok(config)
    }

    /// Reads the text of a file; `what` names it in errors.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`].
    pub fn parse(text: &str, what: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Syntax {
            what: what.to_owned(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    /// This configuration, with `over` taking precedence: flags over a file.
    #[must_use]
    pub fn overridden_by(self, over: Self) -> Self {
        Self {
            nickname: over.nickname.or(self.nickname),
            address: over.address.or(self.address),
            or_port: over.or_port.or(self.or_port),
            listen: over.listen.or(self.listen),
            keys: over.keys.or(self.keys),
            rate_mbit_per_s: over.rate_mbit_per_s.or(self.rate_mbit_per_s),
            burst_mbit: over.burst_mbit.or(self.burst_mbit),
            scheduler: over.scheduler.or(self.scheduler),
            scheduler_interval_ms: over.scheduler_interval_ms.or(self.scheduler_interval_ms),
            hop_windows: over.hop_windows.or(self.hop_windows),
            threads: over.threads.or(self.threads),
            contact: over.contact.or(self.contact),
            my_family: over.my_family.or(self.my_family),
            family_ids: over.family_ids.or(self.family_ids),
            authorities: over.authorities.or(self.authorities),
            public_network: over.public_network.or(self.public_network),
            assume_reachable: over.assume_reachable.or(self.assume_reachable),
            authority_identities: over.authority_identities.or(self.authority_identities),
            directory: over.directory.or(self.directory),
            cache: over.cache.or(self.cache),
            allow_private_addresses: over.allow_private_addresses.or(self.allow_private_addresses),
            max_mem_in_queues_mib: over.max_mem_in_queues_mib.or(self.max_mem_in_queues_mib),
            shutdown_wait_s: over.shutdown_wait_s.or(self.shutdown_wait_s),
            metrics: over.metrics.or(self.metrics),
            public_metrics: over.public_metrics.or(self.public_metrics),
            link_observations_every_s: over
                .link_observations_every_s
                .or(self.link_observations_every_s),
            exit: self.exit.overridden_by(over.exit),
            flashflow: self.flashflow.overridden_by(over.flashflow),
        }
    }

    /// Checks all settings, and applies defaults.
    ///
    /// # Errors
    /// [`ConfigError::Missing`] and [`ConfigError::Invalid`], which name the key.
    pub fn check(self) -> Result<Settings, ConfigError> {
        let missing = |key, flag| ConfigError::Missing { key, flag };
        let nickname = self.nickname.ok_or_else(|| missing("nickname", "nickname"))?;
        let address = self.address.ok_or_else(|| missing("address", "address"))?;
        let keys = self.keys.ok_or_else(|| missing("keys", "keys"))?;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            return Err(invalid("address", format_args!("nobody can reach a relay at {address}")));
        }
        let rate = match self.rate_mbit_per_s {
            None => None,
            Some(mbit) => Some(amount("rate_mbit_per_s", mbit)?),
        };
        if rate.is_some_and(|rate| rate < LEAST_RATE) {
            let least = LEAST_RATE.as_mbit_per_s();
            let reason = format!("tor accepts no relay that is slower than {least} Mbit/s");
            return Err(invalid("rate_mbit_per_s", reason));
        }
        let burst = match (self.burst_mbit, rate) {
            (None, rate) => rate,
            (Some(_), None) => return Err(invalid("burst_mbit", "there is no rate_mbit_per_s")),
            (Some(mbit), Some(rate)) => Some(amount("burst_mbit", mbit)?).filter(|b| *b >= rate),
        };
        if rate.is_some() && burst.is_none() {
            let reason = "less than the rate permits in a second";
            return Err(invalid("burst_mbit", reason));
        }
        if let Some(contact) = &self.contact {
            if contact.chars().any(char::is_control) || contact.trim() != contact {
                let reason = "must be one line of text without surrounding whitespace";
                return Err(invalid("contact", reason));
            }
            if contact.is_empty() || contact.len() > CONTACT_MAX {
                let reason = format!("must have 1 to {CONTACT_MAX} bytes; omit it for none");
                return Err(invalid("contact", reason));
            }
        }
        self.flashflow.check()?;
        check_metrics(self.metrics, self.public_metrics.unwrap_or(false))?;
        let (authorities, authority_identities) = if self.public_network == Some(true) {
            public_authorities(address, self.authorities.is_some(), self.authority_identities)?
        } else {
            (self.authorities.unwrap_or_default(), self.authority_identities.unwrap_or_default())
        };
        let observes_every =
            link_observations(self.link_observations_every_s, &authorities, address)?;
        let scheduler = scheduler(self.scheduler, self.scheduler_interval_ms)?;
        Ok(Settings {
            nickname,
            address,
            listen: SocketAddr::new(
                self.listen.unwrap_or(IpAddr::V4(address)),
                self.or_port.unwrap_or(0),
            ),
            cache: self.cache.unwrap_or_else(|| keys.join("cache")),
            keys,
            limit: rate
                .zip(burst)
                .map(|(rate, burst)| RateLimit { rate, burst_bytes: burst.as_byte_per_s() }),
            scheduler,
            hop_windows: hop_windows(self.hop_windows.as_deref())?,
            threads: threads(self.threads)?,
            contact: self.contact,
            family: self.my_family.unwrap_or_default(),
            family_ids: self.family_ids.unwrap_or_default(),
            authorities,
            assumes_reachable: self.assume_reachable.unwrap_or(false),
            authority_identities,
            serves_directory: self.directory.unwrap_or(true),
            allows_private_addresses: self
                .allow_private_addresses
                .unwrap_or_else(|| is_private(address.into())),
            held_bytes_max: held_bytes_max(self.max_mem_in_queues_mib)?,
            shutdown_wait: shutdown_wait(self.shutdown_wait_s)?,
            metrics: self.metrics,
            observes_every,
            exit: self.exit.check()?,
            flashflow: self.flashflow,
        })
    }
}

/// The rate and burst that a relay announces.
pub(crate) const fn announced(limit: Option<RateLimit>) -> RateLimit {
    match limit {
        Some(limit) => limit,
        None => RateLimit { rate: UNLIMITED, burst_bytes: UNLIMITED.as_byte_per_s() },
    }
}

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The relay's name.
    pub nickname: Nickname,
    /// The address at which others reach it.
    pub address: Ipv4Addr,
    /// The address to listen on; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Folder of the long-term keys.
    pub keys: PathBuf,
    /// Its rate limit, if any.
    pub limit: Option<RateLimit>,
    /// The cell scheduler.
    pub scheduler: SchedulerConfig,
    /// Hop-by-hop windows, with relays and clients that support them.
    pub hop_windows: Option<HopWindows>,
    /// I/O threads.
    pub threads: NonZeroUsize,
    /// The operator's contact information.
    pub contact: Option<String>,
    /// The other relays of the same operator.
    pub family: Vec<RsaId>,
    /// The family keys to use.
    pub family_ids: FamilyIds,
    /// The authorities to publish to.
    pub authorities: Vec<SocketAddr>,
    /// Whether to publish before others have reached the relay.
    pub assumes_reachable: bool,
    /// The authorities whose signatures count; if empty, each states its own identity.
    pub authority_identities: Vec<RsaId>,
    /// Whether it serves a directory.
    pub serves_directory: bool,
    /// Folder of fetched documents.
    pub cache: PathBuf,
    /// Whether circuits may be extended to relays with private addresses.
    pub allows_private_addresses: bool,
    /// Time limit of a graceful shutdown.
    pub shutdown_wait: Duration,
    /// Limit on memory used for clients and relays, in bytes.
    pub held_bytes_max: usize,
    /// Address of the Prometheus endpoint.
    pub metrics: Option<SocketAddr>,
    /// Interval of link observations, if any.
    pub observes_every: Option<Duration>,
    /// The exit policy; `None` for no exit.
    pub exit: Option<ExitSettings>,
    /// Who may measure the relay: passed to [`target_params`](crate::target_params).
    pub flashflow: FlashFlowConfig,
}
