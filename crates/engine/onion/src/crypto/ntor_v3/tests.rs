use super::extension::{Request, Response};
use super::*;
use crate::cell::{BODY_LEN, Command};
use crate::crypto::{Layers, RelayLayer};
use proptest::prelude::*;

/// A byte string of the vectors by its name.
fn vector(name: &str) -> Vec<u8> {
    let text = include_str!("ntor_v3.hex");
    let mut lines = text.lines().skip_while(|line| line.strip_suffix(" =") != Some(name)).skip(1);
    let mut bytes = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.ends_with('=')) {
        for pair in line.as_bytes().chunks(2) {
            let pair = core::str::from_utf8(pair).expect("text");
            bytes.push(u8::from_str_radix(pair, 16).expect("hexadecimal"));
        }
    }
    assert!(!bytes.is_empty(), "{name}");
    bytes
}

fn key(name: &str) -> [u8; 32] {
    vector(name).try_into().expect("32 bytes")
}

#[test]
fn both_sides_match_the_vectors_of_proposal_332() {
    assert_eq!(vector("verification"), b"xyzzy");
    let relay = RelayKeys { ed25519_id: key("identity"), onion_key: key("onion_key") };
    let message = vector("client_message");
    let client = Client::with_verification(relay, key("client_secret"), &message, b"xyzzy");
    let client = client.expect("honest");
    assert_eq!(client.data(), vector("client_data"));
    assert_eq!(client_public(client.data()), Some(*client.public()));

    let onion_secret = StaticSecret::from(key("onion_secret"));
    let server =
        Server::with_verification(&relay.ed25519_id, &onion_secret, client.data(), b"xyzzy");
    let server = server.expect("honest");
    assert_eq!(server.message(), message);
    let (mut relay_stream, mut client_stream) = ([0; 256], [0; 256]);
    let answer =
        server.respond_with(key("server_secret"), &vector("server_message"), &mut relay_stream);
    let answer = answer.expect("honest");
    assert_eq!(answer, vector("server_data"));
    assert_eq!(relay_stream[..], vector("key_stream"));

    let message = client.finish_with(&answer, &mut client_stream).expect("honest");
    assert_eq!(message, vector("server_message"));
    assert_eq!(client_stream, relay_stream);
}

#[test]
fn a_handshake_for_another_purpose_is_rejected() {
    let onion_secret = StaticSecret::from(key("onion_secret"));
    let error = Server::open(&key("identity"), &onion_secret, &vector("client_data"));
    assert_eq!(error.expect_err("another use").problem, "message altered");
}

#[test]
fn keys_of_low_order_are_rejected() {
    let relay = RelayKeys { ed25519_id: [1; 32], onion_key: [0; 32] };
    assert!(Client::new(relay, [7; 32], &[]).is_err());
    let relay = RelayKeys { ed25519_id: [1; 32], onion_key: [9; 32] };
    let client = Client::new(relay, [7; 32], &[]).expect("good");
    assert_eq!(
        client.finish(&[0; 64], RelayFormat::V0).expect_err("zero key").problem,
        "a public key of low order"
    );
}

proptest! {
    #[test]
    fn both_sides_derive_the_same_keys_and_any_altered_bit_is_rejected(
        ed25519_id: [u8; 32], onion: [u8; 32], client_secret: [u8; 32], server_secret: [u8; 32],
        question in prop::collection::vec(any::<u8>(), 0..280),
        reply in prop::collection::vec(any::<u8>(), 0..280),
        at: prop::sample::Index, bit in 0u8..8, is_v1: bool,
    ) {
        let format = if is_v1 { RelayFormat::V1 } else { RelayFormat::V0 };
        let onion_secret = StaticSecret::from(onion);
        let onion_key = *PublicKey::from(&onion_secret).as_bytes();
        let relay = RelayKeys { ed25519_id, onion_key };
        let client = Client::new(relay, client_secret, &question).expect("honest");
        let server = Server::open(&ed25519_id, &onion_secret, client.data()).expect("honest");
        prop_assert_eq!(server.message(), &question[..]);
        let (answer, relay_keys) = server.respond(server_secret, &reply, format).expect("honest");
        let (message, client_keys) = client.finish(&answer, format).expect("honest");
        prop_assert_eq!(message, reply);
        prop_assert_eq!(client_keys.format(), format);
        let (mut layers, mut relay) = (Layers::default(), RelayLayer::new(&relay_keys));
        layers.push(&client_keys);
        let mut cell = [0; BODY_LEN];
        layers.seal(0, Command::RELAY, &mut cell);
        prop_assert!(relay.decrypt(Command::RELAY, &mut cell));
        relay.originate(&mut cell);
        prop_assert_eq!(layers.open(&mut cell), Ok(0));

        let mut altered = Vec::from(client.data());
        // The highest bit of a public key is ignored, but covered by the MAC.
        altered[at.index(client.data().len())] ^= 1 << bit;
        prop_assert!(Server::open(&ed25519_id, &onion_secret, &altered).is_err());
        let mut altered = answer.clone();
        altered[at.index(answer.len())] ^= 1 << bit;
        prop_assert!(client.finish(&altered, format).is_err());
        prop_assert!(client.finish(&answer[..at.index(answer.len())], format).is_err());
        let cut = &client.data()[..at.index(client.data().len())];
        prop_assert!(Server::open(&ed25519_id, &onion_secret, cut).is_err());
    }

    #[test]
    fn extensions_survive_a_round_trip_and_unknown_ones_are_skipped(
        wants_congestion_control: bool, wants_cgo: bool, sendme in prop::option::of(1u8..),
        unknown in 4u8.., content in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let with_unknown = |mut message: Vec<u8>| {
            let mut first = Vec::from([unknown, u8::try_from(content.len()).expect("short")]);
            first.extend_from_slice(&content);
            message[0] += 1;
            message.splice(1..1, first);
            message
        };
        let request =
            Request { wants_congestion_control, wants_cgo, wants_other_protocols: false };
        prop_assert_eq!(Request::parse(&request.encode()), Ok(request));
        prop_assert_eq!(Request::parse(&with_unknown(request.encode())), Ok(request));
        let response = Response { congestion_sendme_cells: sendme };
        prop_assert_eq!(Response::parse(&response.encode()), Ok(response));
        prop_assert_eq!(Response::parse(&with_unknown(response.encode())), Ok(response));
    }
}

#[test]
fn truncated_extensions_are_rejected_and_repeated_ones_ignored() {
    for cut in [&[][..], &[1], &[1, 1], &[1, 9, 5, 0], &[2, 1, 0]] {
        assert!(Request::parse(cut).is_err(), "{cut:?}");
    }
    assert!(Response::parse(&[1, 2, 0]).is_err());
    assert!(Response::parse(&[1, 2, 1, 0]).is_err());
    let response = Response::parse(&[2, 2, 1, 31, 2, 1, 77]).expect("well formed");
    assert_eq!(response.congestion_sendme_cells, Some(31));
}

/// As in C tor: each pair once, in order, and only `Relay=6`.
#[test]
fn only_relay_6_may_be_requested() {
    let asked = |pairs: &[u8]| {
        let len = u8::try_from(pairs.len()).expect("short");
        let message = [&[2, 1, 0, 3, len][..], pairs].concat();
        let request = Request::parse(&message).expect("well formed");
        assert!(request.wants_congestion_control);
        (request.wants_cgo, request.wants_other_protocols)
    };
    assert_eq!(asked(&[]), (false, false));
    assert_eq!(asked(&[2, 6]), (true, false));
    for refused in [&[2, 5][..], &[2, 5, 2, 6], &[2, 6, 2, 6], &[2, 6, 11, 2], &[2, 6, 2], &[2]] {
        assert!(asked(refused).1, "{refused:?}");
    }
}
