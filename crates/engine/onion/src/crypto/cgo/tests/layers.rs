//! Circuits of three hops with Counter Galois Onion, and mixed ones.

use super::super::*;
use crate::crypto::{LayerKeys, Layers, RelayLayer, fast};
use alloc::vec::Vec;
use proptest::prelude::*;

fn cgo_keys(number: u8) -> LayerKeys {
    CgoKeys::from_material(&core::array::from_fn(|at| {
        u8::try_from(at % 251).expect("short").wrapping_mul(number).wrapping_add(number)
    }))
    .into()
}

fn tor1_keys(number: u8) -> LayerKeys {
    fast::respond(&[number; 20], [99; 20]).1.into()
}

/// Both sides of a circuit. Hops whose bit is set have Counter Galois Onion.
fn circuit(which: u8) -> (Layers, Vec<RelayLayer>) {
    let (mut layers, mut relays) = (Layers::default(), Vec::new());
    for number in 0..3 {
        let keys = if which >> number & 1 == 1 { cgo_keys(number + 1) } else { tor1_keys(number) };
        layers.push(&keys);
        relays.push(RelayLayer::new(&keys));
    }
    (layers, relays)
}

fn all_bytes(content: u8) -> [u8; BODY_LEN] {
    let mut body = [content; BODY_LEN];
    // The "recognized" field in cells of the other format.
    body[1..3].fill(0);
    body
}

/// Forward: the hop that recognizes the cell.
fn forward(
    relays: &mut [RelayLayer],
    command: Command,
    body: &mut [u8; BODY_LEN],
) -> Option<usize> {
    relays.iter_mut().position(|relay| relay.decrypt(command, body))
}

/// Backward, from a hop on.
fn backward(relays: &mut [RelayLayer], from: usize, body: &mut [u8; BODY_LEN]) {
    relays[from].originate(body);
    relays[..from].iter_mut().rev().for_each(|relay| relay.pass_back(body));
}

proptest! {
    #[test]
    fn only_the_addressed_hop_recognizes_a_cell(
        which in 0u8..8,
        cells in prop::collection::vec(
            (0usize..3, any::<bool>(), any::<bool>(), any::<u8>(), 0u8..3), 1..40,
        ),
    ) {
        let (mut layers, mut relays) = circuit(which);
        for (hop, is_forth, is_early, content, rests) in cells {
            for _ in 0..rests {
                relays.iter_mut().for_each(RelayLayer::rest);
            }
            let mut body = all_bytes(content);
            if is_forth {
                let command = if is_early { Command::RELAY_EARLY } else { Command::RELAY };
                layers.seal(hop, command, &mut body);
                prop_assert_eq!(forward(&mut relays, command, &mut body), Some(hop));
                prop_assert_eq!(relays[hop].received_tag(), layers.sent_tag(hop));
            } else {
                backward(&mut relays, hop, &mut body);
                prop_assert_eq!(layers.open(&mut body), Ok(hop));
                prop_assert_eq!(layers.received_tag(hop), relays[hop].sent_tag());
            }
            prop_assert_eq!(&body[TAG_LEN..], &all_bytes(content)[TAG_LEN..]);
        }
    }

    /// A bit flipped in a forward cell before any hop: no hop recognizes that cell or any later one, and its
    /// content is destroyed.
    #[test]
    fn altering_a_forward_cell_destroys_it_and_all_later_ones(
        before in 0usize..3, at in 0usize..BODY_LEN, bit in 0u8..8, later in 1usize..6,
    ) {
        let (mut layers, mut relays) = circuit(7);
        let mut body = all_bytes(1);
        layers.seal(2, Command::RELAY, &mut body);
        for relay in &mut relays[..before] {
            prop_assert!(!relay.decrypt(Command::RELAY, &mut body));
        }
        body[at] ^= 1 << bit;
        prop_assert_eq!(forward(&mut relays[before..], Command::RELAY, &mut body), None);
        // A keystream would leave all other bits unchanged; here about one byte in 256 is equal by chance.
        let same = body[TAG_LEN..].iter().filter(|byte| **byte == 1).count();
        prop_assert!(same < 40, "{} of 493 bytes are unchanged", same);
        for _ in 0..later {
            let mut body = all_bytes(2);
            layers.seal(2, Command::RELAY, &mut body);
            prop_assert_eq!(forward(&mut relays, Command::RELAY, &mut body), None);
        }
    }

    /// A bit flipped in a backward cell after any hop.
    #[test]
    fn altering_a_backward_cell_destroys_it_and_all_later_ones(
        after in 0usize..3, at in 0usize..BODY_LEN, bit in 0u8..8, later in 1usize..6,
    ) {
        let (mut layers, mut relays) = circuit(7);
        let mut body = all_bytes(1);
        relays[2].originate(&mut body);
        for relay in relays[after..2].iter_mut().rev() {
            relay.pass_back(&mut body);
        }
        body[at] ^= 1 << bit;
        for relay in relays[..after.min(2)].iter_mut().rev() {
            relay.pass_back(&mut body);
        }
        prop_assert!(layers.open(&mut body).is_err());
        for _ in 0..later {
            let mut body = all_bytes(2);
            backward(&mut relays, 2, &mut body);
            prop_assert!(layers.open(&mut body).is_err());
        }
    }

    /// A cell that is delayed, repeated, or sent with the other command.
    #[test]
    fn replayed_reordered_or_relabelled_cells_are_not_recognized(kind in 0u8..3) {
        let (mut layers, mut relays) = circuit(7);
        let mut body = all_bytes(1);
        layers.seal(2, Command::RELAY, &mut body);
        let mut second = match kind {
            0 => {
                let again = body;
                prop_assert_eq!(forward(&mut relays, Command::RELAY, &mut body), Some(2));
                again
            }
            1 => {
                let mut next = all_bytes(2);
                layers.seal(2, Command::RELAY, &mut next);
                next
            }
            _ => body,
        };
        let command = if kind == 2 { Command::RELAY_EARLY } else { Command::RELAY };
        prop_assert_eq!(forward(&mut relays, command, &mut second), None);
    }
}

/// Cells of one direction are invalid in the other, even with equal keys.
#[test]
fn a_cell_in_the_wrong_direction_is_not_recognized() {
    let (mut layers, mut relays) = circuit(7);
    let mut body = all_bytes(1);
    layers.seal(2, Command::RELAY, &mut body);
    assert!(layers.open(&mut body).is_err());
    let mut body = all_bytes(1);
    relays[2].originate(&mut body);
    assert_eq!(forward(&mut relays, Command::RELAY, &mut body), None);
}

/// No later key decrypts an earlier cell: each cell that a hop recognizes changes its keys.
#[test]
fn each_recognized_cell_updates_the_keys() {
    let LayerKeys::Cgo(keys) = cgo_keys(9) else { panic!("made so") };
    let (mut client, mut relay) = (CgoClientHop::new(&keys), CgoRelayHop::new(&keys));
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut body = all_bytes(1);
        client.encrypt(Command::RELAY, &mut body);
        assert!(relay.decrypt(Command::RELAY, &mut body));
        relay.originate(&mut body);
        assert!(client.decrypt(&mut body));
        seen.extend([relay.forward.keys, relay.backward.keys]);
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 8);
    assert_eq!(relay.forward.nonce, client.forward.state.nonce);
    assert_eq!(relay.backward.keys, client.backward.state.keys);
}

#[test]
fn an_idle_layer_is_small_and_resumes_its_state() {
    assert!(size_of::<CgoRelayHop>() <= 256, "{}", size_of::<CgoRelayHop>());
    assert_eq!(size_of::<RelayLayer>(), size_of::<crate::crypto::RelayHop>(), "others pay nothing");
    let LayerKeys::Cgo(keys) = cgo_keys(5) else { panic!("made so") };
    let (mut client, mut relay) = (CgoClientHop::new(&keys), CgoRelayHop::new(&keys));
    for rests in 0..4 {
        (0..rests).for_each(|_| relay.rest());
        assert_eq!(relay.awake.is_some(), rests == 1);
        let mut body = all_bytes(3);
        client.encrypt(Command::RELAY, &mut body);
        assert!(relay.decrypt(Command::RELAY, &mut body));
    }
}
