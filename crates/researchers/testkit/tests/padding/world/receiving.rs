//! The peers' reactions to the router's cells.

use super::{LinkIndex, LinkRecord, World};
use onion::cell::msg::encode_created2_into;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::ClientHop;
use onion::node::{CloseCause, Node};
use testkit::fixture::ReceivedCell;

impl World {
    /// Processes and answers all received cells.
    pub(super) fn receive_all(&mut self) {
        loop {
            while let Some(index) = self.dialled.pop_front() {
                self.answer(index);
            }
            let received = self.peers.iter_mut().enumerate().find_map(|(index, end)| {
                let cell = end.received.pop_front()?;
                Some((index, cell))
            });
            self.records.resize_with(self.peers.len(), LinkRecord::default);
            let Some((index, cell)) = received else { return };
            self.receive(index, &cell);
        }
    }

    /// Answers the router's dial.
    fn answer(&mut self, index: LinkIndex) {
        if !self.refuses {
            let claims = self.claims.clone();
            self.answer_dial(index, &claims);
            return;
        }
        let (session, now) = (self.session(self.peers[index].exported), self.now);
        let conn = self.peers[index].conn.expect("dialled");
        self.router.handle_connected(now, conn, &session);
        self.close(index, CloseCause::ByPeer);
        self.forget_from(index);
    }

    fn receive(&mut self, index: LinkIndex, cell: &ReceivedCell) {
        let record = &mut self.records[index];
        match cell.command {
            Command::PADDING => {
                assert_eq!((cell.circ_id, &cell.body[..]), (CircId::LINK, &[0; BODY_LEN][..]));
                record.padding.push((cell.at, cell.pause));
                return;
            }
            Command::CREATED_FAST => {
                let keys = cell.fast_keys().expect("valid");
                record.hops.insert(cell.circ_id, ClientHop::new(&keys));
            }
            _ => {}
        }
        record.received.push((cell.circ_id, cell.command));
        if cell.command == Command::CREATE2 {
            let mut created = Vec::new();
            encode_created2_into(&[9; 64], &mut created);
            self.fixture.send_cell(index, cell.circ_id, Command::CREATED2, &created);
        }
    }

    /// Reads the queued output of a link, and continues reading.
    pub(crate) fn resume(&mut self, index: LinkIndex) {
        self.peers[index].reads = true;
        self.read(index, usize::MAX);
        self.receive_all();
    }
}
