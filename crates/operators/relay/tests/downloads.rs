//! An unmodified client downloads through these relays as guard, middle and exit.

use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use std::time::Duration;
use testkit::exits::{name_server, ours, wait_until_known};

/// Timeout, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

#[test]
fn a_c_tor_client_downloads_through_our_relays_in_all_positions() {
    let exit = |nickname: &str| RelaySpec::open_exit(nickname);
    let network = Network::start(&NetworkSpec::new(vec![exit("stock")]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let names = name_server();
    // Single-threaded, with I/O threads, and with hop-by-hop windows between the last two.
    let ours = |name, threads, hop_windows| {
        ours(&network, name, threads, hop_windows, names, folder.path())
    };
    let relays = [
        ours("oursA", 1, "off"),
        ours("oursB", 3, "circuitstart"),
        ours("oursC", 2, "circuitstart"),
    ];
    wait_until_known(&network, &relays);
    let relays = relays.map(|(relay, _)| relay);
    let [a, b, c] = relays.each_ref().map(|relay| relay.rsa().0);
    let [x, y] = [0, 1].map(|place: usize| network.authorities()[place].rsa());
    let z = network.relays()[0].rsa();
    // From the start: no circuit of the client may use two of these relays with hop-by-hop windows
    // between them.
    let named = |rsa: [u8; 20]| format!("${}", hex::encode_upper(rsa));
    let extra = [
        "ConfluxEnabled 0".to_owned(),
        format!("EntryNodes {}", named(x)),
        format!("MiddleNodes {}", named(b)),
        format!("ExitNodes {}", named(z)),
        "StrictNodes 1".to_owned(),
    ];
    let all = [a, b, c, x, y, z];
    let mut client = Client::start(&network, "client", &extra, &all, PATIENCE).expect("a client");
    let server = ContentServer::start().expect("a server");
    let passed_on = || [0, 1, 2].map(|place: usize| relays[place].totals().passed_on_cells);
    let mut number = 0;
    for (what, path) in [
        ("middle", [x, b, z]),
        ("exit", [x, y, c]),
        ("guard", [a, y, z]),
        ("all three", [a, b, c]),
        ("with a C tor relay between windows", [b, x, c]),
    ] {
        let [entry, middle, exit] = path.map(|rsa| vec![rsa]);
        client.pin(&Pins { entry, middle, exit }).expect("accepted");
        client.used_paths().expect("an answer");
        for len in [1 << 10, 100_000, 2 << 20] {
            number += 1;
            let content = Content { len, seed: number };
            let from = ("127.0.0.1", server.address().port());
            let isolation = number.to_string();
            let done = download(client.socks(), from, content, &isolation, PATIENCE);
            let done = done.unwrap_or_else(|error| {
                panic!("{what}, {len} bytes: {error}: {:#?}", client.events())
            });
            assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        }
        // Only the two relays with hop-by-hop windows use them, with each other.
        match (what, passed_on()) {
            ("middle" | "exit" | "guard", counts) => assert_eq!(counts, [0; 3], "{what}"),
            (_, [a, b, c]) => assert!(a == 0 && b > 0 && c > 4_000, "{what}: {a}, {b}, {c}"),
        }
        let paths = client.used_paths().expect("an answer");
        assert_eq!(paths.len(), 3, "{what}: a circuit for each");
        assert!(paths.iter().all(|used| *used == path), "{what}: {paths:x?}");
    }

    // Our exit resolves names, and reports why a destination is unreachable.
    let content = Content { len: 50_000, seed: 99 };
    let port = server.address().port();
    let done = download(client.socks(), ("files.test", port), content, "name", PATIENCE);
    assert!(done.expect("found").is_right);
    drop(server);
    let refused = download(client.socks(), ("127.0.0.1", port), content, "refused", PATIENCE);
    let problem = refused.expect_err("nobody listens").to_string();
    assert!(problem.contains("code 5"), "{problem}");
}
