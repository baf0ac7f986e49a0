use super::TeamError;
use link::Forge;
use onion::identity::OwnIdentity;
use onion::measure::pump::Landing;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Identities and listening sockets of our second hops, made as they are needed and then kept.
pub(super) struct Landings {
    forge: Forge,
    /// Of the landings, by place.
    identities: Vec<Arc<OwnIdentity>>,
    /// Of links that authenticate, by place.
    authenticating: Vec<Arc<OwnIdentity>>,
    listeners: Vec<(IpAddr, TcpListener)>,
    /// The next round takes the second half of the pool.
    is_second_next: bool,
}

/// One measurer's landings, and their sockets in the same order.
pub(super) struct Share {
    pub(super) landings: Vec<Landing>,
    pub(super) listeners: Vec<TcpListener>,
    /// Identities for links that authenticate; none of them is a landing's.
    pub(super) authenticate_as: Vec<Arc<OwnIdentity>>,
}

impl Landings {
    pub(super) const fn new(forge: Forge) -> Self {
        Self {
            forge,
            identities: Vec::new(),
            authenticating: Vec::new(),
            listeners: Vec::new(),
            is_second_next: false,
        }
    }

    /// Where the next round's landings begin, of which there are `count`. Rounds take turns on two
    /// halves of the pool: a target may still believe in its connections to the last round's.
    pub(super) const fn take_turn(&mut self, count: usize) -> usize {
        let first = if self.is_second_next { count } else { 0 };
        self.is_second_next = !self.is_second_next;
        first
    }

    /// Makes identities for two rounds of `count` landings, and as many for links that authenticate
    /// if they do. That takes a while; it ends early if `cancel` is set.
    pub(super) fn make(
        &mut self,
        count: usize,
        authenticate: bool,
        cancel: &AtomicBool,
    ) -> Result<(), TeamError> {
        let pools = [(&mut self.identities, true), (&mut self.authenticating, authenticate)];
        for (pool, _) in pools.into_iter().filter(|(_, is_wanted)| *is_wanted) {
            while pool.len() < 2 * count && !cancel.load(Ordering::Relaxed) {
                pool.push(Arc::new(self.forge.identity()?));
            }
        }
        Ok(())
    }

    fn listener(&mut self, place: usize, address: IpAddr) -> Result<TcpListener, TeamError> {
        let failed = |source| TeamError::Listen { address, source };
        while self.listeners.len() <= place {
            self.listeners.push((address, TcpListener::bind((address, 0)).map_err(failed)?));
        }
        let (bound_to, listener) = &mut self.listeners[place];
        if *bound_to != address {
            *listener = TcpListener::bind((address, 0)).map_err(failed)?;
            *bound_to = address;
        }
        listener.try_clone().map_err(failed)
    }

    /// `count` landings at `address`, from the `first` on, and as many other identities.
    pub(super) fn share(
        &mut self,
        address: IpAddr,
        first: usize,
        count: usize,
        authenticate: bool,
    ) -> Result<Share, TeamError> {
        let mut share =
            Share { landings: Vec::new(), listeners: Vec::new(), authenticate_as: Vec::new() };
        for place in first..first + count {
            let landing = identity(&mut self.identities, &mut self.forge, place)?;
            let listener = self.listener(place, address)?;
            let port = listener
                .local_addr()
                .map_err(|source| TeamError::Listen { address, source })?
                .port();
            let address = SocketAddr::new(address, port);
            share.landings.push(Landing { identity: landing, address });
            share.listeners.push(listener);
            if authenticate {
                let pool = &mut self.authenticating;
                share.authenticate_as.push(identity(pool, &mut self.forge, place)?);
            }
        }
        Ok(share)
    }
}

/// The identity at `place` of a pool, which is filled up to there.
fn identity(
    pool: &mut Vec<Arc<OwnIdentity>>,
    forge: &mut Forge,
    place: usize,
) -> Result<Arc<OwnIdentity>, TeamError> {
    while pool.len() <= place {
        pool.push(Arc::new(forge.identity()?));
    }
    Ok(Arc::clone(&pool[place]))
}

/// The address of this machine from which packets to `target` go out. Sends nothing.
pub(super) fn address_towards(target: SocketAddr) -> Result<IpAddr, TeamError> {
    let unspecified: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let found = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect(target)?;
        socket.local_addr()
    });
    found
        .map(|address| address.ip())
        .map_err(|source| TeamError::NoRoute { target: target.ip(), source })
}
