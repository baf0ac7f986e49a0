//! Paths for self-tests.

use dirmgr::Documents;
use netdoc::consensus::{Flag, Router};
use netdoc::descriptor;
use onion::circuit::NextHop;
use onion::identity::{RelayIds, RsaId};
use rand::Rng;
use rand::seq::SliceRandom;
use std::net::{Ipv4Addr, SocketAddr};

/// Limit on relays: more than any test needs.
const OTHERS_MAX: usize = 40;

/// Other relays for tests, in random order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others(Vec<NextHop>);

impl Others {
    /// The relays that are running and fast by the consensus, and whose descriptors are known.
    ///
    /// Relays of this relay's own network (/16) come last: there may be no firewall in between.
    pub(crate) fn from_documents(
        documents: &Documents,
        own: &RsaId,
        address: Ipv4Addr,
        rng: &mut impl Rng,
    ) -> Self {
        let routers = documents.ns.iter().flat_map(|listing| listing.content.routers());
        let is_fit = |router: &&Router| {
            let wanted = [Flag::Running, Flag::Valid, Flag::Fast];
            router.fingerprint != *own && wanted.iter().all(|flag| router.flags.contains(*flag))
        };
        let mut fit: Vec<&Router> = routers.filter(is_fit).collect();
        fit.shuffle(rng);
        let network = |address: Ipv4Addr| address.octets()[..2].to_vec();
        fit.sort_by_key(|router| network(router.address) == network(address));
        let hops = fit.into_iter().filter_map(|router| hop(documents, router));
        Self(hops.take(OTHERS_MAX).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next relays of a circuit to this relay: two, or one if there are no more. The last,
    /// which will dial this relay, is one for which `may_dial` returns true; `None` if there is
    /// none.
    pub(super) fn before_us(&mut self, may_dial: impl Fn(&RsaId) -> bool) -> Option<Vec<NextHop>> {
        let last = self.0.iter().position(|hop| may_dial(&hop.ids.rsa))?;
        let last = self.0.remove(last);
        let first = (!self.0.is_empty()).then(|| self.0.remove(0));
        // The next test uses others.
        self.0.extend(first.into_iter().chain([last]));
        Some(first.into_iter().chain([last]).collect())
    }

    /// Up to `circuits` pairs of relays before and after this relay in the middle, different while
    /// relays last.
    ///
    /// No relay is before this relay in one pair and after it in another: it would dial this relay
    /// while this relay dials it, and both links would stay open.
    pub(super) fn around_us(&self, circuits: usize) -> Vec<[NextHop; 2]> {
        let (before, behind) = self.0.split_at(self.0.len() / 2);
        before
            .iter()
            .cycle()
            .zip(behind.iter().cycle())
            .map(|(a, b)| [*a, *b])
            .take(circuits)
            .collect()
    }
}

/// How to extend a circuit to a relay, by its latest descriptor.
fn hop(documents: &Documents, router: &Router) -> Option<NextHop> {
    let digest = documents.by_relay.get(&router.fingerprint)?;
    let text = &documents.descriptors.get(digest)?.text;
    let descriptor = descriptor::iter(text).next()?.ok()?;
    Some(NextHop {
        address: SocketAddr::from((router.address, router.or_port)),
        ids: RelayIds { rsa: router.fingerprint, ed25519: descriptor.ed25519 },
        onion_key: descriptor.ntor_onion_key?,
    })
}
