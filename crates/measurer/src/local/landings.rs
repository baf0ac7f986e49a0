use crate::member::MemberError;
use link::{Clock, IdentityIssuer, IssueError};
use onion::identity::OwnIdentity;
use onion::measure::load::ReturnRelay;
use onion::{Duration, Instant};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Identities and listening sockets of our second hops, created on demand and then kept.
///
/// All measurers of a process share them. Those of the last round must rest: a target may still consider its
/// connections to them open, in particular one whose rate limit keeps it from reading their end.
pub(super) struct Landings(Mutex<Pool>);

struct Pool {
    issuer: IdentityIssuer,
    slots: Vec<Slot>,
    clock: Clock,
    /// The unused ones, the longest unused first, with the time of release; those that were never used come first.
    free: VecDeque<(Option<Instant>, usize)>,
}

/// The minimum rest of a landing between two uses. It is shorter than a round, so two sets are enough.
const REST: Duration = Duration::from_secs(5);

struct Slot {
    landing: Arc<OwnIdentity>,
    /// For a link that authenticates.
    authenticating: Option<Arc<OwnIdentity>>,
    listener: Option<(IpAddr, TcpListener)>,
}

/// Landings for one pump, and their sockets in the same order; dropping this releases them.
pub(super) struct Lease {
    pub(super) landings: Vec<ReturnRelay>,
    pub(super) listeners: Vec<TcpListener>,
    /// Identities for links that authenticate; none of them is a landing's.
    pub(super) authenticate_as: Vec<Arc<OwnIdentity>>,
    slots: Vec<usize>,
    owner: Arc<Landings>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut pool = self.owner.pool();
        let now = Some(pool.clock.now());
        pool.free.extend(self.slots.drain(..).map(|slot| (now, slot)));
    }
}

/// The reason why there are no landings.
#[derive(Debug, thiserror::Error)]
pub(super) enum LandingError {
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("cannot listen on {address}: {source}; is it an address of this machine?")]
    Listen { address: IpAddr, source: std::io::Error },
    #[error("no way from this machine to {target}: {source}")]
    NoRoute { target: IpAddr, source: std::io::Error },
}

impl From<LandingError> for MemberError {
    fn from(error: LandingError) -> Self {
        Self::of(&error)
    }
}

impl Landings {
    pub(super) fn new(issuer: IdentityIssuer) -> Self {
        let clock = Clock::start();
        Self(Mutex::new(Pool { issuer, slots: Vec::new(), clock, free: VecDeque::new() }))
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates identities for two rounds of `count` landings, and the same number for links if those authenticate. That
    /// takes a while; it ends early if `cancel` is set.
    pub(super) fn make(
        &self,
        count: usize,
        authenticate: bool,
        cancel: &AtomicBool,
    ) -> Result<(), LandingError> {
        let mut pool = self.pool();
        while pool.slots.len() < 2 * count && !cancel.load(Ordering::Relaxed) {
            let slot = pool.add()?;
            pool.free.push_front((None, slot));
        }
        let Pool { issuer, slots, .. } = &mut *pool;
        for slot in slots.iter_mut().take(if authenticate { 2 * count } else { 0 }) {
            if cancel.load(Ordering::Relaxed) {
                break;
            }
            slot.authenticating(issuer)?;
        }
        Ok(())
    }

    /// `count` landings at `address`, and the same number of other identities if links authenticate.
    pub(super) fn lease(
        self: &Arc<Self>,
        address: IpAddr,
        count: usize,
        authenticate: bool,
    ) -> Result<Lease, LandingError> {
        let mut lease = Lease {
            landings: Vec::new(),
            listeners: Vec::new(),
            authenticate_as: Vec::new(),
            slots: Vec::new(),
            owner: Arc::clone(self),
        };
        for _ in 0..count {
            // One at a time, since a lease that fails half way takes the lock when it is dropped.
            let mut pool = self.pool();
            let number = pool.take_rested().map_or_else(|| pool.add(), Ok)?;
            lease.slots.push(number);
            let Pool { issuer, slots, .. } = &mut *pool;
            let slot = &mut slots[number];
            let filled = slot.fill(address, authenticate, issuer, &mut lease);
            drop(pool);
            filled?;
        }
        Ok(lease)
    }
}

impl Pool {
    /// The longest unused landing, if it has rested long enough.
    fn take_rested(&mut self) -> Option<usize> {
        let now = self.clock.now();
        let (since, _) = self.free.front()?;
        let has_rested = since.is_none_or(|since| now - since >= REST);
        if has_rested { self.free.pop_front().map(|(_, slot)| slot) } else { None }
    }

    fn add(&mut self) -> Result<usize, LandingError> {
        let landing = Arc::new(self.issuer.identity()?);
        self.slots.push(Slot { landing, authenticating: None, listener: None });
        Ok(self.slots.len() - 1)
    }
}

impl Slot {
    fn authenticating(
        &mut self,
        issuer: &mut IdentityIssuer,
    ) -> Result<Arc<OwnIdentity>, LandingError> {
        if let Some(identity) = &self.authenticating {
            return Ok(Arc::clone(identity));
        }
        let identity = Arc::new(issuer.identity()?);
        Ok(Arc::clone(self.authenticating.insert(identity)))
    }

    fn fill(
        &mut self,
        address: IpAddr,
        authenticate: bool,
        issuer: &mut IdentityIssuer,
        lease: &mut Lease,
    ) -> Result<(), LandingError> {
        let failed = |source| LandingError::Listen { address, source };
        let listener = match self.listener.take().filter(|(bound_to, _)| *bound_to == address) {
            Some((_, listener)) => listener,
            None => TcpListener::bind((address, 0)).map_err(failed)?,
        };
        let port = listener.local_addr().map_err(failed)?.port();
        lease.listeners.push(listener.try_clone().map_err(failed)?);
        self.listener = Some((address, listener));
        let identity = Arc::clone(&self.landing);
        lease.landings.push(ReturnRelay { identity, address: SocketAddr::new(address, port) });
        if authenticate {
            lease.authenticate_as.push(self.authenticating(issuer)?);
        }
        Ok(())
    }
}

/// Whether landings can listen at this address.
pub(super) fn check_address(address: IpAddr) -> Result<(), LandingError> {
    let bound = TcpListener::bind((address, 0));
    bound.map(drop).map_err(|source| LandingError::Listen { address, source })
}

/// The source address of packets from this machine to `target`. Sends nothing.
pub(super) fn address_towards(target: SocketAddr) -> Result<IpAddr, LandingError> {
    let unspecified: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let found = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect(target)?;
        socket.local_addr()
    });
    found
        .map(|address| address.ip())
        .map_err(|source| LandingError::NoRoute { target: target.ip(), source })
}
