//! Directory authorities with keys, and documents that they have signed, for tests.

use crate::documents::{CachedConsensus, Documents, MicroDigest, Wanted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use netdoc::RsaId;
use netdoc::consensus::Flavour;
use netdoc::write::push_object;
use onion::keys::RsaKey;
use rand::SeedableRng;
use rand::rngs::StdRng;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::sync::OnceLock;

/// A real consensus of the ns flavour, shortened.
pub const NS: &[u8] = include_bytes!("../../../engine/netdoc/tests/data/consensus-ns");
/// A real consensus of the microdesc flavour, shortened.
const MICRODESC: &[u8] = include_bytes!("../../../engine/netdoc/tests/data/consensus-microdesc");
/// Real server descriptors of two relays.
pub const DESCRIPTORS: &[u8] =
    include_bytes!("../../../engine/netdoc/tests/data/server-descriptors");
/// A time at which the certificates of [`authorities`] are valid, in Unix seconds.
pub const NOW: u64 = 1_700_000_000;

/// A directory authority with its keys.
pub struct Authority {
    identity: RsaKey,
    signing: RsaKey,
    /// The certificate that it publishes.
    pub certificate: String,
}

impl Authority {
    /// # Panics
    /// If no key can be generated.
    #[expect(clippy::expect_used, reason = "a fixture of tests")]
    fn new(seed: u8) -> Self {
        let mut rng = StdRng::from_seed([seed; 32]);
        let identity = RsaKey::generate(&mut rng).expect("a key");
        let signing = RsaKey::generate(&mut rng).expect("a key");
        let mut text = format!(
            "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published 2023-01-01 00:00:00\n\
             dir-key-expires 2100-01-01 00:00:00\n",
            identity.id()
        );
        for (item, key) in [("dir-identity-key", &identity), ("dir-signing-key", &signing)] {
            text.push_str(item);
            text.push('\n');
            push_object(&mut text, "RSA PUBLIC KEY", key.public_der());
        }
        text.push_str("dir-key-certification\n");
        let signature = identity.sign(&Sha1::digest(&text)).expect("signed");
        push_object(&mut text, "SIGNATURE", &signature);
        Self { identity, signing, certificate: text }
    }

    /// Digests of the identity key and of the signing key.
    #[must_use]
    pub fn name(&self) -> (RsaId, RsaId) {
        (self.identity.id(), self.signing.id())
    }

    /// Its signing key, as in tor's file `authority_signing_key`.
    ///
    /// # Panics
    /// If the key cannot be encoded.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a fixture of tests")]
    pub fn signing_key_pem(&self) -> String {
        let mut text = String::new();
        push_object(&mut text, "RSA PRIVATE KEY", self.signing.to_der().expect("a key").as_bytes());
        text
    }

    /// Appends a signature of the document up to its first signature.
    ///
    /// # Panics
    /// If the key cannot sign.
    #[expect(clippy::expect_used, reason = "a fixture of tests")]
    pub fn sign(&self, text: &mut String) {
        let signed = match text.split_once("\ndirectory-signature ") {
            Some((before, _)) => format!("{before}\ndirectory-signature "),
            None => format!("{text}directory-signature "),
        };
        let (identity, key) = self.name();
        let signature = self.signing.sign(&Sha256::digest(signed)).expect("signed");
        text.push_str(&format!("directory-signature sha256 {identity} {key}\n"));
        push_object(text, "SIGNATURE", &signature);
    }
}

/// Three authorities, generated once.
#[must_use]
pub fn authorities() -> &'static [Authority; 3] {
    static GENERATED: OnceLock<[Authority; 3]> = OnceLock::new();
    GENERATED.get_or_init(|| [1, 2, 3].map(Authority::new))
}

/// A descriptor with this fingerprint and `ContactInfo`, and its digest in base64 as a consensus has it. Its own signature is not
/// valid.
///
/// # Panics
/// If the document of the fixture has no such lines.
#[must_use]
#[expect(clippy::expect_used, reason = "a fixture of tests")]
pub fn descriptor(fingerprint: &RsaId, contact: &str) -> (String, String) {
    let text = std::str::from_utf8(DESCRIPTORS).expect("text");
    let (_, rest) = text.split_once("router ").expect("a descriptor");
    let end = rest.find("-----END SIGNATURE-----\n").expect("a signature");
    let lines = rest[..end].lines().map(|line| match line.split(' ').next() {
        Some("fingerprint") => format!("fingerprint {fingerprint}\n"),
        Some("contact") => format!("contact {contact}\n"),
        _ => format!("{line}\n"),
    });
    let text = format!("router {}-----END SIGNATURE-----\n", lines.collect::<String>());
    let signed = text.find("router-signature\n").expect("signed") + "router-signature\n".len();
    let digest = STANDARD_NO_PAD.encode(Sha1::digest(&text[..signed]));
    (text, digest)
}

/// A consensus of the microdesc flavour that `signers` have signed.
///
/// # Panics
/// If the document of the fixture is not signed text.
#[must_use]
#[expect(clippy::expect_used, reason = "a fixture of tests")]
pub fn signed_by(signers: &[&Authority]) -> Vec<u8> {
    let text = std::str::from_utf8(MICRODESC).expect("text");
    let (unsigned, _) = text.split_once("directory-signature").expect("signed");
    let mut text = unsigned.to_owned();
    signers.iter().for_each(|authority| authority.sign(&mut text));
    text.into_bytes()
}

/// Both consensuses, all certificates, and descriptors and microdescriptors of two relays; and the
/// digests of those microdescriptors.
///
/// # Panics
/// If a document of the fixture cannot be parsed.
#[must_use]
#[expect(clippy::expect_used, reason = "a fixture of tests")]
pub fn documents() -> (Documents, [MicroDigest; 2]) {
    let mut documents = Documents::default();
    let [a, b, c] = authorities();
    for authority in [a, b, c] {
        documents.put_certificates(NOW, authority.certificate.as_bytes(), Wanted::All);
    }
    let microdesc = (signed_by(&[a, b]), Flavour::Microdesc);
    for (text, flavour) in [microdesc, (NS.to_vec(), Flavour::Ns)] {
        documents.put_consensus(NOW, CachedConsensus::parse(text, flavour).expect("a consensus"));
    }
    documents.put_descriptors(NOW, DESCRIPTORS, Wanted::All);
    let micro = ["onion-key\nid a\n", "onion-key\nid b\n"];
    documents.put_micro(NOW, micro.concat().as_bytes(), Wanted::All);
    (documents, micro.map(|text| Sha256::digest(text).into()))
}
