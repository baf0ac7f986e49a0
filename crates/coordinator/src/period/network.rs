//! Which relays are measured, and what to expect of them.

use crate::allocation::MeasurerId;
use crate::consent::{Consent, ConsentError};
use crate::defences::Defences;
use crate::history::{Expectations, Guess};
use crate::journal::ListedRelay;
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::plan::{Candidate, Machine, TeamRoom, machines, machines_within};
use crate::turn::Attempt;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use onion::measure::load::Target;

/// What a consensus and its descriptors say, as far as measuring goes.
#[derive(Clone, Debug)]
pub struct NetworkView {
    /// From when on the consensus is valid, in Unix seconds: its name.
    pub valid_after_unix_s: u64,
    /// Where it comes from, in words.
    pub source: String,
    /// Authorities whose signatures were verified, if any had to be.
    pub signers: Option<u32>,
    /// All its relays.
    pub routers: Vec<Router>,
    /// The relays that are to be measured, if the operator names them; all others are left out.
    pub named: Option<BTreeSet<RsaId>>,
    /// The relays that take part, and so are measured by echo.
    pub echo: BTreeSet<RsaId>,
    /// Relays of one operator, in pairs: measured together, if the team can load them at once.
    pub families: Vec<(RsaId, RsaId)>,
    /// What relays let one address do.
    pub defences: Defences,
}

/// A relay of a consensus.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Whether it is a directory authority.
    pub is_authority: bool,
    /// Whether the authorities found it running.
    pub is_running: bool,
}

/// A relay that is measured.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// How it is measured.
    pub mode: Mode,
    /// What to expect of it.
    pub guess: Guess,
    /// What it lets one address do.
    pub defences: Defences,
    /// Relays that are measured together have the same: the identity of the first of them.
    pub together: RsaId,
    /// Relays that certainly share a host have the same. They have together what was found of it, also if they were not measured
    /// together.
    pub host: RsaId,
    /// What measurers of the team have seen of their paths to it.
    pub(super) paths: Vec<(MeasurerId, PathSeen)>,
}

impl Relay {
    /// The identity by which it is known.
    #[must_use]
    pub const fn id(&self) -> RsaId {
        self.ids.rsa
    }

    /// Where and who it is.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { address: self.address, ids: self.ids }
    }

    /// Its first turn in a period, of so many rounds at most.
    pub(super) fn first_turn(&self, rounds_max: u32) -> Attempt {
        Attempt::first(self.guess.capacity, rounds_max).with_sockets(self.guess.sockets_min)
    }
}

impl NetworkView {
    /// Why a relay is not measured; `None` if it is.
    fn exclusion(&self, router: &Router, consent: &Consent) -> Option<String> {
        if let Some(named) = &self.named {
            let is_named = named.contains(&router.ids.rsa);
            return (!is_named).then(|| "the configuration names other relays".to_owned());
        }
        if router.is_authority {
            return Some("it is a directory authority".to_owned());
        }
        if !router.is_running {
            return Some("by the consensus it is not running".to_owned());
        }
        let refused = consent.check(router.ids.rsa, router.address.ip()).err()?;
        Some(match refused {
            ConsentError::NotGiven { address, .. } => {
                format!("it is on a public address, {address}, and is not on the opt-in list")
            }
            other => other.to_string(),
        })
    }

    /// Checks that the relays that the operator names have agreed to be measured.
    pub(super) fn check_named(&self, consent: &Consent) -> Result<(), ConsentError> {
        let named = self.named.iter().flatten();
        let routers = named.filter_map(|id| self.routers.iter().find(|it| it.ids.rsa == *id));
        routers.into_iter().try_for_each(|it| consent.check(it.ids.rsa, it.address.ip()))
    }

    /// All relays, and why those that are not measured are not.
    pub(super) fn listed(&self, consent: &Consent) -> Vec<ListedRelay> {
        let listed = |router: &Router| ListedRelay {
            ids: router.ids,
            nickname: router.nickname.clone(),
            address: router.address,
            left_out: self.exclusion(router, consent),
        };
        self.routers.iter().map(listed).collect()
    }

    /// The relays that are to be measured, each for itself as yet. `team` is what each measurer is believed to have.
    pub(super) fn relays(
        &self,
        consent: &Consent,
        expectations: &Expectations<'_>,
        team: &[Rate],
    ) -> Vec<Relay> {
        let wanted = self.routers.iter().filter(|it| self.exclusion(it, consent).is_none());
        let relay = |router: &Router| {
            let id = router.ids.rsa;
            Relay {
                ids: router.ids,
                nickname: router.nickname.clone(),
                address: router.address,
                mode: if self.echo.contains(&id) { Mode::Echo } else { Mode::Transit },
                guess: expectations.first_guess(id),
                defences: self.defences,
                together: id,
                host: id,
                paths: expectations.paths(id, team),
            }
        };
        wanted.map(relay).collect()
    }
}

/// Says of each relay which others it is measured with. Relays at one address share a host, and those that the operator names in
/// `certain`, whatever is expected of them. Relays of one family are measured together with them, as far as the team can load
/// them at once, which is `room`. What relays say of each other takes nothing from any of them: it counts only in seconds in
/// which both were measured.
pub(super) fn group(
    relays: &mut [Relay],
    certain: &[(RsaId, RsaId)],
    families: &[(RsaId, RsaId)],
    room: TeamRoom,
) {
    let address = |it: &Relay| -> IpAddr { it.address.ip() };
    let candidate =
        |it: &Relay| Candidate { relay: it.id(), guess: it.guess.capacity, address: address(it) };
    let candidates: Vec<Candidate> = relays.iter().map(candidate).collect();
    let keys = |machines: Vec<Machine>| -> BTreeMap<RsaId, RsaId> {
        let of = |it: &Machine| it.relays().map(|relay| (relay, it.key())).collect::<Vec<_>>();
        machines.iter().flat_map(of).collect()
    };
    let together = keys(machines_within(&candidates, certain, families, room));
    let hosts = keys(machines(&candidates, certain));
    for relay in relays {
        let id = relay.id();
        relay.together = together.get(&id).copied().unwrap_or(id);
        relay.host = hosts.get(&id).copied().unwrap_or(id);
    }
}
