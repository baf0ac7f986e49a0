use crate::cell::Command;
use crate::cell::msg::{Create2, encode_created2_into};
use crate::cell::relay::RelayCommand;
use crate::cell_model::fixture::{Staged, hop};
use crate::cell_model::{
    Body, Finished, Handshake, HandshakeReply, HeaderOnly, Layer, Layers, Message, PayloadSlice,
    StreamId, Tor,
};
use crate::crypto::ntor_v3::extension::Request;
use crate::flow::control::Agreed;
use alloc::vec::Vec;

const CONGESTION: Request =
    Request { wants_congestion_control: true, wants_cgo: false, wants_other_protocols: false };

/// CREATE_FAST and its answer: the keys of the client and of the relay.
pub(super) fn by_fast<S: Staged>(handshake: S::Handshake) -> (S::Keys, S::FastKeys) {
    let (command, create) = handshake.create_cell();
    assert_eq!(command, Command::CREATE_FAST);
    let (created, theirs) = S::answer_fast(&S::Body::from_bytes(&create), [99; 20]);
    let created = S::Body::from_bytes(&created);
    let finished = handshake.finish_created(Command::CREATED_FAST, created.bytes());
    let Finished { keys, agreed } = finished.expect("honest");
    assert_eq!(agreed, Agreed::default());
    (keys, theirs)
}

/// A relay's answer to a CREATE2, and the random numbers that it draws.
fn answer<S: Staged>(create: &Create2<'_>, offered: Agreed) -> (Option<HandshakeReply<S>>, u8) {
    let mut drawn = 0;
    let ephemeral = || {
        drawn += 1;
        [drawn; 32]
    };
    (S::answer(&S::identity(1), create, offered, ephemeral), drawn)
}

/// CREATE2 and its answer, on a link or at the end of a circuit: the result of both sides.
fn by_create2<S: Staged>(
    handshake: &S::Handshake,
    offered: Agreed,
    is_first: bool,
) -> (Finished<S>, HandshakeReply<S>) {
    let (command, bytes) = handshake.create_cell();
    assert_eq!(command, Command::CREATE2);
    let body = S::Body::from_bytes(&bytes);
    let create = Create2::parse(body.bytes()).expect("well-formed");
    let message = handshake.message();
    assert_eq!(create, handshake.create2(&message), "CREATE2 and EXTEND2 are equal");
    let (Some(theirs), 1) = answer::<S>(&create, offered) else { panic!("no answer") };
    let mut created = Vec::new();
    encode_created2_into(&theirs.data, &mut created);
    let created = S::Body::from_bytes(&created);
    let ours = if is_first {
        handshake.finish_created(Command::CREATED2, created.bytes())
    } else {
        handshake.finish_extended(created.bytes())
    };
    (ours.expect("honest"), theirs)
}

/// Whether layers of these keys fit in both directions.
fn fit<S: Staged>(ours: &S::Keys, theirs: &S::Keys) -> bool {
    let (mut layers, mut relay) = (S::Layers::default(), S::Layer::new(theirs));
    layers.push(ours);
    let message = Message {
        command: RelayCommand::DROP,
        stream_id: StreamId::CIRCUIT,
        data: S::PayloadSlice::from_bytes(b"fits"),
    };
    let mut body = S::Body::from_bytes(&[]);
    let format = relay.format();
    assert_eq!(layers.format(0), format);
    body.write(format, &message).expect("it fits");
    layers.seal(0, Command::RELAY, &mut body);
    let is_forth = relay.decrypt(Command::RELAY, &mut body);
    relay.originate(&mut body);
    is_forth && layers.open(&mut body) == Ok(0)
}

fn agree<S: Staged>() {
    let (ours, theirs) = by_fast::<S>(S::Handshake::fast([1; 20]));
    assert!(fit::<S>(&ours, &theirs.into()));
    let offered = Agreed { congestion_sendme_cells: Some(17) };
    for is_first in [true, false] {
        let ntor = S::Handshake::ntor(&hop(1), [2; 32]);
        let asking = |request| S::Handshake::ntor_v3(&hop(1), [3; 32], request).expect("known");
        let wanting = asking(CONGESTION);
        let cgo = asking(Request { wants_cgo: true, ..CONGESTION });
        let plain = asking(Request::default());
        let cases = [
            (&ntor, offered, Agreed::default()),
            (&plain, offered, Agreed::default()),
            (&wanting, Agreed::default(), Agreed::default()),
            (&wanting, offered, offered),
            (&cgo, offered, offered),
        ];
        for (handshake, offered, agreed) in cases {
            let (ours, theirs) = by_create2::<S>(handshake, offered, is_first);
            assert_eq!((ours.agreed, theirs.agreed), (agreed, agreed));
            assert!(fit::<S>(&ours.keys, &theirs.keys));
        }
    }
}

#[test]
fn client_and_relay_derive_matching_keys() {
    agree::<Tor>();
    agree::<HeaderOnly>();
}

fn refuse<S: Staged>() {
    let unknown = Create2 { handshake_type: 77, data: &[0; 84] };
    assert!(matches!(answer::<S>(&unknown, Agreed::default()), (None, 0)), "nothing is drawn");
    let cut = Create2 { handshake_type: 3, data: &[] };
    assert!(matches!(answer::<S>(&cut, Agreed::default()), (None, 0)), "nothing is drawn");
    let mut nameless = hop(1);
    nameless.ids.ed25519 = None;
    assert!(S::Handshake::ntor_v3(&nameless, [1; 32], CONGESTION).is_err());
    let fast = S::Handshake::fast([1; 20]);
    let ntor = S::Handshake::ntor(&hop(1), [2; 32]);
    let body = S::Body::from_bytes(&[0; 66]);
    assert!(fast.finish_created(Command::CREATED2, body.bytes()).is_err());
    assert!(fast.finish_extended(body.bytes()).is_err());
    assert!(ntor.finish_created(Command::CREATED_FAST, body.bytes()).is_err());
}

#[test]
fn an_invalid_handshake_is_rejected() {
    refuse::<Tor>();
    refuse::<HeaderOnly>();
}

/// The messages of each handshake on a link.
fn commands<S: Staged>() -> Vec<(Command, u16)> {
    let handshakes = [
        S::Handshake::ntor(&hop(1), [2; 32]),
        S::Handshake::ntor_v3(&hop(1), [3; 32], CONGESTION).expect("its key is known"),
    ];
    let types = handshakes.iter().map(|handshake| {
        let message = handshake.message();
        (handshake.create_cell().0, handshake.create2(&message).handshake_type)
    });
    types.chain([(S::Handshake::fast([1; 20]).create_cell().0, 0)]).collect()
}

#[test]
fn handshake_messages_are_equally_many_in_both_models() {
    assert_eq!(commands::<Tor>(), commands::<HeaderOnly>());
}
