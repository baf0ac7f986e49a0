//! A team of measurers, and its measurements.

pub(crate) mod ordering;
mod run;

use crate::local::{Site, SiteError};
use crate::local_team::LocalTeam;
use crate::member::{Member, MemberError};
use crate::ports::PortRange;
use coordinator::{
    Defences, MeasurerId, Outcome, Params, PathParams, ROUNDS_ALLOWED, RoundHistory, SetupError,
    WorkerLoad,
};
use link::pump;
use onion::Rate;
use onion::measure::load::Target;
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Choices for a team.
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// Measurers of this process.
    pub measurers: u32,
    /// Pumps of each, a thread for each; an even share of the free processors if `None`.
    pub pumps: Option<u32>,
    /// The send and receive rate of each; measured with TLS over loopback if `None`.
    pub capacity: Option<Rate>,
    /// Address of our landings, as seen by the target. If `None`, the address from which the target is reached.
    pub address: Option<IpAddr>,
    /// Ports of our landings; any if `None`.
    pub landing_ports: Option<PortRange>,
    /// Parameters of the measurements; `sockets` is a maximum.
    pub params: Params,
    /// The requirements of the path to a relay; derived from its round trip if `None`.
    pub path: Option<PathParams>,
    /// Links authenticate as a relay's even if that has no advantage.
    pub always_authenticate: bool,
}

impl Default for TeamOptions {
    /// Two measurers, and the default parameters.
    fn default() -> Self {
        Self {
            measurers: 2,
            pumps: None,
            capacity: None,
            address: None,
            landing_ports: None,
            params: Params::default(),
            path: None,
            always_authenticate: false,
        }
    }
}

/// How a relay is to be measured.
#[derive(Clone, Copy, Debug, Default)]
pub enum Approach {
    /// In transit: works with any relay, which is unaware of it. Its clients' traffic is not counted.
    #[default]
    Transit,
    /// As an echo: the relay participates, by an order of its coordinator, and reports its clients' traffic.
    Echo(Coordinator),
}

impl Approach {
    /// The parameters within the relay's limits.
    #[must_use]
    pub fn within(&self, params: Params) -> Params {
        match self {
            Self::Transit => params,
            Self::Echo(coordinator) => params.within_quota(coordinator.rounds_max),
        }
    }
}

/// The coordinator's data for the order to a relay.
#[derive(Clone, Copy)]
pub struct Coordinator {
    /// Seed of its Ed25519 key, which the relay must allow.
    pub key_seed: [u8; 32],
    /// Maximum number of rounds, since the relay counts each as a separate measurement and allows a coordinator only
    /// few in a day ([`ROUNDS_ALLOWED`]).
    pub rounds_max: u32,
}

impl Coordinator {
    /// A coordinator with this key, and the default number of rounds that relays allow.
    #[must_use]
    pub const fn new(key_seed: [u8; 32]) -> Self {
        Self { key_seed, rounds_max: ROUNDS_ALLOWED }
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seed is secret.
        f.debug_struct("Coordinator").field("rounds_max", &self.rounds_max).finish_non_exhaustive()
    }
}

/// A measurement to be done.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The relay.
    pub target: Target,
    /// Its expected capacity.
    pub guess: Rate,
    /// Its limits for a single address.
    pub defences: Defences,
    /// How it is measured.
    pub approach: Approach,
}

/// A progress event of a running measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A round is being prepared.
    Preparing {
        /// Counted from one.
        round: u32,
        /// The maximum load of the measurers.
        allocated: Rate,
        /// Sockets of all measurers.
        sockets: u32,
        /// Circuits of all measurers.
        circuits: u32,
    },
    /// A round has started.
    Started {
        /// The round.
        round: u32,
        /// Seconds since 1970.
        unix_time_s: u64,
    },
    /// All measurers have reported a second.
    Second {
        /// The round.
        round: u32,
        /// The second, from zero.
        index: u32,
        /// The number of seconds of the round, with those before it that do not count.
        of: u32,
        /// The returned bytes, and in echo the counted traffic of the relay's clients.
        measured: Rate,
    },
}

/// The outcome of a measurement, and its cost.
#[derive(Clone, Debug)]
pub struct TeamResult {
    /// The estimate, or the reason why there is none.
    pub outcome: Outcome,
    /// Its rounds.
    pub course: RoundHistory,
    /// Each measurer's load in its last round, if it finished one.
    pub loads: Vec<Option<WorkerLoad>>,
}

/// The reason why a team cannot work: this machine or its configuration is to blame, never the relay.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// No keys, certificates or random bytes.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The own capacity cannot be measured.
    #[error("cannot measure this machine's capacity: {0}")]
    LoadGenerator(#[from] pump::PumpError),
    /// A measurer cannot take part.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The measurement cannot start.
    #[error("cannot begin: {0}")]
    SetUp(#[from] SetupError),
}

/// A measurer of a team.
pub struct Teammate {
    /// The member.
    pub member: Box<dyn Member>,
    /// Its send and receive rate.
    pub capacity: Rate,
}

/// Measurers, and the data that their coordinator needs.
pub struct Team {
    options: TeamOptions,
    site: Site,
    rng: StdRng,
    mates: Vec<Teammate>,
}

impl Team {
    /// A team of this process alone: generates keys, and measures the machine's capacity unless the options state it.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn new(options: TeamOptions) -> Result<Self, TeamError> {
        let local = LocalTeam::new(&options)?;
        let mut mates = Vec::new();
        for number in 0..options.measurers as usize {
            let member = local.member(MeasurerId(number))?;
            mates.extend(member.map(|member| Teammate { member, capacity: local.capacity() }));
        }
        Self::of(mates, options)
    }

    /// A team of these measurers, local or remote. Only the options about measurements apply.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn of(mates: Vec<Teammate>, options: TeamOptions) -> Result<Self, TeamError> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(SiteError::Random)?;
        Ok(Self { options, site: Site::new()?, rng, mates })
    }

    /// The send and receive rate of each measurer.
    pub fn capacities(&self) -> impl Iterator<Item = Rate> {
        self.mates.iter().map(|mate| mate.capacity)
    }

    /// The send and receive rate of all measurers together.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities().sum()
    }

    /// The options of the team.
    #[must_use]
    pub const fn options(&self) -> &TeamOptions {
        &self.options
    }

    /// Measures one relay, until the outcome or until `cancel` is set. The caller checks consent.
    ///
    /// # Errors
    /// [`TeamError`] if this machine is to blame; the relay's failures are in the outcome.
    pub fn measure(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<TeamResult, TeamError> {
        Ok(run::Run::new(self, request, cancel)?.until_done(progress, cancel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_participating_relay_has_no_more_rounds_than_it_allows() {
        let params = Params::default();
        assert_eq!(Approach::Transit.within(params), params);
        let rounds = |coordinator| Approach::Echo(coordinator).within(params).max_rounds;
        assert_eq!(rounds(Coordinator::new([1; 32])), 2, "by default");
        assert_eq!(rounds(Coordinator { key_seed: [1; 32], rounds_max: 6 }), 6);
        assert_eq!(rounds(Coordinator { key_seed: [1; 32], rounds_max: u32::MAX }), 12);
    }
}
