//! The specification of a network.

use std::env;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use onion::Rate;
use onion::measure::protocol::CoordinatorKey;

use crate::error::LabError;

/// Tor's minimum rate of a relay: 75 KiB/s.
pub const MIN_LIMIT: Rate = Rate::from_byte_per_s(75 * 1024);
/// Tor's minimum voting interval in a testing network, in seconds.
pub const MIN_VOTING_INTERVAL_S: u32 = 10;
/// Names of the authorities, which a relay may not have.
pub(crate) const AUTHORITIES: [&str; 3] = ["auth0", "auth1", "auth2"];

/// One relay of a private network.
#[derive(Clone, Debug, Default)]
pub struct RelaySpec {
    /// Nickname: 1 to 19 letters and digits, unique in the network.
    pub nickname: String,
    /// `RelayBandwidthRate`; unlimited if absent. Tor itself relays some 8 % less than that.
    pub limit: Option<Rate>,
    /// `RelayBandwidthBurst`, as the data of one second. Equal to `limit` if absent; may not be below it.
    pub burst: Option<Rate>,
    /// Additional lines of this relay's configuration; they override the generated lines.
    pub extra_torrc: Vec<String>,
    /// Lines of its `state` file at the start, such as the bandwidth history of an earlier run; none if empty.
    pub state: Vec<String>,
    /// The `tor` to run, if not that of the network: a path.
    pub tor_binary: Option<PathBuf>,
    /// Its address, if not [that of the network](NetworkSpec::address): a local one. Coordinators measure relays of one
    /// address together, except on loopback.
    pub address: Option<Ipv4Addr>,
}

impl RelaySpec {
    /// An unlimited relay.
    #[must_use]
    pub fn new(nickname: &str) -> Self {
        Self { nickname: nickname.to_owned(), ..Self::default() }
    }

    /// An exit without restrictions, including addresses of this machine.
    #[must_use]
    pub fn open_exit(nickname: &str) -> Self {
        Self::new(nickname).exiting_to("accept *:*")
    }

    /// Makes the relay an exit with this policy, including addresses of this machine.
    #[must_use]
    pub fn exiting_to(mut self, policy: &str) -> Self {
        // In this order: the first matching rule of a policy counts.
        let lines = ["ExitRelay 1", "ExitPolicyRejectPrivate 0"].map(str::to_owned);
        self.extra_torrc.extend(lines);
        self.extra_torrc.push(format!("ExitPolicy {policy}"));
        self
    }

    /// Lets the coordinator with this key measure the relay by echo, any number of times. `tor` is a patched one
    /// (`scripts/patched-tor`): others do not start with these lines.
    #[must_use]
    pub fn measured_by_echo(mut self, tor: &Path, coordinator: CoordinatorKey) -> Self {
        let key = format!("FlashFlowCoordinator {coordinator}");
        self.extra_torrc.extend(["FlashFlow 1".to_owned(), key, "FlashFlowQuota 1000".to_owned()]);
        Self { tor_binary: Some(tor.to_owned()), ..self }
    }

    /// Places the relay at an address.
    #[must_use]
    pub fn at(self, address: Ipv4Addr) -> Self {
        Self { address: Some(address), ..self }
    }

    /// Limits the relay to a rate.
    #[must_use]
    pub fn limited_to(self, limit: Rate) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

/// A private network: three authorities, which are relays too, and the given relays.
#[derive(Clone, Debug)]
pub struct NetworkSpec {
    /// The relays other than the authorities.
    pub relays: Vec<RelaySpec>,
    /// The folder of the network: must be absent or empty, and is removed in the end. If `None`, a new one in
    /// the system's folder of temporary files.
    pub dir: Option<PathBuf>,
    /// Whether the authorities vote by the bandwidth file at
    /// [`Network::bandwidth_file_path`](crate::Network::bandwidth_file_path). It may be missing at first: tor
    /// logs a warning and votes without it.
    pub bandwidth_file: bool,
    /// The voting interval in seconds, at least [`MIN_VOTING_INTERVAL_S`]; preferably a divisor of a day.
    pub voting_interval_s: u32,
    /// The address of authorities and relays, except [relays with their own](RelaySpec::address). It must be a local
    /// one: loopback by default, or that of a [host](crate::wan::Host) in which the network is started.
    pub address: Ipv4Addr,
    /// Additional lines of all configurations; they override the generated lines.
    pub extra_torrc: Vec<String>,
    /// Additional lines of the authorities' configuration, such as `ConsensusParams`.
    pub extra_torrc_authorities: Vec<String>,
    /// Keeps the folder with its logs after the network has ended.
    pub keep: bool,
    /// Starts processes that may outlive this one. They still end with it unless
    /// [`Network::detach`](crate::Network::detach) is called.
    pub detached: bool,
    /// The `tor` to run: a path, or a name in PATH. If absent, the environment variable `FLASHFLOW_TOR`, and
    /// otherwise `tor`.
    pub tor_binary: Option<PathBuf>,
    /// The timeout of the start, which usually takes about ten seconds.
    pub patience: Duration,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            relays: Vec::new(),
            dir: None,
            bandwidth_file: true,
            voting_interval_s: MIN_VOTING_INTERVAL_S,
            address: Ipv4Addr::LOCALHOST,
            extra_torrc: Vec::new(),
            extra_torrc_authorities: Vec::new(),
            keep: false,
            detached: false,
            tor_binary: None,
            patience: Duration::from_secs(120),
        }
    }
}

impl NetworkSpec {
    /// A network with these relays and default settings.
    #[must_use]
    pub fn new(relays: Vec<RelaySpec>) -> Self {
        Self { relays, ..Self::default() }
    }

    /// Rejects a specification that tor would reject later and less clearly.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |why: String| Err(LabError::Spec(why));
        if !(MIN_VOTING_INTERVAL_S..=86_400).contains(&self.voting_interval_s) {
            return refuse(format!(
                "the voting interval is {} s; tor accepts {MIN_VOTING_INTERVAL_S} to 86400 s",
                self.voting_interval_s
            ));
        }
        let mut names: Vec<String> = AUTHORITIES.iter().map(|&name| name.to_owned()).collect();
        for relay in &self.relays {
            let name = &relay.nickname;
            if name.is_empty()
                || name.len() > 19
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric())
            {
                return refuse(format!("the nickname `{name}` is not 1 to 19 letters and digits"));
            }
            // A case-insensitive file system would confuse their folders.
            if names.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return refuse(format!(
                    "the nickname `{name}` is used twice (auth0 to auth2 are the authorities)"
                ));
            }
            names.push(name.clone());
            let least = relay.limit.unwrap_or(MIN_LIMIT);
            if least < MIN_LIMIT {
                return refuse(format!(
                    "relay `{name}` is limited to {} Mbit/s; tor accepts no less than {} Mbit/s",
                    least.as_mbit_per_s(),
                    MIN_LIMIT.as_mbit_per_s(),
                ));
            }
            match relay.burst {
                Some(_) if relay.limit.is_none() => {
                    return refuse(format!("relay `{name}` has a burst but no limit"));
                }
                Some(burst) if burst < least => {
                    return refuse(format!("relay `{name}` has a burst below its limit {least}"));
                }
                _ => {}
            }
        }
        let extra = self.extra_torrc.iter().chain(&self.extra_torrc_authorities);
        for line in extra.chain(self.relays.iter().flat_map(|relay| &relay.extra_torrc)) {
            if line.chars().any(char::is_control) {
                return refuse(format!(
                    "an extra configuration line contains a line break: {line:?}"
                ));
            }
        }
        Ok(())
    }
}

/// The programs to run.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) tor: PathBuf,
    pub(crate) gencert: PathBuf,
}

impl Programs {
    /// Finds tor, and tor-gencert in its folder or in PATH.
    pub(crate) fn find(spec: &NetworkSpec) -> Result<Self, LabError> {
        let wanted = spec
            .tor_binary
            .clone()
            .or_else(|| env::var_os("FLASHFLOW_TOR").filter(|v| !v.is_empty()).map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("tor"));
        let tor = in_path(&wanted).ok_or(LabError::TorMissing { binary: wanted })?;
        let next_to_tor = tor.with_file_name("tor-gencert");
        let gencert = in_path(&next_to_tor)
            .or_else(|| in_path(Path::new("tor-gencert")))
            .ok_or_else(|| LabError::GencertMissing { tor: tor.clone() })?;
        Ok(Self { tor, gencert })
    }
}

/// Finds a program as a shell would: a bare name in PATH, anything else as a path.
fn in_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        // Processes are started in another folder, where a relative path would be wrong.
        return program.is_file().then(|| program.canonicalize().ok()).flatten();
    }
    // Debian installs tor in /usr/bin, other systems in /usr/sbin, which users' PATH may lack.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/usr/local/bin")])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(spec: &NetworkSpec) -> String {
        spec.check().expect_err("must be refused").to_string()
    }

    #[test]
    fn invalid_networks_are_refused_with_a_reason() {
        let relays = |relays| NetworkSpec::new(relays);
        assert!(refusal(&relays(vec![RelaySpec::new("a b")])).contains("letters"));
        assert!(refusal(&relays(vec![RelaySpec::new("Auth1")])).contains("twice"));
        let slow = RelaySpec::new("slow").limited_to(Rate::from_mbit_per_s(0.1));
        assert!(refusal(&relays(vec![slow])).contains("no less than 0.6144 Mbit/s"));
        let burst = RelaySpec { burst: Some(Rate::MAX), ..RelaySpec::new("b") };
        assert!(refusal(&relays(vec![burst])).contains("no limit"));
        let fast_votes = NetworkSpec { voting_interval_s: 9, ..NetworkSpec::default() };
        assert!(refusal(&fast_votes).contains("10 to 86400"));
        let broken = NetworkSpec { extra_torrc: vec!["A\nB".into()], ..NetworkSpec::default() };
        assert!(refusal(&broken).contains("line break"));
    }

    #[test]
    fn a_valid_network_is_accepted() {
        let relay = RelaySpec::new("fast").limited_to(Rate::from_mbit_per_s(100.0));
        NetworkSpec::new(vec![relay, RelaySpec::new("other")]).check().expect("valid");
    }
}
