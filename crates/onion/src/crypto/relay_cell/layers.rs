use super::{ClientHop, CryptError};
use crate::cell::BODY_LEN;
use crate::crypto::HopKeys;
use alloc::vec::Vec;

/// The client's ends of the layers of a circuit, first hop first.
#[derive(Debug, Default)]
pub struct Layers {
    hops: Vec<ClientHop>,
}

impl Layers {
    /// Adds the layer of the next hop.
    pub fn push(&mut self, keys: &HopKeys) {
        self.hops.push(ClientHop::new(keys));
    }

    /// How many hops there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.hops.len()
    }

    /// Whether there is no hop yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.hops.is_empty()
    }

    /// Seals a cell for a hop, by its place, and puts on its layer and those before it. Without such a
    /// hop nothing happens.
    pub fn seal(&mut self, hop: usize, body: &mut [u8; BODY_LEN]) {
        let Some((last, before)) = self.hops.get_mut(..=hop).and_then(<[_]>::split_last_mut) else {
            return;
        };
        last.encrypt(body);
        before.iter_mut().rev().for_each(|hop| hop.forward.keystream.apply(body));
    }

    /// Takes off the layers of a cell up to the hop that has sent it; returns that hop's place.
    ///
    /// # Errors
    /// Where no hop has sent it.
    pub fn open(&mut self, body: &mut [u8; BODY_LEN]) -> Result<usize, CryptError> {
        for (place, hop) in self.hops.iter_mut().enumerate() {
            hop.backward.keystream.apply(body);
            if hop.backward.digest.recognizes(body) {
                return Ok(place);
            }
        }
        Err(CryptError)
    }

    /// The tag of the last cell that was sealed for a hop, see [`ClientHop::sent_tag`].
    #[must_use]
    pub fn sent_tag(&self, hop: usize) -> [u8; 20] {
        self.hops.get(hop).map_or([0; 20], ClientHop::sent_tag)
    }

    /// The tag of the last cell that came from a hop.
    #[must_use]
    pub fn received_tag(&self, hop: usize) -> [u8; 20] {
        self.hops.get(hop).map_or([0; 20], ClientHop::received_tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{RelayHop, fast};
    use proptest::prelude::*;

    /// A circuit of three hops, both sides.
    fn circuit() -> (Layers, Vec<RelayHop>) {
        let (mut layers, mut relays) = (Layers::default(), Vec::new());
        for number in 0..3 {
            let (created, keys) = fast::respond(&[number; 20], [99; 20]);
            relays.push(RelayHop::new(&keys));
            layers.push(&fast::Client::new([number; 20]).finish(&created).expect("honest"));
        }
        (layers, relays)
    }

    proptest! {
        #[test]
        fn each_cell_is_recognized_by_its_hop_alone(
            cells in prop::collection::vec((0usize..3, any::<bool>(), any::<u8>()), 1..40),
        ) {
            let (mut layers, mut relays) = circuit();
            for (hop, is_forth, content) in cells {
                let mut body = [content; BODY_LEN];
                if is_forth {
                    layers.seal(hop, &mut body);
                    let found = relays.iter_mut().position(|relay| relay.decrypt(&mut body));
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
