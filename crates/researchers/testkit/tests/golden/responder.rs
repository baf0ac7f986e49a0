//! The relay's link to us, replayed.

use super::{but_netinfo, cells, feed, find, output};
use ed25519_dalek::{Signature, VerifyingKey};
use onion::cell::msg::{AUTH_ED25519_SHA256_RFC5705, Certs, NetInfo, cert_type};
use onion::cell::{Command, FrameError, LinkProtocol};
use onion::link::{Channel, ChannelError, TlsSession, verify_responder_certs};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use testkit::vectors::{identity_landing, link_from_relay, link_to_relay, own_tls, tls_from_relay};

/// The recorded time: all was recorded within a minute.
fn now_s() -> u64 {
    link_to_relay().u64("unix_time_s")
}

fn channel() -> Channel {
    let challenge = link_from_relay().array("challenge");
    Channel::responder(Arc::new(identity_landing()), &tls_from_relay(), challenge, now_s())
}

#[test]
fn the_link_opens_with_the_recorded_output_however_the_stream_is_split() {
    let scene = link_from_relay();
    for piece_len in [1, 2, 3, 11, 514, 10_000] {
        let mut channel = channel();
        assert_eq!(channel.queued_len(), 0, "a responder waits");
        for piece in scene.get("heard").chunks(piece_len) {
            assert!(!channel.is_open());
            feed(&mut channel, piece).expect("honest");
        }
        assert!(channel.is_open(), "in pieces of {piece_len}");
        assert_eq!(channel.protocol(), Some(LinkProtocol::V5));
        assert_eq!(channel.peer().map(|peer| peer.ids), Some(link_to_relay().expected_peer().ids));
        assert!(channel.is_canonical(), "it claims the address that it connects from");
        let said = output(&mut channel);
        assert_eq!(but_netinfo(&said), but_netinfo(scene.get("said")));
        let info = NetInfo::parse(&find(&cells(&said), Command::NETINFO).body).expect("ours");
        assert_eq!(u64::from(info.timestamp), now_s());
        assert_eq!((info.other, info.mine), (Some([127, 0, 0, 1].into()), vec![]));
    }
}

#[test]
fn a_circuit_may_be_created_with_the_bytes_that_open_the_link() {
    let scene = link_from_relay();
    let mut stream = scene.get("heard").to_vec();
    stream.extend_from_slice(scene.get("create2"));
    let mut channel = channel();
    let mut rest = &stream[..];
    let cell = channel.handle_bytes(&mut rest).expect("honest").expect("a cell");
    assert_eq!(cell.command, Command::CREATE2);
    assert_eq!(channel.handle_bytes(&mut rest), Ok(None));
}

#[test]
fn invalid_handshakes_are_refused() {
    let scene = link_from_relay();
    let heard = scene.get("heard");
    let mut late = channel();
    let error = feed(&mut late, &heard[11..]);
    assert!(matches!(error, Err(ChannelError::Frame(FrameError::NotVersions(_)))), "{error:?}");

    let mut early = channel();
    let cells = cells(heard);
    feed(&mut early, &cells[0].bytes()).expect("honest");
    let error = early.handle_bytes(&mut scene.get("create2")).map(|_| ());
    assert_eq!(error, Err(ChannelError::Unexpected(Command::CREATE2)));
}

#[test]
fn the_recorded_certificates_prove_the_recorded_identity() {
    let said = cells(link_from_relay().get("said"));
    let certs = Certs::parse(&find(&said, Command::CERTS).body).expect("well-formed");
    let tls = own_tls();
    let tls = Sha256::digest(tls.peer_certificate().expect("ours")).into();
    let now_s = link_to_relay().u64("unix_time_s");
    let peer = verify_responder_certs(&certs, &tls, now_s).expect("the relay accepted them");
    let own = identity_landing();
    assert_eq!((peer.ids.rsa, peer.ed25519), (own.rsa, own.ed25519));
    assert_eq!(peer.rsa_sha256, own.rsa_sha256);
}

/// Field by field, without the engine's own reckoning.
#[test]
fn the_relays_proof_covers_the_recorded_session() {
    let scene = link_from_relay();
    let (heard, said) = (cells(scene.get("heard")), cells(scene.get("said")));
    let own = identity_landing();
    let relay = link_to_relay();
    let body = &find(&heard, Command::AUTHENTICATE).body;
    let (head, proof) = body.split_at(4);
    assert_eq!(head[..2], AUTH_ED25519_SHA256_RFC5705.to_be_bytes());
    assert_eq!(usize::from(u16::from_be_bytes([head[2], head[3]])), proof.len());

    let mut rest = proof;
    let mut take = |len: usize| {
        let (taken, later) = rest.split_at(len);
        rest = later;
        taken
    };
    let transcript = |cells: &[super::OwnedCell]| -> [u8; 32] {
        Sha256::digest(cells.iter().flat_map(super::OwnedCell::bytes).collect::<Vec<_>>()).into()
    };
    assert_eq!(take(8), b"AUTH0003");
    let _cid = take(32);
    assert_eq!(take(32), own.rsa_sha256);
    assert_eq!(take(32), relay.get("ed25519"));
    assert_eq!(take(32), own.ed25519.0);
    assert_eq!(take(32), transcript(&said[..3]), "VERSIONS, CERTS, AUTH_CHALLENGE");
    assert_eq!(take(32), transcript(&heard[..2]), "VERSIONS, CERTS");
    let tls_cert = own.tls_link_cert.get(7..39).expect("the digest that it certifies");
    assert_eq!(take(32), tls_cert);
    assert_eq!(take(32), scene.get("exported"));
    let _random = take(24);
    let signature = Signature::from_slice(take(64)).expect("64 bytes");
    assert!(rest.is_empty());

    let certs = Certs::parse(&find(&heard, Command::CERTS).body).expect("well-formed");
    let key = certs.get(cert_type::ED25519_AUTHENTICATE).expect("there")[7..39].try_into();
    let key = VerifyingKey::from_bytes(&key.expect("32 bytes")).expect("a key");
    key.verify_strict(&proof[..proof.len() - 64], &signature).expect("signed by the relay");
}
