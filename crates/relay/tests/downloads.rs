//! A stock client downloads through relays of ours, as guard, middle and exit.

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use lab::{Client, Content, ContentServer, Network, NetworkSpec, Pins, RelaySpec, download};
use relay::{ExitSection, Relay, RelayConfig};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Far more than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A name server for which all names are names of loopback.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let mut message = Message::from_vec(&buffer[..len]).expect("a question");
            let query = message.queries[0].clone();
            message.metadata.message_type = MessageType::Response;
            if query.query_type == RecordType::A {
                let data = RData::A(A::new(127, 0, 0, 1));
                message.answers = vec![Record::from_rdata(query.name, 600, data)];
            }
            socket.send_to(&message.to_vec().expect("encoded"), from).expect("sent");
        }
    });
    address
}

/// A relay of ours that is published in this network, and lets clients go anywhere.
fn ours(
    network: &Network,
    nickname: &str,
    threads: usize,
    names: SocketAddr,
    folder: &Path,
) -> Relay {
    let config = RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(folder.join(nickname)),
        threads: Some(threads),
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            name_servers: Some(vec![names]),
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
    let names = name_server();
    // Alone, and with threads that serve the sockets: nobody is to notice.
    let relays = [("oursA", 1), ("oursB", 3), ("oursC", 2)]
        .map(|(name, threads)| ours(&network, name, threads, names, folder.path()));
    let [a, b, c] = [0, 1, 2].map(|place: usize| relays[place].rsa().0);
    network.wait_until_known(&[a, b, c], PATIENCE).expect("listed as guards");
    let extra = ["ConfluxEnabled 0".to_owned()];
    let [x, y] = [0, 1].map(|place: usize| network.authorities()[place].rsa());
    let z = network.relays()[0].rsa();
    let all = [a, b, c, x, y, z];
    let mut client = Client::start(&network, "client", &extra, &all, PATIENCE).expect("a client");
    let server = ContentServer::start().expect("a server");
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
            let done = done.unwrap_or_else(|error| {
                panic!("{what}, {len} bytes: {error}: {:#?}", client.events())
            });
            assert!(done.is_right, "{what}, {len} bytes: {done:?}");
        }
        let paths = client.used_paths().expect("an answer");
        assert_eq!(paths.len(), 3, "{what}: a circuit for each");
        assert!(paths.iter().all(|used| *used == path), "{what}: {paths:x?}");
    }

    // Our exit, the last one, looks names up, and says why a destination cannot be reached.
    let content = Content { len: 50_000, seed: 99 };
    let port = server.address().port();
    let done = download(client.socks(), ("files.test", port), content, "name", PATIENCE);
    assert!(done.expect("found").is_right);
    drop(server);
    let refused = download(client.socks(), ("127.0.0.1", port), content, "refused", PATIENCE);
    let problem = refused.expect_err("nobody listens").to_string();
    assert!(problem.contains("code 5"), "{problem}");
}
