//! Applies a changed configuration to a running relay.

use crate::config::{ExitSettings, Settings};
use crate::daemon::{Relay, RelayError};
use crate::dns::Names;
use crate::family::{self, FamilyKey};
use crate::own_addresses::own_addresses;
use onion::router::ExitConfig;
use std::fmt;
use std::sync::Arc;

/// The effect of a new configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Changed settings that apply at once, by their names in the file.
    pub changed: Vec<&'static str>,
    /// Changed settings that require a restart: the previous values stay in force.
    pub needs_restart: Vec<&'static str>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.changed[..] {
            [] => f.write_str("configuration reloaded: no change takes effect")?,
            changed => write!(f, "configuration reloaded, changed: {}", changed.join(", "))?,
        }
        match &self.needs_restart[..] {
            [] => Ok(()),
            names => write!(f, "; only a restart changes: {}", names.join(", ")),
        }
    }
}

/// Changes for the directory thread.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) settings: Settings,
    pub(crate) families: Vec<FamilyKey>,
    /// The exit policy for the descriptor.
    pub(crate) exit: Option<ExitConfig>,
}

/// The names of settings that differ.
fn differing<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// Compares two configurations.
fn compare(old: &Settings, new: &Settings) -> Reloaded {
    let changed = differing([
        ("rate_mbit_per_s and burst_mbit", old.limit != new.limit),
        ("scheduler", old.scheduler != new.scheduler),
        ("contact", old.contact != new.contact),
        ("my_family", old.family != new.family),
        ("family_ids", old.family_ids != new.family_ids),
        ("assume_reachable", old.assumes_reachable != new.assumes_reachable),
        ("shutdown_wait_s", old.shutdown_wait != new.shutdown_wait),
        ("exit", old.exit != new.exit),
        ("flashflow", old.flashflow != new.flashflow),
    ]);
    let needs_restart = differing([
        ("nickname", old.nickname != new.nickname),
        ("address", old.address != new.address),
        ("or_port or listen", old.listen != new.listen),
        ("keys", old.keys != new.keys),
        ("hop_windows", old.hop_windows != new.hop_windows),
        ("threads", old.threads != new.threads),
        ("authorities", old.authorities != new.authorities),
        ("authority_identities", old.authority_identities != new.authority_identities),
        ("directory", old.serves_directory != new.serves_directory),
        ("cache", old.cache != new.cache),
        ("allow_private_addresses", old.allows_private_addresses != new.allows_private_addresses),
        ("max_mem_in_queues_mib", old.held_bytes_max != new.held_bytes_max),
        ("metrics", old.metrics != new.metrics),
        ("link_observations_every_s", old.observes_every != new.observes_every),
    ]);
    Reloaded { changed, needs_restart }
}

/// The new settings where they may change, the old ones elsewhere.
fn merge(old: &Settings, new: Settings) -> Settings {
    Settings {
        limit: new.limit,
        scheduler: new.scheduler,
        contact: new.contact,
        family: new.family,
        family_ids: new.family_ids,
        assumes_reachable: new.assumes_reachable,
        shutdown_wait: new.shutdown_wait,
        exit: new.exit,
        flashflow: new.flashflow,
        ..old.clone()
    }
}

impl Relay {
    /// Applies another configuration, as far as it can change at run time, and publishes the
    /// changes. Open circuits and streams are not affected. Family keys are always read again.
    ///
    /// # Errors
    /// [`RelayError`] if family keys or name servers are unusable; nothing has changed then.
    pub fn reload(&mut self, new: Settings) -> Result<Reloaded, RelayError> {
        let reloaded = compare(&self.settings, &new);
        let settings = merge(&self.settings, new);
        let families = family::open(&settings.keys, &settings.family_ids)?;
        let former = std::mem::replace(&mut self.settings, settings.clone());
        if settings.exit != former.exit {
            let start =
                |exit: &ExitSettings| Names::start(&exit.name_servers, Arc::clone(&self.dns));
            let servers = settings.exit.as_ref().map(start);
            let names = match servers.transpose() {
                Ok(names) => names,
                Err(error) => {
                    self.settings = former;
                    return Err(error.into());
                }
            };
            let exit = settings.exit.as_ref().map(|exit| exit.engine(&own_addresses(&settings)));
            self.engine.handle().run(move |drive| {
                if let Some(names) = names {
                    drive.set_resolver(Box::new(names));
                }
                drive.node_mut().set_exit(exit);
            });
        }
        if settings.scheduler != former.scheduler {
            let scheduler = settings.scheduler;
            self.engine.handle().run(move |drive| {
                let node = drive.node_mut();
                node.set_scheduler(scheduler);
                // Without a setting, the consensus parameter applies again.
                let parameters = node.parameters().clone();
                node.set_parameters(parameters);
            });
        }
        if settings.limit != former.limit {
            self.set_limit(settings.limit);
        }
        let exit = settings.exit.as_ref().map(|exit| exit.engine(&[settings.address.into()]));
        self.reload_directory(Reload { settings, families, exit });
        // Waits for the engine's thread to run these tasks: when this returns, the settings are in
        // force.
        // If the thread has ended, an event has reported it.
        let _ended = self.engine.handle().call(|_| ());
        Ok(reloaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RelayConfig;

    fn settings(more: &str) -> Settings {
        let text = format!("nickname = \"a\"\naddress = \"127.0.0.1\"\nkeys = \"k\"\n{more}");
        RelayConfig::parse(&text, "test").and_then(RelayConfig::check).expect("sound")
    }

    #[test]
    fn settings_that_need_a_restart_are_reported_and_others_change() {
        let old = settings("");
        assert_eq!(compare(&old, &old), Reloaded::default());
        let new = settings(
            "contact = \"me\"\nrate_mbit_per_s = 5\nor_port = 9001\nthreads = 2\n\
             [exit]\npolicy = [\"accept *:80\"]\n",
        );
        let reloaded = compare(&old, &new);
        assert_eq!(reloaded.changed, ["rate_mbit_per_s and burst_mbit", "contact", "exit"]);
        assert_eq!(reloaded.needs_restart, ["or_port or listen", "threads"]);
        let expected = "configuration reloaded, changed: rate_mbit_per_s and burst_mbit, contact, exit; only a \
                        restart changes: or_port or listen, threads";
        assert_eq!(reloaded.to_string(), expected);
        let merged = merge(&old, new.clone());
        assert_eq!((&merged.contact, merged.limit), (&new.contact, new.limit));
        assert_eq!((merged.listen, merged.threads), (old.listen, old.threads));
        assert_eq!(compare(&merged, &new).changed, Vec::<&str>::new());
        assert_eq!(compare(&merged, &new).needs_restart, reloaded.needs_restart);
    }
}
