//! A stock client downloads through relays of ours, as guard, middle and exit.

use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use relay::{ExitSection, Relay, RelayConfig};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Far more than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A relay of ours that is published in this network, and lets clients go anywhere.
fn ours(network: &Network, nickname: &str, folder: &Path) -> Relay {
    let config = RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(folder.join(nickname)),
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            ..ExitSection::default()
        },
        ..RelayConfig::default()
    };
    Relay::start(&config.check().expect("sound"), channel().0).expect("started")
}

#[test]
fn a_stock_client_downloads_through_ours_as_guard_middle_exit_and_all_three() {
    let exit = |nickname: &str| RelaySpec {
        extra_torrc: ["ExitRelay 1", "ExitPolicyRejectPrivate 0", "ExitPolicy accept *:*"]
            .map(str::to_owned)
            .to_vec(),
        ..RelaySpec::new(nickname)
    };
    let network = Network::start(&NetworkSpec::new(vec![exit("stock")]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let relays = ["oursA", "oursB", "oursC"].map(|name| ours(&network, name, folder.path()));
    let [a, b, c] = [0, 1, 2].map(|place: usize| relays[place].rsa().0);
    network.wait_until_running(&[a, b, c], PATIENCE).expect("listed");
    let extra = ["ConfluxEnabled 0".to_owned()];
    let mut client =
        Client::start(&network, "client", &extra, &[a, b, c], PATIENCE).expect("a client");
    let server = ContentServer::start().expect("a server");
    let [x, y] = [0, 1].map(|place: usize| network.authorities()[place].rsa());
    let z = network.relays()[0].rsa();
    let mut number = 0;
    for (what, path) in
        [("middle", [x, b, z]), ("exit", [x, y, c]), ("guard", [a, y, z]), ("all three", [a, b, c])]
    {
        let [entry, middle, exit] = path.map(|rsa| vec![rsa]);
        client.pin(&Pins { entry, middle, exit }).expect("accepted");
        client.used_paths().expect("an answer");
        for len in [1 << 10, 100_000, 2 << 20] {
            number += 1;
            let content = Content { len, seed: number };
            let from = ("127.0.0.1", server.address().port());
            let isolation = number.to_string();
            let done = download(client.socks(), from, content, &isolation, PATIENCE);
            let done = done.unwrap_or_else(|error| panic!("{what}, {len} bytes: {error}"));
            assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        }
        let paths = client.used_paths().expect("an answer");
        assert_eq!(paths.len(), 3, "{what}: a circuit for each");
        assert!(paths.iter().all(|used| *used == path), "{what}: {paths:x?}");
    }
}
