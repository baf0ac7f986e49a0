//! The directories of a client, and how it reaches them.

use crate::tunnel::Tunnels;
use dirmgr::Source;
use netdoc::consdiff::ConsensusDigest;
use netdoc::consensus::Consensus;
use netdoc::fetch::{FetchError, Fetcher, Problem, Resource};
use onion::circuit::NextHop;
use onion::identity::{RelayIds, RsaId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A directory that is reached through a one-hop circuit (BEGIN_DIR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnionDirectory {
    /// Address of its OR port.
    pub address: SocketAddr,
    /// Its identities, which it must prove.
    pub ids: RelayIds,
}

impl OnionDirectory {
    /// The hop. One-hop circuits need no onion key.
    const fn hop(&self) -> NextHop {
        NextHop { address: self.address, ids: self.ids, onion_key: [0; 32] }
    }
}

/// Directories of a client.
#[derive(Clone, Debug, Default)]
pub struct Directories {
    /// Authorities with a known OR port, by their addresses in [`Settings`](crate::Settings). The
    /// others are reached by plain HTTP.
    pub authorities: BTreeMap<SocketAddr, OnionDirectory>,
    /// Fallback directories: asked before the authorities while no guard is known.
    pub fallbacks: Vec<OnionDirectory>,
    /// Known guards are asked first.
    pub has_guards: bool,
}

/// What the engine and the directory thread know of guards.
#[derive(Debug, Default)]
struct Known {
    /// Guards that may be tried, best first.
    guards: Vec<RsaId>,
    /// Has their addresses, even without microdescriptors.
    consensus: Option<Arc<Consensus>>,
}

/// Guards, shared between two threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedGuards(Arc<Mutex<Known>>);

impl SharedGuards {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // The lock guards single assignments.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_guards(&self, guards: Vec<RsaId>) {
        self.lock().guards = guards;
    }

    pub(crate) fn set_consensus(&self, consensus: Arc<Consensus>) {
        self.lock().consensus = Some(consensus);
    }

    fn directories(&self) -> Vec<OnionDirectory> {
        let known = self.lock();
        let Some(consensus) = &known.consensus else { return Vec::new() };
        let find = |guard: &RsaId| {
            let router = consensus.routers().iter().find(|router| router.fingerprint == *guard)?;
            let ids = RelayIds { rsa: *guard, ed25519: None };
            Some(OnionDirectory { address: (router.address, router.or_port).into(), ids })
        };
        known.guards.iter().filter_map(find).collect()
    }
}

/// Reaches guards, fallbacks and authorities through one-hop circuits, and authorities without an
/// OR port by plain HTTP.
pub(crate) struct Sources {
    directories: Directories,
    guards: SharedGuards,
    /// The mirrors of the current fetch.
    nearest: Vec<OnionDirectory>,
    /// The fallback to begin with. It changes for each fetch, so that none of them alone determines
    /// the result.
    first_fallback: usize,
    /// Open during a fetch.
    tunnels: Option<Tunnels>,
}

impl Sources {
    pub(crate) const fn new(directories: Directories, guards: SharedGuards) -> Self {
        Self { directories, guards, nearest: Vec::new(), first_fallback: 0, tunnels: None }
    }

    fn hop(&self, address: SocketAddr) -> Option<NextHop> {
        let authority = self.directories.authorities.get(&address);
        let nearest = || self.nearest.iter().find(|directory| directory.address == address);
        authority.or_else(nearest).map(OnionDirectory::hop)
    }

    fn tunnels(&mut self) -> Result<&mut Tunnels, Problem> {
        match &mut self.tunnels {
            Some(tunnels) => Ok(tunnels),
            none => Ok(none.insert(Tunnels::new()?)),
        }
    }
}

impl Source for Sources {
    fn mirrors(&mut self) -> Vec<SocketAddr> {
        let Directories { fallbacks, has_guards, .. } = &self.directories;
        let guards = if *has_guards { self.guards.directories() } else { Vec::new() };
        self.nearest = guards;
        if self.nearest.is_empty() && !fallbacks.is_empty() {
            self.nearest.clone_from(fallbacks);
            self.nearest.rotate_left(self.first_fallback % fallbacks.len());
            self.first_fallback = self.first_fallback.wrapping_add(1);
        }
        self.nearest.iter().map(|directory| directory.address).collect()
    }

    fn get_since(
        &mut self,
        from: SocketAddr,
        what: &Resource,
        have: &[ConsensusDigest],
        limits: &Fetcher,
    ) -> Result<Vec<u8>, FetchError> {
        let Some(hop) = self.hop(from) else { return limits.get_since(from, what, have) };
        let got = self.tunnels().and_then(|tunnels| tunnels.get(&hop, what, have, limits));
        let url = || format!("{what} from {} by BEGIN_DIR", hop.address);
        got.map_err(|problem| FetchError { url: url(), problem })
    }

    fn close_idle(&mut self) {
        // An open link would show the relay when the client's host is online.
        self.tunnels = None;
    }
}
