use super::handshakes::by_fast;
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{BODY_LEN, Command};
use crate::cell_model::fixture::Staged;
use crate::cell_model::{
    Body, CellModel, EchoLayer, Handshake, HeaderOnly, Layer, Layers, Message, PayloadSlice,
    StreamId, Tor,
};
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// A circuit of three hops, both sides.
fn circuit<S: Staged>() -> (S::Layers, Vec<S::Layer>) {
    let (mut layers, mut relays) = (S::Layers::default(), Vec::new());
    for number in 0..3 {
        let (ours, theirs) = by_fast::<S>(S::Handshake::fast([number; 20]));
        layers.push(&ours);
        relays.push(S::Layer::new(&theirs.into()));
    }
    assert_eq!((layers.len(), layers.is_empty()), (3, false));
    (layers, relays)
}

fn body<S: CellModel>(stream_id: u16, data: &[u8]) -> S::Body {
    let mut body = S::Body::from_bytes(&[]);
    let data = S::PayloadSlice::from_bytes(data);
    let message = Message { command: RelayCommand::END, stream_id: StreamId(stream_id), data };
    body.write(RelayFormat::V0, &message).expect("it fits");
    body
}

fn contains<S: CellModel>(body: &S::Body, stream_id: u16, data: &[u8]) -> bool {
    let message = body.message(RelayFormat::V0).expect("it has no layers");
    let StreamId(found) = message.stream_id;
    (message.command, found, message.data.bytes()) == (RelayCommand::END, stream_id, data)
}

/// A cell: the hop, its direction, and its content.
type Sent = (usize, bool, u16);

fn recognize<S: Staged>(cells: &[Sent]) -> TestCaseResult {
    let (mut layers, mut relays) = circuit::<S>();
    for (hop, is_forth, content) in cells.iter().copied() {
        let data = content.to_be_bytes();
        let mut body = body::<S>(content, &data);
        if is_forth {
            layers.seal(hop, Command::RELAY, &mut body);
            let found =
                relays.iter_mut().position(|relay| relay.decrypt(Command::RELAY, &mut body));
            prop_assert_eq!(found, Some(hop));
            prop_assert_eq!(relays[hop].received_tag(), layers.sent_tag(hop));
        } else {
            relays[hop].originate(&mut body);
            relays[..hop].iter_mut().rev().for_each(|relay| relay.pass_back(&mut body));
            prop_assert_eq!(layers.open(&mut body), Ok(hop));
            prop_assert_eq!(layers.received_tag(hop), relays[hop].sent_tag());
        }
        prop_assert!(contains::<S>(&body, content, &data));
    }
    Ok(())
}

/// The tags of all cells to and from each hop, as both sides have them.
fn tags_differ<S: Staged>() {
    let (mut layers, mut relays) = circuit::<S>();
    let mut tags = Vec::new();
    for _ in 0..5 {
        let mut body = body::<S>(1, b"again");
        layers.seal(0, Command::RELAY, &mut body);
        assert!(relays[0].decrypt(Command::RELAY, &mut body));
        tags.push(layers.sent_tag(0));
    }
    tags.sort_unstable();
    tags.dedup();
    assert_eq!(tags.len(), 5, "all tags differ");
}

/// No hop recognizes an unsealed cell, in either direction.
fn stray<S: Staged>(body: &S::Body) {
    let (mut layers, mut relays) = circuit::<S>();
    let mut forward = body.clone();
    assert!(!relays.iter_mut().any(|relay| relay.decrypt(Command::RELAY, &mut forward)));
    let mut back = body.clone();
    relays.iter_mut().rev().skip(1).for_each(|relay| relay.pass_back(&mut back));
    assert!(layers.open(&mut back).is_err());
}

fn strays<S: Staged>() {
    let mut forged = S::Body::from_bytes(&[]);
    forged.forge(&[3; 16]);
    stray::<S>(&forged);
    stray::<S>(&S::Body::from_bytes(&[1; BODY_LEN]));
    let (mut layers, _) = circuit::<S>();
    assert!(layers.open(&mut body::<S>(1, b"without a layer")).is_err());
}

fn echo<S: Staged>() {
    let (ours, theirs) = by_fast::<S>(S::Handshake::fast([9; 20]));
    let (mut layers, mut target) = (S::Layers::default(), S::EchoLayer::new(&theirs));
    layers.push(&ours);
    for content in 0..3 {
        let mut body = body::<S>(content, b"there and back");
        layers.seal(0, Command::RELAY, &mut body);
        target.apply(&mut body);
        assert!(contains::<S>(&body, content, b"there and back"));
    }
}

proptest! {
    #[test]
    fn only_the_addressed_hop_recognizes_a_cell(
        cells in prop::collection::vec((0usize..3, any::<bool>(), any::<u16>()), 1..40),
    ) {
        recognize::<Tor>(&cells)?;
        recognize::<HeaderOnly>(&cells)?;
    }
}

#[test]
fn all_tags_differ() {
    tags_differ::<Tor>();
    tags_differ::<HeaderOnly>();
}

#[test]
fn no_hop_recognizes_an_unsealed_cell() {
    strays::<Tor>();
    strays::<HeaderOnly>();
}

#[test]
fn the_target_of_a_measurement_removes_the_layer() {
    echo::<Tor>();
    echo::<HeaderOnly>();
}
