//! The vectors of the measurement protocol, `docs/vectors/*.json`: what our relay answers to orders and proofs, and what it returns for cells.
//!
//! Messages are put together here, byte by byte, as another implementation would. `FLASHFLOW_VECTORS=write` writes the files; otherwise they must be
//! as they are.

use ed25519_dalek::{Signer, SigningKey};
use onion::cell::BODY_LEN;
use onion::cell::msg::CreatedFast;
use onion::crypto::{Keystream, fast};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::protocol::{
    ClientSecond, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, SentBack,
};
use onion::measure::target::{Target, TargetParams};
use onion::node::ConnId;
use onion::{Duration, Instant};
use std::path::Path;
use std::process::Command;

/// The time of the vectors.
const NOW: u64 = 1_800_000_000;
const LINK: ConnId = ConnId(0);
const COORDINATOR: [u8; 32] = [1; 32];
const MEASURERS: [[u8; 32]; 2] = [[2; 32], [3; 32]];
/// Seed of a key that the relay or the order does not list.
const STRANGER: [u8; 32] = [9; 32];
const EXPORTED: [u8; 32] = [0x5e; 32];
/// Keying material of another session.
const ELSEWHERE: [u8; 32] = [0x5f; 32];
/// The neutral element as a key: with R the same and S = 0, a signature of any text if small orders are accepted.
const WEAK_KEY: [u8; 32] = {
    let mut key = [0; 32];
    key[0] = 1;
    key
};
/// The order of the group, little-endian.
const GROUP_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

fn public(seed: &[u8; 32]) -> [u8; 32] {
    SigningKey::from_bytes(seed).verifying_key().to_bytes()
}

fn ids() -> RelayIds {
    RelayIds { rsa: RsaId([4; 20]), ed25519: Some(Ed25519Id(public(&[5; 32]))) }
}

fn target() -> Target {
    let params = TargetParams {
        is_allowed: true,
        coordinators: vec![CoordinatorKey(public(&COORDINATOR))],
        ..TargetParams::default()
    };
    Target::new(params, ids())
}

fn field(field_type: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).expect("short");
    [&field_type.to_be_bytes(), &len.to_be_bytes(), value].concat()
}

/// The fields of an order; `None` is left out.
#[derive(Clone)]
struct OrderFields {
    coordinator: [u8; 32],
    rsa: [u8; 20],
    ed25519: Option<[u8; 32]>,
    measurers: Vec<[u8; 32]>,
    seconds: u16,
    client_share: Option<u16>,
    sockets: u16,
    expires: u64,
    nonce: Option<[u8; 32]>,
    /// Bytes after them.
    more: Vec<u8>,
}

impl OrderFields {
    fn new(nonce: u8) -> Self {
        Self {
            coordinator: public(&COORDINATOR),
            rsa: [4; 20],
            ed25519: Some(public(&[5; 32])),
            measurers: MEASURERS.iter().map(public).collect(),
            seconds: 30,
            client_share: Some(250),
            sockets: 2,
            expires: NOW + 60,
            nonce: Some([nonce; 32]),
            more: Vec::new(),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = field(1, &self.coordinator);
        out.extend(field(2, &self.rsa));
        out.extend(self.ed25519.iter().flat_map(|key| field(3, key)));
        out.extend(self.measurers.iter().flat_map(|key| field(4, key)));
        out.extend(field(5, &self.seconds.to_be_bytes()));
        out.extend(self.client_share.iter().flat_map(|share| field(6, &share.to_be_bytes())));
        out.extend(field(7, &self.sockets.to_be_bytes()));
        out.extend(field(8, &self.expires.to_be_bytes()));
        out.extend(self.nonce.iter().flat_map(|nonce| field(9, nonce)));
        out.extend(&self.more);
        out
    }

    fn message(&self) -> Vec<u8> {
        order_message(&self.bytes(), &sign_order(&COORDINATOR, &EXPORTED, &self.bytes()))
    }
}

fn sign_order(seed: &[u8; 32], exported: &[u8; 32], order: &[u8]) -> [u8; 64] {
    let signed = [b"FlashFlow order 1\0", &exported[..], order].concat();
    SigningKey::from_bytes(seed).sign(&signed).to_bytes()
}

fn order_message(order: &[u8], signature: &[u8; 64]) -> Vec<u8> {
    [vec![1], field(1, order), field(2, signature)].concat()
}

/// A signature whose S is larger by the order of the group: not canonical.
fn not_canonical(mut signature: [u8; 64]) -> [u8; 64] {
    let mut carry = 0;
    for (byte, order) in signature[32..].iter_mut().zip(GROUP_ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    signature
}

fn proof_message(key: &[u8; 32], nonce: &[u8; 32], signature: &[u8; 64]) -> Vec<u8> {
    [vec![3], field(3, nonce), field(4, key), field(2, signature)].concat()
}

fn signed_proof(seed: &[u8; 32], nonce: &[u8; 32], exported: &[u8; 32]) -> Vec<u8> {
    let signed = [b"FlashFlow proof 1\0", &exported[..], &[4; 20], nonce].concat();
    let signature = SigningKey::from_bytes(seed).sign(&signed).to_bytes();
    proof_message(&public(seed), nonce, &signature)
}

/// A JSON object on one line: values are JSON already.
fn object(pairs: &[(&str, String)]) -> String {
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

fn text(value: &str) -> String {
    format!("\"{value}\"")
}

fn list(values: &[String]) -> String {
    format!("[\n    {}\n  ]", values.join(",\n    "))
}

/// The file is as the code makes it, or is made.
fn check(name: &str, pairs: &[(&str, String)]) {
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    let made = format!("{{\n{}\n}}\n", pairs.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/vectors").join(name);
    if std::env::var("FLASHFLOW_VECTORS").as_deref() == Ok("write") {
        std::fs::write(&path, &made).expect("writable");
    }
    let found = std::fs::read_to_string(&path).expect("readable");
    assert!(found == made, "{name} differs: FLASHFLOW_VECTORS=write writes it");
}

fn relay() -> String {
    object(&[
        ("rsa", text(&hex(&ids().rsa.0))),
        ("ed25519", text(&hex(&public(&[5; 32])))),
        ("coordinators", format!("[\"{}\"]", hex(&public(&COORDINATOR)))),
        ("max_duration", String::from("45")),
        ("period", String::from("86400")),
        ("quota", String::from("2")),
    ])
}

/// The answer of a relay: 0 for ACCEPTED or PROVEN, or else an error.
fn answer(target: &mut Target, at: u64, conn: ConnId, body: &[u8]) -> u16 {
    let now = Instant::ORIGIN + Duration::from_secs(at - NOW);
    let result = match Message::parse(body) {
        Err(_) => return ErrorCode::MALFORMED.get(),
        Ok(Message::Order(order)) => {
            target.handle_order(now, at, conn, &EXPORTED, &order).map(|_| ())
        }
        Ok(Message::Proof(proof)) => target.handle_proof(conn, &EXPORTED, &proof),
        Ok(_) => return ErrorCode::OUT_OF_ORDER.get(),
    };
    result.map_or_else(|refusal| refusal.code.get(), |()| 0)
}

/// What a relay is sent, and what it must answer.
struct Case {
    name: &'static str,
    at: u64,
    body: Vec<u8>,
    expected: u16,
    /// The coordinator closes its link afterwards.
    ends: bool,
}

impl Case {
    const fn new(name: &'static str, body: Vec<u8>, expected: u16) -> Self {
        Self { name, at: NOW, body, expected, ends: false }
    }

    fn json(&self) -> String {
        object(&[
            ("name", text(self.name)),
            ("at", self.at.to_string()),
            ("message", text(&hex(&self.body))),
            ("answer", self.expected.to_string()),
            ("then_the_coordinator_leaves", self.ends.to_string()),
        ])
    }
}

/// Lets one relay answer all cases in order. Each comes on a link of its own, unless `is_one_link`.
fn check_answers(target: &mut Target, cases: &[Case], is_one_link: bool) {
    for (place, case) in (1..).zip(cases) {
        let conn = if is_one_link { LINK } else { ConnId(place) };
        assert_eq!(answer(target, case.at, conn, &case.body), case.expected, "{}", case.name);
        if case.ends {
            target.handle_closed(LINK);
        }
    }
}

fn malformed_orders() -> Vec<Case> {
    let order = OrderFields::new(1);
    let signed = order.message();
    let with = |change: fn(&mut OrderFields)| {
        let mut fields = order.clone();
        change(&mut fields);
        fields.message()
    };
    vec![
        Case::new("an empty message", Vec::new(), 15),
        Case::new("an unknown kind", [&[7], &signed[1..]].concat(), 15),
        Case::new("a truncated field", signed[..signed.len() - 1].to_vec(), 15),
        Case::new("no signature", [vec![1], field(1, &order.bytes())].concat(), 15),
        Case::new("a repeated signature", [&signed[..], &field(2, &[0; 64])].concat(), 15),
        Case::new(
            "a field of another message with a wrong length",
            [&signed[..], &field(5, &[0])].concat(),
            15,
        ),
        Case::new("an order without a nonce", with(|order| order.nonce = None), 15),
        Case::new(
            "a repeated field in the order",
            with(|order| order.more = field(5, &[0, 30])),
            15,
        ),
        Case::new("a client share of one", with(|order| order.client_share = Some(1000)), 15),
        Case::new("33 measurers", with(|order| order.measurers = vec![[2; 32]; 33]), 15),
    ]
}

fn refused_orders() -> Vec<Case> {
    let order = OrderFields::new(1);
    let bytes = order.bytes();
    let with = |change: fn(&mut OrderFields)| {
        let mut fields = order.clone();
        change(&mut fields);
        fields
    };
    let stranger = with(|order| order.coordinator = public(&STRANGER)).bytes();
    let elsewhere = sign_order(&COORDINATOR, &ELSEWHERE, &bytes);
    let signature = sign_order(&COORDINATOR, &EXPORTED, &bytes);
    let altered = with(|order| order.seconds = 31).bytes();
    vec![
        Case::new(
            "a coordinator that is not listed",
            order_message(&stranger, &sign_order(&STRANGER, &EXPORTED, &stranger)),
            2,
        ),
        Case::new("a signature for another session", order_message(&bytes, &elsewhere), 2),
        Case::new("an order altered after it was signed", order_message(&altered, &signature), 2),
        Case::new(
            "S not below the group's order",
            order_message(&bytes, &not_canonical(signature)),
            2,
        ),
        Case::new("another RSA identity", with(|order| order.rsa = [6; 20]).message(), 4),
        Case::new(
            "another Ed25519 identity",
            with(|order| order.ed25519 = Some([6; 32])).message(),
            4,
        ),
        Case::new("no Ed25519 identity", with(|order| order.ed25519 = None).message(), 4),
        Case::new("zero seconds", with(|order| order.seconds = 0).message(), 11),
        Case::new("zero sockets", with(|order| order.sockets = 0).message(), 11),
        Case::new("no measurers", with(|order| order.measurers.clear()).message(), 11),
        Case::new("longer than the relay allows", with(|order| order.seconds = 46).message(), 9),
        Case::new("expired", with(|order| order.expires = NOW - 1).message(), 5),
        Case::new(
            "expires in more than an hour",
            with(|order| order.expires = NOW + 3601).message(),
            6,
        ),
    ]
}

/// Orders whose answers depend on those before.
fn successive_orders() -> Vec<Case> {
    let order = OrderFields::new;
    let first = OrderFields { client_share: None, more: field(99, b"unknown"), ..order(1) };
    let second = OrderFields { expires: NOW, seconds: 45, client_share: Some(999), ..order(2) };
    let day = NOW + 86_400;
    let last = OrderFields { expires: day + 60, ..order(4) };
    vec![
        Case::new("accepted: no share, and a field of an unknown type", first.message(), 0),
        Case { ends: true, ..Case::new("another measurement is running", order(2).message(), 10) },
        Case::new("the nonce was used", order(1).message(), 7),
        Case {
            ends: true,
            ..Case::new(
                "accepted: it expires now, with the greatest length and share",
                second.message(),
                0,
            )
        },
        Case::new("the quota is used up", order(3).message(), 8),
        Case { at: day, ..Case::new("accepted a period later", last.message(), 0) },
    ]
}

#[test]
fn orders() {
    let cases: Vec<Case> =
        malformed_orders().into_iter().chain(refused_orders()).chain(successive_orders()).collect();
    check_answers(&mut target(), &cases, true);
    let cases: Vec<String> = cases.iter().map(Case::json).collect();
    let exported = text(&hex(&EXPORTED));
    check("orders.json", &[("relay", relay()), ("exported", exported), ("cases", list(&cases))]);
}

#[test]
fn orders_for_a_relay_that_allows_none() {
    let mut target = target();
    target.set_params(TargetParams { is_allowed: false, ..target.params().clone() });
    let order = OrderFields::new(1);
    assert_eq!(answer(&mut target, NOW, LINK, &order.message()), 1);
}

#[test]
fn proofs() {
    let (running, other) = ([1; 32], [2; 32]);
    let order = OrderFields {
        measurers: MEASURERS.iter().map(public).chain([WEAK_KEY]).collect(),
        ..OrderFields::new(1)
    };
    let mut weak_signature = [0; 64];
    weak_signature[..32].copy_from_slice(&WEAK_KEY);
    let proof = |seed| signed_proof(seed, &running, &EXPORTED);
    let first = proof(&MEASURERS[0]);
    let cases = [
        Case::new("another measurement", signed_proof(&MEASURERS[0], &other, &EXPORTED), 12),
        Case::new("a measurer that the order does not name", proof(&STRANGER), 13),
        Case::new(
            "a signature for another session",
            signed_proof(&MEASURERS[0], &running, &ELSEWHERE),
            3,
        ),
        Case::new("a key of small order", proof_message(&WEAK_KEY, &running, &weak_signature), 3),
        Case::new("a truncated proof", first[..first.len() - 1].to_vec(), 15),
        Case::new("proven", first, 0),
        Case::new("proven, another measurer", proof(&MEASURERS[1]), 0),
        Case {
            ends: true,
            ..Case::new("more links than the order allows", proof(&MEASURERS[0]), 14)
        },
        Case::new("the measurement is over", proof(&MEASURERS[0]), 12),
    ];
    let mut target = target();
    assert_eq!(answer(&mut target, NOW, LINK, &order.message()), 0);
    check_answers(&mut target, &cases, false);
    let cases: Vec<String> = cases.iter().map(Case::json).collect();
    check(
        "proofs.json",
        &[
            ("relay", relay()),
            ("exported", text(&hex(&EXPORTED))),
            ("order", text(&hex(&order.message()))),
            ("cases", list(&cases)),
        ],
    );
}

#[test]
fn cells() {
    let (x, y) = ([0x11; 20], [0x22; 20]);
    let (CreatedFast { y: answered, key_hash }, keys) = fast::respond(&x, y);
    assert_eq!(answered, y);
    let mut keystream = Keystream::new(&keys.key_forward);
    let cells = [0u64, 1, 2, 1000, 1_000_000].map(|number| {
        let sent: Vec<u8> =
            (0..BODY_LEN).map(|place| (place as u64 * 7 + number).to_le_bytes()[0]).collect();
        let mut returned = sent.clone();
        keystream.seek(number * BODY_LEN as u64);
        keystream.apply(&mut returned);
        object(&[
            ("number", number.to_string()),
            ("sent", text(&hex(&sent))),
            ("returned", text(&hex(&returned))),
        ])
    });
    check(
        "cells.json",
        &[
            ("x", text(&hex(&x))),
            ("y", text(&hex(&y))),
            ("key_hash", text(&hex(&key_hash))),
            ("forward_key", text(&hex(&keys.key_forward))),
            ("cells", list(&cells)),
        ],
    );
}

#[test]
fn messages() {
    let second = ClientSecond { second: 7, received_bytes: 514_000, sent_bytes: 1 << 33 };
    let returned = MEASURERS
        .iter()
        .zip([5140, 0])
        .map(|(seed, bytes)| SentBack { measurer: MeasurerKey(public(seed)), bytes });
    let measurers: Vec<String> = returned
        .clone()
        .map(|SentBack { measurer, bytes }| {
            object(&[("measurer", text(&hex(&measurer.0))), ("bytes", bytes.to_string())])
        })
        .collect();
    let fields = [
        (Message::Accepted { nonce: Nonce([1; 32]) }, vec![("nonce", text(&hex(&[1; 32])))]),
        (Message::Proven, vec![]),
        (
            Message::ClientSecond(second, returned.collect()),
            vec![
                ("second", second.second.to_string()),
                ("received", second.received_bytes.to_string()),
                ("sent", second.sent_bytes.to_string()),
                ("returned", format!("[{}]", measurers.join(", "))),
            ],
        ),
        (
            Message::Error { code: ErrorCode::TOO_LONG, text: "46 s, not 45".into() },
            vec![("code", ErrorCode::TOO_LONG.get().to_string()), ("text", text("46 s, not 45"))],
        ),
    ];
    let messages = fields.map(|(message, mut fields)| {
        fields.push(("message", text(&hex(&message.encode()))));
        object(&fields)
    });
    check("messages.json", &[("messages", list(&messages))]);
}

/// Somebody who has read nothing but the protocol can implement it.
#[test]
fn a_third_implementation_agrees() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("python3")
        .arg(here.join("tests/protocol_vectors/third_implementation.py"))
        .arg(here.join("../../../docs/vectors"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => skip::this_test!("the program `python3`: {error}"),
    };
    if output.status.code() == Some(77) {
        skip::this_test!("the Python module `cryptography` (Debian: python3-cryptography)");
    }
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// The series for C tor has the same vectors in tor's own tests.
#[test]
fn the_patch_has_these_vectors() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let made = match Command::new("python3").arg(root.join("scripts/tor-vectors")).output() {
        Ok(output) => output,
        Err(error) => skip::this_test!("the program `python3`: {error}"),
    };
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let series = std::fs::read_dir(root.join("patches/tor-0.4.9")).expect("readable");
    let patches = series.map(|entry| std::fs::read_to_string(entry.expect("readable").path()));
    let patch = patches.map(|text| text.expect("text")).find_map(|text| {
        let (_, file) = text.split_once("+++ b/src/test/flashflow_vectors.inc\n@@")?;
        Some(file.split("\ndiff --git").next().unwrap_or_default().to_owned())
    });
    let patch = patch.expect("a patch adds the vectors");
    let found = patch.lines().filter_map(|line| line.strip_prefix('+'));
    assert!(
        found.eq(String::from_utf8_lossy(&made.stdout).lines()),
        "scripts/tor-vectors makes others"
    );
}

fn hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}
