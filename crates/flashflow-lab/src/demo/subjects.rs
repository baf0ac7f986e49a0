//! The relays of the network as subjects of measurements.

use cli::Error;
use documents::{Documents, Origin};
use lab::{Network, OwnRelay, OwnRelaySpec};
use link::unix_time_s;
use measurer::{Approach, Coordinator, Defences, Request};
use netdoc::Fingerprint;
use netdoc::consensus::Consensus;
use onion::Rate;
use onion::identity::RelayIds;
use onion::measure::load::Target;
use std::net::SocketAddr;
use terminal::measuring::Subject;

/// The documents of a network with this consensus.
pub(super) fn documents(network: &Network, consensus: &str) -> Result<Documents, Error> {
    let what = "the consensus of the private network".to_owned();
    let origin = Origin::Authority(authority(network)?);
    Ok(Documents::new(what, consensus.as_bytes(), origin, unix_time_s())?)
}

fn authority(network: &Network) -> Result<SocketAddr, Error> {
    let found = network.authorities().iter().find_map(lab::Node::dir_addr);
    found.ok_or_else(|| Error::Failed("the network has no authority that answers".to_owned()))
}

/// A relay of C tor, measured in transit.
pub(super) fn subject(
    node: &lab::Node,
    consensus: &Consensus,
    guess: Rate,
) -> Result<Subject, Error> {
    let fingerprint = Fingerprint::from_bytes(node.rsa());
    let ids = Subject::ids(fingerprint, Some(node.ed25519()));
    listed(node.nickname(), ids, node.limit(), consensus, guess, Approach::Transit)
}

/// One of FlashFlow's relays, measured by the echo protocol.
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
        return Err(Error::Failed(format!("{nickname} is not in the consensus")));
    };
    let target = Target { address: SocketAddr::new(router.address.into(), router.or_port), ids };
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let request = Request { target, guess, defences, approach };
    Ok(Subject { nickname: nickname.to_owned(), fingerprint, limit, request })
}
