//! Through whom a relay tests itself.

use dirmgr::Documents;
use netdoc::consensus::{Flag, Router};
use netdoc::{Fingerprint, descriptor};
use onion::circuit::NextHop;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use rand::Rng;
use rand::seq::SliceRandom;
use std::net::{Ipv4Addr, SocketAddr};

/// Relays that are taken into account: more than any test needs.
const OTHERS_MAX: usize = 40;

/// Other relays that a test may go through, in an order drawn by lot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Others(Vec<NextHop>);

impl Others {
    /// Those that the consensus lists as running and fast, and whose descriptors are here.
    ///
    /// Those of our own network (/16) come last: between them and us may be no firewall.
    pub(crate) fn of(
        documents: &Documents,
        own: &Fingerprint,
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

    /// The next relays that a circuit to us leads through: two, or one if there are no more. The last, which is to dial us, is
    /// one that `may_dial`; `None` if there is no such relay.
    pub(super) fn before_us(&mut self, may_dial: impl Fn(&RsaId) -> bool) -> Option<Vec<NextHop>> {
        let last = self.0.iter().position(|hop| may_dial(&hop.ids.rsa))?;
        let last = self.0.remove(last);
        let first = (!self.0.is_empty()).then(|| self.0.remove(0));
        // Next time it is the others' turn.
        self.0.extend(first.into_iter().chain([last]));
        Some(first.into_iter().chain([last]).collect())
    }

    /// The relays before and behind us of so many circuits that have us in the middle, or of fewer; each pair is another one while
    /// relays last.
    ///
    /// No relay is before us in one and behind us in another: it would dial us while we dial it, and both links would stay.
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
    let rsa = RsaId(*router.fingerprint.as_bytes());
    let ed25519 = descriptor.ed25519.map(|id| Ed25519Id(*id.as_bytes()));
    Some(NextHop {
        address: SocketAddr::from((router.address, router.or_port)),
        ids: RelayIds { rsa, ed25519 },
        onion_key: descriptor.ntor_onion_key?,
    })
}
