use crate::member::MemberError;
use crate::ports::PortRange;
use link::{Clock, IdentityIssuer, IssueError, LongTermKeys, unix_time_s};
use onion::identity::OwnIdentity;
use onion::measure::load::ReturnRelay;
use onion::{Duration, Instant};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
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
    /// Any port if `None`.
    ports: Option<PortRange>,
    /// The number of ports of the range that were tried so far.
    tried: usize,
    /// The unused ones, the longest unused first, with the time of release; those that were never used come first.
    free: VecDeque<(Option<Instant>, usize)>,
}

/// The minimum rest of a landing between two uses. It is shorter than a round, so two sets are enough.
const REST: Duration = Duration::from_secs(5);

struct Slot {
    landing: Identity,
    /// The identity for a link that authenticates.
    authenticating: Option<Identity>,
    listener: Option<(IpAddr, TcpListener)>,
}

/// Certificates are valid for two days. After one they are issued again, and so they are if their date is as far ahead: the clock was
/// wrong.
const CERTIFIED_S: u64 = 24 * 3600;

/// An identity that is used for as long as the process runs.
struct Identity {
    keys: LongTermKeys,
    certified: Arc<OwnIdentity>,
    certified_unix_s: u64,
}

impl Identity {
    fn new(issuer: &mut IdentityIssuer) -> Result<Self, IssueError> {
        let keys = issuer.keys()?;
        let certified_unix_s = unix_time_s();
        let certified = certify(issuer, &keys, certified_unix_s)?;
        Ok(Self { keys, certified, certified_unix_s })
    }

    /// The identity, with certificates that are valid now.
    fn certified(&mut self, issuer: &mut IdentityIssuer) -> Result<Arc<OwnIdentity>, IssueError> {
        let now = unix_time_s();
        if now.abs_diff(self.certified_unix_s) >= CERTIFIED_S {
            self.certified = certify(issuer, &self.keys, now)?;
            self.certified_unix_s = now;
        }
        Ok(Arc::clone(&self.certified))
    }
}

fn certify(
    issuer: &mut IdentityIssuer,
    keys: &LongTermKeys,
    now_unix_s: u64,
) -> Result<Arc<OwnIdentity>, IssueError> {
    issuer.set_unix_time_s(now_unix_s);
    issuer.certify(keys).map(|certified| Arc::new(certified.identity))
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
    #[error(
        "no port of `landing_ports` {ports} is free on {address}; a measurer needs two for each socket of its rounds, since the \
         ports of ended rounds are not reused at once: use a wider range, outside net.ipv4.ip_local_port_range"
    )]
    NoPort { address: IpAddr, ports: PortRange },
    #[error("no route from this machine to {target}: {source}")]
    NoRoute { target: IpAddr, source: std::io::Error },
}

impl From<LandingError> for MemberError {
    fn from(error: LandingError) -> Self {
        Self::from_error(&error)
    }
}

impl Landings {
    pub(super) fn new(issuer: IdentityIssuer) -> Self {
        let clock = Clock::start();
        let (slots, free) = (Vec::new(), VecDeque::new());
        Self(Mutex::new(Pool { issuer, slots, clock, ports: None, tried: 0, free }))
    }

    /// Restricts new listening sockets to these ports.
    pub(super) fn listen_on(&self, ports: PortRange) {
        self.pool().ports = Some(ports);
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `count` listening sockets at `address`, which are no landings.
    pub(super) fn listeners(
        &self,
        address: IpAddr,
        count: usize,
    ) -> Result<Vec<TcpListener>, LandingError> {
        let mut pool = self.pool();
        (0..count).map(|_| pool.listen(address)).collect()
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
            let filled = pool.fill(number, address, authenticate, &mut lease);
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

    /// A listening socket at this address.
    fn listen(&mut self, address: IpAddr) -> Result<TcpListener, LandingError> {
        let failed = |source| LandingError::Listen { address, source };
        let Some(ports) = &self.ports else {
            return TcpListener::bind((address, 0)).map_err(failed);
        };
        for _ in 0..ports.count() {
            let port = ports.port(self.tried);
            self.tried = self.tried.wrapping_add(1);
            match TcpListener::bind((address, port)) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                bound => return bound.map_err(failed),
            }
        }
        // Better a socket that has not rested than none.
        let idle = self.free.iter().find_map(|(_, number)| {
            self.slots[*number].listener.take_if(|(bound_to, _)| *bound_to == address)
        });
        let none = || LandingError::NoPort { address, ports: ports.clone() };
        idle.map(|(_, listener)| listener).ok_or_else(none)
    }

    /// Adds a landing at `address` to a lease.
    fn fill(
        &mut self,
        number: usize,
        address: IpAddr,
        authenticate: bool,
        lease: &mut Lease,
    ) -> Result<(), LandingError> {
        let failed = |source| LandingError::Listen { address, source };
        let previous = self.slots[number].listener.take();
        let listener = match previous.filter(|(bound_to, _)| *bound_to == address) {
            Some((_, listener)) => listener,
            None => self.listen(address)?,
        };
        let port = listener.local_addr().map_err(failed)?.port();
        lease.listeners.push(listener.try_clone().map_err(failed)?);
        let slot = &mut self.slots[number];
        slot.listener = Some((address, listener));
        let identity = slot.landing.certified(&mut self.issuer)?;
        lease.landings.push(ReturnRelay { identity, address: SocketAddr::new(address, port) });
        if authenticate {
            lease.authenticate_as.push(slot.authenticating(&mut self.issuer)?);
        }
        Ok(())
    }

    fn add(&mut self) -> Result<usize, LandingError> {
        let landing = Identity::new(&mut self.issuer)?;
        self.slots.push(Slot { landing, authenticating: None, listener: None });
        Ok(self.slots.len() - 1)
    }
}

impl Slot {
    fn authenticating(
        &mut self,
        issuer: &mut IdentityIssuer,
    ) -> Result<Arc<OwnIdentity>, LandingError> {
        let identity = match &mut self.authenticating {
            Some(identity) => identity,
            none => none.insert(Identity::new(issuer)?),
        };
        Ok(identity.certified(issuer)?)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn landings(ports: PortRange) -> Arc<Landings> {
        let landings = Landings::new(IdentityIssuer::new([7; 32], 1_800_000_000).expect("keys"));
        landings.listen_on(ports);
        Arc::new(landings)
    }

    fn ports(lease: &Lease) -> Vec<u16> {
        lease.landings.iter().map(|landing| landing.address.port()).collect()
    }

    #[test]
    fn landings_use_free_ports_of_the_range_only_and_reuse_them() {
        let address = IpAddr::from([127, 0, 0, 1]);
        // The range begins with a port that is in use; the next three are free.
        let (used, first) = (1..)
            .map(|number: u16| 21_000 + 10 * number)
            .find_map(|first| {
                let all = (first..first + 4).map(|port| TcpListener::bind((address, port)));
                let mut all: Vec<_> = all.collect::<Result<_, _>>().ok()?;
                Some((all.swap_remove(0), first))
            })
            .expect("free ports");
        let range: PortRange = format!("{first}-{}", first + 3).parse().expect("a range");
        let landings = landings(range);
        let lease = landings.lease(address, 3, false).expect("three are free");
        assert_eq!(ports(&lease), [first + 1, first + 2, first + 3]);
        let error = landings.lease(address, 1, false).map(drop).expect_err("none is left");
        assert!(error.to_string().contains("landing_ports"), "{error}");
        drop(lease);
        // They are reused before their rest is over, since there are no others.
        let again = landings.lease(address, 3, false).expect("free again");
        assert_eq!(ports(&again).len(), 3);
        drop(used);
    }

    #[test]
    fn a_landing_of_long_ago_or_of_a_wrong_clock_has_valid_certificates() {
        let (now, days) = (unix_time_s(), |count: u64| count * 24 * 3600);
        let issuer = IdentityIssuer::new([7; 32], now).expect("keys");
        let landings = Arc::new(Landings::new(issuer));
        let lease = || {
            // Another landing each time would be fresh.
            landings.pool().free.iter_mut().for_each(|(since, _)| *since = None);
            let lease = landings.lease([127, 0, 0, 1].into(), 1, true).expect("one");
            let landing = Arc::clone(&lease.landings[0].identity);
            (landing, Arc::clone(&lease.authenticate_as[0]))
        };
        let first = lease();
        assert!(Arc::ptr_eq(&lease().0, &first.0), "not made for each round");
        for made in [now - days(40), now - days(3), now + days(3), now + days(40)] {
            let mut pool = landings.pool();
            let Pool { issuer, slots, .. } = &mut *pool;
            for identity in slots.iter_mut().flat_map(|slot| {
                [Some(&mut slot.landing), slot.authenticating.as_mut()].into_iter().flatten()
            }) {
                identity.certified = certify(issuer, &identity.keys, made).expect("certificates");
                identity.certified_unix_s = made;
            }
            drop(pool);
            let (landing, authenticating) = lease();
            assert_eq!((landing.ids(), authenticating.ids()), (first.0.ids(), first.1.ids()));
            for identity in [landing, authenticating] {
                // The expiry is the third to the sixth byte (cert-spec §2.1), in hours.
                let expiry = identity.tls_link_cert[2..6].try_into().expect("four bytes");
                let expires_unix_s = u64::from(u32::from_be_bytes(expiry)) * 3600;
                let valid = now + days(1)..now + days(3);
                assert!(valid.contains(&expires_unix_s), "{made}: {expires_unix_s}");
            }
        }
    }
}
