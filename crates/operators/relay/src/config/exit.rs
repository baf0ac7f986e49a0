//! The section `[exit]`: the exit policy.

use super::{ConfigError, invalid};
use onion::router::{ExitConfig, ExitPolicy, ExitRule};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};

/// Limit on rules: descriptors must stay small.
const RULES_MAX: usize = 400;

/// The section `[exit]` of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExitSection {
    /// Rules as in a torrc: `accept *:80`, `reject 10.0.0.0/8:*`, `reject private:*`. The first
    /// match decides; without a match the destination is refused. Without rules the relay is no
    /// exit.
    #[serde(default)]
    pub policy: Option<Vec<String>>,
    /// Whether private networks and the relay's own address are refused before anything else; true
    /// by default.
    pub reject_private: Option<bool>,
    /// Whether IPv6 destinations are permitted; false by default.
    pub ipv6: Option<bool>,
    /// Name servers, by address and port; by default the system's.
    pub name_servers: Option<Vec<SocketAddr>>,
    /// Whether the exit advertises Conflux (proposal 329); false by default.
    pub conflux: Option<bool>,
}

impl ExitSection {
    pub(super) fn overridden_by(self, over: Self) -> Self {
        Self {
            policy: over.policy.or(self.policy),
            reject_private: over.reject_private.or(self.reject_private),
            ipv6: over.ipv6.or(self.ipv6),
            name_servers: over.name_servers.or(self.name_servers),
            conflux: over.conflux.or(self.conflux),
        }
    }

    /// Checks the rules; `None` if they permit nothing.
    pub(super) fn check(self) -> Result<Option<ExitSettings>, ConfigError> {
        let texts = self.policy.unwrap_or_default();
        let rules: Result<Vec<_>, _> =
            texts.iter().map(|text| ExitRule::parse_list(text)).collect();
        let rules = rules.map_err(|error| invalid("exit.policy", error))?.concat();
        if rules.len() > RULES_MAX {
            let reason = format!("more than {RULES_MAX} rules (`private` stands for eleven)");
            return Err(invalid("exit.policy", reason));
        }
        let name_servers = self.name_servers.unwrap_or_default();
        if let Some(server) = name_servers.iter().find(|server| server.port() == 0) {
            return Err(invalid("exit.name_servers", format_args!("{server} has no port")));
        }
        if ExitPolicy::new(rules.clone()).is_closed() {
            return Ok(None);
        }
        Ok(Some(ExitSettings {
            rules,
            rejects_private: self.reject_private.unwrap_or(true),
            ipv6: self.ipv6.unwrap_or(false),
            name_servers,
            conflux: self.conflux.unwrap_or(false),
        }))
    }
}

/// A checked exit policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitSettings {
    /// The operator's rules, at least one of which accepts something.
    pub rules: Vec<ExitRule>,
    /// Whether private networks are refused first.
    pub rejects_private: bool,
    /// Whether IPv6 destinations are permitted.
    pub ipv6: bool,
    /// Name servers; empty for the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Whether Conflux is advertised.
    pub conflux: bool,
}

impl ExitSettings {
    /// The engine's configuration for a relay with these own addresses.
    #[must_use]
    pub fn engine(&self, own: &[IpAddr]) -> ExitConfig {
        let policy = ExitPolicy::new(self.rules.clone());
        let policy = match self.rejects_private {
            true => policy.rejecting_private(own),
            false => policy,
        };
        ExitConfig { policy, ipv6: self.ipv6, allows_single_hop: false }
    }
}
