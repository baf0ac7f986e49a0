use super::disk::{Changed, load, save};
use super::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::fmt::Write as _;
use std::sync::OnceLock;
use tor_llcrypto::pk::rsa::KeyPair;

/// A real consensus, shortened.
pub(crate) const NS: &[u8] = include_bytes!("../../../netdoc/tests/data/consensus-ns");
const MICRODESC: &[u8] = include_bytes!("../../../netdoc/tests/data/consensus-microdesc");
const DESCRIPTORS: &[u8] = include_bytes!("../../../netdoc/tests/data/server-descriptors");

/// An authority of ours, with its certificate.
pub(crate) struct Authority {
    pub(crate) identity: KeyPair,
    pub(crate) signing: KeyPair,
    pub(crate) certificate: String,
}

fn fingerprint(key: &KeyPair) -> Fingerprint {
    Fingerprint::from_bytes(key.to_public_key().to_rsa_identity().to_bytes())
}

impl Authority {
    fn new(seed: u8) -> Self {
        let mut rng = StdRng::from_seed([seed; 32]);
        let identity = KeyPair::generate(&mut rng).expect("a key");
        let signing = KeyPair::generate(&mut rng).expect("a key");
        let mut text = format!(
            "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published 2023-01-01 00:00:00\n\
             dir-key-expires 2100-01-01 00:00:00\n",
            fingerprint(&identity)
        );
        for (item, key) in [("dir-identity-key", &identity), ("dir-signing-key", &signing)] {
            writeln!(text, "{item}").expect("text");
            let der = key.to_public_key().to_der();
            crate::document::push_object(&mut text, "RSA PUBLIC KEY", &der);
        }
        text.push_str("dir-key-certification\n");
        let signature = identity.sign(&Sha1::digest(&text)).expect("signed");
        crate::document::push_object(&mut text, "SIGNATURE", &signature);
        Self { identity, signing, certificate: text }
    }

    pub(crate) fn name(&self) -> (Fingerprint, Fingerprint) {
        (fingerprint(&self.identity), fingerprint(&self.signing))
    }

    /// Appends a signature of what the document is so far, up to its first signature.
    fn sign(&self, text: &mut String) {
        let signed = match text.split_once("\ndirectory-signature ") {
            Some((before, _)) => format!("{before}\ndirectory-signature "),
            None => format!("{text}directory-signature "),
        };
        let (identity, key) = self.name();
        let signature = self.signing.sign(&Sha256::digest(signed)).expect("signed");
        writeln!(text, "directory-signature sha256 {identity} {key}").expect("text");
        crate::document::push_object(text, "SIGNATURE", &signature);
    }
}

pub(crate) fn authorities() -> &'static [Authority; 3] {
    static MADE: OnceLock<[Authority; 3]> = OnceLock::new();
    MADE.get_or_init(|| [1, 2, 3].map(Authority::new))
}

/// A microdesc consensus that these authorities of ours have signed.
pub(crate) fn signed_by(signers: &[&Authority]) -> Vec<u8> {
    let text = std::str::from_utf8(MICRODESC).expect("text");
    let (unsigned, _) = text.split_once("directory-signature").expect("signed");
    let mut text = unsigned.to_owned();
    signers.iter().for_each(|authority| authority.sign(&mut text));
    text.into_bytes()
}

/// A time at which our certificates hold.
pub(crate) const NOW: u64 = 1_700_000_000;

/// Documents with both consensuses, all certificates, and the descriptors and microdescriptors of
/// two relays.
pub(crate) fn documents() -> (Documents, [MicroDigest; 2]) {
    let mut documents = Documents::default();
    let [a, b, c] = authorities();
    for authority in [a, b, c] {
        documents.put_certificates(NOW, authority.certificate.as_bytes(), Wanted::All);
    }
    let listing = Listing::read(signed_by(&[a, b]), Flavour::Microdesc).expect("a consensus");
    documents.put_listing(NOW, listing);
    documents.put_listing(NOW, Listing::read(NS.to_vec(), Flavour::Ns).expect("a consensus"));
    documents.put_descriptors(NOW, DESCRIPTORS, Wanted::All);
    let micro = ["onion-key\nid a\n", "onion-key\nid b\n"];
    documents.put_micro(NOW, micro.concat().as_bytes(), Wanted::All);
    (documents, micro.map(|text| Sha256::digest(text).into()))
}

#[test]
fn only_documents_with_the_digests_that_were_asked_for_are_taken() {
    let text = b"onion-key\nasked for\nonion-key\nnot asked for\n";
    let wanted = BTreeSet::from([Sha256::digest("onion-key\nasked for\n").into()]);
    let mut documents = Documents::default();
    assert_eq!(documents.put_micro(NOW, text, Wanted::These(&wanted)), 1);
    assert_eq!(documents.put_micro(NOW, text, Wanted::These(&wanted)), 0, "it is there");
    let kept: Vec<_> = documents.micro.values().map(|kept| &kept.text[..]).collect();
    assert_eq!(kept, [b"onion-key\nasked for\n"]);
    assert_eq!(documents.put_descriptors(NOW, DESCRIPTORS, Wanted::These(&BTreeSet::new())), 0);
    let too_long = format!("onion-key\n{}\n", "x".repeat(DOCUMENT_MAX));
    assert_eq!(documents.put_micro(NOW, too_long.as_bytes(), Wanted::All), 0);
}

#[test]
fn what_no_consensus_names_is_dropped_after_a_week_and_what_it_lacks_is_known() {
    let (mut documents, micro) = documents();
    let missing = documents.missing_micro();
    let listed = documents.microdesc.as_ref().expect("there").content.routers().len();
    assert_eq!(missing.len(), listed, "the two that are there are of no relay in it");
    let week = NOW + UNLISTED_MAX_S;
    let again = |documents: &mut Documents, now| {
        let listing = Listing::read(NS.to_vec(), Flavour::Ns).expect("a consensus");
        documents.put_listing(now, listing);
    };
    again(&mut documents, week - 1);
    assert!(micro.iter().all(|digest| documents.micro.contains_key(digest)));
    let named = documents.missing_descriptors().len();
    again(&mut documents, week);
    assert!(documents.micro.is_empty());
    assert_eq!(documents.missing_descriptors().len(), named, "those that are named are kept");
    assert!(documents.by_relay.values().all(|d| documents.descriptors.contains_key(d)));
}

#[test]
fn a_consensus_has_the_signers_whose_signatures_hold() {
    let [a, b, c] = authorities();
    let (documents, _) = documents();
    let trusted: BTreeSet<_> = [a, b, c].map(|authority| authority.name().0).into();
    let of = |text: &[u8], trusted: &BTreeSet<_>| {
        verify::signers(text, trusted, &documents.certificates).len()
    };
    let good = signed_by(&[a, b]);
    assert_eq!(of(&good, &trusted), 2);
    // Once is as good as twice.
    assert_eq!(of(&signed_by(&[a, a, a]), &trusted), 1);
    assert_eq!(of(&good, &BTreeSet::from([a.name().0])), 1, "another is not trusted");
    let altered =
        String::from_utf8(good.clone()).expect("text").replacen("known-flags", "known-flagz", 1);
    assert_eq!(of(altered.as_bytes(), &trusted), 0);
    assert_eq!(of(NS, &trusted), 0);
    assert_eq!(of(b"", &trusted), 0);
    assert_eq!(verify::signers(&good, &trusted, &verify::Certificates::new()).len(), 0);
    assert!(verify::lacks_certificates(&good, &trusted, &verify::Certificates::new()));
    assert!(!verify::lacks_certificates(&good, &trusted, &documents.certificates));
}

#[test]
fn a_certificate_must_be_signed_by_the_key_that_it_names_and_be_young() {
    let [a, b, _] = authorities();
    let mut documents = Documents::default();
    let (of_a, of_b) = (&a.certificate, &b.certificate);
    let (identity_a, identity_b) = (a.name().0.to_string(), b.name().0.to_string());
    let (_, signature_b) = of_b.split_once("dir-key-certification").expect("signed");
    let (body_a, _) = of_a.split_once("dir-key-certification").expect("signed");
    for forged in [
        of_a.replace(&identity_a, &identity_b),
        of_a.replace("2100-", "2101-"),
        format!("{body_a}dir-key-certification{signature_b}"),
        body_a.to_owned(),
    ] {
        documents.put_certificates(NOW, forged.as_bytes(), Wanted::All);
        assert!(documents.certificates.is_empty(), "{forged}");
    }
    // Another signing key behind the signature: who gives us certificates could sign consensuses by it.
    let (_, keys_b) = of_b.split_once("dir-signing-key").expect("it has one");
    let (key_b, _) = keys_b.split_once("dir-key-certification").expect("signed");
    let longer = format!("{of_a}dir-signing-key{key_b}");
    for text in [&longer, of_a] {
        documents.put_certificates(NOW, text.as_bytes(), Wanted::All);
        assert_eq!(documents.certificates.keys().copied().collect::<Vec<_>>(), [a.name()]);
        assert_eq!(documents.certificates[&a.name()].text, of_a.as_bytes());
    }
    documents.put_certificates(5_000_000_000, of_b.as_bytes(), Wanted::All);
    assert!(documents.certificates.is_empty(), "both have ended");
}

#[test]
fn certificates_of_strangers_take_no_room_from_those_of_authorities() {
    let [a, b, _] = authorities();
    let mut documents = Documents::default();
    // As many as there is room for, of one identity each, that were kept on disk.
    documents.put_certificates(NOW, b.certificate.as_bytes(), Wanted::All);
    let strange = documents.certificates.values().next().expect("taken").clone();
    for number in 0..u32::try_from(CERTIFICATES_MAX).expect("few") {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let identity = Fingerprint::from_bytes(name);
        let other = Certificate { identity, ..strange.clone() };
        documents.certificates.insert((identity, strange.signing_key), other);
    }
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    assert!(!documents.certificates.contains_key(&a.name()), "there is no room for just anybody");
    let of_b = BTreeSet::from([b.name().0]);
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::These(&of_b));
    assert!(!documents.certificates.contains_key(&a.name()), "it is not asked for");
    let of_a = BTreeSet::from([a.name().0]);
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::These(&of_a));
    assert!(documents.certificates.contains_key(&a.name()), "there is always room for it");
}

#[test]
fn of_one_authority_the_latest_certificates_are_kept() {
    let [a, _, _] = authorities();
    let mut documents = Documents::default();
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    let first = documents.certificates.values().next().expect("taken").clone();
    for number in 1..=2 * CERTIFICATES_OF_ONE_MAX as u64 {
        let signing_key = Fingerprint::from_bytes([u8::try_from(number).expect("few"); 20]);
        let other =
            Certificate { signing_key, published: first.published - number, ..first.clone() };
        documents.certificates.insert((first.identity, signing_key), other);
    }
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    let kept: Vec<_> =
        documents.certificates.values().map(|it| first.published - it.published).collect();
    assert_eq!(kept.len(), CERTIFICATES_OF_ONE_MAX);
    assert!(kept.iter().all(|age| *age < CERTIFICATES_OF_ONE_MAX as u64), "{kept:?}");
    assert!(documents.certificates.contains_key(&a.name()));
}

#[test]
fn what_is_stored_is_found_again() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("cache");
    let (documents, _) = documents();
    save(&folder, &documents, Changed::default()).expect("nothing to do");
    assert!(!folder.exists());
    let all = Changed { listings: true, certificates: true, documents: true };
    save(&folder, &documents, all).expect("written");
    let found = load(&folder, NOW);
    let keys = |documents: &Documents| {
        let Documents { micro, descriptors, by_relay, certificates, .. } = documents;
        (
            micro.keys().copied().collect::<Vec<_>>(),
            descriptors.keys().copied().collect::<Vec<_>>(),
            by_relay.clone(),
            certificates.keys().copied().collect::<Vec<_>>(),
        )
    };
    assert_eq!(keys(&found), keys(&documents));
    for flavour in [Flavour::Ns, Flavour::Microdesc] {
        let text = |documents: &Documents| documents.listing(flavour).map(|l| l.text.clone());
        assert!(text(&found).is_some() && text(&found) == text(&documents));
    }
    // Damage costs what is damaged, no more.
    for (name, content) in [("cached-consensus", &b"x"[..]), ("cached-microdescs", b"onion-k")] {
        std::fs::write(folder.join(name), content).expect("written");
    }
    let found = load(&folder, NOW);
    assert!(found.ns.is_none() && found.micro.is_empty() && found.microdesc.is_some());
    assert!(load(&parent.path().join("none"), NOW).microdesc.is_none());
}
