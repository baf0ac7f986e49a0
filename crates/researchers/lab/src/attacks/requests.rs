//! Directory requests that cost the relay much more than the attacker.

use netdoc::Consensus;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Names in a request for documents by name. Directories accept some hundreds.
const NAMES: usize = 200;

/// All server descriptors, compressed: the most expensive request, in 60 bytes.
const ALL: &str = "/tor/server/all.z";

/// The names by which clients request a network's documents from a directory.
#[derive(Clone, Debug, Default)]
pub struct DocumentNames {
    /// Digests of microdescriptors, in base64 without padding.
    micro: Vec<String>,
    /// Digests of server descriptors, in hex.
    descriptors: Vec<String>,
}

impl DocumentNames {
    /// The documents of the relays in a consensus of each flavour.
    pub fn from_consensuses(ns: &Consensus, microdesc: &Consensus) -> Self {
        let descriptors = ns.routers().iter().filter_map(|router| router.descriptor_digest);
        let micro = microdesc.routers().iter().filter_map(|router| router.microdesc_digest);
        Self {
            micro: micro.map(|digest| base64(&digest)).collect(),
            descriptors: descriptors.map(hex::encode_upper).collect(),
        }
    }

    /// The path of a request for the first `count` microdescriptors, as a bootstrapping client sends it.
    pub(super) fn micro_path(&self, count: usize) -> String {
        let names = self.micro.get(..count.min(self.micro.len())).unwrap_or_default();
        format!("/tor/micro/d/{}", names.join("-"))
    }
}

fn base64(digest: &[u8; 32]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest)
}

/// A GET request (dir-spec).
pub(super) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.0\r\n\r\n").into_bytes()
}

/// A sequence of requests. Every other one asks for all descriptors, the rest for documents by name. No two requests by name are equal,
/// so a cache of answers does not help the directory.
pub(super) struct Requests {
    names: DocumentNames,
    count: u64,
}

impl Requests {
    pub(super) const fn new(names: DocumentNames) -> Self {
        Self { names, count: 0 }
    }

    pub(super) fn next(&mut self, rng: &mut StdRng) -> Vec<u8> {
        self.count += 1;
        match self.count % 4 {
            1 => {
                let unknown = |rng: &mut StdRng| base64(&rng.random());
                let names = mixed(&self.names.micro, unknown, rng);
                get(&format!("/tor/micro/d/{}.z", names.join("-")))
            }
            3 => {
                let unknown = |rng: &mut StdRng| hex::encode_upper(rng.random::<[u8; 20]>());
                let names = mixed(&self.names.descriptors, unknown, rng);
                get(&format!("/tor/server/d/{}.z", names.join("+")))
            }
            _ => get(ALL),
        }
    }
}

/// Known names, up to the limit of a request, filled up with unknown ones, in random order.
fn mixed(
    known: &[String],
    mut unknown: impl FnMut(&mut StdRng) -> String,
    rng: &mut StdRng,
) -> Vec<String> {
    let mut names: Vec<String> = known.iter().take(NAMES - 1).cloned().collect();
    while names.len() < NAMES {
        names.push(unknown(rng));
    }
    names.shuffle(rng);
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    #[test]
    fn requests_by_name_are_all_different_and_contain_every_known_name() {
        let names = DocumentNames {
            micro: (0..3).map(|number| base64(&[number; 32])).collect(),
            descriptors: (0..3).map(|number| hex::encode_upper([number; 20])).collect(),
        };
        let mut requests = Requests::new(names.clone());
        let mut rng = StdRng::seed_from_u64(1);
        let all: Vec<String> = (0..40)
            .map(|_| String::from_utf8(requests.next(&mut rng)).expect("a request"))
            .collect();
        let of = |prefix: &str| -> Vec<&String> {
            all.iter().filter(|request| request.starts_with(&format!("GET {prefix}"))).collect()
        };
        assert_eq!(of(ALL).len(), 20);
        for (prefix, known) in
            [("/tor/micro/d/", &names.micro), ("/tor/server/d/", &names.descriptors)]
        {
            let by_name = of(prefix);
            assert_eq!(by_name.len(), 10);
            assert_eq!(by_name.iter().collect::<BTreeSet<_>>().len(), 10);
            for request in by_name {
                assert!(known.iter().all(|name| request.contains(name.as_str())), "{request}");
                assert!(request.ends_with(".z HTTP/1.0\r\n\r\n"), "{request}");
                assert!((4_000..32_000).contains(&request.len()), "accepted by any directory");
            }
        }
        assert_eq!(names.micro_path(2), format!("/tor/micro/d/{}", names.micro[..2].join("-")));
    }
}
