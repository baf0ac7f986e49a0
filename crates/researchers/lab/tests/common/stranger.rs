//! A client that makes a relay extend circuits to a measurer's return relay, where they are unwanted.

use crate::common::peer::{Peer, extend_data, sealed};
use crate::common::stage::{NodeHandle, Stage};
use link::IdentityIssuer;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::crypto::ClientHop;
use onion::measure::load::Target;

/// What its CREATE_FAST cells hold.
const X: [u8; 20] = [5; 20];

/// A client of the relay with one circuit after the other, each refused by the return relay.
pub(crate) struct Stranger {
    relay: Target,
    landing: Target,
    /// The number of circuits to request.
    circuits: u32,
    peer: Option<NodeHandle>,
    /// The number of circuits requested so far.
    begun: u32,
    /// Whether the latest one has been extended.
    is_extended: bool,
    refused: u32,
}

impl Stranger {
    pub(crate) const fn new(relay: Target, landing: Target, circuits: u32) -> Self {
        let (peer, begun, is_extended, refused) = (None, 0, false, 0);
        Self { relay, landing, circuits, peer, begun, is_extended, refused }
    }

    /// Circuits that the return relay has refused.
    pub(crate) const fn refused_circuits(&self) -> u32 {
        self.refused
    }

    /// Performs the next step, if it is possible.
    pub(crate) fn step(
        &mut self,
        stage: &mut impl Stage,
        issuer: &IdentityIssuer,
        unix_time_s: u64,
    ) {
        if self.refused == self.circuits {
            return;
        }
        let Some(node) = self.peer else {
            self.peer = Some(stage.add(Peer::dialling(self.relay, unix_time_s), issuer, &[]));
            return;
        };
        let peer: &mut Peer = stage.node(node);
        let latest = CircId::of_initiator(self.begun);
        if !peer.is_open() {
            return;
        }
        if self.begun == self.refused {
            self.begun += 1;
            self.is_extended = false;
            peer.send(CircId::of_initiator(self.begun), Command::CREATE_FAST, &X);
        } else if let Some(keys) = peer.fast_keys(latest, X).filter(|_| !self.is_extended) {
            self.is_extended = true;
            let data = extend_data(self.landing.address, &self.landing.ids);
            let body = sealed(&mut ClientHop::new(&keys), RelayCommand::EXTEND2, 0, &data);
            peer.send(latest, Command::RELAY_EARLY, &body);
        } else if let Some(body) = peer.cell(latest, Command::DESTROY) {
            // A relay that refuses the circuit itself sends another reason.
            assert_eq!(DestroyReason::parse(body), DestroyReason::DESTROYED);
            self.refused += 1;
        }
    }

    /// Closes its link.
    pub(crate) fn leave(&self, stage: &mut impl Stage) {
        if let Some(node) = self.peer {
            stage.node::<Peer>(node).close();
        }
    }
}
