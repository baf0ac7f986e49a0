//! A team of measurers, and the measurements that it does.

pub(crate) mod ordering;
mod run;

use crate::local::{LocalMember, LocalOptions, Site, SiteError, free_cores};
use crate::member::{Member, MemberError};
use coordinator::{
    Defences, Launch, Outcome, Params, PathParams, ROUNDS_ALLOWED, RoundHistory, SetupError,
    WorkerLoad,
};
use link::pump;
use link::tls::TlsConfigs;
use onion::cell::CELLS_PER_RECORD;
use onion::measure::load::Target;
use onion::{Duration, Rate};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Choices for a team.
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// Measurers of this process.
    pub measurers: u32,
    /// Pumps of each, a thread for each; an even share of the processors that are free if `None`.
    pub pumps: Option<u32>,
    /// What each can send and receive; found out by pumping TLS over loopback if `None`.
    pub capacity: Option<Rate>,
    /// Address of our landings, where the target finds them. If `None`, the address from which the
    /// target is reached.
    pub address: Option<IpAddr>,
    /// Parameters of the measurements; `sockets` is a bound, fewer are used where fewer do.
    pub params: Params,
    /// What the path to a relay asks for; found out by its round trip if `None`.
    pub path: Option<PathParams>,
    /// Links authenticate as a relay's even where nothing is gained by it.
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
            params: Params::default(),
            path: None,
            always_authenticate: false,
        }
    }
}

/// How a relay is to be measured.
#[derive(Clone, Copy, Debug, Default)]
pub enum Approach {
    /// In transit: any relay can be, and knows nothing of it. Its clients' traffic is not counted.
    #[default]
    Transit,
    /// As an echo: the relay takes part, by an order of its coordinator, and reports its clients'
    /// traffic.
    Echo(Coordinator),
}

impl Approach {
    /// The parameters within what the relay allows.
    #[must_use]
    pub fn within(&self, params: Params) -> Params {
        match self {
            Self::Transit => params,
            Self::Echo(coordinator) => params.within_quota(coordinator.rounds_max),
        }
    }
}

/// What gives a relay the order to be measured.
#[derive(Clone, Copy)]
pub struct Coordinator {
    /// Seed of its Ed25519 key, which the relay must allow.
    pub key_seed: [u8; 32],
    /// Rounds at most, since the relay counts each as a measurement of its own and allows a
    /// coordinator but few in a day ([`ROUNDS_ALLOWED`]).
    pub rounds_max: u32,
}

impl Coordinator {
    /// With this key, and as many rounds as relays allow by default.
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
    /// What to expect of it.
    pub guess: Rate,
    /// What it lets one address do.
    pub defences: Defences,
    /// How.
    pub approach: Approach,
}

/// News of a measurement under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// A round is being prepared.
    Preparing {
        /// Counted from one.
        round: u32,
        /// What the measurers will send at most.
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
        /// What came back in it, and in echo what is counted of the relay's clients.
        measured: Rate,
    },
}

/// How a measurement ended, and what it cost us.
#[derive(Clone, Debug)]
pub struct TeamResult {
    /// The estimate, or why there is none.
    pub outcome: Outcome,
    /// Its rounds.
    pub course: RoundHistory,
    /// Each measurer's load in its last round, if it finished one.
    pub loads: Vec<Option<WorkerLoad>>,
}

/// Why a team cannot work: this machine or its configuration is to blame, never the relay.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// No keys, certificates or random bytes.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The own capacity cannot be found out.
    #[error("cannot find out this machine's capacity: {0}")]
    LoadGenerator(#[from] pump::PumpError),
    /// A measurer cannot take part.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The measurement cannot even begin.
    #[error("cannot begin: {0}")]
    SetUp(#[from] SetupError),
}

/// A measurer of a team.
pub struct Teammate {
    /// Itself.
    pub member: Box<dyn Member>,
    /// What it can send and receive.
    pub capacity: Rate,
}

/// Measurers, and what their coordinator needs.
pub struct Team {
    options: TeamOptions,
    site: Site,
    rng: StdRng,
    mates: Vec<Teammate>,
}

impl Team {
    /// A team of this process alone: makes keys, and finds out what this machine can do unless the
    /// options say so.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn new(options: TeamOptions) -> Result<Self, TeamError> {
        let site = Site::new()?;
        let pumps = options.pumps.unwrap_or(free_cores() / options.measurers.max(1)).max(1);
        let capacity = match options.capacity {
            Some(capacity) => capacity,
            None => capacity_of_a_measurer(site.tls(), options.measurers, pumps)?,
        };
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(SiteError::Random)?;
        let mut mates = Vec::new();
        for number in 0..options.measurers {
            let mut key_seed = [0; 32];
            rng.fill_bytes(&mut key_seed);
            let name = format!("measurer-{number}");
            let own = LocalOptions { name, key_seed, pumps, address: options.address };
            let member = Box::new(LocalMember::new(site.clone(), own)?);
            mates.push(Teammate { member, capacity });
        }
        Ok(Self { options, site, rng, mates })
    }

    /// A team of these measurers, wherever they run. Of the options, only those of the measurements
    /// matter.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn of(mates: Vec<Teammate>, options: TeamOptions) -> Result<Self, TeamError> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(SiteError::Random)?;
        Ok(Self { options, site: Site::new()?, rng, mates })
    }

    /// What each measurer can send and receive.
    pub fn capacities(&self) -> impl Iterator<Item = Rate> {
        self.mates.iter().map(|mate| mate.capacity)
    }

    /// What all can send and receive together.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        self.capacities().sum()
    }

    /// The choices it was made with.
    #[must_use]
    pub const fn options(&self) -> &TeamOptions {
        &self.options
    }

    /// Measures one relay, until the outcome or until `cancel` is set. Consent is the caller's duty.
    ///
    /// # Errors
    /// [`TeamError`] where this machine is to blame; whatever the relay does is in the outcome.
    pub fn measure(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<TeamResult, TeamError> {
        Ok(run::Run::new(self, request, None, cancel)?.until_done(progress, cancel))
    }

    /// One turn of a relay, whose others are a campaign's matter: this team are those of the launch's
    /// allocation, in their order, and the launch says what to expect.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_turn(
        &mut self,
        request: &Request,
        launch: &Launch,
        progress: &mut dyn FnMut(Progress),
        cancel: &AtomicBool,
    ) -> Result<TeamResult, TeamError> {
        let request = Request { guess: launch.turn.guess, ..*request };
        Ok(run::Run::new(self, &request, Some(launch), cancel)?.until_done(progress, cancel))
    }
}

/// An even share of what the free processors can pump.
fn capacity_of_a_measurer(tls: &TlsConfigs, measurers: u32, pumps: u32) -> Result<Rate, TeamError> {
    const RUN: Duration = Duration::from_millis(300);
    let record_len = CELLS_PER_RECORD * onion::cell::CELL_LEN;
    let per_core = pump::run(tls, record_len, RUN)?.rate_per_core();
    let measurers = measurers.max(1);
    let busy = free_cores().min(measurers.saturating_mul(pumps));
    // Measuring costs more than pumping: content, cells and checks come on top.
    const SHARE_OF_PUMP: f64 = 0.5;
    Ok(per_core.scaled(SHARE_OF_PUMP * f64::from(busy) / f64::from(measurers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_that_takes_part_has_no_more_rounds_than_it_allows() {
        let params = Params::default();
        assert_eq!(Approach::Transit.within(params), params);
        let rounds = |coordinator| Approach::Echo(coordinator).within(params).max_rounds;
        assert_eq!(rounds(Coordinator::new([1; 32])), 2, "by default");
        assert_eq!(rounds(Coordinator { key_seed: [1; 32], rounds_max: 6 }), 6);
        assert_eq!(rounds(Coordinator { key_seed: [1; 32], rounds_max: u32::MAX }), 12);
    }
}
