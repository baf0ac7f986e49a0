//! What a round is to be like.

use super::{Request, Team};
use crate::member::{RoundOrder, RoundWayBack};
use coordinator::Assignment;
use onion::{Duration, Instant};
use std::num::NonZeroU32;

/// What a round is to be like.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) round: u32,
    pub(super) assignments: Vec<Assignment>,
    pub(super) seconds: u32,
    pub(super) held_back_s: Option<u32>,
    pub(super) check_share: f64,
    pub(super) way_back: RoundWayBack,
    /// When the measurers must be ready.
    pub(super) deadline: Instant,
}

/// What one measurer of a round has to do.
pub(super) fn round_order(
    team: &Team,
    request: &Request,
    rtt: Duration,
    plan: &Plan,
    assignment: &Assignment,
    setup_timeout: Duration,
) -> RoundOrder {
    let address = |assignment: &Assignment| team.mates[assignment.measurer.0].member.address();
    let own = address(assignment);
    let sharing = plan.assignments.iter().filter(|other| address(other) == own).count();
    RoundOrder {
        target: request.target,
        way_back: plan.way_back,
        defences: request.defences,
        sockets: assignment.sockets,
        rate: assignment.rate,
        seconds: plan.seconds,
        held_back_s: plan.held_back_s,
        check_one_in: one_in(plan.check_share),
        // We have timed our own way, not that of measurers elsewhere.
        rtt: own.is_none().then_some(rtt),
        sharing: u32::try_from(sharing).unwrap_or(u32::MAX),
        setup_timeout,
        stall_timeout: team.options.params.report_grace,
    }
}

/// How many cells there are to each that is checked.
fn one_in(share: f64) -> NonZeroU32 {
    #[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
    #[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
    let cells = (1.0 / share).round() as u32;
    NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN)
}
