//! A network starts, works, and ends.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lab::{LabError, Network, NetworkSpec, Node, Progress, RelaySpec, Role};
use onion::Rate;

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

fn spec() -> NetworkSpec {
    let limited = RelaySpec::new("limited").limited_to(Rate::from_mbit_per_s(10.0));
    NetworkSpec::new(vec![limited, RelaySpec::new("free")])
}

#[expect(clippy::disallowed_methods, reason = "a bandwidth file holds the time of its making")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// The `Bandwidth=` of a relay in a consensus.
fn weight<'a>(consensus: &'a str, nickname: &str) -> &'a str {
    let (_, entry) = consensus.split_once(&format!("\nr {nickname} ")).expect("listed");
    let line = entry.lines().find(|line| line.starts_with("w ")).expect("weighted");
    line.strip_prefix("w ").expect("just tested")
}

#[test]
fn a_network_starts_works_and_ends() {
    let mut steps = Vec::new();
    let network = Network::start(&spec(), &mut |step| steps.push(step)).expect("up");
    eprintln!("{}", steps.last().expect("steps"));
    assert!(matches!(steps.last(), Some(Progress::Ready { .. })));

    // Identities and configuration.
    assert_eq!((network.authorities().len(), network.relays().len()), (3, 2));
    let limited = network.node("limited").expect("a relay");
    assert_eq!(limited.limit(), Some(Rate::from_mbit_per_s(10.0)));
    assert_eq!(limited.role(), Role::Relay);
    assert!(network.authorities().iter().all(|node| node.v3_identity().is_some()));
    let mut control = limited.control().expect("answers");
    assert_eq!(control.get_info("fingerprint").expect("known"), limited.rsa_hex());
    let rate = control.request("GETCONF RelayBandwidthRate RelayBandwidthBurst").expect("known");
    assert_eq!(rate.lines[0].text, "RelayBandwidthRate=1250000");
    assert_eq!(rate.lines[1].text, "RelayBandwidthBurst=1250000");
    assert!(network.nodes().iter().all(|node| node.ed25519() != [0; 32]));
    let mode = network.dir().metadata().expect("a folder").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);

    // Bandwidth events arrive, in order.
    let watch = limited.watch_bandwidth().expect("watched");
    let first = watch.recv_timeout(PATIENCE).expect("alive").expect("an event");
    let second = watch.recv_timeout(PATIENCE).expect("alive").expect("an event");
    assert!(first.at < second.at);
    assert!(network.nodes().iter().all(|node| node.cpu_time() > Some(Duration::ZERO)));

    // Authorities vote with a bandwidth file, even if it is written later.
    let consensus = network.consensus().expect("an answer").expect("a consensus");
    assert!(network.lists_all_running(&consensus));
    assert!(weight(&consensus, "free").contains("Unmeasured=1"));
    let file = network.dir().join("bandwidth/1.v3bw");
    let line =
        |node: &Node, bw| format!("node_id=${} bw={bw} nick={}\n", node.rsa_hex(), node.nickname());
    let lines: String =
        network.nodes().iter().zip(1001..).map(|(node, bw)| line(node, bw)).collect();
    let text = format!("{}\nversion=1.9.0\n=====\n{lines}", unix_now());
    std::fs::write(&file, text).expect("written");
    symlink(&file, network.bandwidth_file_path()).expect("linked");
    let mut measured = |text: &str| weight(text, "free") == "Bandwidth=1005";
    let consensus = network.wait_for_consensus(None, &mut measured, PATIENCE).expect("voted");
    assert_eq!(weight(&consensus, "limited"), "Bandwidth=1004");

    // A killed relay is detected.
    let free = network.node("free").expect("a relay");
    assert!(free.is_alive());
    free.kill();
    assert!(!free.is_alive());
    assert!(free.cpu_time().is_none());

    let (dir, nodes) = (network.dir().to_owned(), network.nodes().to_vec());
    drop(network);
    assert!(watch_ends(&watch));
    assert_eq!(lab::processes(&dir), Vec::<u32>::new());
    assert!(nodes.iter().all(|node| !PathBuf::from(format!("/proc/{}", node.pid())).exists()));
    assert!(!dir.exists());
}

fn watch_ends(watch: &lab::control::BwWatch) -> bool {
    while let Ok(event) = watch.recv_timeout(PATIENCE) {
        if event.is_none() {
            return false;
        }
    }
    true
}

#[test]
fn a_detached_network_lives_until_it_is_brought_down() {
    let parent = tempfile::tempdir().expect("a folder");
    // A name with a blank and a quote works.
    let dir = parent.path().join("a \"lab\"");
    let spec = NetworkSpec { dir: Some(dir.clone()), detached: true, ..NetworkSpec::default() };
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let nodes = network.nodes().to_vec();
    let found = network.detach().expect("detached");
    assert_eq!(found, dir.canonicalize().expect("exists"));

    let status = lab::status(&dir).expect("a network");
    assert!(status.is_up() && status.detached && status.valid_after_unix.is_some());
    assert_eq!(status.nodes, nodes);
    status.nodes[0].watch_bandwidth().expect("reachable by its state alone");

    lab::down(&dir).expect("down");
    assert!(lab::processes(&found).is_empty());
    assert!(!dir.exists());
    assert!(matches!(lab::down(&dir), Err(LabError::NotALab { .. })));
}

#[test]
fn a_missing_tor_is_reported_with_the_remedy() {
    let tor_binary = Some(PathBuf::from("/nonexistent/tor"));
    let spec = NetworkSpec { tor_binary, ..NetworkSpec::default() };
    let error = Network::start(&spec, &mut |_| {}).expect_err("no tor");
    assert!(matches!(error, LabError::TorMissing { .. }));
    assert!(error.to_string().contains("sudo apt-get install tor"), "{error}");
}

#[test]
fn a_tor_that_refuses_its_configuration_is_quoted() {
    let mut spec = spec();
    spec.relays[1].extra_torrc.push("NoSuchOption 1".to_owned());
    let parent = tempfile::tempdir().expect("a folder");
    let dir = parent.path().join("net");
    spec.dir = Some(dir.clone());
    let error = Network::start(&spec, &mut |_| {}).expect_err("a bad option");
    let LabError::TorDied { nickname, log, .. } = &error else { panic!("{error}") };
    assert_eq!(nickname, "free");
    assert!(log.contains("Unknown option 'NoSuchOption'"), "{error}");
    assert!(!dir.exists() && lab::processes(&dir).is_empty());
}

#[test]
fn a_folder_in_use_is_refused_and_not_changed() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("precious");
    std::fs::write(&file, "data").expect("written");
    let spec = NetworkSpec { dir: Some(dir.path().to_owned()), ..NetworkSpec::default() };
    let error = Network::start(&spec, &mut |_| {}).expect_err("not empty").to_string();
    assert!(error.contains("is not empty"), "{error}");
    assert!(file.exists());
}
