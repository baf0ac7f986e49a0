//! Decoding what the relay sent, and encoding it again.

use super::{OwnedCell, cells, commands, find};
use onion::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
    parse_versions,
};
use onion::cell::{BODY_LEN, Cell, Command, LinkProtocol};
use onion::link::{CertError, verify_responder_certs};
use sha2::{Digest, Sha256};
use testkit::vectors::{Scene, link_from_relay, link_to_relay};

#[test]
fn splitting_and_encoding_the_cells_returns_the_stream() {
    for (scene, expected) in [
        (link_to_relay(), Command::AUTH_CHALLENGE), //
        (link_from_relay(), Command::AUTHENTICATE),
    ] {
        for direction in ["heard", "said"] {
            let stream = scene.get(direction);
            let cells = cells(stream);
            let together: Vec<u8> = cells.iter().flat_map(OwnedCell::bytes).collect();
            assert_eq!(together, stream);
            let proof = if direction == "heard" {
                expected
            } else if expected == Command::AUTHENTICATE {
                Command::AUTH_CHALLENGE
            } else {
                Command::AUTHENTICATE
            };
            let order = [Command::VERSIONS, Command::CERTS, proof, Command::NETINFO];
            assert_eq!(commands(&cells), order);
        }
    }
}

#[test]
fn versions() {
    for scene in [link_to_relay(), link_from_relay()] {
        let cell = &cells(scene.get("heard"))[0];
        let versions: Vec<u16> = parse_versions(&cell.body).expect("well-formed").collect();
        assert_eq!(versions, [3, 4, 5]);
        assert_eq!(LinkProtocol::negotiate(versions.iter().copied()), Some(LinkProtocol::V5));
        assert_eq!(encode_versions_cell(&versions), cell.bytes());
    }
}

#[test]
fn auth_challenge() {
    let cells = cells(link_to_relay().get("heard"));
    let body = &find(&cells, Command::AUTH_CHALLENGE).body;
    let challenge = AuthChallenge::parse(body).expect("well-formed");
    assert!(challenge.methods.contains(&AUTH_ED25519_SHA256_RFC5705));
    let mut encoded = Vec::new();
    challenge.encode_into(&mut encoded);
    assert_eq!(&encoded, body);
}

#[test]
fn netinfo() {
    let (to_relay, from_relay) = (link_to_relay(), link_from_relay());
    let us = to_relay.address("address").ip(); // all on one loopback interface
    let now_s = to_relay.u64("unix_time_s");
    for (scene, tells_time) in [(&to_relay, true), (&from_relay, false)] {
        let cells = cells(scene.get("heard"));
        let body = &find(&cells, Command::NETINFO).body;
        let info = NetInfo::parse(body).expect("well-formed");
        assert_eq!((info.other, &info.mine[..]), (Some(us), &[us][..]));
        if tells_time {
            assert!(u64::from(info.timestamp).abs_diff(now_s) < 120);
        }
        let mut encoded = Vec::new();
        info.encode_into(&mut encoded);
        encoded.resize(BODY_LEN, 0);
        assert_eq!(&encoded, body);
    }
}

/// Types and contents in the order of the cell.
fn in_order(body: &[u8]) -> Vec<(u8, &[u8])> {
    let certs = Certs::parse(body).expect("well-formed");
    let mut at = 1;
    let mut found = Vec::new();
    while at < body.len() {
        let cert_type = body[at];
        let cert = certs.get(cert_type).expect("listed");
        at += 3 + cert.len();
        found.push((cert_type, cert));
    }
    found
}

#[test]
fn certs() {
    for (scene, own_proof) in [
        (link_to_relay(), cert_type::ED25519_TLS_LINK),
        (link_from_relay(), cert_type::ED25519_AUTHENTICATE),
    ] {
        let cells = cells(scene.get("heard"));
        let body = &find(&cells, Command::CERTS).body;
        let certs = in_order(body);
        let wanted =
            [cert_type::RSA_IDENTITY, cert_type::ED25519_SIGNING, own_proof, cert_type::RSA_CROSS];
        for cert_type in wanted {
            assert!(certs.iter().any(|(found, _)| *found == cert_type), "type {cert_type}");
        }
        let mut encoded = Vec::new();
        Certs::encode_into(&certs, &mut encoded);
        assert_eq!(&encoded, body);
    }
}

/// The relay's certificates, ready to be spoiled.
struct Shown {
    scene: Scene,
    body: Vec<u8>,
    tls: [u8; 32],
    now_s: u64,
}

impl Shown {
    fn new() -> Self {
        let scene = link_to_relay();
        let body = find(&cells(scene.get("heard")), Command::CERTS).body.clone();
        let tls = Sha256::digest(scene.get("tls_certificate")).into();
        let now_s = scene.u64("unix_time_s");
        Self { scene, body, tls, now_s }
    }

    fn certs(&self) -> Certs<'_> {
        Certs::parse(&self.body).expect("well-formed")
    }

    /// With another content in place of one certificate, or without it.
    fn verify_with(
        &self,
        cert_type: u8,
        content: Option<&[u8]>,
    ) -> Result<onion::link::PeerIdentity, CertError> {
        let certs = in_order(&self.body).into_iter().filter_map(|(found, cert)| {
            if found == cert_type { Some((found, content?)) } else { Some((found, cert)) }
        });
        let mut body = Vec::new();
        Certs::encode_into(&certs.collect::<Vec<_>>(), &mut body);
        let certs = Certs::parse(&body).expect("well-formed");
        verify_responder_certs(&certs, &self.tls, self.now_s)
    }
}

const CHAIN: [u8; 4] = [
    cert_type::RSA_IDENTITY,
    cert_type::ED25519_SIGNING,
    cert_type::ED25519_TLS_LINK,
    cert_type::RSA_CROSS,
];

#[test]
fn certificates_prove_the_relays_identity() {
    let shown = Shown::new();
    let peer = verify_responder_certs(&shown.certs(), &shown.tls, shown.now_s).expect("honest");
    let expected = shown.scene.expected_peer().ids;
    assert_eq!(peer.ids, expected);
    assert_eq!(Some(peer.ed25519), expected.ed25519);
}

#[test]
fn expired_certificates_prove_nothing() {
    let shown = Shown::new();
    let expired = |cert_type, at_s| {
        let problem = "has expired; is our clock right?";
        let error = verify_responder_certs(&shown.certs(), &shown.tls, at_s);
        assert_eq!(error, Err(CertError::NotValidNow { cert_type, problem }), "at {at_s}");
    };
    expired(cert_type::ED25519_SIGNING, shown.now_s + 100 * 365 * 24 * 3600);
    // The TLS certificate's is the first to expire, at a full hour.
    let link = shown.certs().get(cert_type::ED25519_TLS_LINK).expect("there");
    let expiry_h = u32::from_be_bytes(link[2..6].try_into().expect("four bytes"));
    let expiry_s = u64::from(expiry_h) * 3600;
    expired(cert_type::ED25519_TLS_LINK, expiry_s);
    let just_before = verify_responder_certs(&shown.certs(), &shown.tls, expiry_s - 1);
    assert!(just_before.is_ok());
}

#[test]
fn certificates_prove_nothing_over_another_tls_session() {
    let shown = Shown::new();
    for at in 0..32 {
        let mut tls = shown.tls;
        tls[at] ^= 0x10;
        let cert_type = cert_type::ED25519_TLS_LINK;
        let problem = "is for another TLS certificate: the connection is intercepted";
        let error = verify_responder_certs(&shown.certs(), &tls, shown.now_s);
        assert_eq!(error, Err(CertError::Invalid { cert_type, problem }));
    }
}

#[test]
fn a_missing_certificate_is_named() {
    let shown = Shown::new();
    for cert_type in CHAIN {
        let error = shown.verify_with(cert_type, None);
        assert_eq!(error, Err(CertError::Missing { cert_type }));
    }
    // An initiator shows no certificate of its TLS session: it has none.
    let heard = cells(link_from_relay().get("heard"));
    let certs = Certs::parse(&find(&heard, Command::CERTS).body).expect("well-formed");
    let cert_type = cert_type::ED25519_TLS_LINK;
    let error = verify_responder_certs(&certs, &shown.tls, shown.now_s);
    assert_eq!(error, Err(CertError::Missing { cert_type }));
}

#[test]
fn no_byte_of_a_certificate_can_be_changed() {
    let shown = Shown::new();
    let honest = verify_responder_certs(&shown.certs(), &shown.tls, shown.now_s).expect("honest");
    for cert_type in CHAIN {
        let cert = shown.certs().get(cert_type).expect("there").to_vec();
        // The X.509 certificate only carries the RSA key, which the cross-certificate proves: its
        // names, serial number and signature are nobody's business.
        let is_carrier = cert_type == cert_type::RSA_IDENTITY;
        let mut accepted = 0;
        for at in 0..cert.len() {
            let mask = 1 << (at % 8);
            let mut altered = cert.clone();
            altered[at] ^= mask;
            match shown.verify_with(cert_type, Some(&altered)) {
                Ok(peer) => {
                    assert!(is_carrier, "byte {at} of type {cert_type} may be changed");
                    assert_eq!(peer, honest, "byte {at}");
                    accepted += 1;
                }
                Err(
                    CertError::Invalid { .. }
                    | CertError::NotValidNow { .. }
                    | CertError::Malformed(_),
                ) => {}
                Err(error) => panic!("byte {at} of type {cert_type}: {error}"),
            }
        }
        assert!(!is_carrier || accepted + 140 <= cert.len(), "a key of 1024 bits has 140 bytes");
        for len in 0..cert.len() {
            let cut = shown.verify_with(cert_type, Some(&cert[..len]));
            assert!(cut.is_err(), "{len} bytes of type {cert_type}");
        }
    }
}

#[test]
fn cells_on_circuits_encode_to_the_recorded_bytes() {
    let scene = testkit::vectors::circuit();
    for name in ["created_fast", "create2", "extended2", "forward_arrived", "backward_arrived"] {
        let stream = scene.get(name);
        let mut framer = onion::cell::Framer::new();
        framer.widen_circ_ids();
        let (mut rest, mut together) = (stream, Vec::new());
        while let Some(cell) = framer.next_cell(&mut rest).expect("cells") {
            let Cell { circ_id, .. } = cell;
            assert_eq!(circ_id.get() >> 31, 1, "an initiator chose it");
            cell.encode_into(&mut together);
        }
        assert_eq!(together, stream, "{name}");
    }
}
