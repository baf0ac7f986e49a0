//! What the network's authorities publish, and what a measurement needs of it.

use crate::error::Error;
use lab::{Network, OwnRelay, OwnRelaySpec};
use link::unix_time_s;
use measurer::{Approach, Coordinator, Defences, Request};
use netdoc::bwfile;
use netdoc::consensus::Consensus;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::{Fingerprint, Nickname};
use onion::Rate;
use onion::identity::RelayIds;
use onion::measure::pump::Target;
use report::RelayReport;
use std::net::SocketAddr;
use terminal::measuring::Subject;

/// What the network's authorities publish.
pub(super) struct Documents {
    pub(super) consensus: Consensus,
    /// The limit that each relay's operator sets, in bytes per second.
    averages: Vec<(Fingerprint, u64)>,
}

impl Documents {
    /// Those of a network with this consensus.
    pub(super) fn fetch(network: &Network, consensus: &str) -> Result<Self, Error> {
        let authority = authority(network)?;
        let what = || "the consensus of the private network".to_owned();
        let consensus = Consensus::parse(consensus.as_bytes())
            .map_err(|source| Error::Consensus { what: what(), source })?;
        let text = Fetcher::default().get(authority, &Resource::AllDescriptors)?;
        // A descriptor that does not parse leaves its relay without the cap that it would set.
        let (descriptors, _bad) = netdoc::descriptor::parse_all(&text);
        let averages = descriptors
            .iter()
            .map(|descriptor| (descriptor.fingerprint, descriptor.bandwidth_avg_bytes_s))
            .collect();
        Ok(Self { consensus, averages })
    }

    fn average(&self, fingerprint: &Fingerprint) -> Option<u64> {
        let found = self.averages.iter().find(|(known, _)| known == fingerprint);
        found.map(|(_, average)| *average)
    }

    pub(super) fn tor_version(&self) -> Option<String> {
        let router = self.consensus.routers().first()?;
        router.tor_version().map(ToOwned::to_owned)
    }

    /// What goes into the bandwidth file.
    pub(super) fn estimate(
        &self,
        subject: &Subject,
        report: &RelayReport,
        outcome: &coordinator::Outcome,
    ) -> Result<bwfile::Estimate, Error> {
        let fingerprint = subject.fingerprint;
        let nickname: Nickname = subject
            .nickname
            .parse()
            .map_err(|_| Error::Usage(format!("{} is no nickname", subject.nickname)))?;
        let mode = match subject.request.approach {
            Approach::Transit => "transit",
            Approach::Echo(_) => "echo",
        };
        let mut extra = vec![("flashflow_mode".to_owned(), mode.to_owned())];
        let outcome = match outcome {
            coordinator::Outcome::Measured(estimate) => {
                // A lower bound is still nearer to the truth than what the relay claims.
                let conclusive = u8::from(report.conclusive).to_string();
                extra.push(("flashflow_conclusive".to_owned(), conclusive));
                bwfile::Outcome::Measured {
                    capacity_bytes_s: estimate.capacity.as_byte_per_s(),
                    measured_at: unix_time_s(),
                    descriptor_avg_bytes_s: self.average(&fingerprint),
                }
            }
            failed @ coordinator::Outcome::Failed { .. } => bwfile::Outcome::Failed {
                reason: failed.to_string(),
                tried_at: Some(unix_time_s()),
            },
        };
        let ed25519 = subject.target().ids.ed25519.map(|id| id.0);
        let ed25519 = ed25519.map(netdoc::Ed25519Identity::from_bytes);
        Ok(bwfile::Estimate { fingerprint, ed25519, nickname, outcome, extra })
    }
}

fn authority(network: &Network) -> Result<SocketAddr, Error> {
    let found = network.authorities().iter().find_map(lab::Node::dir_addr);
    found.ok_or_else(|| Error::Usage("the network has no authority that answers".to_owned()))
}

/// A relay of the network, as it is measured in transit.
pub(super) fn subject(
    node: &lab::Node,
    consensus: &Consensus,
    guess: Rate,
) -> Result<Subject, Error> {
    let fingerprint = Fingerprint::from_bytes(node.rsa());
    let ids = Subject::ids(fingerprint, Some(node.ed25519()));
    listed(node.nickname(), ids, node.limit(), consensus, guess, Approach::Transit)
}

/// A relay of ours, as it is measured with its own help.
pub(super) fn own_subject(
    relay: &OwnRelay,
    consensus: &Consensus,
    guess: Rate,
    coordinator: Coordinator,
) -> Result<Subject, Error> {
    let OwnRelaySpec { nickname, limit, .. } = &relay.spec;
    let approach = Approach::Echo(coordinator);
    listed(nickname, relay.target.ids, *limit, consensus, guess, approach)
}

/// A relay that the consensus lists.
fn listed(
    nickname: &str,
    ids: RelayIds,
    limit: Option<Rate>,
    consensus: &Consensus,
    guess: Rate,
    approach: Approach,
) -> Result<Subject, Error> {
    let fingerprint = Fingerprint::from_bytes(ids.rsa.0);
    let Some(router) = consensus.by_fingerprint(&fingerprint) else {
        return Err(Error::Usage(format!("{nickname} is not in the consensus")));
    };
    let target = Target { address: SocketAddr::new(router.address.into(), router.or_port), ids };
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let request = Request { target, guess, defences, approach };
    Ok(Subject { nickname: nickname.to_owned(), fingerprint, limit, request })
}
