//! Which relays are measured, and what is known of them.

use super::campaign::Measured;
use super::config::{Config, Source};
use crate::error::Error;
use coordinator::{Failure, GuessPolicy, PastEstimate, Standing, first_guess};
use link::unix_time_s;
use measurer::{Approach, Coordinator, Defences, Request};
use netdoc::bwfile::{self, BandwidthFile};
use netdoc::consensus::{Consensus, Flag, Router};
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Ed25519Identity, Fingerprint, Nickname};
use onion::measure::pump::Target;
use onion::{Duration, Rate};
use std::fs;
use std::net::SocketAddr;
use terminal::measuring::Subject;

/// What the authorities say.
pub(super) struct Documents {
    what: String,
    pub(super) consensus: Consensus,
    /// The limit that each relay's operator sets, in bytes per second.
    averages: Vec<(Fingerprint, u64)>,
}

/// A relay to be measured.
pub(super) struct Relay {
    pub(super) subject: Subject,
    pub(super) nickname: Nickname,
    pub(super) ed25519: Option<Ed25519Identity>,
    pub(super) standing: Standing,
    pub(super) rounds_max: u32,
    /// What the last bandwidth file says of it.
    last: Option<Last>,
}

/// A relay's last estimate.
#[derive(Clone, Debug)]
struct Last {
    capacity: Rate,
    measured_at: u64,
    /// How it was measured: what our files say of it beyond the format.
    extra: Vec<(String, String)>,
}

impl Last {
    fn past(&self, now: u64) -> PastEstimate {
        let age = Duration::from_secs(now.saturating_sub(self.measured_at));
        PastEstimate { capacity: self.capacity, age }
    }

    /// What remains valid of it although the relay was not measured again.
    fn kept(
        &self,
        now: u64,
        descriptor_avg_bytes_s: Option<u64>,
    ) -> Option<(bwfile::Outcome, Vec<(String, String)>)> {
        (self.past(now).age < KEPT_FOR).then(|| {
            let outcome = bwfile::Outcome::Measured {
                capacity_bytes_s: self.capacity.as_byte_per_s(),
                measured_at: self.measured_at,
                descriptor_avg_bytes_s,
            };
            (outcome, self.extra.clone())
        })
    }
}

/// The keys of our own in a bandwidth file.
const MODE: &str = "flashflow_mode";
const CONCLUSIVE: &str = "flashflow_conclusive";

/// A relay that says "not now" keeps its last estimate for so long: more than a period, but a relay
/// cannot live on an old estimate by refusing to be measured again. Tor, too, has forgotten it after
/// three days.
const KEPT_FOR: Duration = Duration::from_secs(2 * 24 * 3600);

impl Documents {
    pub(super) fn fetch(config: &Config) -> Result<Self, Error> {
        let fetcher = Fetcher::default();
        let (what, text) = match &config.source {
            Source::Authority(authority) => {
                let text = fetcher.get(*authority, &Resource::Consensus)?;
                (format!("the consensus from {authority}"), text)
            }
            Source::File(path) => {
                let failed =
                    |source| Error::File { what: "read the consensus", path: path.clone(), source };
                let text = fs::read(path).map_err(failed)?;
                (format!("the consensus in {}", path.display()), text)
            }
        };
        let parsed = Consensus::parse(&text);
        let consensus = parsed.map_err(|source| Error::Consensus { what: what.clone(), source })?;
        let averages = match &config.source {
            Source::Authority(authority) => {
                let text = fetcher.get(*authority, &Resource::AllDescriptors)?;
                // A descriptor that does not parse leaves its relay without the cap that it sets.
                let (descriptors, _bad) = netdoc::descriptor::parse_all(&text);
                descriptors.iter().map(|it| (it.fingerprint, it.bandwidth_avg_bytes_s)).collect()
            }
            Source::File(_) => Vec::new(),
        };
        Ok(Self { what, consensus, averages })
    }

    /// The relays that are to be measured. Those that the configuration names must allow it; of all
    /// others, those that do not are left out.
    pub(super) fn relays(&self, config: &Config) -> Result<Vec<Relay>, Error> {
        let lookup = |name: &String| {
            let found = self.consensus.find(name);
            found.map_err(|source| Error::Lookup { what: self.what.clone(), source })
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
                let up = self.consensus.routers().iter().filter(is_up);
                up.filter(|router| consent(router).is_ok()).collect()
            }
        };
        if routers.is_empty() {
            let problem = "no relay may be measured: none is on a private address or has opted in";
            return Err(Error::Usage(format!("{}: {problem}", self.what)));
        }
        let past = past_estimates(config);
        let defences = Defences::from_consensus_params(|name| self.consensus.params.get(name));
        let relay = |router: &&Router| {
            let takes_part = echo.iter().any(|it| it.fingerprint == router.fingerprint);
            relay(router, config, takes_part, &past, defences)
        };
        Ok(routers.iter().map(relay).collect())
    }

    /// What goes into the bandwidth file.
    pub(super) fn estimate(&self, relay: &Relay, measured: &Measured) -> bwfile::Estimate {
        let fingerprint = relay.subject.fingerprint;
        let mode = match relay.subject.request.approach {
            Approach::Transit => "transit",
            Approach::Echo(_) => "echo",
        };
        let mut extra = vec![(MODE.to_owned(), mode.to_owned())];
        let average = self.averages.iter().find(|(known, _)| *known == fingerprint);
        let average = average.map(|(_, average)| *average);
        let outcome = match &measured.outcome {
            coordinator::Outcome::Measured(estimate) => {
                let conclusive = u8::from(measured.report.conclusive).to_string();
                extra.push((CONCLUSIVE.to_owned(), conclusive));
                bwfile::Outcome::Measured {
                    capacity_bytes_s: estimate.capacity.as_byte_per_s(),
                    measured_at: measured.at_unix_s,
                    descriptor_avg_bytes_s: average,
                }
            }
            failed @ coordinator::Outcome::Failed { reason, .. } => {
                let kept = relay.last.as_ref().filter(|_| is_not_now(reason));
                match kept.and_then(|last| last.kept(measured.at_unix_s, average)) {
                    Some((outcome, how)) => {
                        extra = how;
                        outcome
                    }
                    None => bwfile::Outcome::Failed {
                        reason: failed.to_string(),
                        tried_at: Some(measured.at_unix_s),
                    },
                }
            }
        };
        let Relay { nickname, ed25519, .. } = *relay;
        bwfile::Estimate { fingerprint, ed25519, nickname, outcome, extra }
    }
}

/// Whether a failure leaves what is known of the relay as it was.
pub(super) const fn is_not_now(reason: &Failure) -> bool {
    matches!(reason, Failure::RelayNotNow { .. })
}

const fn rsa(router: &Router) -> onion::identity::RsaId {
    onion::identity::RsaId(*router.fingerprint.as_bytes())
}

fn relay(
    router: &Router,
    config: &Config,
    takes_part: bool,
    past: &[(Fingerprint, Last)],
    defences: Defences,
) -> Relay {
    let address = SocketAddr::new(router.address.into(), router.or_port);
    let ids = Subject::ids(router.fingerprint, router.ed25519.map(|id| *id.as_bytes()));
    let default = GuessPolicy::default();
    let policy = GuessPolicy { default: config.guess.unwrap_or(default.default), ..default };
    let now = unix_time_s();
    let last = past.iter().find(|(known, _)| *known == router.fingerprint).map(|(_, last)| last);
    let month = past.iter().map(|(_, last)| last.past(now));
    let month = month.filter(|past| past.age < policy.valid_for).map(|past| past.capacity);
    let guess = first_guess(&policy, last.map(|last| last.past(now)), month);
    let standing = match guess.source {
        coordinator::GuessSource::LastEstimate => Standing::Old,
        coordinator::GuessSource::Distribution | coordinator::GuessSource::Default => Standing::New,
    };
    // The campaign goes from round to round: each measurement has but one.
    let (approach, rounds_max) = if takes_part {
        let coordinator = Coordinator { key_seed: config.secret.seed(), rounds_max: 1 };
        (Approach::Echo(coordinator), config.echo_rounds)
    } else {
        (Approach::Transit, config.params.max_rounds)
    };
    let request =
        Request { target: Target { address, ids }, guess: guess.capacity, defences, approach };
    let (nickname, fingerprint) = (router.nickname.to_string(), router.fingerprint);
    Relay {
        subject: Subject { nickname, fingerprint, limit: None, request },
        nickname: router.nickname,
        ed25519: router.ed25519,
        standing,
        rounds_max,
        last: last.cloned(),
    }
}

/// What our last bandwidth file says, if there is one.
fn past_estimates(config: &Config) -> Vec<(Fingerprint, Last)> {
    fs::read(config.out.join(bwfile::LATEST)).map_or_else(|_| Vec::new(), |text| past_in(&text))
}

fn past_in(text: &[u8]) -> Vec<(Fingerprint, Last)> {
    let Ok(parsed) = BandwidthFile::parse(text) else {
        tracing::warn!("the last bandwidth file cannot be read: all relays count as new");
        return Vec::new();
    };
    let measured = parsed.file.relays.into_iter().filter(|line| !line.unmeasured);
    let past = measured.filter_map(|line| {
        let capacity = Rate::from_byte_per_s(line.bw_kb_s.saturating_mul(1000));
        let ours = line.extra.into_iter().filter(|(key, _)| [MODE, CONCLUSIVE].contains(&&**key));
        Some((line.node_id, Last { capacity, measured_at: line.time?, extra: ours.collect() }))
    });
    past.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdoc::bwfile::{Eligibility, NodeIdStyle, Settings};

    const NOW: u64 = 1_800_000_000;

    /// A bandwidth file, read again.
    fn written(estimates: &[bwfile::Estimate]) -> Vec<(Fingerprint, Last)> {
        let counts = Eligibility { eligible: 1, in_consensus: 1 };
        let settings = Settings::new("0", NOW, NOW);
        let file = BandwidthFile::generate(estimates, counts, &settings).expect("a result");
        past_in(file.to_text(NodeIdStyle::default()).expect("a valid file").as_bytes())
    }

    #[test]
    fn a_relay_that_says_not_now_keeps_its_estimate_and_its_age_but_not_for_ever() {
        let extra = vec![(MODE.to_owned(), "echo".to_owned())];
        let outcome = bwfile::Outcome::Measured {
            capacity_bytes_s: 5_000_000,
            measured_at: NOW - 3600,
            descriptor_avg_bytes_s: None,
        };
        let first = bwfile::Estimate {
            fingerprint: Fingerprint::from_bytes([7; 20]),
            ed25519: None,
            nickname: "quiet".parse().expect("a nickname"),
            outcome: outcome.clone(),
            extra: extra.clone(),
        };
        let past = written(std::slice::from_ref(&first));
        let last = &past[0].1;
        assert_eq!(last.kept(NOW, None), Some((outcome, extra)));
        // In the next file it is as old as it is: the relay is not new, and the estimate ages.
        let (outcome, extra) = last.kept(NOW, None).expect("fresh");
        let again = written(&[bwfile::Estimate { outcome, extra, ..first }]);
        let past = again[0].1.past(NOW);
        assert_eq!((past.capacity, past.age), (last.capacity, Duration::from_secs(3600)));
        assert_eq!(last.kept(NOW + KEPT_FOR.as_secs(), None), None, "no relay can live on it");
    }

    #[test]
    fn only_not_now_leaves_things_as_they_are() {
        let detail = String::new;
        assert!(is_not_now(&Failure::RelayNotNow { detail: detail() }));
        assert!(!is_not_now(&Failure::ConsentRefused { detail: detail() }));
        assert!(!is_not_now(&Failure::RelayClosed { detail: detail() }));
    }
}
