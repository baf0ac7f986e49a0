//! The section of `coordinator.toml` for the agreement with other authorities.

use super::super::agreeing;
use super::{Config, Schedule};
use crate::config_file::Key;
use control::keys::PublicKey;
use coordinator::agreement::Timetable;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// The file's format.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    name: Option<String>,
    address: SocketAddr,
    key: Key,
}

/// The coordinators of other authorities, with which a common seed is agreed.
pub struct Authorities {
    /// The address on which we listen for them.
    pub listen: SocketAddr,
    /// A round of the agreement, in seconds.
    pub round_s: u64,
    /// The others.
    pub others: Vec<Authority>,
}

/// One of them.
pub struct Authority {
    /// Its name in messages.
    pub name: Option<String>,
    /// The address of its coordinator.
    pub address: SocketAddr,
    /// Its coordinator's public key.
    pub key: PublicKey,
}

impl Authorities {
    /// `None` if there are none: then the seed is our own.
    pub(super) fn new(
        listen: Option<SocketAddr>,
        round_s: Option<u64>,
        others: Vec<Entry>,
    ) -> Result<Option<Self>, String> {
        /// Enough for clocks synchronised by NTP, and for a reconnection.
        const ROUND_S: u64 = 10;
        let round_s = round_s.unwrap_or(ROUND_S);
        if round_s == 0 {
            return Err("`agree_round_s` is 1 or more".to_owned());
        }
        let other = |Entry { name, address, key: Key(key) }| Authority { name, address, key };
        let others: Vec<Authority> = others.into_iter().map(other).collect();
        match listen {
            Some(listen) if !others.is_empty() => Ok(Some(Self { listen, round_s, others })),
            None if others.is_empty() => Ok(None),
            _ => Err("`agree_listen` and `[[authorities]]` go together".to_owned()),
        }
    }
}

/// Whether the rest of the configuration is compatible with an agreement.
pub(super) fn check(config: &Config) -> Result<(), String> {
    let Some(authorities) = &config.authorities else { return Ok(()) };
    if config.schedule == Schedule::Greedy {
        return Err(
            "a greedy schedule has no seed to be agreed on with `[[authorities]]`".to_owned()
        );
    }
    let mut keys = BTreeSet::from([config.secret.public()]);
    if let Some(other) = authorities.others.iter().find(|other| !keys.insert(other.key)) {
        return Err(format!("two authorities have the key {}, or it is our own", other.key));
    }
    let group = agreeing::group(config, authorities).map_err(|error| error.to_string())?;
    let (round_s, rounds) = (authorities.round_s, group.rounds());
    let (lead_s, period_s) = (Timetable::new(0, round_s, rounds).lead_s(), config.period.as_secs());
    if lead_s < period_s {
        return Ok(());
    }
    Err(format!(
        "agreeing takes {lead_s} s ({} rounds of {round_s} s), and a period has {period_s} s: lower `agree_round_s`",
        2 * rounds + 1,
    ))
}
