//! A team whose measurers are threads of this process.

mod landings;
mod run;

use crate::plan::Defences;
use crate::worker::WorkerLoad;
use coordinator::{Outcome, Params, SetupError};
use landings::Landings;
use link::tls::TlsConfigs;
use link::{Clock, Forge, ForgeError, pump, unix_time_s};
use onion::measure::pump::{CELLS_PER_RECORD, Target};
use onion::{Duration, Rate};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

/// Choices for a team.
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// Measurers: threads of this process.
    pub measurers: u32,
    /// What each can send and receive; found out by pumping TLS over loopback if `None`.
    pub capacity: Option<Rate>,
    /// Address of our landings, where the target finds them. If `None`, the address from which the
    /// target is reached.
    pub address: Option<IpAddr>,
    /// Parameters of the measurements; `sockets` is a bound, fewer are used where fewer do.
    pub params: Params,
    /// Links authenticate as a relay's even where nothing is gained by it.
    pub always_authenticate: bool,
}

impl Default for TeamOptions {
    /// Two measurers; the paper's parameters, but that one cell in 125 is checked (proposal 316,
    /// appendix A): since nothing has to be remembered of a cell to check it, that costs next to
    /// nothing, and a forger is found out at once.
    fn default() -> Self {
        let params = Params { check_share: 1.0 / 125.0, ..Params::default() };
        Self { measurers: 2, capacity: None, address: None, params, always_authenticate: false }
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
        /// What came back in it.
        measured: Rate,
    },
}

/// How a measurement ended, and what it cost us.
#[derive(Clone, Debug)]
pub struct TeamResult {
    /// The estimate, or why there is none.
    pub outcome: Outcome,
    /// Each measurer's load in its last round, if it finished one.
    pub loads: Vec<Option<WorkerLoad>>,
}

/// Why a team cannot work: this machine or its configuration is to blame, never the relay.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// No keys or certificates.
    #[error(transparent)]
    Forge(#[from] ForgeError),
    /// The own capacity cannot be found out.
    #[error("cannot find out this machine's capacity: {0}")]
    Pump(#[from] pump::PumpError),
    /// No random bytes.
    #[error("the operating system gives no random bytes: {0}")]
    Random(rand::rngs::SysError),
    /// Landings cannot listen.
    #[error("cannot listen on {address}: {source}; is it an address of this machine?")]
    Listen {
        /// Where.
        address: IpAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The target cannot be reached from here at all.
    #[error("no way from this machine to {target}: {source}")]
    NoRoute {
        /// Its address.
        target: IpAddr,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The measurement cannot even begin.
    #[error("cannot begin: {0}")]
    SetUp(#[from] SetupError),
}

/// Measurers that are threads of this process, with their identities and capacity.
pub struct Team {
    options: TeamOptions,
    clock: Clock,
    rng: StdRng,
    tls: TlsConfigs,
    capacity: Rate,
    landings: Landings,
}

impl Team {
    /// Makes keys, and finds out what this machine can do unless the options say so.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn new(options: TeamOptions) -> Result<Self, TeamError> {
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(TeamError::Random)?;
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let forge = Forge::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&forge)?;
        let capacity = match options.capacity {
            Some(capacity) => capacity,
            None => capacity_of_a_measurer(&tls, options.measurers)?,
        };
        let landings = Landings::new(forge);
        Ok(Self { options, clock: Clock::start(), rng, tls, capacity, landings })
    }

    /// What each measurer can send and receive.
    #[must_use]
    pub const fn capacity_of_each(&self) -> Rate {
        self.capacity
    }

    /// What all can send and receive together.
    #[must_use]
    pub fn capacity(&self) -> Rate {
        (0..self.options.measurers).map(|_| self.capacity).sum()
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
        run::Run::new(self, request, cancel)?.until_done(progress, cancel)
    }
}

/// An even share of what the processors can pump.
///
/// One processor is left to everything else, if there are several: a target on this very machine,
/// or the interrupts of a fast network.
fn capacity_of_a_measurer(tls: &TlsConfigs, measurers: u32) -> Result<Rate, TeamError> {
    const RUN: Duration = Duration::from_millis(300);
    let record_len = CELLS_PER_RECORD * onion::cell::CELL_LEN;
    let per_core = pump::run(tls, record_len, RUN)?.rate_per_core();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let usable = u32::try_from(cores.saturating_sub(1).max(1)).unwrap_or(u32::MAX);
    let busy = usable.min(measurers.max(1));
    // Measuring costs more than pumping: content, cells and checks come on top.
    const SHARE_OF_PUMP: f64 = 0.6;
    Ok(per_core.scaled(SHARE_OF_PUMP * f64::from(busy) / f64::from(measurers.max(1))))
}
