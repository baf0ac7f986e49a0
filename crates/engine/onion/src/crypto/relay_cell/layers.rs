//! Layers of both kinds.
//!
//! A hop has a keystream with running digests ("tor1"), or Counter Galois Onion if its client requested
//! `Relay=6` in ntor v3 and gets congestion control with it. The layer determines the [`RelayFormat`] of its
//! cells: the position of command, length and stream ID, and the maximum data length (498 or 488 bytes).
//! Measurement circuits begin with CREATE_FAST, whose keys are always a keystream's: their checks seek in it.

use super::{ClientHop, CryptError, RelayHop};
use crate::cell::relay::RelayFormat;
use crate::cell::{BODY_LEN, Command};
use crate::crypto::{CgoClientHop, CgoRelayHop, LayerKeys};
use crate::flow::control::SendmeTag;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A relay's side of a layer of either kind.
///
/// Most circuits at a relay end elsewhere and have a keystream here: C tor's clients request Counter Galois
/// Onion from their last hop only. Its state is boxed, so that other circuits do not pay for it.
#[derive(Debug)]
pub enum RelayLayer {
    /// A keystream and running digests.
    Tor1(RelayHop),
    /// Counter Galois Onion.
    Cgo(Box<CgoRelayHop>),
}

impl RelayLayer {
    /// From the keys of a handshake.
    #[must_use]
    pub fn new(keys: &LayerKeys) -> Self {
        match keys {
            LayerKeys::Tor1(keys) => Self::Tor1(RelayHop::new(keys)),
            LayerKeys::Cgo(keys) => Self::Cgo(Box::new(CgoRelayHop::new(keys))),
        }
    }

    /// The message format of its cells.
    #[must_use]
    #[inline]
    pub const fn format(&self) -> RelayFormat {
        match self {
            Self::Tor1(_) => RelayFormat::V0,
            Self::Cgo(_) => RelayFormat::V1,
        }
    }

    /// Decrypts a forward cell; returns true if the cell is for this relay. Otherwise the result is the cell
    /// for the next hop.
    #[inline]
    pub fn decrypt(&mut self, command: Command, body: &mut [u8; BODY_LEN]) -> bool {
        match self {
            Self::Tor1(hop) => hop.decrypt(body),
            Self::Cgo(hop) => hop.decrypt(command, body),
        }
    }

    /// Seals and encrypts a cell of this relay.
    #[inline]
    pub fn originate(&mut self, body: &mut [u8; BODY_LEN]) {
        match self {
            Self::Tor1(hop) => hop.originate(body),
            Self::Cgo(hop) => hop.originate(body),
        }
    }

    /// Encrypts a cell of the next hop.
    #[inline]
    pub fn pass_back(&mut self, body: &mut [u8; BODY_LEN]) {
        match self {
            Self::Tor1(hop) => hop.pass_back(body),
            Self::Cgo(hop) => hop.pass_back(body),
        }
    }

    /// The tag of the last cell that this relay originated: a SENDME for it contains it (proposal 289).
    #[must_use]
    pub fn sent_tag(&self) -> SendmeTag {
        match self {
            Self::Tor1(hop) => hop.sent_tag().into(),
            Self::Cgo(hop) => (*hop.sent_tag()).into(),
        }
    }

    /// The tag of the last cell for this relay.
    #[must_use]
    pub fn received_tag(&self) -> SendmeTag {
        match self {
            Self::Tor1(hop) => hop.received_tag().into(),
            Self::Cgo(hop) => (*hop.received_tag()).into(),
        }
    }

    /// To be called periodically: releases the expanded keys if no cell has passed since the last call. The
    /// next cell expands them again.
    pub fn rest(&mut self) {
        match self {
            Self::Tor1(hop) => hop.rest(),
            Self::Cgo(hop) => hop.rest(),
        }
    }
}

/// The client's side of a layer.
#[derive(Debug)]
enum ClientLayer {
    Tor1(Box<ClientHop>),
    Cgo(Box<CgoClientHop>),
}

/// The client's side of the layers of a circuit, first hop first.
#[derive(Debug, Default)]
pub struct Layers {
    hops: Vec<ClientLayer>,
}

impl Layers {
    /// Adds the layer of the next hop.
    pub fn push(&mut self, keys: &LayerKeys) {
        self.hops.push(match keys {
            LayerKeys::Tor1(keys) => ClientLayer::Tor1(Box::new(ClientHop::new(keys))),
            LayerKeys::Cgo(keys) => ClientLayer::Cgo(Box::new(CgoClientHop::new(keys))),
        });
    }

    /// The number of hops.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.hops.len()
    }

    /// Whether there are no hops yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// The message format of a hop's cells.
    #[must_use]
    pub fn format(&self, hop: usize) -> RelayFormat {
        match self.hops.get(hop) {
            Some(ClientLayer::Cgo(_)) => RelayFormat::V1,
            Some(ClientLayer::Tor1(_)) | None => RelayFormat::V0,
        }
    }

    /// Seals a cell for the hop at this index and encrypts it for that hop and all before it. Without such a
    /// hop nothing happens.
    pub fn seal(&mut self, hop: usize, command: Command, body: &mut [u8; BODY_LEN]) {
        let Some((last, before)) = self.hops.get_mut(..=hop).and_then(<[_]>::split_last_mut) else {
            return;
        };
        match last {
            ClientLayer::Tor1(hop) => hop.encrypt(body),
            ClientLayer::Cgo(hop) => hop.encrypt(command, body),
        }
        for layer in before.iter_mut().rev() {
            match layer {
                ClientLayer::Tor1(hop) => hop.forward.keystream.apply(body),
                ClientLayer::Cgo(hop) => hop.pass(command, body),
            }
        }
    }

    /// Decrypts a cell up to the hop that sent it; returns that hop's index.
    ///
    /// # Errors
    /// If no hop has sent it.
    pub fn open(&mut self, body: &mut [u8; BODY_LEN]) -> Result<usize, CryptError> {
        let is_from = |layer: &mut ClientLayer| match layer {
            ClientLayer::Tor1(hop) => hop.decrypt(body).is_ok(),
            ClientLayer::Cgo(hop) => hop.decrypt(body),
        };
        self.hops.iter_mut().position(is_from).ok_or(CryptError)
    }

    /// The tag of the last cell that was sealed for a hop, see [`ClientHop::sent_tag`].
    #[must_use]
    pub fn sent_tag(&self, hop: usize) -> SendmeTag {
        match self.hops.get(hop) {
            Some(ClientLayer::Tor1(hop)) => hop.sent_tag().into(),
            Some(ClientLayer::Cgo(hop)) => (*hop.sent_tag()).into(),
            None => [0; 20].into(),
        }
    }

    /// The tag of the last cell from a hop.
    #[must_use]
    pub fn received_tag(&self, hop: usize) -> SendmeTag {
        match self.hops.get(hop) {
            Some(ClientLayer::Tor1(hop)) => hop.received_tag().into(),
            Some(ClientLayer::Cgo(hop)) => (*hop.received_tag()).into(),
            None => [0; 20].into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::fast;
    use proptest::prelude::*;

    /// A circuit of three hops, both sides.
    fn circuit() -> (Layers, Vec<RelayLayer>) {
        let (mut layers, mut relays) = (Layers::default(), Vec::new());
        for number in 0..3 {
            let (created, keys) = fast::respond(&[number; 20], [99; 20]);
            relays.push(RelayLayer::new(&keys.into()));
            let keys = fast::Client::new([number; 20]).finish(&created).expect("honest");
            layers.push(&keys.into());
        }
        (layers, relays)
    }

    proptest! {
        #[test]
        fn only_the_addressed_hop_recognizes_a_cell(
            cells in prop::collection::vec((0usize..3, any::<bool>(), any::<u8>()), 1..40),
        ) {
            let (mut layers, mut relays) = circuit();
            for (hop, is_forth, content) in cells {
                let mut body = [content; BODY_LEN];
                if is_forth {
                    layers.seal(hop, Command::RELAY, &mut body);
                    let found = relays.iter_mut().position(|relay| relay.decrypt(Command::RELAY, &mut body));
                    prop_assert_eq!(found, Some(hop));
                    prop_assert_eq!(relays[hop].received_tag(), layers.sent_tag(hop));
                } else {
                    relays[hop].originate(&mut body);
                    relays[..hop].iter_mut().rev().for_each(|relay| relay.pass_back(&mut body));
                    prop_assert_eq!(layers.open(&mut body), Ok(hop));
                    prop_assert_eq!(layers.received_tag(hop), relays[hop].sent_tag());
                }
                prop_assert_eq!(body[100], content);
            }
        }
    }
}
