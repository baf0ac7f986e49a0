//! Reads the consensus and its descriptors for a period.

use super::config::{Config, Gate};
use cli::Error;
use coordinator::Defences;
use coordinator::period::{NetworkView, Router};
use dirmgr::{consensus_signers, schedule};
use documents::gate::{Others, read_votes};
use documents::{Documents, Origin, Source, validity_problem};
use netdoc::consensus::{self, Consensus, Flag};
use netdoc::fetch::{Fetcher, Resource};
use onion::identity::{RelayIds, RsaId};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// A consensus, and the data that a period needs.
pub(super) struct Network {
    pub(super) documents: Documents,
    pub(super) view: NetworkView,
    /// The measurements of other authorities, if there is a gate.
    pub(super) others: Option<Others>,
    /// Whether the consensus is valid now, so that our clock is right within hours.
    pub(super) confirms_clock: bool,
}

impl Network {
    /// The authorities' latest shared random value.
    pub(super) fn shared_random(&self) -> Option<[u8; 32]> {
        self.documents.consensus.shared_random.map(|shared_random| shared_random.value)
    }
}

/// Reads the configured consensus, which must be at most a day from being valid, as in C tor. If authorities are
/// configured, more than half of them must have signed it.
pub(super) fn read(config: &Config, now_unix_s: u64) -> Result<Network, Error> {
    let documents = documents(config, now_unix_s)?;
    let (what, consensus) = (&documents.what, &documents.consensus);
    let problem = validity_problem(consensus, now_unix_s);
    if let Some(problem) = &problem {
        if !schedule::is_reasonably_live(consensus, now_unix_s) {
            return Err(Error::Failed(format!(
                "{what} is not used: it {problem}; get a newer one, or correct the clock"
            )));
        }
        tracing::warn!("{what} {problem}: is the clock right?");
    }
    // Participating relays that are not listed are not measured by transit either.
    let echo = named(&documents, &config.echo).unwrap_or_default();
    let wanted = match &config.relays {
        Some(names) => Some(named(&documents, names)?),
        None => None,
    };
    let ids = |routers: Vec<&consensus::Router>| {
        routers.into_iter().map(|router| router.fingerprint).collect()
    };
    let (wanted, echo) = (wanted.map(ids), ids(echo));
    let families = if config.family { documents.families.clone() } else { Vec::new() };
    let policy_relays = config
        .consent()
        .policy()
        .map(|rule| Arc::new(documents::policy::relays(&documents, &rule.policy)));
    let view = NetworkView { families, policy_relays, ..view(&documents, wanted, echo) };
    let others = config.gate.as_ref().and_then(|gate| others(config, gate, &documents.consensus));
    Ok(Network { documents, view, others, confirms_clock: problem.is_none() })
}

/// The measurements of other authorities: of their votes, or else those that the consensus is based on.
fn others(config: &Config, gate: &Gate, consensus: &Consensus) -> Option<Others> {
    let mut own = gate.own.clone();
    let votes = match (&gate.votes, &config.source) {
        (Some(path), _) => read_votes(path).unwrap_or_else(|error| {
            tracing::warn!("gate: compared with the consensus, without votes: {error}");
            Vec::new()
        }),
        (None, Source::Authority(authority)) => {
            own = own.or_else(|| identity(*authority));
            fetch_votes(*authority, consensus)
        }
        (None, Source::File(_)) => Vec::new(),
    };
    Others::from_votes(&votes, own.as_deref()).or_else(|| Others::from_consensus(consensus))
}

/// The v3 identity of the authority at this address. A cache has none.
fn identity(authority: SocketAddr) -> Option<String> {
    let text = Fetcher::default().get(authority, &Resource::CurrentVote).ok()?;
    let vote = Consensus::parse_vote(&text).ok()?;
    Some(vote.authorities.first()?.fingerprint.to_string())
}

/// The votes that an authority has from all that voted for the consensus. A cache has none.
fn fetch_votes(authority: SocketAddr, consensus: &Consensus) -> Vec<Consensus> {
    let mut votes = Vec::new();
    for voter in &consensus.authorities {
        let path = format!("/tor/status-vote/current/{}", voter.fingerprint);
        let text = Fetcher::default().get(authority, &Resource::Path(path));
        let text = text.map_err(|error| error.to_string());
        let vote =
            text.and_then(|text| Consensus::parse_vote(&text).map_err(|error| error.to_string()));
        match vote {
            Ok(vote) => votes.push(vote),
            Err(problem) => {
                tracing::debug!("gate: without the vote of {}: {problem}", voter.nickname);
            }
        }
    }
    votes
}

/// What a period needs of these documents, without families and a measurement policy. `named` are the relays to measure, all permitted ones if
/// `None`, and `echo` those that participate.
#[must_use]
pub fn view(
    documents: &Documents,
    named: Option<BTreeSet<RsaId>>,
    echo: BTreeSet<RsaId>,
) -> NetworkView {
    let consensus = &documents.consensus;
    NetworkView {
        valid_after_unix_s: consensus.valid_after,
        source: documents.what.clone(),
        signers: documents.signers,
        // Links must prove both identities, and both are in the bandwidth file.
        routers: consensus
            .routers()
            .iter()
            .map(|relay| Router { ids: documents.ids(relay), ..router(relay) })
            .collect(),
        named,
        echo,
        families: Vec::new(),
        policy_relays: None,
        defences: Defences::from_consensus_params(|name| consensus.params.get(name)),
    }
}

/// A relay of a consensus, as a period needs it.
#[must_use]
pub fn router(router: &consensus::Router) -> Router {
    Router {
        ids: RelayIds { rsa: router.fingerprint, ed25519: router.ed25519 },
        nickname: router.nickname.to_string(),
        address: SocketAddr::new(router.address.into(), router.or_port),
        is_authority: router.flags.contains(Flag::Authority),
        is_running: router.flags.contains(Flag::Running),
        weight_kb_s: router.bandwidth_kb_s,
    }
}

fn documents(config: &Config, now_unix_s: u64) -> Result<Documents, Error> {
    let what = config.source.to_string();
    let documents = match &config.source {
        Source::Authority(authority) => {
            let text = Fetcher::default().get(*authority, &Resource::Consensus)?;
            let signers = verify(config, &what, &text, now_unix_s, || {
                let all = Resource::Path("/tor/keys/all".to_owned());
                Ok(Fetcher::default().get(*authority, &all)?)
            })?;
            Documents::new(what, &text, Origin::Authority(*authority), now_unix_s)?
                .signed_by(signers)
        }
        Source::File(path) => {
            let text = read_file(path, "read the consensus")?;
            let certificates = config.certificates.as_deref().unwrap_or(Path::new(""));
            let certificates = || read_file(certificates, "read the certificates");
            let signers = verify(config, &what, &text, now_unix_s, certificates)?;
            let origin = config.descriptors.as_deref().map_or(Origin::Nowhere, Origin::File);
            Documents::new(what, &text, origin, now_unix_s)?.signed_by(signers)
        }
    };
    Ok(documents)
}

fn read_file(path: &Path, what: &'static str) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::File { what, path: path.to_owned(), source })
}

/// The number of configured authorities that have signed, if signatures are verified.
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

/// The relays with these names or fingerprints. An unlisted relay, or an ambiguous name, is logged and skipped: a
/// stranger must not be able to stop the measurement of all others.
///
/// # Errors
/// If there are several, and none is listed.
fn named<'d>(
    documents: &'d Documents,
    names: &[String],
) -> Result<Vec<&'d consensus::Router>, Error> {
    let (mut found, mut problem) = (Vec::new(), None);
    for name in names {
        match documents.consensus.find(name) {
            Ok(router) => found.push(router),
            Err(source) => {
                let error = Error::Failed(format!("{}: {source}", documents.what));
                tracing::warn!("`{name}` in the configuration is ignored: {error}");
                problem.get_or_insert(error);
            }
        }
    }
    match problem {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}
