//! The relays to measure, and the expectations for them.

use crate::allocation::MeasurerId;
use crate::consent::{Consent, ConsentError};
use crate::defences::Defences;
use crate::history::{Expectations, Guess};
use crate::journal::ListedRelay;
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::plan::{Candidate, Machine, TeamRoom, machines, machines_within};
use crate::policy::PolicyRelays;
use crate::turn::Attempt;
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use onion::measure::load::Target;

/// The data of a consensus and its descriptors that measurements need.
#[derive(Clone, Debug)]
pub struct NetworkView {
    /// The start of the consensus's validity, in Unix seconds, which identifies it.
    pub valid_after_unix_s: u64,
    /// Its source, as text.
    pub source: String,
    /// Authorities whose signatures were verified, if any had to be.
    pub signers: Option<u32>,
    /// All its relays.
    pub routers: Vec<Router>,
    /// The relays to measure, if the operator names them; all others are excluded.
    pub named: Option<BTreeSet<RsaId>>,
    /// The relays that participate and so are measured by echo.
    pub echo: BTreeSet<RsaId>,
    /// Relays of one operator, in pairs: measured together, if the team can load them at once.
    pub families: Vec<(RsaId, RsaId)>,
    /// Its relays as a measurement policy needs them, if there is one.
    pub policy_relays: Option<Arc<PolicyRelays>>,
    /// The relays' limits for a single address.
    pub defences: Defences,
}

/// A relay of a consensus.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Its address.
    pub address: SocketAddr,
    /// Whether it is a directory authority.
    pub is_authority: bool,
    /// Whether the authorities found it running.
    pub is_running: bool,
    /// Its weight in the consensus, in KB/s.
    pub weight_kb_s: Option<u32>,
}

/// A relay that is measured.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Its identities.
    pub ids: RelayIds,
    /// Its nickname.
    pub nickname: String,
    /// Its address.
    pub address: SocketAddr,
    /// How it is measured.
    pub mode: Mode,
    /// The expectation for it.
    pub guess: Guess,
    /// Its limits for a single address.
    pub defences: Defences,
    /// The group that it is measured with: the identity of the first relay.
    pub together: RsaId,
    /// The host that it certainly shares, as a group. The relays of a host share its joint capacity, even if they were
    /// not measured together.
    pub host: RsaId,
    /// The measurers' observations of their paths to it.
    pub(super) paths: Vec<(MeasurerId, PathSeen)>,
}

impl Relay {
    /// The authoritative identity.
    #[must_use]
    pub const fn id(&self) -> RsaId {
        self.ids.rsa
    }

    /// Its address and identities.
    #[must_use]
    pub const fn target(&self) -> Target {
        Target { address: self.address, ids: self.ids }
    }

    /// Its first turn in a period, of at most `rounds_max` rounds.
    pub(super) fn first_turn(&self, rounds_max: u32) -> Attempt {
        Attempt::first(self.guess.capacity, rounds_max).with_sockets(self.guess.sockets_min)
    }
}

/// The consent of relays at one time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConsentNow<'c> {
    pub(super) consent: &'c Consent,
    pub(super) now_unix_s: u64,
    /// Whether a relay that may be measured at another hour of the day only has a slot then.
    pub(super) has_slots: bool,
}

impl ConsentNow<'_> {
    fn check(&self, router: &Router) -> Result<(), ConsentError> {
        let checked = self.consent.check(router.ids.rsa, router.address.ip(), self.now_unix_s);
        checked.or_else(
            |error| {
                if self.has_slots && error.is_out_of_hours() { Ok(()) } else { Err(error) }
            },
        )
    }
}

impl NetworkView {
    /// The reason why a relay is not measured; `None` if it is.
    fn exclusion(&self, router: &Router, consent: ConsentNow<'_>) -> Option<String> {
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
        let refused = consent.check(router).err()?;
        Some(match refused {
            ConsentError::NotGiven { address, .. } => {
                format!("it is on a public address, {address}, and is not on the opt-in list")
            }
            other => other.to_string(),
        })
    }

    /// Checks that the relays that the operator names have consented to be measured.
    pub(super) fn check_named(&self, consent: ConsentNow<'_>) -> Result<(), ConsentError> {
        let named = self.named.iter().flatten();
        let routers =
            named.filter_map(|id| self.routers.iter().find(|router| router.ids.rsa == *id));
        routers.into_iter().try_for_each(|router| consent.check(router))
    }

    /// All relays, with the reason for each that is not measured.
    pub(super) fn listed(&self, consent: ConsentNow<'_>) -> Vec<ListedRelay> {
        let listed = |router: &Router| ListedRelay {
            ids: router.ids,
            nickname: router.nickname.clone(),
            address: router.address,
            weight_kb_s: router.weight_kb_s,
            left_out: self.exclusion(router, consent),
        };
        self.routers.iter().map(listed).collect()
    }

    /// The relays to measure, not grouped yet. `team` is the assumed capacity of each measurer.
    pub(super) fn relays(
        &self,
        consent: ConsentNow<'_>,
        expectations: &Expectations<'_>,
        team: &[Rate],
    ) -> Vec<Relay> {
        let wanted = self.routers.iter().filter(|router| self.exclusion(router, consent).is_none());
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

/// Groups the relays that are measured together. Relays at one address share a host, and so do those that the operator
/// names in `certain`, whatever their expected capacity. Relays of one family are measured together if the team can
/// load them at once, within `room`. A family declaration cannot reduce any relay's result: it counts only in seconds
/// in which both were measured.
pub(super) fn group(
    relays: &mut [Relay],
    certain: &[(RsaId, RsaId)],
    families: &[(RsaId, RsaId)],
    room: TeamRoom,
) {
    let address = |relay: &Relay| -> IpAddr { relay.address.ip() };
    let candidate = |relay: &Relay| Candidate {
        relay: relay.id(),
        guess: relay.guess.capacity,
        address: address(relay),
    };
    let candidates: Vec<Candidate> = relays.iter().map(candidate).collect();
    let keys = |machines: Vec<Machine>| -> BTreeMap<RsaId, RsaId> {
        let of = |machine: &Machine| {
            machine.relays().map(|relay| (relay, machine.key())).collect::<Vec<_>>()
        };
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
