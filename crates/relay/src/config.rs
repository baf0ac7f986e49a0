//! The configuration of a relay: a TOML file, command-line flags, or both.

mod exit;
mod flashflow;
#[cfg(test)]
pub(crate) mod tests;
mod values;

pub use exit::{ExitSection, ExitSettings};
pub use flashflow::{FlashFlowConfig, coordinator_key};

use crate::family::FamilyIds;
use netdoc::{Fingerprint, Nickname};
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

/// The least rate that tor accepts for a relay: 75 KiB/s.
const LEAST_RATE: Rate = Rate::from_byte_per_s(75 * 1024);
/// What a relay without a limit announces, as tor's default `BandwidthRate`: 1 GiB/s.
const UNLIMITED: Rate = Rate::from_byte_per_s(1 << 30);
/// Longest contact, in bytes; descriptors are to stay small.
const CONTACT_MAX: usize = 1_000;

/// Why a relay can't run with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("configuration: cannot read `{}`: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is no TOML, or has a key that doesn't exist, or a value of another type.
    #[error("configuration: {what}: {reason}")]
    Syntax {
        /// Which file.
        what: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// Something that has no default is missing.
    #[error("configuration: `{key}` is missing; set it in the file, or give --{flag}")]
    Missing {
        /// Its name in the file.
        key: &'static str,
        /// Its name on the command line.
        flag: &'static str,
    },
    /// A value makes no sense.
    #[error("configuration: `{key}`: {reason}")]
    Invalid {
        /// Its name in the file.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

fn invalid(key: &str, reason: impl fmt::Display) -> ConfigError {
    ConfigError::Invalid { key: key.to_owned(), reason: reason.to_string() }
}

/// What a file or the command line says; what neither says is `None`. `docs/relay.toml` is a
/// commented example with everything in it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayConfig {
    /// The relay's name: 1 to 19 letters and digits.
    pub nickname: Option<Nickname>,
    /// The IPv4 address at which others reach the relay.
    pub address: Option<Ipv4Addr>,
    /// The port there; 0, the default, for any that is free.
    pub or_port: Option<u16>,
    /// The address to listen on; by default `address`. Behind NAT it is another one.
    pub listen: Option<IpAddr>,
    /// Folder of the long-term keys. In a file, relative to the file's folder.
    pub keys: Option<PathBuf>,
    /// `RelayBandwidthRate`, in Mbit/s; unlimited by default.
    pub rate_mbit_per_s: Option<f64>,
    /// `RelayBandwidthBurst`: as much as may pass at once after a pause, in Mbit. By default, what
    /// the rate lets through in a second.
    pub burst_mbit: Option<f64>,
    /// Which cells go first, and when: `kist` by default.
    pub scheduler: Option<SchedulerName>,
    /// `KISTSchedRunInterval`: from one run of KIST or KISTLite to the next, 1 to 100 milliseconds; by
    /// default what the consensus says, or else [`SchedulerConfig::INTERVAL`].
    pub scheduler_interval_ms: Option<u32>,
    /// Windows from hop to hop with relays and clients that have them, too, by one of the names of [`HopWindows::NAMED`]; `off`, the
    /// default, for none.
    pub hop_windows: Option<String>,
    /// Threads that serve sockets: 1, the default, for one that does everything; more for as many
    /// beside the one that decides.
    pub threads: Option<usize>,
    /// How to reach the operator.
    pub contact: Option<String>,
    /// `MyFamily`: fingerprints of the other relays of the same operator.
    pub my_family: Option<Vec<Fingerprint>>,
    /// `FamilyId`: the families whose keys the folder of keys has; `["*"]` for all that are there.
    pub family_ids: Option<FamilyIds>,
    /// Directory authorities to publish to: IP addresses with directory ports. None by default.
    pub authorities: Option<Vec<SocketAddr>>,
    /// Whether it is to be a relay of the public network: then the authorities are that network's, with their identities. The
    /// operator's explicit word; without it a relay publishes nowhere, or in a network of its own.
    pub public_network: Option<bool>,
    /// `AssumeReachable`: publishes without waiting for a circuit through others to come back to the relay's port. It waits by default.
    pub assume_reachable: Option<bool>,
    /// Fingerprints of the authorities' identity keys (`v3ident` in a `DirAuthority` line of tor):
    /// more than half of them must have signed a consensus. By default each authority is asked for its
    /// own.
    pub authority_identities: Option<Vec<Fingerprint>>,
    /// Whether the relay serves consensuses and descriptors to clients; it does by default, if it
    /// has authorities to fetch them from.
    pub directory: Option<bool>,
    /// Folder of documents that have been fetched; by default `cache` in the folder of keys. In a
    /// file, relative to the file's folder.
    pub cache: Option<PathBuf>,
    /// Whether circuits may be extended to relays with private addresses. By default they may if the
    /// relay's own address is private: then it is part of a network of such relays.
    pub allow_private_addresses: Option<bool>,
    /// `MaxMemInQueues`: what clients and relays may have it hold in memory, in MiB; by default two fifths of the
    /// machine's, three quarters if that has less than 8 GiB, and 256 MiB to 8 GiB in any case.
    pub max_mem_in_queues_mib: Option<u32>,
    /// `ShutdownWaitLength`: how long circuits may go on once the relay is told to end; 30 seconds by
    /// default, 0 to end at once.
    pub shutdown_wait_s: Option<u32>,
    /// Where clients may go.
    #[serde(default)]
    pub exit: ExitSection,
    /// `MetricsPort`: where Prometheus reads metrics; nowhere by default. A loopback address, or one of a private network.
    pub metrics: Option<SocketAddr>,
    /// Whether `metrics` may be any other address: a public one, or `0.0.0.0` or `[::]` for all addresses of the machine.
    pub public_metrics: Option<bool>,
    /// How often the relay writes what it has seen pass on its links to other relays, into the file `link-observations` of the folder of keys, in
    /// seconds: 3600 or more, in a private network 10 or more. Never by default, and not in the public network.
    pub link_observations_every_s: Option<u32>,
    /// Who may measure the relay.
    #[serde(default)]
    pub flashflow: FlashFlowConfig,
}

/// A scheduler, as configurations call it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerName {
    /// Asks the kernel how much each connection can send.
    #[default]
    Kist,
    /// The same without asking.
    KistLite,
    /// As much as each socket takes.
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

    /// This configuration where `over` says nothing: flags go over a file.
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

    /// Checks everything, and fills in what has a default.
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
            let reason = "less than the rate lets through in a second";
            return Err(invalid("burst_mbit", reason));
        }
        if let Some(contact) = &self.contact {
            if contact.chars().any(char::is_control) || contact.trim() != contact {
                let reason = "it is not one line of text, without blanks around it";
                return Err(invalid("contact", reason));
            }
            if contact.is_empty() || contact.len() > CONTACT_MAX {
                let reason = format!("it has not 1 to {CONTACT_MAX} bytes; leave it out for none");
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

/// The limit that a relay announces.
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
    /// Where others reach it.
    pub address: Ipv4Addr,
    /// Where it listens; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Folder of the long-term keys.
    pub keys: PathBuf,
    /// Its rate limit, if any.
    pub limit: Option<RateLimit>,
    /// Which cells go first, and when.
    pub scheduler: SchedulerConfig,
    /// Windows from hop to hop, with whoever has them, too.
    pub hop_windows: Option<HopWindows>,
    /// Threads that serve sockets.
    pub threads: NonZeroUsize,
    /// How to reach the operator.
    pub contact: Option<String>,
    /// The other relays of the same operator.
    pub family: Vec<Fingerprint>,
    /// The families by their keys.
    pub family_ids: FamilyIds,
    /// Whom to publish to.
    pub authorities: Vec<SocketAddr>,
    /// Whether to publish before others have reached the relay.
    pub assumes_reachable: bool,
    /// Who may sign consensuses; empty if the authorities are to say who they are.
    pub authority_identities: Vec<Fingerprint>,
    /// Whether it is a directory.
    pub serves_directory: bool,
    /// Folder of documents that have been fetched.
    pub cache: PathBuf,
    /// Whether circuits may be extended to relays with private addresses.
    pub allows_private_addresses: bool,
    /// How long circuits may go on once the relay is told to end.
    pub shutdown_wait: Duration,
    /// Bytes of memory that clients and relays may have it hold.
    pub held_bytes_max: usize,
    /// Where figures are told to Prometheus.
    pub metrics: Option<SocketAddr>,
    /// How often it writes what it has seen pass on its links to other relays, if at all.
    pub observes_every: Option<Duration>,
    /// Where clients may go; nowhere if `None`.
    pub exit: Option<ExitSettings>,
    /// Who may measure it: goes into [`target_params`](crate::target_params).
    pub flashflow: FlashFlowConfig,
}
