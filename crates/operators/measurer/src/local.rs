//! A measurer on this machine.

mod account;
mod landings;
mod round;
mod worker;

use crate::member::{Member, MemberError, Reports, RoundMode, RoundOrder};
use crate::plan::{Load, round_trip};
use crate::ports::PortRange;
use coordinator::{FEW_SOCKETS_ONE_IN, few_sockets};
use landings::{Landings, Lease, address_towards};
use link::tls::TlsConfigs;
use link::{Clock, IdentityIssuer, IssueError, unix_time_s};
use onion::measure::load::{FewCircuits, HeldBack, LoadConfig, ReturnPath};
use onion::{Duration, Rate};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use round::Sums;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub(crate) use worker::COALESCE;
use worker::Worker;

/// The state that the measurers of one process share: a clock, TLS keys, and landings.
#[derive(Clone)]
pub struct Site {
    clock: Clock,
    tls: TlsConfigs,
    landings: Arc<Landings>,
}

impl Site {
    /// Generates keys, which takes some tenths of a second.
    ///
    /// # Errors
    /// If keys cannot be generated or there are no random bytes.
    pub fn new() -> Result<Self, SiteError> {
        let mut seed = [0; 32];
        StdRng::try_from_rng(&mut SysRng).map_err(SiteError::Random)?.fill_bytes(&mut seed);
        let issuer = IdentityIssuer::new(seed, unix_time_s())?;
        let tls = TlsConfigs::new(&issuer)?;
        Ok(Self { clock: Clock::start(), tls, landings: Arc::new(Landings::new(issuer)) })
    }

    /// Restricts the landings to these ports.
    #[must_use]
    pub fn with_landing_ports(self, ports: PortRange) -> Self {
        self.landings.listen_on(ports);
        self
    }

    /// Listens on `count` of the landing ports at `address`.
    ///
    /// # Errors
    /// If the address is not one of this machine, or no port is free.
    pub fn listen(&self, address: IpAddr, count: usize) -> Result<Vec<TcpListener>, MemberError> {
        Ok(self.landings.listeners(address, count)?)
    }

    /// The clock of its threads.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// The TLS keys of its links.
    #[must_use]
    pub const fn tls(&self) -> &TlsConfigs {
        &self.tls
    }
}

/// The reason why this machine cannot measure at all.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// No keys or certificates.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// No random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(rand::rngs::SysError),
}

/// Choices for a measurer on this machine.
#[derive(Clone)]
pub struct LocalOptions {
    /// The name of its threads.
    pub name: String,
    /// Seed of its Ed25519 key.
    pub key_seed: [u8; 32],
    /// Maximum number of pumps, each on its own thread; at least one is used. See [`free_cores`].
    pub pumps: u32,
    /// Address of its landings, as seen by targets. If `None`, the address from which the target is reached.
    pub address: Option<IpAddr>,
}

/// The number of processors that may be kept busy: all but one, which is left to everything else, such as the
/// interrupts of a fast network, or a target on this machine.
#[must_use]
pub fn free_cores() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cores.saturating_sub(1).max(1)).unwrap_or(u32::MAX)
}

/// A measurer on this machine: some pumps, each a thread with its own sockets.
pub struct LocalMember {
    site: Site,
    options: LocalOptions,
    rng: StdRng,
    round: Option<Round>,
}

/// A running round.
struct Round {
    // First, since landings become free once their pump has ended.
    workers: Vec<Worker>,
    _leases: Vec<Lease>,
    sums: Arc<Mutex<Sums>>,
}

impl Drop for Round {
    fn drop(&mut self) {
        // All at once, before the first one is joined.
        self.workers.iter().for_each(Worker::stop);
    }
}

fn locked(sums: &Mutex<Sums>) -> MutexGuard<'_, Sums> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalMember {
    /// An idle measurer.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub fn new(site: Site, options: LocalOptions) -> Result<Self, SiteError> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(SiteError::Random)?;
        Ok(Self { site, options, rng, round: None })
    }

    fn own_address(&self, order: &RoundOrder) -> Result<IpAddr, MemberError> {
        match self.options.address {
            Some(address) => Ok(address),
            None => Ok(address_towards(order.target.address)?),
        }
    }

    /// The route of one pump's cells, and the landings that it needs.
    fn return_path(
        &self,
        order: &RoundOrder,
        load: &Load,
        authenticate: bool,
    ) -> Result<(ReturnPath, Option<Lease>), MemberError> {
        match order.mode {
            RoundMode::Transit { .. } => {
                let address = self.own_address(order)?;
                let count = load.sockets as usize;
                let mut lease = self.site.landings.lease(address, count, authenticate)?;
                let landings = std::mem::take(&mut lease.landings);
                let authenticate_as = std::mem::take(&mut lease.authenticate_as);
                Ok((ReturnPath::Transit { landings, authenticate_as }, Some(lease)))
            }
            RoundMode::Echo { nonce } => {
                Ok((ReturnPath::Echo { nonce, key_seed: self.options.key_seed }, None))
            }
        }
    }
}

impl Member for LocalMember {
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        self.stop();
        let rtt = order.rtt.unwrap_or_else(|| round_trip(order.target.address));
        let whole = Load::plan(&order, rtt);
        let pumps = whole.pumps(self.options.pumps, order.target.address);
        let sums = Sums::new(pumps as usize, reports);
        let mut round =
            Round { workers: Vec::new(), _leases: Vec::new(), sums: Arc::new(Mutex::new(sums)) };
        for (number, load) in (0..).zip(whole.split(pumps)) {
            let (return_path, mut lease) =
                self.return_path(&order, &load, whole.must_authenticate)?;
            let config = LoadConfig {
                target: order.target,
                return_path,
                sockets: load.sockets,
                circuits_per_socket: load.circuits_per_socket,
                pace: load.pace,
                second_tries: load.second_tries,
                seconds: order.seconds,
                held_back: order.held_back_s.map(|second| HeldBack {
                    after: Duration::from_secs(u64::from(second)),
                    sockets_before: load.sockets_before,
                }),
                few_circuits: (order.few_circuits_s > 0).then(|| FewCircuits {
                    sockets: few_sockets(whole.sockets),
                    one_socket_in: FEW_SOCKETS_ONE_IN,
                    sockets_before: load.sockets_before,
                    per_socket: load.few_per_socket,
                    time: Duration::from_secs(u64::from(order.few_circuits_s)),
                }),
                rate: share_of(order.rate, number, pumps),
                window_cap_cells: order.defences.window_cap_cells(),
                check_one_in: order.check_one_in,
                setup_timeout: order.setup_timeout,
                stall_timeout: order.stall_timeout,
                unix_time_s: unix_time_s(),
            };
            let listeners = lease.as_mut().map(|lease| std::mem::take(&mut lease.listeners));
            let sums = Arc::clone(&round.sums);
            let worker = Worker::spawn(
                format!("{}-{number}", self.options.name),
                &self.site,
                listeners.unwrap_or_default(),
                config,
                StdRng::from_rng(&mut self.rng),
                move |report| locked(&sums).handle_report(number as usize, report),
            );
            round.workers.push(worker.map_err(|error| MemberError::from_error(&error))?);
            round._leases.extend(lease);
        }
        self.round = Some(round);
        Ok(())
    }

    fn start(&mut self, delay: Duration) {
        let Some(round) = &self.round else { return };
        let mut sums = locked(&round.sums);
        if sums.is_ready() {
            sums.start();
            let at = self.site.clock.now() + delay;
            round.workers.iter().for_each(|worker| worker.start(at));
        }
    }

    fn stop(&mut self) {
        self.round = None;
    }
}

/// The part of `rate` for pump `number` of `pumps`: parts differ by at most one bit per second.
pub(crate) fn share_of(rate: Rate, number: u32, pumps: u32) -> Rate {
    let (bits, pumps) = (rate.as_bit_per_s(), u64::from(pumps));
    Rate::from_bit_per_s(bits / pumps + u64::from(u64::from(number) < bits % pumps))
}
