//! What the router says, as the other ends of its links take it.

use super::{NodeIndex, OTHER, World, tls, unix_time_s};
use onion::cell::msg::{CreatedFast, encode_created2_into};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{ClientHop, fast};
use onion::link::Channel;
use onion::node::{CloseCause, ConnId, Node};
use std::sync::Arc;

impl World {
    /// Does all that the router wants, until it is quiet.
    pub(super) fn settle(&mut self) {
        self.settle_polls();
        self.router.check_accounts();
    }

    fn settle_polls(&mut self) {
        loop {
            if let Some(dial) = self.router.poll_dial(self.now) {
                if self.refuses {
                    self.router.handle_connected(self.now, dial.conn, &tls());
                    self.router.handle_closed(self.now, dial.conn, CloseCause::ByPeer);
                    continue;
                }
                let channel =
                    Channel::responder(Arc::clone(&OTHER), &tls(), [2; 32], unix_time_s())
                        .at_addresses(&self.claims);
                let place = self.add(Some(dial.conn), channel);
                self.router.handle_connected(self.now, dial.conn, &tls());
                self.exchange(place);
            } else if let Some(conn) = self.router.poll_writable() {
                self.flush(conn);
            } else if let Some(conn) = self.router.poll_close() {
                let end = self.ends.iter_mut().find(|end| end.conn == Some(conn));
                end.expect("known").conn = None;
            } else {
                return;
            }
        }
    }

    fn flush(&mut self, conn: ConnId) {
        let place = self.ends.iter().position(|end| end.conn == Some(conn)).expect("known");
        let mut buffer = [0; 16_384];
        while self.ends[place].reads {
            let len = self.router.poll_transmit(self.now, conn, &mut buffer);
            if len == 0 {
                return;
            }
            self.hear(place, &buffer[..len]);
            self.exchange(place);
        }
    }

    /// Takes what has waited.
    pub(crate) fn release(&mut self, place: NodeIndex) {
        self.ends[place].reads = true;
        self.ends[place].conn.into_iter().for_each(|conn| self.flush(conn));
        self.settle();
    }

    fn hear(&mut self, place: NodeIndex, mut bytes: &[u8]) {
        let end = &mut self.ends[place];
        let mut begun = None;
        while let Some(cell) = end.channel.handle_bytes(&mut bytes).expect("readable") {
            match cell.command {
                Command::PADDING => {
                    assert_eq!((cell.circ_id, cell.body), (CircId::LINK, &[0; BODY_LEN][..]));
                    end.padded.push((self.now, self.now - end.active_at));
                    end.active_at = self.now;
                    continue;
                }
                Command::CREATED_FAST => {
                    let created = CreatedFast::parse(cell.body).expect("readable");
                    let keys = fast::Client::new([3; 20]).finish(&created).expect("honest");
                    end.hops.insert(cell.circ_id, ClientHop::new(&keys));
                }
                Command::CREATE2 => begun = Some(cell.circ_id),
                _ => {}
            }
            end.came.push((cell.circ_id, cell.command));
        }
        end.active_at = self.now;
        if let Some(circ_id) = begun {
            let mut created = Vec::new();
            encode_created2_into(&[9; 64], &mut created);
            end.channel.send(circ_id, Command::CREATED2, &created);
        }
    }
}
