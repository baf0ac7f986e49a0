//! A consensus of many relays.

use netdoc::Consensus;
use std::hint::black_box;

/// Five relays of the public network, with head and signatures.
const SAMPLE: &str = include_str!("../../../../engine/netdoc/tests/data/consensus-ns");
const RELAYS: usize = 1000;

/// Parses consensuses. Returns their number.
pub(crate) fn run(repetitions: u32) -> u64 {
    let text = large_consensus();
    for _ in 0..repetitions {
        let consensus = Consensus::parse(black_box(text.as_bytes())).expect("valid");
        assert_eq!(black_box(consensus).routers().len(), RELAYS);
    }
    repetitions.into()
}

/// The sample with its relays repeated under other identities, in order.
fn large_consensus() -> String {
    const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let first = SAMPLE.find("\nr ").expect("a relay") + 1;
    let end = SAMPLE.find("directory-footer").expect("a footer");
    let relays: Vec<&str> = SAMPLE[first..end].split("\nr ").collect();
    let mut text = SAMPLE[..first].to_owned();
    for (number, relay) in relays.iter().cycle().take(RELAYS).enumerate() {
        let relay = relay.trim_start_matches("r ").trim_end();
        let (nickname, rest) = relay.split_once(' ').expect("a nickname");
        let digit = |place: usize| char::from(BASE64[number >> (6 * place) & 63]);
        let prefix: String = [2, 1, 0].map(digit).into_iter().collect();
        // The first characters of an identity in Base64.
        let rest = &rest[prefix.len()..];
        text.push_str(&format!("r {nickname} {prefix}{rest}\n"));
    }
    text + &SAMPLE[end..]
}
