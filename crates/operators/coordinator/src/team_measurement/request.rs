//! A team's request for a measurement, and the order of each measurer for a round.

use crate::allocation::{Assignment, MeasurerId};
use crate::campaign::Launch;
use crate::defences::Defences;
use crate::measurer_path::MeasurerPath;
use crate::mode::Mode;
use crate::params::{Params, PathParams};
use crate::round::{RoundMode, RoundOrder};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU32;
use onion::measure::load::Target;
use onion::measure::protocol::{MeasurerKey, Nonce};
use onion::{Duration, Instant, Rate};

/// A measurer that takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TeamMember {
    /// Its public key, which a participating relay gets.
    pub(crate) key: MeasurerKey,
    /// Its address as seen by the relay; `None` for one on this machine.
    pub(crate) address: Option<IpAddr>,
    /// Its maximum rate to this relay.
    pub(crate) capacity: Rate,
}

/// A measurement, and the team for it.
#[derive(Clone, Debug)]
pub(crate) struct TeamRequest {
    /// The relay.
    pub(crate) target: Target,
    /// Its limits for a single address.
    pub(crate) defences: Defences,
    /// How it is loaded.
    pub(crate) mode: Mode,
    /// In transit: links authenticate as a relay's even if that has no advantage.
    pub(crate) always_authenticate: bool,
    /// Parameters, within the relay's limits. `path` is replaced by the requirements of the distance.
    pub(crate) params: Params,
    /// Replaces the requirements of the distance.
    pub(crate) path: Option<PathParams>,
    /// The measurers that take part. [`MeasurerId`]s are places in this list.
    pub(crate) members: Vec<TeamMember>,
    /// The turn of the campaign. `members` are those of its allocation, in that order.
    pub(crate) launch: Launch,
    /// Round trip from the coordinator to the relay.
    pub(crate) rtt: Duration,
    /// Secret of this measurement, from which the nonces of its orders are derived.
    pub(crate) secret: [u8; 32],
    /// Whether the start waits for [`TeamMeasurement::start_held`](super::TeamMeasurement::start_held).
    pub(crate) awaits_start: bool,
}

impl TeamRequest {
    pub(super) fn vantages(&self) -> Vec<MeasurerPath> {
        let first = |address: &Option<IpAddr>| {
            let found = self.members.iter().position(|member| member.address == *address);
            found.and_then(|place| u32::try_from(place).ok())
        };
        let vantage = |(place, member): (usize, &TeamMember)| {
            let known = self.launch.vantages.get(place);
            MeasurerPath { host: first(&member.address), ..known.copied().unwrap_or_default() }
        };
        self.members.iter().enumerate().map(vantage).collect()
    }

    pub(super) fn capacities(&self) -> Vec<Rate> {
        self.members.iter().map(|member| member.capacity).collect()
    }

    /// The parameters for this distance and these defences.
    pub(super) fn params_here(&self, vantages: &[MeasurerPath]) -> Params {
        let defences = match self.mode {
            Mode::Transit => self.defences,
            // A participating relay agrees to the number of sockets.
            Mode::Echo => Defences { max_connections: None, ..self.defences },
        };
        let params = Params { sockets: defences.sockets(self.params.sockets), ..self.params };
        // On loopback a long round trip is caused by a busy processor.
        let is_here = self.target.address.ip().is_loopback();
        let distance =
            if is_here { Duration::ZERO } else { MeasurerPath::distance(self.rtt, vantages) };
        let team: Rate = self.members.iter().map(|member| member.capacity).sum();
        let rate = self.launch.turn.guess.scaled(params.excess_factor()).min(team);
        let by_distance = || PathParams::at_distance(self.mode, rate, distance, params.seconds);
        Params { path: self.path.unwrap_or_else(by_distance), ..params }
    }

    fn address(&self, measurer: MeasurerId) -> Option<IpAddr> {
        self.members.get(measurer.0).and_then(|member| member.address)
    }

    /// The order of one measurer of a round.
    pub(super) fn order(
        &self,
        plan: &RoundPlan,
        assignment: &Assignment,
        setup_timeout: Duration,
        stall_timeout: Duration,
    ) -> RoundOrder {
        let own = self.address(assignment.measurer);
        let is_neighbor = |other: &&Assignment| self.address(other.measurer) == own;
        let sharing = plan.assignments.iter().filter(is_neighbor).count();
        RoundOrder {
            target: self.target,
            mode: match self.mode {
                Mode::Transit => {
                    RoundMode::Transit { always_authenticate: self.always_authenticate }
                }
                Mode::Echo => RoundMode::Echo { nonce: plan.nonce },
            },
            defences: self.defences,
            sockets: assignment.sockets,
            rate: assignment.rate,
            seconds: plan.seconds,
            held_back_s: plan.held_back_s,
            few_circuits_s: plan.few_circuits_s,
            check_one_in: one_in(plan.check_share),
            // This is the coordinator's round trip, and not that of measurers on other hosts.
            rtt: own.is_none().then_some(self.rtt),
            sharing: u32::try_from(sharing).unwrap_or(u32::MAX),
            setup_timeout,
            stall_timeout,
        }
    }
}

/// The parameters of a round.
#[derive(Clone, Debug)]
pub(super) struct RoundPlan {
    pub(super) round: u32,
    pub(super) assignments: Vec<Assignment>,
    pub(super) seconds: u32,
    pub(super) held_back_s: Option<u32>,
    pub(super) few_circuits_s: u32,
    pub(super) check_share: f64,
    pub(super) nonce: Nonce,
    /// The time at which the measurers must be ready.
    pub(super) deadline: Instant,
}

/// The number of cells per checked cell.
#[expect(clippy::cast_possible_truncation, reason = "a cast from floating point saturates")]
#[expect(clippy::cast_sign_loss, reason = "a cast from floating point saturates")]
fn one_in(share: f64) -> NonZeroU32 {
    let cells = libm::round(1.0 / share) as u32;
    NonZeroU32::new(cells).unwrap_or(NonZeroU32::MIN)
}
