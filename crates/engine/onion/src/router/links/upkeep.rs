//! Periodic upkeep: idle links, and stalled queues.

use super::link::Role;
use super::uniform::uniform_below;
use crate::cell_model::CellModel;
use crate::node::ConnId;
use crate::router::{Behavior, Core, Parameters, RouterEvent};
use crate::time::{Duration, Instant};
use alloc::vec::Vec;
use rand_core::Rng;

/// The interval of upkeep.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// Maximum time of the link handshake after TLS, or of dialling and both. Otherwise silent peers would occupy
/// links forever.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);

/// A client's link without circuits is closed after this time, plus up to half of it at random.
const CLIENT_IDLE_S: u32 = 180;

/// How long a link stays open without circuits. As in C tor it is random: a fixed time would reveal when the
/// last circuit ended (padding-spec §2.6).
pub(crate) fn idle_max(rng: &mut impl Rng, is_relays: bool, parameters: &Parameters) -> Duration {
    let seconds = if is_relays {
        let middle_s = parameters.nf_conntimeout_relays.as_secs();
        let middle_s = u32::try_from(middle_s).unwrap_or(u32::MAX / 4);
        middle_s * 3 / 4 + uniform_below(rng, middle_s / 2)
    } else {
        CLIENT_IDLE_S + uniform_below(rng, CLIENT_IDLE_S / 2)
    };
    Duration::from_secs(seconds.into())
}

impl<S: CellModel, R: Rng, C: Behavior<S>> Core<S, R, C> {
    /// When the next upkeep of links and streams is due; `None` without any.
    pub(crate) fn upkeep_at(&self) -> Option<Instant> {
        let conns = self.conns.link_count() + self.conns.stream_count();
        (conns > 0).then(|| self.upkept_at + PERIOD)
    }

    /// Closes links that have never opened, and unused ones.
    pub(crate) fn upkeep(&mut self) {
        let now = self.outputs.now();
        if now < self.upkept_at + PERIOD {
            return;
        }
        self.upkept_at = now;
        self.target.note_clients(now);
        self.client_addresses.expire(now);
        let mut stale: Vec<ConnId> = Vec::new();
        for (id, link) in self.conns.links_mut() {
            link.padding_cells = 0;
            let is_used = link.role != Role::Ordinary || link.circuits.len() > 0;
            if link.is_open && is_used {
                link.used_at = now;
            }
            let is_worn_out = !is_used && link.is_old(now);
            let most = if link.is_open { link.idle_max } else { HANDSHAKE_MAX };
            if is_worn_out || now - link.used_at >= most {
                stale.push(id);
            }
        }
        for id in stale {
            self.close(id);
        }
        self.expire_streams();
        self.check_leg_timeouts();
        self.circuits.rest();
        self.drain_target();
    }

    /// Reports an event that a peer can cause at will. The rate is limited, since the shell logs each report.
    pub(crate) fn report_limited(&mut self, event: RouterEvent) {
        if self.refusals_told.available_bytes(self.outputs.now()) > 0 {
            self.refusals_told.take(1);
            self.report(event);
        }
    }
}
