//! Which relays are measured, and what is to be expected of them.

use super::config::{Config, Source};
use cli::Error;
use coordinator::plan::{Candidate, Machine, TeamRoom, machines, machines_within};
use coordinator::{Expectations, Guess, MeasurerId, PathSeen, Turn};
use dirmgr::consensus_signers;
use documents::{Documents, Origin};
use measurer::{Approach, Consent, ConsentError, Coordinator, Defences, Request};
use netdoc::consensus::{Flag, Router};
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, Nickname};
use onion::Rate;
use onion::identity::RsaId;
use onion::measure::load::Target;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use store::Sighting;
use terminal::measuring::Subject;

/// A relay to be measured.
#[derive(Clone)]
pub(super) struct Relay {
    pub(super) subject: Subject,
    pub(super) nickname: Nickname,
    /// What to expect of it.
    pub(super) guess: Guess,
    /// Those that are measured together have the same: that of the first of them.
    pub(super) together: RsaId,
    /// Those that certainly share a machine have the same: they have in all what was found of it, also if they were not measured
    /// together.
    pub(super) machine: RsaId,
    /// What measurers of the team have seen of their paths to it.
    pub(super) paths: Vec<(MeasurerId, PathSeen)>,
}

impl Relay {
    pub(super) const fn id(&self) -> RsaId {
        self.subject.request.target.ids.rsa
    }

    pub(super) const fn address(&self) -> IpAddr {
        self.subject.request.target.address.ip()
    }

    /// Its first turn in a period.
    pub(super) fn first_turn(&self, config: &Config) -> Turn {
        let rounds_max = self.subject.request.approach.within(config.params).max_rounds;
        Turn::first(self.guess.capacity, rounds_max).with_sockets(self.guess.sockets_min)
    }
}

/// What the authorities say: signed by more than half of those that the configuration names, if it names any.
pub(super) fn documents(config: &Config, now_unix_s: u64) -> Result<Documents, Error> {
    let mut documents = match &config.source {
        Source::Authority(authority) => {
            let text = Fetcher::default().get(*authority, &Resource::Consensus)?;
            let what = format!("the consensus from {authority}");
            let signers = verify(config, &what, &text, now_unix_s, || {
                let all = Resource::Path("/tor/keys/all".to_owned());
                Ok(Fetcher::default().get(*authority, &all)?)
            })?;
            Documents::new(what, &text, Origin::Authority(*authority), now_unix_s)?
                .signed_by(signers)
        }
        Source::File(path) => {
            let text = read(path, "read the consensus")?;
            let what = format!("the consensus in {}", path.display());
            let certificates = config.certificates.as_deref().unwrap_or(Path::new(""));
            let certificates = || read(certificates, "read the certificates");
            let signers = verify(config, &what, &text, now_unix_s, certificates)?;
            let origin = config.descriptors.as_deref().map_or(Origin::Nowhere, Origin::File);
            Documents::new(what, &text, origin, now_unix_s)?.signed_by(signers)
        }
    };
    let lasts = documents.consensus.valid_until.saturating_add(STALE_S);
    if documents.signers.is_some() && lasts < now_unix_s {
        let what = std::mem::take(&mut documents.what);
        return Err(Error::Failed(format!("{what} is not believed: it ended over a day ago")));
    }
    Ok(documents)
}

/// After its end a consensus is believed for so long, as clients of tor do (dir-spec §5.1).
const STALE_S: u64 = 24 * 3600;

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File { what, path: path.to_owned(), source })
}

/// How many of the configured authorities have signed, if it is to be looked at.
fn verify(
    config: &Config,
    what: &str,
    consensus: &[u8],
    now_unix_s: u64,
    certificates: impl FnOnce() -> Result<Vec<u8>, Error>,
) -> Result<Option<u32>, Error> {
    let trusted = &config.authority_identities;
    if trusted.is_empty() {
        return Ok(None);
    }
    let signers = consensus_signers(consensus, &certificates()?, trusted, now_unix_s).len();
    let needed = trusted.len() / 2 + 1;
    if signers < needed {
        let problem = format!(
            "{signers} of the {} authorities in `authority_identities` have signed it, and {needed} must have",
            trusted.len()
        );
        return Err(Error::Failed(format!("{what} is not believed: {problem}")));
    }
    Ok(u32::try_from(signers).ok())
}

/// The relays that are to be measured. Those that the configuration names must allow it; of all
/// others, those that do not are left out.
pub(super) fn relays(
    documents: &Documents,
    config: &Config,
    expectations: &Expectations<'_>,
) -> Result<Vec<Relay>, Error> {
    let Documents { what, consensus, .. } = documents;
    // Who takes part and is not listed is not measured by transit either.
    let echo = named(documents, &config.echo).unwrap_or_default();
    let consent = config.consent();
    let wanted = Wanted::new(documents, config, &consent)?;
    let routers: Vec<&Router> =
        consensus.routers().iter().filter(|router| wanted.left_out(router).is_none()).collect();
    if routers.is_empty() {
        let problem = "no relay may be measured: none is on a private address or has opted in";
        return Err(Error::Failed(format!("{what}: {problem}")));
    }
    let team: Vec<Rate> =
        config.measurers.iter().map(|mate| mate.capacity.unwrap_or(Rate::ZERO)).collect();
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let relay = |router: &&Router| {
        let takes_part = echo.iter().any(|it| it.fingerprint == router.fingerprint);
        relay(router, config, takes_part, expectations, &team, defences)
    };
    Ok(routers.iter().map(relay).collect())
}

/// Says of each of these relays which others it is measured with, by a team that measures so many at once at most. Without this each is
/// for itself.
pub(super) fn put_together(
    relays: &mut [Relay],
    documents: &Documents,
    config: &Config,
    at_once_max: u32,
) {
    let team: Rate = config.measurers.iter().filter_map(|mate| mate.capacity).sum();
    let capacity = team.scaled(1.0 / config.params.excess_factor());
    let families = if config.family { documents.families.as_slice() } else { &[] };
    let most = TeamRoom { capacity, at_once_max };
    put_pairs_together(relays, &config.together, families, most);
}

/// Relays at one address share a machine, and those that the operator names, whatever is expected of them; those of one family are measured together with them,
/// as many as the team can load at once, which is `most`. What relays say of each other makes none of them another's debtor: it counts only in seconds in which both were
/// measured.
fn put_pairs_together(
    relays: &mut [Relay],
    certain: &[(RsaId, RsaId)],
    families: &[(RsaId, RsaId)],
    most: TeamRoom,
) {
    let candidate =
        |it: &Relay| Candidate { relay: it.id(), guess: it.guess.capacity, address: it.address() };
    let candidates: Vec<Candidate> = relays.iter().map(candidate).collect();
    let name = |machines: Vec<Machine>| -> BTreeMap<RsaId, RsaId> {
        let named = |machine: &Machine| {
            let key = machine.key();
            machine.relays().map(|relay| (relay, key)).collect::<Vec<_>>()
        };
        machines.iter().flat_map(named).collect()
    };
    let together = name(machines_within(&candidates, certain, families, most));
    let machine = name(machines(&candidates, certain));
    for relay in relays {
        let of = |names: &BTreeMap<RsaId, RsaId>| names.get(&relay.id()).copied();
        let (together, machine) = (of(&together), of(&machine));
        relay.together = together.unwrap_or(relay.together);
        relay.machine = machine.unwrap_or(relay.machine);
    }
}

/// All relays of the consensus, and why those that are not measured are not.
pub(super) fn sightings(documents: &Documents, config: &Config) -> Result<Vec<Sighting>, Error> {
    let consent = config.consent();
    let wanted = Wanted::new(documents, config, &consent)?;
    let sighting = |router: &Router| Sighting {
        ids: Subject::ids(router.fingerprint, router.ed25519.map(|id| *id.as_bytes())),
        nickname: router.nickname.to_string(),
        address: SocketAddr::new(router.address.into(), router.or_port),
        left_out: wanted.left_out(router),
    };
    Ok(documents.consensus.routers().iter().map(sighting).collect())
}

/// The relays with these names or fingerprints. One that is not listed now, or a name that is another's as well, is told of and
/// passed over: what a stranger can do must not keep all others from being measured.
///
/// # Errors
/// Where none of several is listed.
fn named<'d>(documents: &'d Documents, names: &[String]) -> Result<Vec<&'d Router>, Error> {
    let (mut found, mut problem) = (Vec::new(), None);
    for name in names {
        match documents.consensus.find(name) {
            Ok(router) => found.push(router),
            Err(source) => {
                let error = Error::Failed(format!("{}: {source}", documents.what));
                tracing::warn!("`{name}` of the configuration is passed over: {error}");
                problem.get_or_insert(error);
            }
        }
    }
    match problem {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Which relays are to be measured.
struct Wanted<'c> {
    consent: &'c Consent,
    /// Those that the configuration names, if it does.
    named: Option<BTreeSet<Fingerprint>>,
}

impl<'c> Wanted<'c> {
    /// Those that the configuration names must allow it.
    fn new(documents: &Documents, config: &Config, consent: &'c Consent) -> Result<Self, Error> {
        let routers = match &config.relays {
            Some(names) => Some(named(documents, names)?),
            None => None,
        };
        for router in routers.iter().flatten() {
            consent.check(rsa(router), router.address.into())?;
        }
        let named =
            routers.map(|routers| routers.iter().map(|router| router.fingerprint).collect());
        Ok(Self { consent, named })
    }

    /// Why a relay is not measured, if it is not.
    fn left_out(&self, router: &Router) -> Option<String> {
        if let Some(named) = &self.named {
            let is_named = named.contains(&router.fingerprint);
            return (!is_named).then(|| "the configuration names other relays".to_owned());
        }
        if router.flags.contains(Flag::Authority) {
            return Some("it is a directory authority".to_owned());
        }
        if !router.flags.contains(Flag::Running) {
            return Some("by the consensus it is not running".to_owned());
        }
        let refused = self.consent.check(rsa(router), router.address.into()).err()?;
        Some(match refused {
            ConsentError::NotGiven { address, .. } => {
                format!("it is on a public address, {address}, and is not on the opt-in list")
            }
            other => other.to_string(),
        })
    }
}

const fn rsa(router: &Router) -> RsaId {
    RsaId(*router.fingerprint.as_bytes())
}

fn relay(
    router: &Router,
    config: &Config,
    takes_part: bool,
    expectations: &Expectations<'_>,
    team: &[Rate],
    defences: Defences,
) -> Relay {
    let (guess, paths) =
        (expectations.first_guess(rsa(router)), expectations.paths(rsa(router), team));
    let address = SocketAddr::new(router.address.into(), router.or_port);
    let ids = Subject::ids(router.fingerprint, router.ed25519.map(|id| *id.as_bytes()));
    let approach = if takes_part {
        let rounds_max = config.echo_rounds;
        Approach::Echo(Coordinator { key_seed: config.secret.seed(), rounds_max })
    } else {
        Approach::Transit
    };
    let target = Target { address, ids };
    let request = Request { target, guess: guess.capacity, defences, approach };
    let (nickname, fingerprint) = (router.nickname.to_string(), router.fingerprint);
    let subject = Subject { nickname, fingerprint, limit: None, request };
    let own = rsa(router);
    Relay { subject, nickname: router.nickname, guess, together: own, machine: own, paths }
}

#[cfg(test)]
mod tests {
    use super::super::journal::testing;
    use super::*;

    /// Relays of 50 Mbit/s, by the last byte of their addresses.
    fn relays(hosts: &[u8]) -> Vec<Relay> {
        let relay = |(number, host): (u8, &u8)| {
            let mut relay = testing::relay(number);
            relay.subject.request.target.address = ([192, 0, 2, *host], 9001).into();
            relay
        };
        (1..).zip(hosts).map(relay).collect()
    }

    const fn id(number: u8) -> RsaId {
        RsaId([number; 20])
    }

    #[test]
    fn a_family_is_measured_together_and_only_an_address_or_an_operator_makes_it_one_machine() {
        let mut relays = relays(&[1, 1, 2, 3, 4]);
        let mbit = |mbit| TeamRoom::of(Rate::from_mbit_per_s(mbit));
        // 1 and 2 are at one address, 3 is of the family of 2, and the operator says that 4 and 5 share a machine.
        let (certain, families) = ([(id(4), id(5))], [(id(2), id(3))]);
        let names = |relays: &[Relay]| {
            let of = |name: fn(&Relay) -> RsaId| relays.iter().map(|it| name(it).0[0]).collect();
            let (together, machine): (Vec<u8>, Vec<u8>) =
                (of(|it| it.together), of(|it| it.machine));
            (together, machine)
        };
        put_pairs_together(&mut relays, &certain, &families, mbit(150.0));
        assert_eq!(names(&relays), (vec![1, 1, 1, 4, 4], vec![1, 1, 3, 4, 4]));
        // A team for less than all of them: the family is too large. The operator's word counts all the same, since each of the two may have been found to have
        // all of what both have.
        for most in [149.0, 100.0, 99.0, 1.0] {
            put_pairs_together(&mut relays, &certain, &families, mbit(most));
            assert_eq!(names(&relays), (vec![1, 1, 3, 4, 4], vec![1, 1, 3, 4, 4]), "{most}");
        }
        // One that could load all of them, and measures two at once.
        let two = TeamRoom { at_once_max: 2, ..mbit(150.0) };
        put_pairs_together(&mut relays, &certain, &families, two);
        assert_eq!(names(&relays), (vec![1, 1, 3, 4, 4], vec![1, 1, 3, 4, 4]));
    }
}
