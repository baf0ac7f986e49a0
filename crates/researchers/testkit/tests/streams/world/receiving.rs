//! The cells and messages that the client receives.

use super::{CIRCUIT, LINK, Message, World};
use onion::cell::msg::{DestroyReason, End, EndReason, Sendme, parse_created2};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use testkit::fixture::ReceivedCell;

impl World {
    /// Processes the cells received on the client's link.
    pub(super) fn receive_all(&mut self) {
        while let Some(cell) = self.peers[LINK].received.pop_front() {
            self.receive(&cell);
        }
    }

    fn receive(&mut self, cell: &ReceivedCell) {
        match cell.command {
            Command::CREATED_FAST => {
                self.add_circuit(cell.circ_id, &cell.fast_keys().expect("valid"));
            }
            Command::CREATED2 => {
                self.created = Some(parse_created2(&cell.body).expect("readable").to_vec());
            }
            Command::RELAY => {
                let circuit = self.circuits.get_mut(&cell.circ_id).expect("a circuit");
                assert_eq!(circuit.destroyed, None, "a cell after DESTROY");
                let mut body: [u8; BODY_LEN] =
                    cell.body[..].try_into().expect("a fixed-length body");
                circuit.hop.decrypt(&mut body).expect("from the router");
                let message = RelayMessage::parse(&body).expect("readable");
                if message.command == RelayCommand::DATA {
                    assert!((1..=MAX_DATA_LEN).contains(&message.data.len()));
                    circuit.tags.push(circuit.hop.received_tag());
                }
                let RelayMessage { command, stream_id, data } = message;
                circuit.messages.push_back(Message { command, stream_id, data: data.to_vec() });
            }
            Command::DESTROY => {
                if let Some(circuit) = self.circuits.get_mut(&cell.circ_id) {
                    circuit.destroyed = Some(DestroyReason::parse(&cell.body));
                }
            }
            other => panic!("{other}"),
        }
    }

    #[track_caller]
    pub(crate) fn next_message_on(&mut self, circ_id: CircId) -> Message {
        let circuit = self.circuits.get_mut(&circ_id).expect("a circuit");
        circuit.messages.pop_front().expect("a message")
    }

    /// The router's next message on the first circuit.
    #[track_caller]
    pub(crate) fn next_message(&mut self) -> Message {
        self.next_message_on(CIRCUIT)
    }

    #[track_caller]
    pub(crate) fn expect_end(&mut self, stream_id: u16) -> EndReason {
        let message = self.next_message();
        assert_eq!((message.command, message.stream_id), (RelayCommand::END, stream_id));
        End::parse(&message.data).reason
    }

    /// Removes and returns the received data of a stream.
    pub(crate) fn take_data(&mut self, stream_id: u16) -> Vec<u8> {
        let circuit = self.circuits.get_mut(&CIRCUIT).expect("a circuit");
        let is_it = |message: &Message| {
            message.command == RelayCommand::DATA && message.stream_id == stream_id
        };
        let data = circuit
            .messages
            .iter()
            .filter(|message| is_it(message))
            .flat_map(|message| message.data.clone());
        let data = data.collect();
        circuit.messages.retain(|message| !is_it(message));
        data
    }

    /// Asserts that the router has sent no further message.
    #[track_caller]
    pub(crate) fn expect_nothing(&self) {
        assert_eq!(self.circuits[&CIRCUIT].messages, []);
        assert_eq!(self.destroyed(), None);
    }

    pub(crate) fn destroyed(&self) -> Option<DestroyReason> {
        self.circuits[&CIRCUIT].destroyed
    }

    /// Acknowledges a hundred DATA cells; `hundred` counts from zero.
    pub(crate) fn acknowledge(&mut self, hundred: usize) {
        let tag = self.circuits[&CIRCUIT].tags[hundred * 100 + 99];
        self.send_sendme(&tag);
    }

    pub(crate) fn send_sendme(&mut self, tag: &[u8]) {
        let mut data = Vec::new();
        Sendme::Tagged(tag).encode_into(&mut data);
        self.send(RelayCommand::SENDME, 0, &data);
    }
}
