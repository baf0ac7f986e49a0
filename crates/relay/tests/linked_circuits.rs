//! Stock clients link circuits at our exit (proposal 329).

mod common;

use common::{PATIENCE, config, knowing};
use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use link::Clock;
use onion::Instant;
use relay::{ExitSection, Relay, RelayConfig};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn a_stock_client_downloads_whole_over_two_legs_to_our_exit() {
    let stock = ["a", "b", "c", "d"].map(RelaySpec::new).to_vec();
    let network = Network::start(&NetworkSpec::new(stock), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            conflux: Some(true),
            ..ExitSection::default()
        },
        ..config("ours", &folder.path().join("ours"))
    };
    let exit = Relay::start(&settings.check().expect("sound"), channel().0).expect("started");
    network.wait_until_known(&[exit.rsa().0], PATIENCE).expect("listed");
    let relays: Vec<[u8; 20]> = network.relays().iter().map(lab::Node::rsa).collect();
    let _ = knowing(&network, 0, &[&exit.rsa().to_string()]);
    let named = |relays: &[[u8; 20]]| -> String {
        let all: Vec<_> = relays.iter().map(|rsa| format!("${}", hex::encode_upper(rsa))).collect();
        all.join(",")
    };
    // From the start: circuits that are closed while they are being linked are not what this is about.
    let extra = [
        "ConfluxEnabled 1".to_owned(),
        "ConfluxClientUX throughput".to_owned(),
        format!("EntryNodes {}", named(&relays[..2])),
        format!("MiddleNodes {}", named(&relays[2..])),
        format!("ExitNodes {}", named(&[exit.rsa().0])),
        "StrictNodes 1".to_owned(),
    ];
    let all = [&relays[..], &[exit.rsa().0]].concat();
    let mut client = Client::start(&network, "client", &extra, &all, PATIENCE).expect("a client");
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    let mut numbers = 0..;
    let mut all_come_whole = |client: &mut Client, lengths: &[u64], what: &str| {
        let mut heard = wait_until_linked(client, &exit);
        for (place, len) in lengths.iter().enumerate() {
            let content = Content { len: *len, seed: numbers.next().unwrap_or_default() };
            let isolation = format!("{what}, {}", place / 2);
            let done = download(client.socks(), from, content, &isolation, PATIENCE);
            heard.extend(client.events().expect("answers"));
            let done = done.unwrap_or_else(|error| {
                panic!("{what}, {len} bytes: {error}: {:?}, {heard:#?}", exit.totals())
            });
            assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        }
    };
    all_come_whole(&mut client, &[1 << 10, 100_000, 4 << 20, 10 << 20, 10 << 20], "from the start");
    let totals = exit.totals();
    // Each leg has layers of the kind that stock clients prefer.
    assert!(totals.cgo_circuits > 0, "{totals:?}");
    assert!(totals.conflux_switches > 10, "both legs carry: {totals:?}");

    // Who closes circuits while they are being linked has the client put others in their places, in the same sets.
    let pins = Pins {
        entry: relays[..2].to_vec(),
        middle: relays[2..].to_vec(),
        exit: vec![exit.rsa().0],
    };
    for round in 0..3 {
        client.pin(&pins).expect("accepted");
        all_come_whole(&mut client, &[1 << 10, 100_000, 1 << 20], &format!("closed {round}"));
    }
}

/// It links circuits before anybody asks, and takes them first. What it has told meanwhile.
fn wait_until_linked(client: &mut Client, exit: &Relay) -> Vec<String> {
    let clock = Clock::start();
    let mut heard = Vec::new();
    let is_linked = |client: &mut Client| {
        let all = client.control().get_info("circuit-status").expect("answers");
        all.matches("PURPOSE=CONFLUX_LINKED").count() >= 2
    };
    while !is_linked(client) {
        heard.extend(client.events().expect("answers"));
        let has_time = clock.now() - Instant::ORIGIN < PATIENCE;
        assert!(has_time, "no linked circuits: {:?}, {heard:#?}", exit.totals());
        std::thread::park_timeout(Duration::from_millis(200));
    }
    heard
}
