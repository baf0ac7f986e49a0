//! Our relays as exits in a private network, and a name server for them.

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use lab::Network;
use relay::{ExitSection, Relay, RelayConfig, RelayEvent};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Far more than a consensus takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// A name server for which all names but those that begin with `no` are names of loopback.
pub fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let address = socket.local_addr().expect("bound");
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let mut message = Message::from_vec(&buffer[..len]).expect("a question");
            let query = message.queries[0].clone();
            message.metadata.message_type = MessageType::Response;
            let is_known = !query.name.to_string().to_lowercase().starts_with("no");
            if is_known && query.query_type == RecordType::A {
                let data = RData::A(A::new(127, 0, 0, 1));
                message.answers = vec![Record::from_rdata(query.name, 600, data)];
            }
            socket.send_to(&message.to_vec().expect("encoded"), from).expect("sent");
        }
    });
    address
}

/// Our relay as a published exit, and its events.
pub fn ours(
    network: &Network,
    nickname: &str,
    threads: usize,
    hop_windows: &str,
    names: SocketAddr,
    folder: &Path,
) -> (Relay, Receiver<RelayEvent>) {
    let config = RelayConfig {
        nickname: Some(nickname.parse().expect("a nickname")),
        address: Some([127, 0, 0, 1].into()),
        keys: Some(folder.join(nickname)),
        threads: Some(threads),
        hop_windows: Some(hop_windows.to_owned()),
        link_observations_every_s: Some(10),
        authorities: Some(network.directory_addrs()),
        exit: ExitSection {
            policy: Some(vec!["accept *:*".to_owned()]),
            reject_private: Some(false),
            name_servers: Some(vec![names]),
            ..ExitSection::default()
        },
        ..RelayConfig::default()
    };
    let (sender, events) = channel();
    (Relay::start(&config.check().expect("sound"), sender).expect("started"), events)
}

/// Waits until all nodes of the network know our relays, and our relays each other: like C tor, our exit refuses
/// streams on circuits from relays that it does not know.
pub fn wait_until_known(network: &Network, relays: &[(Relay, Receiver<RelayEvent>)]) {
    let all: Vec<[u8; 20]> = relays.iter().map(|(relay, _)| relay.rsa().0).collect();
    let known = network.wait_until_known(&all, PATIENCE).expect("listed as guards");
    for (_, events) in relays {
        let is_it = |event: RelayEvent| matches!(event, RelayEvent::Consensus { valid_after_unix_s, .. } if valid_after_unix_s >= known);
        while !is_it(events.recv_timeout(PATIENCE).expect("a consensus that lists them")) {}
    }
}
