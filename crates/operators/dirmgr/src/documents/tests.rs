use super::disk::{StaleFiles, load, save};
use super::*;
use crate::fixture::{DESCRIPTORS, NOW, NS, authorities, documents};

#[test]
fn only_documents_with_requested_digests_are_accepted() {
    let text = b"onion-key\nrequested\nonion-key\nnot requested\n";
    let wanted = BTreeSet::from([Sha256::digest("onion-key\nrequested\n").into()]);
    let mut documents = Documents::default();
    assert_eq!(documents.put_micro(NOW, text, Wanted::These(&wanted)), 1);
    assert_eq!(documents.put_micro(NOW, text, Wanted::These(&wanted)), 0, "known already");
    let kept: Vec<_> = documents.micro.values().map(|kept| &kept.text[..]).collect();
    assert_eq!(kept, [b"onion-key\nrequested\n"]);
    assert_eq!(documents.put_descriptors(NOW, DESCRIPTORS, Wanted::These(&BTreeSet::new())), 0);
    let too_long = format!("onion-key\n{}\n", "x".repeat(DOCUMENT_MAX));
    assert_eq!(documents.put_micro(NOW, too_long.as_bytes(), Wanted::All), 0);
}

#[test]
fn documents_that_no_consensus_lists_are_dropped_after_a_week() {
    let (mut documents, micro) = documents();
    let missing = documents.missing_micro();
    let listed = documents.microdesc.as_ref().expect("there").content.routers().len();
    assert_eq!(missing.len(), listed, "the two microdescriptors are of unlisted relays");
    let week = NOW + UNLISTED_MAX_S;
    let again = |documents: &mut Documents, now| {
        let consensus = CachedConsensus::parse(NS.to_vec(), Flavour::Ns).expect("a consensus");
        documents.put_consensus(now, consensus);
    };
    again(&mut documents, week - 1);
    assert!(micro.iter().all(|digest| documents.micro.contains_key(digest)));
    let named = documents.missing_descriptors().len();
    again(&mut documents, week);
    assert!(documents.micro.is_empty());
    assert_eq!(documents.missing_descriptors().len(), named, "listed descriptors are kept");
    assert!(documents.by_relay.values().all(|d| documents.descriptors.contains_key(d)));
}

#[test]
fn a_certificate_must_be_signed_by_its_identity_key_and_not_have_expired() {
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
    // A second signing key after the signature: its author could sign consensuses.
    let (_, keys_b) = of_b.split_once("dir-signing-key").expect("it has one");
    let (key_b, _) = keys_b.split_once("dir-key-certification").expect("signed");
    let longer = format!("{of_a}dir-signing-key{key_b}");
    for text in [&longer, of_a] {
        documents.put_certificates(NOW, text.as_bytes(), Wanted::All);
        assert_eq!(documents.certificates.keys().copied().collect::<Vec<_>>(), [a.name()]);
        assert_eq!(documents.certificates[&a.name()].text, of_a.as_bytes());
    }
    documents.put_certificates(5_000_000_000, of_b.as_bytes(), Wanted::All);
    assert!(documents.certificates.is_empty(), "both have expired");
}

#[test]
fn certificates_of_unknown_authorities_do_not_displace_requested_ones() {
    let [a, b, _] = authorities();
    let mut documents = Documents::default();
    // Certificates of unknown authorities from disk, up to the limit.
    documents.put_certificates(NOW, b.certificate.as_bytes(), Wanted::All);
    let unknown = documents.certificates.values().next().expect("accepted").clone();
    for number in 0..u32::try_from(CERTIFICATES_MAX).expect("few") {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&number.to_be_bytes());
        let identity = RsaId(name);
        let other = Certificate { identity, ..unknown.clone() };
        documents.certificates.insert((identity, unknown.signing_key), other);
    }
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    assert!(!documents.certificates.contains_key(&a.name()), "the limit for unknown authorities");
    let of_b = BTreeSet::from([b.name().0]);
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::These(&of_b));
    assert!(!documents.certificates.contains_key(&a.name()), "it is not requested");
    let of_a = BTreeSet::from([a.name().0]);
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::These(&of_a));
    assert!(documents.certificates.contains_key(&a.name()), "no limit for requested ones");
}

#[test]
fn the_latest_certificates_of_an_authority_are_kept() {
    let [a, _, _] = authorities();
    let mut documents = Documents::default();
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    let first = documents.certificates.values().next().expect("accepted").clone();
    for number in 1..=2 * CERTIFICATES_OF_ONE_MAX as u64 {
        let signing_key = RsaId([u8::try_from(number).expect("few"); 20]);
        let other =
            Certificate { signing_key, published: first.published - number, ..first.clone() };
        documents.certificates.insert((first.identity, signing_key), other);
    }
    documents.put_certificates(NOW, a.certificate.as_bytes(), Wanted::All);
    let kept: Vec<_> = documents
        .certificates
        .values()
        .map(|certificate| first.published - certificate.published)
        .collect();
    assert_eq!(kept.len(), CERTIFICATES_OF_ONE_MAX);
    assert!(kept.iter().all(|age| *age < CERTIFICATES_OF_ONE_MAX as u64), "{kept:?}");
    assert!(documents.certificates.contains_key(&a.name()));
}

#[test]
fn stored_documents_are_loaded_again() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("cache");
    let (documents, _) = documents();
    save(&folder, &documents, StaleFiles::default()).expect("nothing is stale");
    assert!(!folder.exists());
    let all = StaleFiles { consensuses: true, certificates: true, documents: true };
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
        let text = |documents: &Documents| documents.consensus(flavour).map(|l| l.text.clone());
        assert!(text(&found).is_some() && text(&found) == text(&documents));
    }
    // A damaged file does not affect the others.
    for (name, content) in [("cached-consensus", &b"x"[..]), ("cached-microdescs", b"onion-k")] {
        std::fs::write(folder.join(name), content).expect("written");
    }
    let found = load(&folder, NOW);
    assert!(found.ns.is_none() && found.micro.is_empty() && found.microdesc.is_some());
    assert!(load(&parent.path().join("none"), NOW).microdesc.is_none());
}
