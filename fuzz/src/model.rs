use client::model::{self, Link, Model, Node, Pair};
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use netdoc::RsaId;
use std::collections::BTreeMap;
use std::io::Read;

/// The identity whose signature is accepted.
const SECRET: [u8; 32] = [9; 32];

/// What a performance directory serves: unsigned bytes are refused; a model that is packed from any text has
/// plausible values, survives encoding and parsing, and survives signing and verification.
pub fn model(data: &[u8]) {
    let key = model::public_key(&SECRET);
    let _ = model::read(data);
    assert!(model::verify(data, &key, 0).is_err(), "nobody has signed it");
    let mut packed = Vec::new();
    GzEncoder::new(data, Compression::fast()).read_to_end(&mut packed).expect("memory");
    let read = match model::read(&packed) {
        Ok(read) => read,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let may_be =
        |value: Option<f64>, most: f64| value.is_none_or(|value| (0.0..=most).contains(&value));
    let is_rtt = |value| may_be(value, model::RTT_MAX_MS);
    let is_rate = |value| may_be(value, model::THROUGHPUT_MAX_KB_S);
    assert!(
        read.nodes()
            .values()
            .all(|node| is_rtt(node.entry_rtt_ms) && is_rate(node.throughput_kb_s))
    );
    assert!(read.links().values().all(|link| is_rtt(link.rtt_ms) && is_rate(link.throughput_kb_s)));
    assert!(read.links().keys().all(|pair| pair.ends()[0] < pair.ends()[1]));
    for pair in read.links().keys().take(50) {
        let (by_rtt, by_rate) = read.path_indices(&pair.ends().map(|end| *end));
        assert!((0.0..=1.0).contains(&by_rtt) && (0.0..=1.0).contains(&by_rate));
    }
    let written = model::write(&read).expect("memory");
    assert_eq!(model::read(&written).expect("our own"), read);
    let signed = model::sign(&read, &SECRET).expect("memory");
    let verified = model::verify(&signed, &key, read.made_unix_s()).expect("our own, of now");
    assert_eq!((verified.key, verified.model), (key, model::strip(&read)));
}

/// Texts of models: a small one, one with impossible values, and one of another version.
pub(crate) fn model_seeds() -> Vec<crate::Seed> {
    let relay = |number| RsaId([number; 20]);
    let node =
        Node { entry_rtt_ms: Some(12.5), throughput_kb_s: Some(900.0), circuits: 9, failed: 1 };
    let link = Link { rtt_ms: Some(31.25), throughput_kb_s: Some(700.0) };
    let nodes = BTreeMap::from([(relay(1), node), (relay(2), Node::default())]);
    let links = [(1, 2), (2, 3)].map(|(a, b)| (Pair::new(relay(a), relay(b)), link));
    let packed = model::write(&Model::new(1_700_000_000, nodes, links.into())).expect("memory");
    let mut text = String::new();
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("text");
    let impossible = text.replace("31.25", "-1e300").replace("900.0", "1e9");
    let other = text.replacen("\"flashflow_model\":1", "\"flashflow_model\":2", 1);
    vec![
        ("model", "small", text.into_bytes()),
        ("model", "impossible", impossible.into_bytes()),
        ("model", "other-version", other.into_bytes()),
    ]
}
