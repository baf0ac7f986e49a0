//! The proof of an initiator's identity. Both sides are the engine's; one side's cells are changed in transit.

use super::{OwnedCell, cells, feed, find, output};
use ed25519_dalek::{Signer, SigningKey};
use onion::cell::msg::{Certs, NetInfo, cert_type};
use onion::cell::{CircId, Command};
use onion::identity::OwnIdentity;
use onion::link::{Authentication, CertError, Channel, ChannelError, ExpectedPeer, TlsSession};
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;
use testkit::vectors::{self, RecordedTls, identity_landing, identity_link, link_to_relay};

/// Bytes of AUTHENTICATE before the proof, of the proof, and of its signature.
const HEAD: usize = 4;
const SIGNED: usize = 288;
const SIGNATURE: usize = 64;

/// The fields of the proof that the initiator cannot choose, and the error for a wrong one.
const FIELDS: [(usize, usize, &str); 9] = [
    (0, 8, "it is of another type"),
    (8, 40, "it is another relay's, by its RSA identity"),
    (40, 72, "it is for another relay, by its RSA identity"),
    (72, 104, "it is another relay's, by its Ed25519 identity"),
    (104, 136, "it is for another relay, by its Ed25519 identity"),
    (136, 168, "it has received other cells than we sent"),
    (168, 200, "it has sent other cells than we received"),
    (200, 232, "it has seen another TLS certificate"),
    (232, 264, "it is bound to another TLS session"),
];

/// One TLS session, by its number; the address of its initiator.
#[derive(Clone)]
struct Tls(RecordedTls, u8, Option<IpAddr>);

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.0.peer_certificate()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        assert_eq!(label, b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003");
        let context: [u8; 32] = context.try_into().expect("a CID");
        Some(context.map(|byte| byte ^ self.1))
    }

    fn peer_address(&self) -> Option<IpAddr> {
        self.2
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

fn tls(number: u8) -> Tls {
    Tls(vectors::own_tls(), number, Some([10, 0, 0, 7].into()))
}

fn now_s() -> u64 {
    link_to_relay().u64("unix_time_s")
}

fn responder(tls: &Tls, challenge: u8, now_s: u64) -> Channel {
    Channel::responder(Arc::new(identity_landing()), tls, [challenge; 32], now_s)
}

/// A responder that expects the cells after VERSIONS, and the initiator's cells.
fn begin(authentication: Authentication, mut responder: Channel) -> (Channel, Vec<OwnedCell>) {
    let ids = identity_landing().ids();
    let expected = ExpectedPeer { ids, address: [10, 0, 0, 1].into() };
    let initiator = Channel::initiator(expected, authentication, &tls(1), [5; 24], now_s());
    let mut initiator = initiator.expect("usable").at_addresses(&[[10, 0, 0, 7].into()]);
    feed(&mut responder, &output(&mut initiator)).expect("VERSIONS");
    feed(&mut initiator, &output(&mut responder)).expect("honest");
    assert!(initiator.is_open());
    let mut framed = vec![0, 0, 7, 0, 2, 0, 5]; // for the width of circuit IDs
    framed.extend(output(&mut initiator));
    (responder, cells(&framed).split_off(1))
}

fn as_relay() -> Authentication {
    Authentication::AsRelay(Arc::new(identity_link()))
}

/// CERTS, AUTHENTICATE and NETINFO of an honest relay to a responder that waits for them.
fn relay() -> (Channel, Vec<OwnedCell>) {
    begin(as_relay(), responder(&tls(1), 9, now_s()))
}

/// The responder after it has received these cells, or the error that they cause.
fn receive(
    (mut channel, _): (Channel, Vec<OwnedCell>),
    cells: &[OwnedCell],
) -> Result<Channel, ChannelError> {
    for cell in cells {
        if let Err(error) = feed(&mut channel, &cell.bytes()) {
            assert!(!channel.is_open() && channel.peer().is_none());
            assert!(feed(&mut channel, &cell.bytes()).is_err(), "it stays unusable");
            return Err(error);
        }
    }
    Ok(channel)
}

fn honest() -> Vec<OwnedCell> {
    relay().1
}

/// How it ends if AUTHENTICATE is changed like this.
fn with_proof(change: impl FnOnce(&mut Vec<u8>)) -> Result<Channel, ChannelError> {
    let (channel, mut cells) = relay();
    change(&mut cells[1].body);
    receive((channel, vec![]), &cells)
}

/// How it ends if CERTS is made of these.
fn with_certs(certs: &[(u8, &[u8])]) -> Result<Channel, ChannelError> {
    let mut body = Vec::new();
    Certs::encode_into(certs, &mut body);
    let [_, _, netinfo] = <[OwnedCell; 3]>::try_from(honest()).expect("three cells");
    receive(relay(), &[OwnedCell::new(Command::CERTS, &body), netinfo])
}

fn shown(identity: &OwnIdentity) -> [(u8, Vec<u8>); 4] {
    [
        (cert_type::RSA_IDENTITY, identity.rsa_identity_cert.clone()),
        (cert_type::ED25519_SIGNING, identity.signing_cert.clone()),
        (cert_type::ED25519_AUTHENTICATE, identity.authenticate_cert.clone()),
        (cert_type::RSA_CROSS, identity.rsa_cross_cert.clone()),
    ]
}

fn borrowed(certs: &[(u8, Vec<u8>)]) -> Vec<(u8, &[u8])> {
    certs.iter().map(|(kind, cert)| (*kind, &cert[..])).collect()
}

/// Signs a proof again, with the key that the certificates name.
fn sign(body: &mut [u8]) {
    let (proof, signature) = body[HEAD..].split_at_mut(SIGNED);
    let key = SigningKey::from_bytes(&identity_link().authenticate_seed);
    signature.copy_from_slice(&key.sign(proof).to_bytes());
}

fn not_proven(problem: &'static str) -> ChannelError {
    ChannelError::NotProven { claimed: identity_link().ids(), problem }
}

#[test]
fn a_relay_that_proves_its_identity_is_known_and_a_client_is_not() {
    let channel = receive(relay(), &honest()).expect("honest");
    assert!(channel.is_open() && channel.is_canonical());
    let (peer, own) = (channel.peer().expect("proved"), identity_link());
    assert_eq!((peer.ids, peer.rsa_sha256, peer.ed25519), (own.ids(), own.rsa_sha256, own.ed25519));

    let (channel, cells) = begin(Authentication::Anonymous, responder(&tls(1), 9, now_s()));
    assert_eq!(super::commands(&cells), [Command::NETINFO]);
    let channel = receive((channel, vec![]), &cells).expect("honest");
    assert!(channel.is_open() && !channel.is_canonical() && channel.peer().is_none());
}

#[test]
fn certificates_without_a_proof_authenticate_nobody() {
    let cells = honest();
    let channel = receive(relay(), &[cells[0].clone(), cells[2].clone()]).expect("as tor takes it");
    assert!(channel.is_open() && channel.peer().is_none());
}

#[test]
fn each_field_of_the_proof_is_checked_even_if_it_is_re_signed() {
    for (from, to, problem) in FIELDS {
        for at in from..to {
            let change = |body: &mut Vec<u8>| {
                body[HEAD + at] ^= 1 << (at % 8);
                sign(body);
            };
            assert_eq!(with_proof(change).map(|_| ()), Err(not_proven(problem)), "byte {at}");
        }
    }
    let error = not_proven("it is bound to another TLS session").to_string();
    assert!(error.contains(&identity_link().rsa.to_string()), "{error}");
    // The random part is the initiator's choice.
    for at in 264..SIGNED {
        let change = |body: &mut Vec<u8>| {
            body[HEAD + at] ^= 0xff;
            sign(body);
        };
        assert!(with_proof(change).expect("its choice").peer().is_some());
    }
}

#[test]
fn each_byte_of_the_proof_and_its_signature_is_checked() {
    let body_len = honest()[1].body.len();
    assert_eq!(body_len, HEAD + SIGNED + SIGNATURE);
    for at in 0..body_len {
        match with_proof(|body| body[at] ^= 1 << (at % 8)).map(|_| ()) {
            Err(ChannelError::NotProven { claimed, .. }) => {
                assert_eq!(claimed, identity_link().ids());
            }
            // A length beyond the cell's end.
            Err(ChannelError::Malformed(_)) if (2..HEAD).contains(&at) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

#[test]
fn a_proof_has_a_fixed_length_and_bytes_after_it_are_ignored_as_in_tor() {
    let length = |body: &mut Vec<u8>, len: usize| {
        body[2..HEAD].copy_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
    };
    assert!(with_proof(|body| body.push(7)).expect("as tor takes it").peer().is_some());
    for len in [0, 63, SIGNED, SIGNED + SIGNATURE - 1, SIGNED + SIGNATURE + 1, 600] {
        let change = |body: &mut Vec<u8>| {
            body.resize(HEAD + len, 0);
            length(body, len);
        };
        let problem = "its length is not that of a proof of type 3";
        assert_eq!(with_proof(change).map(|_| ()), Err(not_proven(problem)), "{len} bytes");
    }
    for cut in 0..HEAD + SIGNED + SIGNATURE {
        let error = with_proof(|body| body.truncate(cut)).map(|_| ());
        assert!(matches!(error, Err(ChannelError::Malformed(_))), "{cut}: {error:?}");
    }
}

#[test]
fn a_signature_by_another_key_than_the_certified_one_is_refused() {
    let error = with_proof(|body| {
        let (proof, signature) = body[HEAD..].split_at_mut(SIGNED);
        let key = SigningKey::from_bytes(&identity_landing().authenticate_seed);
        signature.copy_from_slice(&key.sign(proof).to_bytes());
    });
    assert_eq!(error.map(|_| ()), Err(not_proven("its signature does not verify")));
}

#[test]
fn a_proof_is_valid_on_one_link_only() {
    let challenged = begin(Authentication::Anonymous, responder(&tls(1), 8, now_s()));
    let error = receive(challenged, &honest()).map(|_| ());
    assert_eq!(error, Err(not_proven("it has received other cells than we sent")));

    let other_session = begin(Authentication::Anonymous, responder(&tls(2), 9, now_s()));
    let error = receive(other_session, &honest()).map(|_| ());
    assert_eq!(error, Err(not_proven("it is bound to another TLS session")));
}

#[test]
fn a_session_that_exports_no_keys_is_blamed_on_this_side() {
    struct Bare(Tls);
    impl TlsSession for Bare {
        fn peer_certificate(&self) -> Option<&[u8]> {
            self.0.peer_certificate()
        }
        fn export_keying_material(&self, _: &[u8], _: &[u8]) -> Option<[u8; 32]> {
            None
        }
    }
    let channel = Channel::responder(Arc::new(identity_landing()), &Bare(tls(1)), [9; 32], now_s());
    let error = receive(begin(Authentication::Anonymous, channel), &honest()).map(|_| ());
    assert!(matches!(error, Err(ChannelError::Tls(_))), "{error:?}");
    // A client does not notice.
    let channel = Channel::responder(Arc::new(identity_landing()), &Bare(tls(1)), [9; 32], now_s());
    let (channel, cells) = begin(Authentication::Anonymous, channel);
    assert!(receive((channel, vec![]), &cells).expect("honest").is_open());
}

#[test]
fn each_certificate_is_needed_once() {
    let own = shown(&identity_link());
    assert!(with_certs(&borrowed(&own)).is_ok());
    for place in 0..own.len() {
        let mut certs = own.to_vec();
        let (cert_type, _) = certs.remove(place);
        let missing = ChannelError::Certs(CertError::Missing { cert_type });
        assert_eq!(with_certs(&borrowed(&certs)).map(|_| ()), Err(missing));
        certs = own.to_vec();
        certs.push(own[place].clone());
        let error = with_certs(&borrowed(&certs)).map(|_| ());
        assert!(matches!(error, Err(ChannelError::Malformed(_))), "{error:?}");
    }
    // The one for TLS proves nothing here.
    let mut certs = own.to_vec();
    certs[2] = (cert_type::ED25519_TLS_LINK, identity_link().tls_link_cert);
    let cert_type = cert_type::ED25519_AUTHENTICATE;
    let missing = ChannelError::Certs(CertError::Missing { cert_type });
    assert_eq!(with_certs(&borrowed(&certs)).map(|_| ()), Err(missing));
}

#[test]
fn certificates_of_two_relays_do_not_mix() {
    let (own, other) = (shown(&identity_link()), shown(&identity_landing()));
    for choice in 1..15_u32 {
        let pick = |place: usize| if choice >> place & 1 == 1 { &other } else { &own };
        let certs: Vec<_> = (0..4).map(|place| pick(place)[place].clone()).collect();
        let result = with_certs(&borrowed(&certs)).map(|_| ());
        assert!(matches!(result, Err(ChannelError::Certs(_))), "{choice:04b}: {result:?}");
    }
    // Somebody else's certificates, all of them: only their proof is missing.
    let mut cells = honest();
    let mut body = Vec::new();
    Certs::encode_into(&borrowed(&other), &mut body);
    cells[0].body = body;
    let claimed = identity_landing().ids();
    let error = receive(relay(), &cells).map(|_| ());
    assert!(
        matches!(error, Err(ChannelError::NotProven { claimed: named, .. }) if named == claimed),
        "{error:?}"
    );
}

#[test]
fn each_byte_of_the_ed25519_certificates_is_checked() {
    let own = shown(&identity_link());
    for place in 1..own.len() {
        for at in 0..own[place].1.len() {
            let mut certs = own.to_vec();
            certs[place].1[at] ^= 1 << (at % 8);
            let result = with_certs(&borrowed(&certs)).map(|_| ());
            assert!(matches!(result, Err(ChannelError::Certs(_))), "{place}, {at}: {result:?}");
        }
    }
}

#[test]
fn certificates_are_valid_for_their_lifetime() {
    let cells = honest();
    let at = |now_s: u64| {
        let channel = begin(Authentication::Anonymous, responder(&tls(1), 9, now_s));
        receive(channel, &[cells[0].clone(), cells[2].clone()]).map(|_| ())
    };
    assert_eq!(at(now_s()), Ok(()));
    let year = 366 * 86_400;
    for (now_s, problem) in
        [(now_s() + 100 * year, "expired"), (now_s() - 5 * year, "not valid yet")]
    {
        let error = at(now_s).expect_err("of another time").to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn repeated_or_reordered_cells_are_refused() {
    let [certs, proof, _] = <[OwnedCell; 3]>::try_from(honest()).expect("three cells");
    let challenge = OwnedCell::new(Command::AUTH_CHALLENGE, &[0; 36]);
    let versions = OwnedCell::new(Command::VERSIONS, &[0, 5]);
    let padding = OwnedCell::new(Command::PADDING, &[0; 509]);
    let create = OwnedCell::new(Command::CREATE2, &[0; 509]);
    for (cells, unexpected) in [
        (vec![&certs, &certs], Command::CERTS),
        (vec![&certs, &proof, &certs], Command::CERTS),
        (vec![&proof], Command::AUTHENTICATE),
        (vec![&proof, &certs], Command::AUTHENTICATE),
        (vec![&certs, &proof, &proof], Command::AUTHENTICATE),
        (vec![&challenge], Command::AUTH_CHALLENGE),
        (vec![&certs, &challenge], Command::AUTH_CHALLENGE),
        (vec![&padding], Command::PADDING),
        (vec![&certs, &create], Command::CREATE2),
    ] {
        let cells: Vec<OwnedCell> = cells.into_iter().cloned().collect();
        let error = receive(relay(), &cells).map(|_| ());
        assert_eq!(error, Err(ChannelError::Unexpected(unexpected)));
    }
    // With wide circuit IDs VERSIONS has an unknown command, or arrives twice.
    let mut wide = vec![0, 0];
    wide.extend(versions.bytes());
    let (mut channel, _) = relay();
    assert_eq!(feed(&mut channel, &wide), Err(ChannelError::Unexpected(Command::VERSIONS)));
    let on_circuit = OwnedCell { circ_id: CircId::new(1), ..certs };
    let error = receive(relay(), &[on_circuit]).map(|_| ());
    assert!(matches!(error, Err(ChannelError::Malformed(_))), "{error:?}");
}

/// Cells that say nothing yet are for initiators to use, and are signed with the rest.
#[test]
fn unknown_cells_are_permitted_and_part_of_the_transcript() {
    for command in [Command::VPADDING, Command::AUTHORIZE, Command::new(200)] {
        let nothing = OwnedCell::new(command, b"nothing");
        let mut cells = honest();
        cells.insert(0, nothing.clone());
        let error = receive(relay(), &cells).map(|_| ());
        assert_eq!(error, Err(not_proven("it has sent other cells than we received")));
        // Behind the proof they are not signed.
        let mut cells = honest();
        cells.insert(2, nothing);
        assert!(receive(relay(), &cells).expect("as tor takes it").peer().is_some());
    }
}

#[test]
fn a_link_is_canonical_if_the_relay_claims_the_peer_address() {
    let here = IpAddr::from([10, 0, 0, 7]);
    let other = IpAddr::from([10, 0, 0, 8]);
    let six = IpAddr::from([0x20; 16]);
    for (from, mine, is_canonical) in [
        (Some(here), vec![here], true),
        (Some(here), vec![six, other, here], true),
        (Some(six), vec![here, six], true),
        (Some(here), vec![other], false),
        (Some(here), vec![], false),
        (None, vec![here], false),
    ] {
        let tls = Tls(vectors::own_tls(), 1, from);
        let (channel, mut cells) = begin(as_relay(), responder(&tls, 9, now_s()));
        let mut body = Vec::new();
        NetInfo { timestamp: 0, other: Some(other), mine }.encode_into(&mut body);
        cells[2] = OwnedCell::new(Command::NETINFO, &body);
        let channel = receive((channel, vec![]), &cells).expect("honest");
        assert_eq!(channel.is_canonical(), is_canonical);
    }
}

#[test]
fn netinfo_is_parsed_as_by_tor() {
    let good: [&[u8]; 4] = [
        &[0, 0, 0, 0, 4, 4, 1, 2, 3, 4, 0],
        &[0, 0, 0, 0, 4, 4, 1, 2, 3, 4, 1, 6, 16],
        &[0, 0, 0, 0, 4, 4, 1, 2, 3, 4, 1, 9, 3, 1, 2, 3],
        &[0, 0, 0, 0, 6, 16],
    ];
    let bad: [&[u8]; 6] = [
        &[0, 0, 0, 0, 4, 5, 1, 2, 3, 4, 0],
        &[0, 0, 0, 0, 6, 4, 1, 2, 3, 4, 0],
        &[0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0, 0, 9, 3, 1, 2, 3, 0],
        &[0, 0, 0, 0, 4, 4, 1, 2, 3, 4, 1, 4, 3],
        &[0, 0, 0, 0, 4, 4, 1, 2, 3, 4, 255],
    ];
    let hear_info = |start: &[u8], fill: u8| {
        let mut body = start.to_vec();
        body.resize(509, fill);
        let channel = begin(Authentication::Anonymous, responder(&tls(1), 9, now_s()));
        receive(channel, &[OwnedCell::new(Command::NETINFO, &body)])
            .map(|channel| channel.is_open())
    };
    for start in good {
        assert_eq!(hear_info(start, 0), Ok(true), "{start:?}");
    }
    for start in bad {
        let result = hear_info(start, 0xff);
        assert!(matches!(result, Err(ChannelError::Malformed(_))), "{start:?}: {result:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_change_makes_a_peer_pass_for_another(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..4),
        piece_len in 1_usize..700,
    ) {
        let (mut channel, cells) = relay();
        let whole: Vec<u8> = cells[..2].iter().flat_map(OwnedCell::bytes).collect();
        let mut changed = whole.clone();
        for (place, with) in changes {
            let place = place.index(changed.len());
            changed[place] ^= with;
        }
        let mut stream = changed.clone();
        stream.extend(find(&cells, Command::NETINFO).bytes());
        let fed = stream.chunks(piece_len).try_for_each(|piece| {
            match channel.handle_bytes(&mut &piece[..]) {
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        });
        if let Some(peer) = channel.peer() {
            prop_assert_eq!(peer.ids, identity_link().ids());
            // CERTS is part of what is signed. Of AUTHENTICATE the circuit ID is not, and has no meaning.
            let unsigned = cells[0].bytes().len()..cells[0].bytes().len() + 4;
            changed[unsigned.clone()].copy_from_slice(&whole[unsigned]);
            prop_assert!(changed == whole && fed.is_ok());
        }
    }
}
