//! Circuits through a relay, replayed.

use onion::cell::msg::{
    Create2, CreatedFast, DestroyReason, Extend2, HANDSHAKE_NTOR, encode_created2_into,
    link_specifier, parse_created2,
};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::circuit::{Builder, CircuitError, NextHop, Step};
use onion::crypto::{ClientHop, HopKeys, Keystream, RelayHop, fast, ntor};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::{Content, Mismatch, compare};
use testkit::vectors::{
    Scene, circuit, circuit_dead_end, circuit_refused, identity_landing, link_from_relay,
};

fn two_hop(scene: &Scene) -> Builder {
    let ids = RelayIds {
        rsa: RsaId(scene.array("next_rsa")),
        ed25519: Some(Ed25519Id(scene.array("next_ed25519"))),
    };
    let address = scene.address("next_address");
    let next = NextHop { address, ids, onion_key: scene.array("next_onion_key") };
    let circ_id = CircId::new(u32::from_be_bytes(scene.array("circ_id")));
    Builder::two_hops(circ_id, next, scene.array("x"), scene.array("ephemeral_secret"))
}

/// The circuit after EXTEND2 has been sent.
fn extending(scene: &Scene) -> Builder {
    let mut two_hop = two_hop(scene);
    let step = two_hop.handle_cell(Command::CREATED_FAST, scene.bodies("created_fast")[0]);
    let Ok(Step::Send { command, body }) = step else { panic!("{step:?}") };
    assert_eq!(command, Command::RELAY_EARLY);
    assert_eq!(&body, scene.bodies("extend")[0], "what the relay obeyed");
    two_hop
}

fn first_hop_keys(scene: &Scene) -> HopKeys {
    let builder = extending(scene);
    let keys = builder.first_hop_keys().expect("the first hop has answered");
    keys.tor1().expect("CREATE_FAST gives keys of a keystream").clone()
}

#[test]
fn created_fast_is_authenticated() {
    for scene in [circuit(), circuit_dead_end(), circuit_refused()] {
        let body = scene.bodies("created_fast")[0];
        let created = CreatedFast::parse(body).expect("well-formed");
        let mut encoded = Vec::new();
        created.encode_into(&mut encoded);
        encoded.resize(BODY_LEN, 0);
        assert_eq!(encoded, body);
        let client = fast::Client::new(scene.array("x"));
        client.finish(&created).expect("it knows our half");
        let mut other = created;
        other.y[3] ^= 1;
        assert!(client.finish(&other).is_err());
        assert!(fast::Client::new([0; 20]).finish(&created).is_err());
    }
}

#[test]
fn the_circuit_is_built() {
    let scene = circuit();
    let mut two_hop = extending(&scene);
    let step = two_hop.handle_cell(Command::RELAY, scene.bodies("extended2")[0]);
    assert!(matches!(step, Ok(Step::Built)), "{step:?}");
}

#[test]
fn no_bit_of_extended2_can_be_changed() {
    let scene = circuit();
    let honest = scene.bodies("extended2")[0];
    for at in 0..honest.len() {
        let mut two_hop = extending(&scene);
        let mut body = *honest;
        body[at] ^= 1 << (at % 8);
        let step = two_hop.handle_cell(Command::RELAY, &body);
        assert!(matches!(step, Err(CircuitError::Crypt(_))), "byte {at}: {step:?}");
    }
}

#[test]
fn the_relays_messages_encode_to_the_recorded_bytes() {
    let scene = circuit();
    let mut hop = ClientHop::new(&first_hop_keys(&scene));
    let mut body = *scene.bodies("extended2")[0];
    hop.decrypt(&mut body).expect("from the relay");
    let message = RelayMessage::parse(&body).expect("well-formed");
    assert_eq!((message.command, message.stream_id), (RelayCommand::EXTENDED2, 0));
    let answer = parse_created2(message.data).expect("well-formed");
    let mut encoded = Vec::new();
    encode_created2_into(answer, &mut encoded);
    assert_eq!(encoded, message.data);
    // Header and data are as we would write them; tor fills the rest with random bytes.
    let written = message.to_body().expect("fits");
    let len = 11 + message.data.len();
    assert_eq!((&written[..5], &written[9..len]), (&body[..5], &body[9..len]));
}

#[test]
fn the_recorded_cells_decrypt_to_what_the_relay_forwarded() {
    let scene = circuit();
    let mut hop = RelayHop::new(&first_hop_keys(&scene));
    let mut body = *scene.bodies("extend")[0];
    assert!(hop.decrypt(&mut body), "it is for the relay");
    let message = RelayMessage::parse(&body).expect("well-formed");
    assert_eq!(message.command, RelayCommand::EXTEND2);
    let extend = Extend2::parse(message.data).expect("well-formed");
    let mut encoded = Vec::new();
    extend.encode_into(&mut encoded);
    assert_eq!(encoded, message.data);
    assert_eq!(
        extend.link_specifiers,
        [
            (link_specifier::IPV4, scene.get("next_address")),
            (link_specifier::RSA_IDENTITY, scene.get("next_rsa")),
            (link_specifier::ED25519_IDENTITY, scene.get("next_ed25519")),
        ]
    );

    let body = scene.bodies("create2")[0];
    let create = Create2::parse(body).expect("well-formed");
    assert_eq!(create, extend.create, "passed on as it was");
    assert_eq!(create.handshake_type, HANDSHAKE_NTOR);
    assert_eq!(scene.get("create2"), link_from_relay().get("create2"));
    let mut encoded = Vec::new();
    create.encode_into(&mut encoded);
    encoded.resize(BODY_LEN, 0);
    assert_eq!(encoded, body);
}

#[test]
fn the_second_hop_repeats_the_recorded_answer() {
    let scene = circuit();
    let own = identity_landing();
    let create = Create2::parse(scene.bodies("create2")[0]).expect("well-formed");
    assert_eq!(ntor::client_public(create.data), two_hop(&scene).last_public().copied());
    let secret = scene.array("responder_secret");
    let (answer, keys) =
        ntor::respond(&own.rsa.0, &own.onion_secret(), secret, create.data).expect("for us");
    let created = parse_created2(scene.bodies("created2")[0]).expect("well-formed");
    assert_eq!(created, answer);
    let relay = ntor::RelayKeys { rsa_id: own.rsa.0, onion_key: own.onion_key() };
    let client = ntor::Client::new(relay, scene.array("ephemeral_secret"));
    let same = client.finish(created).expect("proves itself");
    assert_eq!(keys.key_forward, same.key_forward);
}

#[test]
fn forwarded_cells_pass_the_measurers_check() {
    let scene = circuit();
    let mut forward = Keystream::new(&first_hop_keys(&scene).key_forward);
    let mut content = Content::new(&scene.array("content_key"));
    let (sent, arrived) = (scene.bodies("forward_sent"), scene.bodies("forward_arrived"));
    assert_eq!(sent.len(), arrived.len());
    let places: Vec<u64> = (0..).take(sent.len()).collect();
    // Backwards, to see that no check leans on the one before.
    for (place, index) in places.iter().copied().enumerate().rev() {
        assert_eq!(*sent[place], content.body(index));
        let mut check = |body: &[u8]| compare(&mut content, &mut forward, 1, index, body);
        assert_eq!(check(arrived[place]), Ok(()), "cell {index}");
        assert_eq!(check(sent[place]), Err(Mismatch::NotDecrypted));
        for (other, found) in
            places.iter().copied().enumerate().filter(|(other, _)| *other != place)
        {
            assert_eq!(check(arrived[other]), Err(Mismatch::Displaced { found }));
        }
        let mut altered = arrived[place].to_vec();
        altered[100] ^= 4;
        assert_eq!(check(&altered), Err(Mismatch::Forged));
    }
}

#[test]
fn backward_cells_have_the_relays_layer() {
    let scene = circuit();
    let mut backward = Keystream::new(&first_hop_keys(&scene).key_backward);
    // EXTENDED2 was the first.
    let arrived = (1u64..).zip(scene.bodies("backward_arrived"));
    for ((index, arrived), sent) in arrived.zip(scene.bodies("backward_sent")) {
        let mut body = arrived.to_vec();
        backward.seek(index * BODY_LEN as u64);
        backward.apply(&mut body);
        assert_eq!(body, sent);
    }
}

#[test]
fn a_circuit_to_an_unreachable_relay_is_destroyed_with_a_reason() {
    for (scene, reason) in [
        (circuit_dead_end(), DestroyReason::CHANNEL_CLOSED),
        (circuit_refused(), DestroyReason::new(11)),
    ] {
        let cell = scene.get("answer");
        assert_eq!(cell[4], Command::DESTROY.get());
        assert_eq!(DestroyReason::parse(&cell[5..]), reason);
        let step = extending(&scene).handle_cell(Command::DESTROY, scene.bodies("answer")[0]);
        let Err(CircuitError::Destroyed(found)) = step else { panic!("{step:?}") };
        assert_eq!(found, reason);
    }
}
