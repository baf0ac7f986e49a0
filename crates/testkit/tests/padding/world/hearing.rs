//! What the router says, as the other ends of its links take it.

use super::{Heard, NodeIndex, World};
use onion::cell::msg::{CreatedFast, encode_created2_into};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::crypto::{ClientHop, fast};
use onion::node::{CloseCause, Node};
use testkit::fixture::Came;

impl World {
    /// Takes in what has come on all links, and answers it, until there is nothing more.
    pub(super) fn hear_all(&mut self) {
        loop {
            while let Some(place) = self.dialled.pop_front() {
                self.answer(place);
            }
            let came = self.ends.iter_mut().enumerate().find_map(|(place, end)| {
                let cell = end.came.pop_front()?;
                Some((place, cell))
            });
            self.heard.resize_with(self.ends.len(), Heard::default);
            let Some((place, cell)) = came else { return };
            self.hear(place, &cell);
        }
    }

    /// Answers a dial of the router's.
    fn answer(&mut self, place: NodeIndex) {
        if !self.refuses {
            let claims = self.claims.clone();
            self.answer_dial(place, &claims);
            return;
        }
        let (session, now) = (self.session(self.ends[place].exported), self.now);
        let conn = self.ends[place].conn.expect("dialled");
        self.router.handle_connected(now, conn, &session);
        self.close(place, CloseCause::ByPeer);
        self.forget_from(place);
    }

    fn hear(&mut self, place: NodeIndex, cell: &Came) {
        let heard = &mut self.heard[place];
        match cell.command {
            Command::PADDING => {
                assert_eq!((cell.circ_id, &cell.body[..]), (CircId::LINK, &[0; BODY_LEN][..]));
                heard.padded.push((cell.at, cell.pause));
                return;
            }
            Command::CREATED_FAST => {
                let created = CreatedFast::parse(&cell.body).expect("readable");
                let keys = fast::Client::new([3; 20]).finish(&created).expect("honest");
                heard.hops.insert(cell.circ_id, ClientHop::new(&keys));
            }
            _ => {}
        }
        heard.came.push((cell.circ_id, cell.command));
        if cell.command == Command::CREATE2 {
            let mut created = Vec::new();
            encode_created2_into(&[9; 64], &mut created);
            self.fixture.say(place, cell.circ_id, Command::CREATED2, &created);
        }
    }

    /// Takes what has waited.
    pub(crate) fn release(&mut self, place: NodeIndex) {
        self.ends[place].reads = true;
        self.read(place, usize::MAX);
        self.hear_all();
    }
}
