//! The recorded vectors: see `crates/researchers/testkit/tests/vectors/README.md`.

use crate::fixture::Identities;
use onion::cell::{BODY_LEN, CELL_LEN};
use onion::identity::{Ed25519Id, OwnIdentity, RelayIds, RsaId};
use onion::link::{ExpectedPeer, TlsSession};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

/// One file of vectors: byte strings by name.
pub struct Scene(BTreeMap<&'static str, Vec<u8>>);

impl Scene {
    fn read(text: &'static str) -> Self {
        let mut strings: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        let mut current = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_suffix(" =") {
                current = name;
            }
            let bytes = strings.entry(current).or_default();
            if !line.ends_with('=') {
                bytes.extend(line.as_bytes().chunks(2).map(hex_byte));
            }
        }
        Self(strings)
    }

    /// The byte string of this name.
    #[track_caller]
    pub fn get(&self, name: &str) -> &[u8] {
        self.0.get(name).expect("a vector of this name")
    }

    /// The byte string of this name, with a known length.
    #[track_caller]
    pub fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.get(name).try_into().expect("a vector of this length")
    }

    /// The number of this name.
    #[track_caller]
    pub fn u64(&self, name: &str) -> u64 {
        u64::from_be_bytes(self.array(name))
    }

    /// IPv4 address and port.
    #[track_caller]
    pub fn address(&self, name: &str) -> SocketAddr {
        let [a, b, c, d, high, low] = self.array(name);
        SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))
    }

    /// The fixed-length cells of this name, without their headers of five bytes.
    #[track_caller]
    pub fn bodies(&self, name: &str) -> Vec<&[u8; BODY_LEN]> {
        let (cells, rest) = self.get(name).as_chunks::<CELL_LEN>();
        assert!(rest.is_empty(), "{name} is not whole cells");
        cells.iter().filter_map(|cell| cell.last_chunk()).collect()
    }

    /// One of our identities.
    pub fn identity(&self) -> OwnIdentity {
        OwnIdentity {
            rsa: RsaId(self.array("rsa")),
            rsa_sha256: self.array("rsa_sha256"),
            ed25519: Ed25519Id(self.array("ed25519")),
            rsa_identity_cert: self.get("rsa_identity_cert").to_vec(),
            signing_cert: self.get("signing_cert").to_vec(),
            tls_link_cert: self.get("tls_link_cert").to_vec(),
            authenticate_cert: self.get("authenticate_cert").to_vec(),
            rsa_cross_cert: self.get("rsa_cross_cert").to_vec(),
            authenticate_seed: self.array("authenticate_seed"),
            onion_secret: self.array("onion_secret"),
            previous_onion_secret: None,
        }
    }

    /// The relay of `link_to_relay`.
    pub fn expected_peer(&self) -> ExpectedPeer {
        let ids = RelayIds {
            rsa: RsaId(self.array("rsa")),
            ed25519: Some(Ed25519Id(self.array("ed25519"))),
        };
        ExpectedPeer { ids, address: self.address("address").ip() }
    }

    /// The TLS session of `link_to_relay`.
    pub fn tls(&self, context: &[u8]) -> RecordedTls {
        RecordedTls {
            certificate: self.get("tls_certificate").to_vec(),
            context: context.to_vec(),
            exported: self.array("exported"),
        }
    }
}

fn hex_byte(digits: &[u8]) -> u8 {
    let digits = std::str::from_utf8(digits).expect("hexadecimal digits");
    u8::from_str_radix(digits, 16).expect("hexadecimal digits")
}

/// What the engine asked of a TLS session when the vectors were recorded.
#[derive(Clone)]
pub struct RecordedTls {
    certificate: Vec<u8>,
    context: Vec<u8>,
    exported: [u8; 32],
}

impl RecordedTls {
    /// Whether the engine asked with this context.
    pub fn is_for(&self, context: &[u8]) -> bool {
        self.context == context
    }
}

impl TlsSession for RecordedTls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Some(&self.certificate)
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        assert_eq!(label, b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003");
        assert_eq!(context, self.context, "the context is the initiator's CID");
        Some(self.exported)
    }

    fn peer_address(&self) -> Option<IpAddr> {
        Some([127, 0, 0, 1].into())
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// Our link to the relay.
pub fn link_to_relay() -> Scene {
    Scene::read(include_str!("../tests/vectors/link_to_relay.hex"))
}

/// The TLS session of the relay's link to us.
pub fn tls_from_relay() -> RecordedTls {
    let scene = link_from_relay();
    let heard = scene.get("heard");
    // Its CID is first in its proof.
    let proof = heard.windows(8).position(|bytes| bytes == b"AUTH0003").expect("a proof");
    RecordedTls {
        certificate: Vec::new(),
        context: heard[proof + 8..][..32].to_vec(),
        exported: scene.array("exported"),
    }
}

/// The relay's link to us.
pub fn link_from_relay() -> Scene {
    Scene::read(include_str!("../tests/vectors/link_from_relay.hex"))
}

/// A circuit through the relay.
pub fn circuit() -> Scene {
    Scene::read(include_str!("../tests/vectors/circuit.hex"))
}

/// A circuit that leads nowhere.
pub fn circuit_dead_end() -> Scene {
    Scene::read(include_str!("../tests/vectors/circuit_dead_end.hex"))
}

/// A circuit that the second hop refuses.
pub fn circuit_refused() -> Scene {
    Scene::read(include_str!("../tests/vectors/circuit_refused.hex"))
}

/// Who we are on our link to the relay.
pub fn identity_link() -> OwnIdentity {
    Scene::read(include_str!("../tests/vectors/identity_link.hex")).identity()
}

/// Who we are as the second hop.
pub fn identity_landing() -> OwnIdentity {
    Scene::read(include_str!("../tests/vectors/identity_landing.hex")).identity()
}

/// A third one, and its certificate in TLS.
pub fn identity_middle() -> (OwnIdentity, Vec<u8>) {
    let scene = Scene::read(include_str!("../tests/vectors/identity_middle.hex"));
    (scene.identity(), scene.get("tls_certificate").to_vec())
}

/// A TLS session with our own certificate, over which [`identity_link`] proves itself.
pub fn own_tls() -> RecordedTls {
    let scene = Scene::read(include_str!("../tests/vectors/identity_landing.hex"));
    RecordedTls {
        certificate: scene.get("tls_certificate").to_vec(),
        context: identity_link().rsa_sha256.to_vec(),
        exported: [0; 32],
    }
}

/// A router and another relay, whose certificates hold.
pub static IDENTITIES: LazyLock<Identities> = LazyLock::new(|| Identities {
    own: Arc::new(identity_link()),
    other: Arc::new(identity_landing()),
    certificate: own_tls().certificate.into(),
    unix_time_s: link_to_relay().u64("unix_time_s"),
});
