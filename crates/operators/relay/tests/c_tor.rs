//! Interoperation with C tor: authorities list our relay, relays and clients use it, and tor reads its keys.

use crate::common::{
    PATIENCE, authorities, build_circuit, client_that_knows, config, fetched, only, publish_to_all,
    wait_for, wait_until_known,
};
use lab::{Network, NetworkSpec, RelaySpec};
use link::{IdentityIssuer, unix_time_s};
use netdoc::consensus::{Consensus, Flag};
use onion::Rate;
use onion::router::RateLimit;
use rand::SeedableRng;
use rand::rngs::StdRng;
use relay::descriptor::{Announcement, Capabilities, TapKey, write};
use relay::publish::Answer;
use relay::{FlashFlowConfig, Relay, RelayConfig, RelayEvent, Settings, coordinator_key, keys};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

/// A public key (RFC 8032, §7.1, test 1).
const KEY: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

/// Waits until an authority serves the relay's descriptor with this rate.
fn wait_until_served(network: &Network, relay: &Relay, events: &Receiver<RelayEvent>, rate: u64) {
    wait_for("descriptor with the new rate", events, |event| match event {
        RelayEvent::Answered { .. } => {
            (only(&fetched(network, relay)).bandwidth_avg_bytes_s == rate).then_some(())
        }
        _ => None,
    });
}

/// Publishes a descriptor of this relay with another port, dated an hour in the future.
fn publish_from_the_future(settings: &Settings, network: &Network) {
    let mut rng = StdRng::from_seed([1; 32]);
    let keys = keys::open(&settings.keys, &mut rng).expect("keys");
    let certified = IdentityIssuer::new([2; 32], unix_time_s()).expect("keys").certify(&keys);
    let certified = certified.expect("certificates");
    let tap = TapKey::generate(&keys, &mut rng).expect("a key");
    let announcement = Announcement {
        nickname: settings.nickname,
        address: settings.address,
        or_port: 1,
        rate_bytes_s: 1,
        burst_bytes_s: 1,
        observed_bytes_s: 0,
        published: unix_time_s() + 3600,
        uptime_s: 0,
        contact: None,
        capabilities: Capabilities::of_engine(false),
        exit: None,
        family: Vec::new(),
        family_certs: Vec::new(),
        overload: String::new(),
    };
    let text = write(&announcement, None, &keys, &certified, &tap).expect("written");
    publish_to_all(network, &text);
}

#[test]
fn a_c_tor_network_lists_our_relay_and_builds_circuits_through_it() {
    let spec = NetworkSpec {
        // Authorities connect to each relay, and list it as running only if it proves its identities.
        extra_torrc_authorities: vec![
            "AuthDirTestReachability 1".to_owned(),
            "ConsensusParams FFMaxMeasurementDuration=60 FFMeasurementsAllowed=1".to_owned(),
        ],
        ..NetworkSpec::new(vec![RelaySpec::new("client")])
    };
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let settings = RelayConfig {
        rate_mbit_per_s: Some(10.0),
        burst_mbit: Some(20.0),
        contact: Some("ours@example.org".to_owned()),
        authorities: Some(network.directory_addrs()),
        flashflow: FlashFlowConfig {
            allowed_coordinators: Some(vec![coordinator_key(KEY).expect("a key")]),
            ..FlashFlowConfig::default()
        },
        ..config("ours", &folder.path().join("keys"))
    };
    let settings = settings.check().expect("sound");
    let (sender, events) = channel();
    let relay = Relay::start(&settings, sender).expect("started");
    wait_for("default", &events, |event| match event {
        RelayEvent::TargetParams(params) => (!params.is_allowed).then_some(()),
        _ => None,
    });
    // The relay needs a consensus before it publishes, because it tests itself through others.
    let params = wait_for("parameters of the consensus", &events, |event| match event {
        RelayEvent::TargetParams(params) => Some(params),
        _ => None,
    });
    assert!(params.is_allowed && params.max_duration.as_secs() == 60, "{params:?}");
    wait_until_known(&network, &events);

    // The relay is listed in the consensus of an authority, and learns of that.
    let text = network.wait_until_running(&[relay.rsa().0], PATIENCE).expect("listed");
    let consensus = Consensus::parse(text.as_bytes()).expect("a consensus");
    let fingerprint = relay.rsa();
    let listed = consensus.by_fingerprint(&fingerprint).expect("listed");
    assert_eq!(listed.nickname.as_str(), "ours");
    assert_eq!(
        (listed.address.into(), listed.or_port),
        (relay.address().ip(), relay.address().port())
    );
    for flag in [Flag::Running, Flag::Valid, Flag::Fast, Flag::V2Dir, Flag::Guard] {
        assert!(listed.flags.contains(flag), "{flag:?} in {}", listed.flags);
    }
    let flags = wait_for("being listed", &events, |event| match event {
        RelayEvent::Listed(found) => found,
        _ => None,
    });
    assert!(flags.contains(Flag::Running));

    // An authority serves the descriptor.
    let text = fetched(&network, &relay);
    let served = only(&text);
    assert_eq!(served.ed25519, Some(relay.ed25519()));
    assert_eq!(
        (served.bandwidth_avg_bytes_s, served.bandwidth_burst_bytes_s),
        (1_250_000, 2_500_000)
    );
    assert_eq!(served.contact().as_deref(), Some("ours@example.org"));

    // C tor builds circuits with it as first, middle and last hop.
    let (mut control, ours) = client_that_knows(&network, &relay);
    let [a, b, c] = authorities(&network);
    build_circuit(&mut control, &[&ours, &a, &b]);
    build_circuit(&mut control, &[&a, &ours, &b]);
    build_circuit(&mut control, &[&c, &a, &ours]);

    // A changed rate is published at once.
    let rate = Rate::from_mbit_per_s(40.0);
    relay.set_limit(Some(RateLimit { rate, burst_bytes: 5_000_000 }));
    wait_until_served(&network, &relay, &events, 5_000_000);

    // After a restart the relay has the same identity and another port.
    let (rsa, ed25519, address) = (relay.rsa(), relay.ed25519(), relay.address());
    drop(relay);
    std::net::TcpListener::bind(address).expect("the port is free again");
    // This holds even if its clock was ahead before: authorities would keep the descriptor with the later date.
    publish_from_the_future(&settings, &network);
    let (sender, events) = channel();
    let relay = Relay::start(&settings, sender).expect("started");
    assert_eq!((relay.rsa(), relay.ed25519()), (rsa, ed25519));
    wait_until_known(&network, &events);

    // An authority refuses another relay with one of the two identity keys.
    let other = tempfile::tempdir().expect("a folder");
    let mut forged = config("forged", other.path()).check().expect("sound");
    drop(Relay::start(&forged, channel().0).expect("started"));
    let stolen = "secret_id_key";
    std::fs::copy(folder.path().join("keys").join(stolen), other.path().join(stolen))
        .expect("copied");
    forged.authorities = network.directory_addrs();
    // A self-test could reach the original relay instead.
    forged.assumes_reachable = true;
    let (sender, events) = channel();
    let _forged = Relay::start(&forged, sender).expect("started");
    let refused = wait_for("refusal", &events, |event| match event {
        RelayEvent::Answered { answer, .. } => Some(answer),
        _ => None,
    });
    let Answer::Refused { status: 400, reason } = refused else { panic!("{refused}") };
    assert!(reason.contains("keypair has changed"), "{reason}");
}

#[test]
fn c_tor_and_our_relay_read_each_others_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = |keys: &str| config("same", &folder.path().join(keys)).check().expect("sound");
    let ours = Relay::start(&settings("data/keys"), channel().0).expect("started");
    let (rsa, ed25519) = (ours.rsa(), ours.ed25519());
    drop(ours);
    let listed = |data: &str, kind: &str| {
        let data = folder.path().join(data);
        let defaults = folder.path().join("defaults");
        std::fs::write(&defaults, "").expect("written");
        let mut command = Command::new("tor");
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("--defaults-torrc").arg(&defaults).arg("-f").arg(&defaults);
        command.arg("--DataDirectory").arg(&data);
        command.args(["--Nickname", "same", "--ORPort", "1", "--SocksPort", "0"]);
        let output = command.args(["--list-fingerprint", kind]).output().expect("a tor");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let expected = rsa.to_string();
    let unspaced = |text: String| text.replace(' ', "");
    assert!(unspaced(listed("data", "rsa")).contains(&expected));
    let expected = ed25519.to_string();
    assert!(listed("data", "ed25519").contains(&expected));

    // Our relay reads keys made by tor.
    let rsa = unspaced(listed("tors", "rsa"));
    let ed25519 = listed("tors", "ed25519");
    let ours = Relay::start(&settings("tors/keys"), channel().0).expect("started");
    assert!(rsa.contains(&ours.rsa().to_string()), "{rsa}");
    let found = ours.ed25519().to_string();
    assert!(ed25519.contains(&found), "{ed25519}");
}
