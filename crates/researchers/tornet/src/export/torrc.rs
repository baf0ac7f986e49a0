//! tor's configuration: one file for all, one for each kind, and one for each host.

use super::{Plan, put};
use crate::error::Error;
use crate::network::{Choices, Users};
use onion::router::schedule::AnyScheduler;
use std::fmt::Write;
use std::path::Path;

/// The include lines of a host's torrc: files of `conf/`, relative to a host's folder.
const CONF: &str = "../../../conf";

/// Exits' name servers, in `conf/`: not this machine's. TGen uses addresses, so no names are resolved.
const RESOLVERS: &str = "shadowresolv.conf";

/// The lines of all relays.
const RELAY: &str = "ORPort 9001 IPv4Only\nDirPort 8080\nSocksPort 0\n";

/// The lines of all clients. As in this simulator, no circuits are linked (proposal 329): with congestion
/// control tor would link them.
const CLIENT: &str =
    "ClientOnly 1\nORPort 0\nDirPort 0\nSocksPort 127.0.0.1:9050\nConfluxEnabled 0\n";

pub(super) fn write(plan: &Plan<'_>, folder: &Path) -> Result<(), Error> {
    let conf = folder.join("conf");
    let file = |name: &str| conf.join(format!("tor.{name}.torrc"));
    put(&file("common"), &common(plan))?;
    put(&conf.join(RESOLVERS), "nameserver 127.0.0.1\n")?;
    put(&file("relay"), RELAY)?;
    put(&file("relay.authority"), &authority(plan))?;
    put(&file("relay.exit"), "ExitRelay 1\nExitPolicy accept *:*\n")?;
    put(&file("relay.other"), "ExitRelay 0\nExitPolicy reject *:*\n")?;
    let guards = match plan.network.choices.guards {
        0 => "UseEntryGuards 0\n".into(),
        number => format!("NumEntryGuards {number}\n"),
    };
    put(&file("client"), &(CLIENT.to_owned() + &guards))?;
    put(
        &file("client.markov"),
        "SocksTimeout 120\nCircuitStreamTimeout 120\nMaxClientCircuitsPending 1024\n",
    )?;
    put(&file("client.perf"), "MaxCircuitDirtiness 10 seconds\n")?;
    let hosts = folder.join("shadow.data.template/hosts");
    let include = |kinds: &[&str]| -> String {
        kinds.iter().map(|kind| format!("%include {CONF}/tor.{kind}.torrc\n")).collect()
    };
    for relay in &plan.relays {
        let kind = match (Plan::is_authority(relay), relay.is_exit) {
            (true, _) => "relay.authority",
            (false, true) => "relay.exit",
            (false, false) => "relay.other",
        };
        let mut own = include(&[kind]);
        if let Some(limit) = relay.limit {
            let bytes = limit.as_byte_per_s();
            let _infallible =
                writeln!(own, "BandwidthRate {bytes} bytes\nBandwidthBurst {bytes} bytes");
        }
        let host = hosts.join(&relay.site.name);
        put(&host.join("torrc-defaults"), &include(&["common", "relay"]))?;
        put(&host.join("torrc"), &own)?;
    }
    for client in &plan.network.clients {
        let host = hosts.join(&client.site.name);
        let kind = match client.users {
            Users::Models(_) => "client.markov",
            Users::Fetch(_) => "client.perf",
        };
        put(&host.join("torrc-defaults"), &include(&["common", "client"]))?;
        put(&host.join("torrc"), &include(&[kind]))?;
    }
    let v3bw = bandwidths(plan);
    put(&folder.join("shadow.data.template/bwauthority/v3bw"), &v3bw)?;
    put(&folder.join("v3bw"), &v3bw)
}

fn common(plan: &Plan<'_>) -> String {
    let mut text = String::from("TestingTorNetwork 1\nDataDirectory .\n");
    for (place, relay) in plan.authorities() {
        let (name, keys) = (&relay.site.name, &plan.keys[place]);
        let v3_identity = keys.v3_identity.as_deref().unwrap_or_default();
        let address = super::config::address(place);
        let _infallible = writeln!(
            text,
            "DirAuthority {name} v3ident={v3_identity} orport=9001 {address}:8080 {}",
            keys.fingerprint
        );
    }
    text += "AssumeReachable 1\nNumCPUs 1\nLog notice stdout\nSafeLogging 0\n";
    let _infallible = writeln!(text, "ServerDNSResolvConfFile {CONF}/{RESOLVERS}");
    text += "ServerDNSAllowBrokenConfig 1\nServerDNSDetectHijacking 0\n";
    // The cell statistics of a testing network take memory.
    text += "TestingEnableCellStatsEvent 0\n";
    // Many clients share one address here.
    text += "DoSCircuitCreationEnabled 0\nDoSConnectionEnabled 0\n";
    text += "PathBiasUseThreshold 10000\nPathBiasCircThreshold 10000\nControlPort 9051\n";
    text += &schedulers(&plan.network.choices);
    text
}

fn schedulers(choices: &Choices) -> String {
    match choices.scheduler.scheduler {
        AnyScheduler::Vanilla(_) => "Schedulers Vanilla\n".into(),
        AnyScheduler::KistLite(scheduler) => {
            format!(
                "Schedulers KISTLite\nKISTSchedRunInterval {} msec\n",
                scheduler.interval.as_millis()
            )
        }
        AnyScheduler::Kist(scheduler) => {
            format!(
                "Schedulers KIST\nKISTSchedRunInterval {} msec\n",
                scheduler.interval.as_millis()
            )
        }
    }
}

fn authority(plan: &Plan<'_>) -> String {
    let voted = |is_it: &dyn Fn(&crate::network::Relay) -> bool| -> String {
        let all = plan.relays.iter().zip(&plan.keys).filter(|(relay, _)| is_it(relay));
        let all: Vec<&str> = all.map(|(_, keys)| keys.fingerprint.as_str()).collect();
        all.join(",")
    };
    let congestion = u8::from(plan.network.choices.has_congestion_control);
    let vegas = 2 * congestion;
    format!(
        "ExitRelay 0\nExitPolicy reject *:*\nAuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\n\
         V3BandwidthsFile ../../bwauthority/v3bw\nConsensusParams cc_alg={vegas}\n\
         TestingDirAuthVoteGuard {}\nTestingDirAuthVoteGuardIsStrict 1\n\
         TestingDirAuthVoteExit {}\nTestingDirAuthVoteExitIsStrict 1\n",
        voted(&|relay| relay.is_guard),
        voted(&|relay| relay.is_exit),
    )
}

/// A bandwidth file (version 1.0.0) dated by Shadow's initial clock.
fn bandwidths(plan: &Plan<'_>) -> String {
    let mut text = String::from("946684801\n");
    for (relay, keys) in plan.relays.iter().zip(&plan.keys) {
        let (fingerprint, weight, name) = (&keys.fingerprint, relay.weight, &relay.site.name);
        let _infallible = writeln!(text, "node_id=${fingerprint}\tbw={weight}\tnick={name}");
    }
    text
}
