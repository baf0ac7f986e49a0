//! Families of relays, as C tor's authorities and relays see them.

use crate::common::{PATIENCE, config, fetched, text, wait_for, wait_until_known};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use dirmgr::family::{FamilyId, ProvenFamilies, proven_families};
use lab::{Network, NetworkSpec, RelaySpec};
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Consensus, descriptor};
use relay::family::FamilyIds;
use relay::{Relay, RelayConfig};
use std::process::Command;
use std::sync::mpsc::channel;

#[test]
fn authorities_put_our_relay_and_a_c_tor_relay_with_the_same_key_into_one_family() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    std::fs::create_dir(&keys).expect("made");
    let made = Command::new("tor")
        .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
        .args(["--keygen-family", "mine"])
        .current_dir(&keys)
        .output()
        .expect("a tor");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    let id = std::fs::read_to_string(keys.join("mine.public_family_id")).expect("made");
    let id = id.trim();

    let member = RelaySpec {
        extra_torrc: vec![
            format!("FamilyKeyDirectory {}", keys.display()),
            format!("FamilyId {id}"),
        ],
        ..RelaySpec::new("member")
    };
    let network = Network::start(&NetworkSpec::new(vec![member]), &mut |_| {}).expect("up");
    let other = netdoc::RsaId(network.relays()[0].rsa());
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        my_family: Some(vec![other]),
        family_ids: Some(FamilyIds::All),
        ..config("ours", &keys)
    };
    let (sender, events) = channel();
    let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
    wait_until_known(&network, &events);
    let descriptor = fetched(&network, &relay);
    assert!(descriptor.contains(&format!("\nfamily ${other}\n")), "{descriptor}");
    assert!(descriptor.contains("\nfamily-cert\n-----BEGIN FAMILY CERT-----\n"), "{descriptor}");

    // An authority that verified the certificate names the family in the microdescriptor.
    let ours = relay.rsa();
    network
        .wait_until_running(&[relay.rsa().0, network.relays()[0].rsa()], PATIENCE)
        .expect("listed");
    let authority = network.directory_addrs()[0];
    let consensus = loop {
        let consensus = text(authority, &Resource::ConsensusMicrodesc);
        let consensus = Consensus::parse(consensus.as_bytes()).expect("a consensus");
        if [ours, other].iter().all(|fingerprint| consensus.by_fingerprint(fingerprint).is_some()) {
            break consensus;
        }
        // The next consensus follows soon.
        wait_for("news", &events, |_| Some(()));
    };
    for fingerprint in [ours, other] {
        let router = consensus.by_fingerprint(&fingerprint).expect("just seen");
        let digest = router.microdesc_digest.expect("a microdescriptor");
        let micro = microdescriptor(&network, &digest);
        let line = micro.lines().find(|line| line.starts_with("family-ids ")).unwrap_or_default();
        assert_eq!(line, format!("family-ids ed25519:{id}"), "{micro}");
        // Our parser finds the same in the descriptor of either relay.
        let descriptor = text(authority, &Resource::Descriptors(vec![fingerprint]));
        let descriptor = descriptor::iter(descriptor.as_bytes()).next().expect("one");
        let ProvenFamilies { families, problems } =
            proven_families(&descriptor.expect("sound"), link::unix_time_s());
        let families: Vec<String> = families.iter().map(FamilyId::to_string).collect();
        assert_eq!((families, problems), (vec![id.to_owned()], Vec::new()));
    }
}

/// Fetches a microdescriptor from any authority that has it. An authority with an older descriptor has another one.
fn microdescriptor(network: &Network, digest: &[u8; 32]) -> String {
    let digest = STANDARD_NO_PAD.encode(digest);
    let resource = Resource::Path(format!("/tor/micro/d/{digest}"));
    let get = |authority| Fetcher::default().get(authority, &resource);
    let found = network.directory_addrs().into_iter().find_map(|authority| get(authority).ok());
    String::from_utf8(found.expect("a majority voted for it")).expect("text")
}
