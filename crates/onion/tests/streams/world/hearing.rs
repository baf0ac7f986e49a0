//! What the router says and does, as the client and the destinations take it.

use super::{CIRCUIT, Destination, Heard, POLLS_MAX, World};
use onion::cell::msg::{CreatedFast, DestroyReason, End, EndReason, Sendme, parse_created2};
use onion::cell::relay::{MAX_DATA_LEN, RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::fast;
use onion::node::{ConnId, Node, Security};

impl World {
    /// Does all that the router wants, until it is quiet.
    pub(crate) fn settle(&mut self) {
        self.settle_polls();
        self.router.check_accounts();
    }

    fn settle_polls(&mut self) {
        for _ in 0..POLLS_MAX {
            if let Some(dial) = self.router.poll_dial(self.now) {
                assert_eq!(dial.security, Security::Plain);
                let destination = Destination {
                    to: dial.to,
                    is_connected: false,
                    reads: true,
                    received: Vec::new(),
                    is_readable: false,
                };
                assert!(self.destinations.insert(dial.conn, destination).is_none());
            } else if let Some(lookup) = self.router.poll_lookup() {
                self.questions.push_back((lookup.id, lookup.question));
            } else if let Some(conn) = self.router.poll_writable() {
                if Some(conn) == self.link {
                    if self.reads {
                        self.read_link(usize::MAX);
                    }
                } else {
                    assert!(self.destination(conn).is_connected, "{conn:?} is not connected");
                    self.flush_destination(conn);
                }
            } else if let Some(conn) = self.router.poll_close() {
                if Some(conn) == self.link {
                    self.link = None;
                } else {
                    self.destinations.remove(&conn).expect("known");
                }
                self.closed.push(conn);
            } else if let Some(conn) = self.router.poll_readable() {
                assert!(self.router.receive_limit(conn) > 0, "{conn:?} takes nothing");
                self.destination(conn).is_readable = true;
                self.readable.push(conn);
            } else {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    pub(super) fn flush_destination(&mut self, conn: ConnId) {
        let mut buffer = [0; 16_384];
        while let Some(destination) = self.destinations.get_mut(&conn).filter(|it| it.reads) {
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                break;
            }
            destination.received.extend_from_slice(&buffer[..len]);
        }
    }

    pub(super) fn hear_bytes(&mut self, mut bytes: &[u8]) {
        let mut begun = Vec::new();
        while let Some(cell) = self.channel.handle_bytes(&mut bytes).expect("readable") {
            match cell.command {
                Command::CREATED_FAST => {
                    let created = CreatedFast::parse(cell.body).expect("readable");
                    let keys = fast::Client::new([3; 20]).finish(&created).expect("honest");
                    begun.push((cell.circ_id, keys));
                }
                Command::CREATED2 => {
                    self.created = Some(parse_created2(cell.body).expect("readable").to_vec());
                }
                Command::RELAY => {
                    let circuit = self.circuits.get_mut(&cell.circ_id).expect("a circuit");
                    assert_eq!(circuit.destroyed, None, "after the end");
                    let mut body: [u8; BODY_LEN] = cell.body.try_into().expect("whole");
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
                    let reason = DestroyReason::parse(cell.body);
                    if let Some(circuit) = self.circuits.get_mut(&cell.circ_id) {
                        circuit.destroyed = Some(reason);
                    }
                }
                other => panic!("{other}"),
            }
        }
        for (circ_id, keys) in begun {
            self.add_circuit(circ_id, &keys);
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
