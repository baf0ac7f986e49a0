//! Names that tor and Shadow accept.

use crate::network::{Network, Site};
use std::collections::BTreeSet;

/// Maximum length of a tor nickname and of a host name.
const NICKNAME_MAX: usize = 19;
const HOSTNAME_MAX: usize = 63;

/// Renames hosts whose names tor or Shadow would refuse, or that are duplicates. Shadow accepts lower-case
/// letters, digits and hyphens, but no leading hyphen; tor accepts nicknames of 19 letters and digits.
pub(super) fn make_legal(network: &mut Network) {
    let mut taken = BTreeSet::new();
    let mut rename = |site: &mut Site, most: usize| {
        let is_right = |character: &char| {
            character.is_ascii_lowercase()
                || character.is_ascii_digit()
                || (*character == '-' && most > NICKNAME_MAX)
        };
        let small = site.name.to_ascii_lowercase();
        let stem: String = small.chars().filter(is_right).collect();
        let stem = stem.trim_start_matches('-');
        let stem = if stem.is_empty() { "host" } else { stem };
        let numbers = (2_u32..).map(|number| format!("x{number}"));
        let name = std::iter::once(String::new())
            .chain(numbers)
            .map(|end| format!("{}{end}", &stem[..stem.len().min(most - end.len())]))
            .find(|name| !taken.contains(name));
        if let Some(name) = name {
            taken.insert(name.clone());
            site.name = name;
        }
    };
    network.relays.iter_mut().for_each(|relay| rename(&mut relay.site, NICKNAME_MAX));
    network.servers.iter_mut().for_each(|server| rename(server, HOSTNAME_MAX));
    network.clients.iter_mut().for_each(|client| rename(&mut client.site, HOSTNAME_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Relay;
    use onion::Rate;
    use proptest::prelude::*;

    fn legal(relays: &[&str], servers: &[&str]) -> Vec<String> {
        let site = |name: &&str| Site::new(*name, "DE", Rate::from_mbit_per_s(1.0));
        let relay = |name| Relay {
            site: site(name),
            weight: 1,
            is_guard: true,
            is_exit: true,
            limit: None,
        };
        let mut network = Network {
            relays: relays.iter().map(relay).collect(),
            servers: servers.iter().map(site).collect(),
            ..Network::default()
        };
        make_legal(&mut network);
        let relays = network.relays.into_iter().map(|relay| relay.site.name);
        relays.chain(network.servers.into_iter().map(|server| server.name)).collect()
    }

    #[test]
    fn valid_names_are_kept() {
        assert_eq!(
            legal(&["guard1", "4uthority1"], &["server-1"]),
            ["guard1", "4uthority1", "server-1"]
        );
    }

    #[test]
    fn invalid_names_become_the_nearest_free_name() {
        assert_eq!(
            legal(
                &["guard-1", "Guard1", "ÄÖ", "averylongnameforarelay1"],
                &["-Server", "guard-1", "guard1"]
            ),
            ["guard1", "guard1x2", "host", "averylongnameforare", "server", "guard-1", "guard1x3"]
        );
    }

    proptest! {
        #[test]
        fn all_names_are_accepted_and_distinct(
            relays in prop::collection::vec("[A-Za-z0-9-]{0,24}", 0..20),
            servers in prop::collection::vec("[a-b-]{0,3}", 0..20),
        ) {
            let of = |names: &[String]| names.iter().map(String::clone).collect::<Vec<_>>();
            let (relays, servers) = (of(&relays), of(&servers));
            let names = legal(
                &relays.iter().map(String::as_str).collect::<Vec<_>>(),
                &servers.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            let mut once: Vec<&String> = names.iter().collect();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), names.len());
            for (number, name) in names.iter().enumerate() {
                let is_relay = number < relays.len();
                prop_assert!(!name.is_empty() && !name.starts_with('-'), "{}", name);
                prop_assert!(name.len() <= if is_relay { 19 } else { 63 }, "{}", name);
                let is_right = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || (character == '-' && !is_relay);
                prop_assert!(name.chars().all(is_right), "{}", name);
            }
        }
    }
}
