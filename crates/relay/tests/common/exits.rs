//! Relays of ours that are exits, and a name server for them.

use hickory_proto::op::{Message, MessageType};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{RData, Record, RecordType};
use lab::Network;
use relay::{ExitSection, Relay, RelayConfig};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

/// A name server for which all names but those that begin with `no` are names of loopback.
pub(crate) fn name_server() -> SocketAddr {
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

/// A relay of ours that is published in this network, and lets clients go anywhere.
pub(crate) fn ours(
    network: &Network,
    nickname: &str,
    (threads, hop_windows): (usize, &str),
    names: SocketAddr,
    folder: &Path,
) -> Relay {
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
    Relay::start(&config.check().expect("sound"), channel().0).expect("started")
}
