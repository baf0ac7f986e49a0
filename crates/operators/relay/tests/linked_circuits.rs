//! C tor clients link circuits at our exit (proposal 329).

use crate::common::{PATIENCE, config, knowing};
use lab::{
    Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, connect_through,
    download, read_rest,
};
use link::Clock;
use onion::Instant;
use relay::{ExitSection, Relay, RelayConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Starts an exit with Conflux, and waits until the network lists it.
fn linking_exit(network: &Network, folder: &Path) -> Relay {
    let settings = RelayConfig {
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            conflux: Some(true),
            ..ExitSection::default()
        },
        ..config("ours", &folder.join("ours"))
    };
    let exit = Relay::start(&settings.check().expect("sound"), channel().0).expect("started");
    network.wait_until_known(&[exit.rsa().0], PATIENCE).expect("listed");
    let _ = knowing(network, 0, &[&exit.rsa().to_string()]);
    exit
}

/// A C tor client that links circuits through these guards and the other relays at our exit.
fn linking_client(network: &Network, guards: usize, exit: &Relay) -> Client {
    let relays: Vec<[u8; 20]> = network.relays().iter().map(lab::Node::rsa).collect();
    let named = |relays: &[[u8; 20]]| -> String {
        let all: Vec<_> = relays.iter().map(|rsa| format!("${}", hex::encode_upper(rsa))).collect();
        all.join(",")
    };
    // Set from the start, so that no circuits are closed while they are being linked.
    let extra = [
        "ConfluxEnabled 1".to_owned(),
        "ConfluxClientUX throughput".to_owned(),
        format!("EntryNodes {}", named(&relays[..guards])),
        format!("MiddleNodes {}", named(&relays[guards..])),
        format!("ExitNodes {}", named(&[exit.rsa().0])),
        "StrictNodes 1".to_owned(),
    ];
    let all = [&relays[..], &[exit.rsa().0]].concat();
    Client::start(network, "client", &extra, &all, PATIENCE).expect("a client")
}

#[test]
fn a_c_tor_client_downloads_over_two_legs_to_our_exit() {
    let c_tor = ["a", "b", "c", "d"].map(RelaySpec::new).to_vec();
    let network = Network::start(&NetworkSpec::new(c_tor), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let exit = linking_exit(&network, folder.path());
    let relays: Vec<[u8; 20]> = network.relays().iter().map(lab::Node::rsa).collect();
    let mut client = linking_client(&network, 2, &exit);
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    let mut numbers = 0..;
    let mut assert_all_complete = |client: &mut Client, lengths: &[u64], what: &str| {
        let mut events = wait_until_linked(client, &exit);
        for (place, len) in lengths.iter().enumerate() {
            let content = Content { len: *len, seed: numbers.next().unwrap_or_default() };
            let isolation = format!("{what}, {}", place / 2);
            let done = download(client.socks(), from, content, &isolation, PATIENCE);
            events.extend(client.events().expect("answers"));
            let done = done.unwrap_or_else(|error| {
                panic!("{what}, {len} bytes: {error}: {:?}, {events:#?}", exit.totals())
            });
            assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        }
    };
    assert_all_complete(
        &mut client,
        &[1 << 10, 100_000, 4 << 20, 10 << 20, 10 << 20],
        "from the start",
    );
    let totals = exit.totals();
    // Each leg uses the relay cryptography that C tor clients prefer.
    assert!(totals.cgo_circuits > 0, "{totals:?}");
    assert!(totals.conflux_switches > 10, "both legs carry: {totals:?}");

    // If circuits are closed while they are being linked, the client replaces them in the same sets.
    let pins = Pins {
        entry: relays[..2].to_vec(),
        middle: relays[2..].to_vec(),
        exit: vec![exit.rsa().0],
    };
    for round in 0..3 {
        client.pin(&pins).expect("accepted");
        assert_all_complete(&mut client, &[1 << 10, 100_000, 1 << 20], &format!("closed {round}"));
    }
}

/// Waits until the client has linked circuits, which it does before any stream. Returns its events.
fn wait_until_linked(client: &mut Client, exit: &Relay) -> Vec<String> {
    let clock = Clock::start();
    let mut events = Vec::new();
    let is_linked = |client: &mut Client| {
        let all = client.control().get_info("circuit-status").expect("answers");
        all.matches("PURPOSE=CONFLUX_LINKED").count() >= 2
    };
    while !is_linked(client) {
        events.extend(client.events().expect("answers"));
        let has_time = clock.now() - Instant::ORIGIN < PATIENCE;
        assert!(has_time, "no linked circuits: {:?}, {events:#?}", exit.totals());
        std::thread::park_timeout(Duration::from_millis(200));
    }
    events
}

/// The guards of the set with the latest stream, according to tor's control port.
fn guards_of_the_latest(client: &mut Client) -> Vec<String> {
    // "STREAM 12 SUCCEEDED 7 127.0.0.1:80"
    let seen = client.events().expect("answers");
    let stream = seen
        .iter()
        .rev()
        .find_map(|event| event.strip_prefix("STREAM ")?.split_once(" SUCCEEDED "));
    let circuit = stream.and_then(|(_, rest)| rest.split(' ').next()).expect("a stream").to_owned();
    // "7 BUILT $FP~name,$FP~name,$FP~name … PURPOSE=CONFLUX_LINKED … CONFLUX_ID=…"
    let all = client.control().get_info("circuit-status").expect("answers");
    let set_of = |line: &str| {
        line.split(' ').find(|word| word.starts_with("CONFLUX_ID=")).map(str::to_owned)
    };
    let mine = all.lines().find(|line| line.split(' ').next() == Some(&circuit));
    let set =
        mine.and_then(set_of).unwrap_or_else(|| panic!("circuit {circuit} is not a leg: {all}"));
    let legs = all.lines().filter(|line| set_of(line).as_deref() == Some(&set));
    let guards = legs.filter_map(|line| line.split(' ').nth(2)?.strip_prefix('$')?.get(..40));
    guards.map(str::to_owned).collect()
}

/// A C tor client neither retransmits the cells in flight on a lost leg nor requests them (proposal 329 §2.4.3): where cells may be
/// missing, both ends close the set. All received data is right, nothing hangs, and the next download completes.
#[test]
fn a_killed_leg_of_a_c_tor_client_corrupts_no_data_and_hangs_no_stream() {
    let c_tor = ["a", "b", "c", "d", "e", "f"].map(RelaySpec::new).to_vec();
    let network = Network::start(&NetworkSpec::new(c_tor), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let exit = linking_exit(&network, folder.path());
    let mut client = linking_client(&network, 4, &exit);
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    wait_until_linked(&mut client, &exit);
    let request = b"GET /50000000/1 HTTP/1.0\r\n\r\n";
    let to = ("127.0.0.1", port);
    let mut stream = connect_through(client.socks(), to, "first", PATIENCE).expect("granted");
    stream.write_all(request).expect("sent");
    // This amount exceeds the window of one leg, so both carry data.
    let mut got = vec![0; 5_000_000];
    stream.read_exact(&mut got).expect("it comes");
    let guards = guards_of_the_latest(&mut client);
    assert_eq!(guards.len(), 2, "{guards:?}");
    let node = network.nodes().iter().find(|node| node.rsa_hex().eq_ignore_ascii_case(&guards[0]));
    node.expect("a C tor relay").kill();
    got.extend(read_rest(&mut stream).expect("it ends"));
    let mut direct = TcpStream::connect(server.address()).expect("it listens");
    direct.write_all(request).expect("sent");
    assert!(
        read_rest(&mut direct).expect("it ends").starts_with(&got),
        "{} bytes are wrong",
        got.len()
    );
    drop(stream);

    // Sets with the dead relay in the middle of a leg fail later. Their streams end, too.
    let (mut whole, mut tried) = (0, 0);
    while whole < 3 {
        tried += 1;
        let content = Content { len: 500_000, seed: tried };
        let done = download(client.socks(), ("127.0.0.1", port), content, "next", PATIENCE);
        let is_right = done.as_ref().is_ok_and(|done| done.is_right);
        let is_cut = done.as_ref().map_or(true, |done| done.received < content.len);
        assert!(is_right || (is_cut && tried < 20), "{done:?}: {:?}", exit.totals());
        whole += u64::from(is_right);
    }
}
