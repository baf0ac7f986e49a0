//! Self-tests of our relay through C tor relays before it publishes.

use crate::common::{PATIENCE, config, fetched, only, wait_for, wait_until_known};
use lab::{Network, NetworkSpec};
use netdoc::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use relay::{Reachability, Relay, RelayConfig, RelayEvent};
use std::sync::mpsc::channel;

#[test]
fn a_new_relay_is_reached_and_gets_a_weight_before_it_is_used() {
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        ..config("ours", folder.path())
    };
    let again = settings.clone();
    let (sender, events) = channel();
    let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
    let found = wait_for("verdict", &events, |event| match event {
        RelayEvent::Reachability(found) => Some(found),
        RelayEvent::Answered { .. } => panic!("published before it was reached"),
        _ => None,
    });
    let address = relay.address();
    assert_eq!(found, Reachability::Reached { address, directory: Some(true) });
    wait_until_known(&network, &events);

    let fingerprint = relay.rsa();
    let weight = |text: &str| {
        let consensus = Consensus::parse(text.as_bytes()).expect("a consensus");
        consensus.by_fingerprint(&fingerprint).and_then(|router| router.bandwidth_kb_s)
    };
    // The padding: a thousand cells in ten seconds. The traffic of the reachability test is less, and may be published before.
    let mut weighs = |text: &str| weight(text).is_some_and(|kb_s| kb_s >= 40);
    let text = network.wait_for_consensus(None, &mut weighs, PATIENCE).expect("a weight");
    let kb_s = weight(&text).expect("just seen");
    assert!(kb_s < 1_000, "{kb_s} KB/s");
    assert!(fetched(&network, &relay).contains("\ntunnelled-dir-server\n"));

    // After a restart, the first descriptor still has the observed bandwidth, before another test.
    let port = relay.address().port();
    drop(relay);
    let (sender, events) = channel();
    let settings = RelayConfig { or_port: Some(port), assume_reachable: Some(true), ..again };
    let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
    wait_until_known(&network, &events);
    assert!(only(&fetched(&network, &relay)).bandwidth_observed_bytes_s >= 40_000);
}

#[test]
fn an_unreachable_relay_reports_the_reason_and_publishes_only_with_assume_reachable() {
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    for assume_reachable in [false, true] {
        let settings = RelayConfig {
            authorities: Some(network.directory_addrs()),
            // A closed port.
            address: Some([127, 0, 0, 99].into()),
            listen: Some([127, 0, 0, 1].into()),
            assume_reachable: Some(assume_reachable),
            ..config("ours", &folder.path().join(assume_reachable.to_string()))
        };
        let (sender, events) = channel();
        let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
        let mut has_published = false;
        let problem = wait_for("verdict", &events, |event| {
            has_published |= matches!(event, RelayEvent::Answered { .. });
            match event {
                RelayEvent::Reachability(found) => Some(found.to_string()),
                _ => None,
            }
        });
        let expected = format!("not reachable at {}: other relays cannot connect", relay.address());
        assert!(problem.starts_with(&expected), "{problem}");
        assert_eq!(has_published, assume_reachable);
        let resource = Resource::Descriptors(vec![relay.rsa()]);
        let served = Fetcher::default().get(network.directory_addrs()[0], &resource);
        assert_eq!(served.is_ok(), assume_reachable, "{served:?}");
    }
}
