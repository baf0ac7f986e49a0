//! Links with cells that may not be sent now.

use super::{Output, Outputs};
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::conns::Conns;

/// Why a link with cells may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkedBy {
    /// The relay's rate limit.
    Rate,
    /// The clients' share while the relay is measured.
    Share,
}

/// Whether a link with cells may send them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Parking {
    /// It may, and has sent since it was last parked, or was never parked.
    #[default]
    No,
    /// It may, and has not sent since it was parked.
    Woken,
    /// It may not.
    Parked(ParkedBy),
}

impl Outputs {
    /// Wakes this number of links that the rate limit has blocked, clients' links first.
    pub(crate) fn wake_parked<S: CellModel>(&mut self, conns: &mut Conns<S>, mut count: usize) {
        while count > 0
            && let Some(id) =
                self.parked_clients.pop_front().or_else(|| self.parked_measurers.pop_front())
        {
            self.unpark(conns, id, ParkedBy::Rate);
            count -= 1;
        }
    }

    /// Wakes this number of links that the clients' share has blocked.
    pub(crate) fn wake_held<S: CellModel>(&mut self, conns: &mut Conns<S>, mut count: usize) {
        while count > 0
            && let Some(id) = self.held_clients.pop_front()
        {
            self.unpark(conns, id, ParkedBy::Share);
            count -= 1;
        }
    }

    fn unpark<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, from: ParkedBy) {
        if let Some(output) = conns.output_mut(id)
            && output.parking == Parking::Parked(from)
        {
            output.parking = Parking::Woken;
            // It continues with the rest of its allotment.
            if output.has_allotment() {
                self.wake(conns, id);
            } else {
                self.want(conns, id);
            }
        }
    }

    pub(crate) fn park<S: CellModel>(&mut self, conns: &mut Conns<S>, id: ConnId, by: ParkedBy) {
        let Some(output) = conns.output_mut(id) else { return };
        let list = match (by, output.is_measurers) {
            (ParkedBy::Share, _) => &mut self.held_clients,
            (ParkedBy::Rate, true) => &mut self.parked_measurers,
            (ParkedBy::Rate, false) => &mut self.parked_clients,
        };
        match output.parking {
            Parking::No => list.push_back(id),
            // Another link was faster: it need not queue again.
            Parking::Woken => list.push_front(id),
            Parking::Parked(_) => return,
        }
        output.parking = Parking::Parked(by);
    }

    pub(crate) fn has_parked(&self) -> bool {
        !self.parked_clients.is_empty() || !self.parked_measurers.is_empty()
    }

    pub(crate) fn has_held(&self) -> bool {
        !self.held_clients.is_empty()
    }
}

impl Output {
    #[inline]
    pub(super) const fn is_parked(&self) -> bool {
        matches!(self.parking, Parking::Parked(_))
    }
}
