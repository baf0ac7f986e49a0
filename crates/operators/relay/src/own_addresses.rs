//! Addresses of the relay's own host, which its exit refuses. They change at run time: by a DHCP
//! lease, a tunnel, a container network.

use crate::config::{ExitSettings, Settings};
use onion::router::ExitConfig;
use std::net::IpAddr;

/// All addresses at which an exit's stream would reach this host: the configured ones, and those of
/// its interfaces, in ascending order.
pub(crate) fn own_addresses(settings: &Settings) -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let configured = [settings.address.into(), settings.listen.ip()];
    let all = configured.into_iter().chain(interfaces.iter().map(if_addrs::Interface::ip));
    let known = all.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_canonical());
    let mut known: Vec<IpAddr> = known.collect();
    known.sort_unstable();
    known.dedup();
    known
}

/// The own addresses in the current exit policy.
#[derive(Debug, Default)]
pub(crate) struct RefusedAddresses(Vec<IpAddr>);

impl RefusedAddresses {
    /// The engine's exit configuration, if the host's addresses have changed.
    pub(crate) fn update(&mut self, exit: &ExitSettings, own: Vec<IpAddr>) -> Option<ExitConfig> {
        if own == self.0 {
            return None;
        }
        self.0 = own;
        Some(exit.engine(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ExitSection, RelayConfig};
    use std::net::SocketAddr;

    #[test]
    fn an_exit_refuses_the_current_addresses_of_its_host() {
        let config = RelayConfig {
            nickname: Some("exit".parse().expect("a nickname")),
            address: Some([198, 51, 100, 1].into()),
            keys: Some("keys".into()),
            exit: ExitSection {
                policy: Some(vec!["accept *:*".to_owned()]),
                ..ExitSection::default()
            },
            ..RelayConfig::default()
        };
        let settings = config.check().expect("sound");
        let own = own_addresses(&settings);
        assert!(own.contains(&[198, 51, 100, 1].into()) && own.is_sorted());
        let exit = settings.exit.as_ref().expect("an exit");
        let mut refused = RefusedAddresses::default();
        let leased: IpAddr = [203, 0, 113, 9].into();
        let to = SocketAddr::from((leased, 80));
        let first = refused.update(exit, own.clone()).expect("at the start");
        assert!(first.policy.allows(to));
        assert_eq!(refused.update(exit, own.clone()), None, "nothing has changed");
        let more: Vec<IpAddr> = own.iter().copied().chain([leased]).collect();
        let then = refused.update(exit, more).expect("an address more");
        assert!(!then.policy.allows(to));
        let back = refused.update(exit, own).expect("an address less");
        assert!(back.policy.allows(to));
    }
}
