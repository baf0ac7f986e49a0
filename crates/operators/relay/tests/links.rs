//! Links between C tor relays and our relay: both ends use a single link, in both directions.

use crate::common::{PATIENCE, authorities, build_circuit, knowing, published, wait_for};
use lab::control::Control;
use lab::{Network, NetworkSpec, RelaySpec};
use relay::RelayEvent;
use std::path::{Path, PathBuf};

/// Connections of a C tor relay to or from the relay with this fingerprint.
fn conns_with(control: &mut Control, fingerprint: &str) -> Vec<String> {
    let all = control.get_info("orconn-status").expect("an answer");
    let is_with = |line: &&str| line.contains(fingerprint) && line.contains("CONNECTED");
    all.lines().filter(is_with).map(str::to_owned).collect()
}

/// Without this, a predicted circuit could make both relays dial each other at the same time. Two connections are then correct.
const NO_PREDICTED_CIRCUITS: &str = "__DisablePredictedCircuits 1";

#[test]
fn circuits_in_both_directions_share_one_authenticated_link() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = |name: &str| -> PathBuf { folder.path().join(name) };
    let spec = |name: &str| RelaySpec {
        extra_torrc: vec![
            format!("Log [general,or]info file {}", log(name).display()),
            NO_PREDICTED_CIRCUITS.to_owned(),
        ],
        ..RelaySpec::new(name)
    };
    let spec = NetworkSpec {
        extra_torrc_authorities: vec![
            "AuthDirTestReachability 1".to_owned(),
            NO_PREDICTED_CIRCUITS.to_owned(),
        ],
        ..NetworkSpec::new(vec![spec("one"), spec("two")])
    };
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let (relay, events) = published(&network, &folder.path().join("keys"));
    // During the self-test, other relays connect to it, and to each other through it.
    let is_over = |event| matches!(event, RelayEvent::BandwidthTested).then_some(());
    wait_for("the end of the self-test", &events, is_over);
    let ours = relay.rsa().to_string();
    let all: Vec<_> = [relay.rsa().0, network.relays()[0].rsa(), network.relays()[1].rsa()].into();
    network.wait_until_running(&all, PATIENCE).expect("listed");
    let [one, two] = [0, 1].map(|place: usize| network.relays()[place].rsa_hex());
    let mut of_one = knowing(&network, 0, &[&ours, &two]);
    let mut of_two = knowing(&network, 1, &[&ours, &one]);
    let named = |id: &str| format!("${id}");

    // Both relays now have a link with ours, authenticated by whichever relay dialled.
    let [elsewhere, ..] = authorities(&network);
    build_circuit(&mut of_one, &[&named(&ours), &elsewhere]);
    build_circuit(&mut of_two, &[&named(&ours), &elsewhere]);
    let conns = conns_with(&mut of_one, &ours);
    assert_eq!(conns.len(), 1, "{conns:?}");

    // Circuits between both through ours need no second connection.
    build_circuit(&mut of_two, &[&named(&ours), &named(&one), &elsewhere]);
    build_circuit(&mut of_one, &[&named(&ours), &named(&two), &elsewhere]);
    for control in [&mut of_one, &mut of_two] {
        let conns = conns_with(control, &ours);
        assert_eq!(conns.len(), 1, "{conns:?}");
    }

    // They do not complain about our clock and addresses.
    let read = |path: &Path| std::fs::read_to_string(path).expect("a log");
    for name in ["one", "two"] {
        let text = read(&log(name));
        let about_ours: Vec<_> = text
            .lines()
            .filter(|line| line.contains(&format!("Its ID digest is {ours}")))
            .collect();
        assert_eq!(about_ours.len(), 1, "{about_ours:?}");
        for complaint in ["skewed time", "will not consider this connection canonical"] {
            let found: Vec<_> = text.lines().filter(|line| line.contains(complaint)).collect();
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}
