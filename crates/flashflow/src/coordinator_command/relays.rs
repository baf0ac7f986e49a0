//! Which relays are measured, and what is to be expected of them.

use super::config::{Config, Source};
use crate::documents::Documents;
use crate::error::Error;
use coordinator::{Expectations, Guess, Turn};
use measurer::{Approach, Coordinator, Defences, Request};
use netdoc::Nickname;
use netdoc::consensus::{Flag, Router};
use netdoc::fetch::{Fetcher, Resource};
use onion::identity::RsaId;
use onion::measure::pump::Target;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use terminal::measuring::Subject;

/// A relay to be measured.
#[derive(Clone)]
pub(super) struct Relay {
    pub(super) subject: Subject,
    pub(super) nickname: Nickname,
    /// What to expect of it.
    pub(super) guess: Guess,
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

/// What the authorities say.
pub(super) fn documents(config: &Config) -> Result<Documents, Error> {
    match &config.source {
        Source::Authority(authority) => {
            let text = Fetcher::default().get(*authority, &Resource::Consensus)?;
            Documents::new(format!("the consensus from {authority}"), &text, Some(*authority))
        }
        Source::File(path) => {
            let failed =
                |source| Error::File { what: "read the consensus", path: path.clone(), source };
            let text = fs::read(path).map_err(failed)?;
            Documents::new(format!("the consensus in {}", path.display()), &text, None)
        }
    }
}

/// The relays that are to be measured. Those that the configuration names must allow it; of all
/// others, those that do not are left out.
pub(super) fn relays(
    documents: &Documents,
    config: &Config,
    expectations: &Expectations<'_>,
) -> Result<Vec<Relay>, Error> {
    let Documents { what, consensus, .. } = documents;
    let lookup = |name: &String| {
        let found = consensus.find(name);
        found.map_err(|source| Error::Lookup { what: what.clone(), source })
    };
    let echo = config.echo.iter().map(lookup).collect::<Result<Vec<&Router>, Error>>()?;
    let consent = |router: &Router| config.consent.check(rsa(router), router.address.into());
    let routers: Vec<&Router> = match &config.relays {
        Some(names) => {
            let named = names.iter().map(lookup).collect::<Result<Vec<&Router>, Error>>()?;
            named.iter().try_for_each(|router| consent(router))?;
            named
        }
        None => {
            let is_up = |router: &&Router| {
                router.flags.contains(Flag::Running) && !router.flags.contains(Flag::Authority)
            };
            let up = consensus.routers().iter().filter(is_up);
            up.filter(|router| consent(router).is_ok()).collect()
        }
    };
    if routers.is_empty() {
        let problem = "no relay may be measured: none is on a private address or has opted in";
        return Err(Error::Usage(format!("{what}: {problem}")));
    }
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let relay = |router: &&Router| {
        let takes_part = echo.iter().any(|it| it.fingerprint == router.fingerprint);
        relay(router, config, takes_part, expectations.first_guess(rsa(router)), defences)
    };
    Ok(routers.iter().map(relay).collect())
}

const fn rsa(router: &Router) -> RsaId {
    RsaId(*router.fingerprint.as_bytes())
}

fn relay(
    router: &Router,
    config: &Config,
    takes_part: bool,
    guess: Guess,
    defences: Defences,
) -> Relay {
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
    Relay { subject, nickname: router.nickname, guess }
}
