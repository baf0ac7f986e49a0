//! Links with cells that may not be sent now.

use super::{Output, Outputs};
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::conns::Conns;

/// Why a link with cells does not send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Parked {
    #[default]
    No,
    /// The relay's rate limit.
    ByRate,
    /// The clients' share while the relay is measured.
    ByShare,
}

impl Outputs {
    /// Wakes this number of links that the rate limit has blocked, clients' links first.
    pub(crate) fn wake_parked<S: CellModel>(&mut self, conns: &mut Conns<S>, mut count: usize) {
        while count > 0
            && let Some(id) =
                self.parked_clients.pop_front().or_else(|| self.parked_measurers.pop_front())
        {
            self.unpark(conns, id, Parked::ByRate);
            count -= 1;
        }
    }

    /// Wakes this number of links that the clients' share has blocked.
    pub(crate) fn wake_held<S: CellModel>(&mut self, conns: &mut Conns<S>, mut count: usize) {
        while count > 0
            && let Some(id) = self.held_clients.pop_front()
        {
            self.unpark(conns, id, Parked::ByShare);
            count -= 1;
        }
    }

    fn unpark<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, from: Parked) {
        if let Some(output) = conns.output_mut(id)
            && output.parked == from
        {
            output.parked = Parked::No;
            output.awaits_turn = true;
            // It continues with the rest of its allotment.
            if output.has_allotment() {
                self.wake(conns, id);
            } else {
                self.want(conns, id);
            }
        }
    }

    pub(crate) fn park<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, why: Parked) {
        let Some(output) = conns.output_mut(id) else { return };
        if output.parked != Parked::No {
            return;
        }
        output.parked = why;
        let list = match (why, output.is_measurers) {
            (Parked::No, _) => return,
            (Parked::ByShare, _) => &mut self.held_clients,
            (Parked::ByRate, true) => &mut self.parked_measurers,
            (Parked::ByRate, false) => &mut self.parked_clients,
        };
        // Another link was faster: it need not queue again.
        if output.awaits_turn {
            list.push_front(id);
        } else {
            list.push_back(id);
        }
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked_clients.is_empty() || !self.parked_measurers.is_empty()
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held_clients.is_empty()
    }
}

impl Output {
    pub(super) fn is_parked(&self) -> bool {
        self.parked != Parked::No
    }
}
