//! The configuration files.
//!
//! Reasons for the less obvious lines:
//! - Voting: tor accepts intervals from 10 s, with delays of at least 2 s whose sum is less than half the
//!   interval. Before the first consensus the interval is 5 s and tor shortens the delays to 1 s each; if a
//!   loaded machine misses one vote, the next is 5 s later.
//! - A consensus is valid for 20 intervals, so that missed votes do not cut relays off.
//! - `AuthDirTestReachability 0`: every relay with a descriptor is voted Running at once (and remains so when
//!   killed). An extra line with 1 enables real reachability tests.
//! - `AuthDirFastGuarantee`: every relay is voted Fast. Otherwise a relay without traffic would not be, and no
//!   client would choose it.
//! - `AuthDirVoteStableGuarantee…`: every relay is voted Stable. Otherwise a relay that has published in the
//!   second of a vote would not be, and clients, which use no guard without it, keep that consensus for
//!   minutes.
//! - Cell statistics make a loaded relay slow and large, so they are off.
//! - No name server but loopback, no GeoIP files (parsing them takes a tenth of a second each).
//! - All ports except the authorities' are `auto`: no other program can take them before tor opens them.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::path::Path;

use crate::keys::AuthorityKeys;
use crate::ports::AuthorityPorts;
use crate::process::{DEFAULTS, LOG};
use crate::spec::{NetworkSpec, RelaySpec};

/// Name of the file with a node's control port.
pub(crate) const CONTROL_PORT: &str = "control-port";
/// Name of the file with a node's control port cookie; tor's own default.
pub(crate) const COOKIE: &str = "control_auth_cookie";
/// The bandwidth file, relative to the network's folder.
pub(crate) const BANDWIDTH_FILE: &str = "bandwidth/latest.v3bw";
/// Name of the resolver configuration, whose only name server is loopback.
pub(crate) const RESOLV_CONF: &str = "resolv.conf";

/// An authority's `DirAuthority` line.
#[derive(Clone, Debug)]
pub(crate) struct AuthorityLine {
    pub(crate) keys: AuthorityKeys,
    pub(crate) ports: AuthorityPorts,
}

/// Writes the configurations of one network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Torrc<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) spec: &'a NetworkSpec,
    pub(crate) authorities: &'a [AuthorityLine],
    /// The owning process, after whose end tor exits within seconds; `None` if tor may outlive it.
    pub(crate) owner: Option<u32>,
}

impl Torrc<'_> {
    /// The configuration of a relay.
    pub(crate) fn relay(&self, relay: &RelaySpec) -> String {
        let address = relay.address.unwrap_or(self.spec.address);
        let mut lines = self.common(&relay.nickname, address);
        lines.line("ORPort", format_args!("{address}:auto"));
        if let Some(limit) = relay.limit {
            let burst = relay.burst.unwrap_or(limit);
            lines.line("RelayBandwidthRate", format_args!("{} bytes", limit.as_byte_per_s()));
            lines.line("RelayBandwidthBurst", format_args!("{} bytes", burst.as_byte_per_s()));
        }
        lines.extra(&self.spec.extra_torrc);
        lines.extra(&relay.extra_torrc);
        lines.0
    }

    /// The configuration of an authority.
    pub(crate) fn authority(&self, authority: &AuthorityLine) -> String {
        let interval = self.spec.voting_interval_s;
        // Twice this is less than half of any interval from 10 s; more than 20 s is never needed.
        let delay = (interval / 5).clamp(2, 20);
        let mut lines = self.common(authority.keys.nickname, self.spec.address);
        lines.line("ORPort", authority.ports.or);
        lines.line("DirPort", authority.ports.dir);
        lines.line("AuthoritativeDirectory", 1);
        lines.line("V3AuthoritativeDirectory", 1);
        lines.line("AuthDirTestReachability", 0);
        lines.line("AuthDirFastGuarantee", "1 byte");
        lines.line("AuthDirVoteStableGuaranteeMinUptime", "0 seconds");
        lines.line("AuthDirVoteStableGuaranteeMTBF", "0 seconds");
        lines.line("V3AuthVotingInterval", interval);
        lines.line("V3AuthVoteDelay", delay);
        lines.line("V3AuthDistDelay", delay);
        lines.line("V3AuthNIntervalsValid", 20);
        lines.line("TestingV3AuthInitialVotingInterval", 5);
        lines.line("TestingV3AuthInitialVoteDelay", 2);
        lines.line("TestingV3AuthInitialDistDelay", 2);
        lines.line("TestingDirAuthVoteExit", '*');
        lines.line("TestingDirAuthVoteHSDir", '*');
        lines.line("TestingDirAuthVoteGuard", '*');
        if self.spec.bandwidth_file {
            lines.path("V3BandwidthsFile", "", &self.dir.join(BANDWIDTH_FILE));
        }
        lines.extra(&self.spec.extra_torrc);
        lines.extra(&self.spec.extra_torrc_authorities);
        lines.0
    }

    fn common(&self, nickname: &str, address: Ipv4Addr) -> Lines {
        let dir = self.dir.join(nickname);
        let mut lines = Lines(String::new());
        lines.line("Nickname", nickname);
        lines.path("DataDirectory", "", &dir);
        lines.path("Log", "notice file ", &dir.join(LOG));
        lines.line("TestingTorNetwork", 1);
        lines.line("RunAsDaemon", 0);
        lines.line("ShutdownWaitLength", 0);
        lines.line("DisableDebuggerAttachment", 0);
        lines.line("Address", address);
        lines.line("OutboundBindAddress", address);
        lines.line("AssumeReachable", 1);
        lines.line("ExtendAllowPrivateAddresses", 1);
        lines.line("SocksPort", 0);
        lines.line("ControlPort", "127.0.0.1:auto");
        lines.path("ControlPortWriteToFile", "", &dir.join(CONTROL_PORT));
        lines.line("CookieAuthentication", 1);
        // Not a policy: policy lines accumulate, and later ones would not count.
        lines.line("ExitRelay", 0);
        lines.line("ContactInfo", "a private network on one machine, made by FlashFlow");
        lines.line("ServerDNSDetectHijacking", 0);
        lines.path("ServerDNSResolvConfFile", "", &self.dir.join(RESOLV_CONF));
        lines.path("GeoIPFile", "", &self.dir.join(DEFAULTS));
        lines.path("GeoIPv6File", "", &self.dir.join(DEFAULTS));
        // A network of a few relays has none to spare for vanguards, and every tor of it would warn.
        lines.line("VanguardsLiteEnabled", 0);
        lines.line("TestingEnableCellStatsEvent", 0);
        lines.line("TestingEnableConnBwEvent", 0);
        if let Some(pid) = self.owner {
            lines.line("__OwningControllerProcess", pid);
        }
        for authority in self.authorities {
            lines.line(
                "DirAuthority",
                format_args!(
                    "{} orport={} no-v2 v3ident={} {} {}",
                    authority.keys.nickname,
                    authority.ports.or.port(),
                    hex::encode_upper(authority.keys.v3_identity),
                    authority.ports.dir,
                    hex::encode_upper(authority.keys.rsa)
                ),
            );
        }
        lines
    }
}

/// A value that ends in a path, in quotes.
pub(crate) fn quoted(before: &str, path: &Path) -> String {
    let path = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{before}{path}\"")
}

/// A configuration being written.
struct Lines(String);

impl Lines {
    fn line(&mut self, key: &str, value: impl std::fmt::Display) {
        let _cannot_fail = writeln!(self.0, "{key} {value}");
    }

    fn path(&mut self, key: &str, before: &str, path: &Path) {
        self.line(key, quoted(before, path));
    }

    fn extra(&mut self, lines: &[String]) {
        for line in lines {
            let _cannot_fail = writeln!(self.0, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::Rate;

    fn torrc(relay: &RelaySpec, spec: &NetworkSpec) -> String {
        let torrc = Torrc { dir: Path::new("/d \"x"), spec, authorities: &[], owner: Some(7) };
        torrc.relay(relay)
    }

    #[test]
    fn limits_are_written_in_bytes_and_burst_defaults_to_the_rate() {
        let relay = RelaySpec::new("r").limited_to(Rate::from_mbit_per_s(10.0));
        let text = torrc(&relay, &NetworkSpec::default());
        assert!(text.contains("RelayBandwidthRate 1250000 bytes\n"));
        assert!(text.contains("RelayBandwidthBurst 1250000 bytes\n"));
        let relay = RelaySpec { burst: Some(Rate::from_mbit_per_s(20.0)), ..relay };
        assert!(torrc(&relay, &NetworkSpec::default()).contains("Burst 2500000 bytes\n"));
        assert!(!torrc(&RelaySpec::new("r"), &NetworkSpec::default()).contains("RelayBandwidth"));
    }

    #[test]
    fn a_relay_with_its_own_address_listens_and_connects_there() {
        let relay = RelaySpec::new("r").at(Ipv4Addr::new(10, 101, 0, 1));
        let text = torrc(&relay, &NetworkSpec::default());
        for line in
            ["Address 10.101.0.1", "OutboundBindAddress 10.101.0.1", "ORPort 10.101.0.1:auto"]
        {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn paths_are_quoted_and_extra_lines_come_last() {
        let spec = NetworkSpec { extra_torrc: vec!["A 1".into()], ..NetworkSpec::default() };
        let relay = RelaySpec { extra_torrc: vec!["B 2".into()], ..RelaySpec::new("r") };
        let text = torrc(&relay, &spec);
        assert!(text.contains("Log \"notice file /d \\\"x/r/log\"\n"));
        assert!(text.contains("__OwningControllerProcess 7\n"));
        assert!(text.ends_with("A 1\nB 2\n"));
    }
}
