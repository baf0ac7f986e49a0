//! What the router says, as the client takes it.

use super::{CIRCUIT, Heard, LINK, World};
use onion::cell::msg::{CreatedFast, DestroyReason, End, EndReason, Sendme, parse_created2};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::fast;
use testkit::fixture::Came;

impl World {
    /// Takes in what has come on the client's link.
    pub(super) fn hear_all(&mut self) {
        while let Some(cell) = self.ends[LINK].came.pop_front() {
            self.hear_cell(&cell);
        }
    }

    fn hear_cell(&mut self, cell: &Came) {
        match cell.command {
            Command::CREATED_FAST => {
                let created = CreatedFast::parse(&cell.body).expect("readable");
                let keys = fast::Client::new([3; 20]).finish(&created).expect("honest");
                self.add_circuit(cell.circ_id, &keys);
            }
            Command::CREATED2 => {
                self.created = Some(parse_created2(&cell.body).expect("readable").to_vec());
            }
            Command::RELAY => {
                let circuit = self.circuits.get_mut(&cell.circ_id).expect("a circuit");
                assert_eq!(circuit.destroyed, None, "after the end");
                let mut body: [u8; BODY_LEN] = cell.body[..].try_into().expect("whole");
                circuit.hop.decrypt(&mut body).expect("from the router");
                let message = RelayMessage::parse(&body).expect("readable");
                if message.command == RelayCommand::DATA {
                    assert!((1..=MAX_DATA_LEN).contains(&message.data.len()));
                    circuit.tags.push(circuit.hop.received_tag());
                }
                let RelayMessage { command, stream_id, data } = message;
                circuit.heard.push_back(Heard { command, stream_id, data: data.to_vec() });
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
    pub(crate) fn hear_on(&mut self, circ_id: CircId) -> Heard {
        let circuit = self.circuits.get_mut(&circ_id).expect("a circuit");
        circuit.heard.pop_front().expect("something is said")
    }

    /// What the router has said next.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> Heard {
        self.hear_on(CIRCUIT)
    }

    #[track_caller]
    pub(crate) fn hear_end(&mut self, stream_id: u16) -> EndReason {
        let heard = self.hear();
        assert_eq!((heard.command, heard.stream_id), (RelayCommand::END, stream_id));
        End::parse(&heard.data).reason
    }

    /// All data of a stream that has been heard; the rest stays.
    pub(crate) fn hear_data(&mut self, stream_id: u16) -> Vec<u8> {
        let circuit = self.circuits.get_mut(&CIRCUIT).expect("a circuit");
        let is_it = |it: &Heard| it.command == RelayCommand::DATA && it.stream_id == stream_id;
        let data = circuit.heard.iter().filter(|it| is_it(it)).flat_map(|it| it.data.clone());
        let data = data.collect();
        circuit.heard.retain(|it| !is_it(it));
        data
    }

    /// Nothing more was said.
    #[track_caller]
    pub(crate) fn hear_nothing(&self) {
        assert_eq!(self.circuits[&CIRCUIT].heard, []);
        assert_eq!(self.destroyed(), None);
    }

    pub(crate) fn destroyed(&self) -> Option<DestroyReason> {
        self.circuits[&CIRCUIT].destroyed
    }

    /// Acknowledges this hundred of DATA cells: the first is number zero.
    pub(crate) fn acknowledge(&mut self, hundred: usize) {
        let tag = self.circuits[&CIRCUIT].tags[hundred * 100 + 99];
        self.send_sendme(&tag);
    }

    pub(crate) fn send_sendme(&mut self, tag: &[u8]) {
        let mut data = Vec::new();
        Sendme::Tagged(tag).encode_into(&mut data);
        self.say(RelayCommand::SENDME, 0, &data);
    }
}
