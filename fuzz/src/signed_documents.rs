use netdoc::pieces::microdescs;
use netdoc::signed::{certificates, consensus_signatures};
use netdoc::{Consensus, Microdesc, microdesc};

/// Documents that authorities sign and directories serve. Text after the signed part of a consensus or certificate has
/// no effect, since the directory could have written it. Microdescriptors are parsed within their bounds.
pub fn signed_documents(data: &[u8]) {
    signed_consensus(data);
    for certificate in certificates(data) {
        assert!(certificate.text.starts_with(certificate.signed));
        assert_eq!(
            certificates(certificate.text).collect::<Vec<_>>(),
            std::slice::from_ref(&certificate)
        );
        let more = b"dir-signing-key\n-----BEGIN X-----\n////\n-----END X-----\nfingerprint x\n";
        let longer = [certificate.text, more].concat();
        assert_eq!(certificates(&longer).next(), Some(certificate));
    }
    for piece in microdescs(data) {
        if let Ok(read) = Microdesc::parse(piece.text) {
            assert!(piece.text.len() <= microdesc::LEN_MAX);
            assert!(read.family.is_sorted() && read.family_ids.is_sorted());
            assert!(read.family.len() + read.family_ids.len() <= piece.text.len());
        }
    }
}

fn signed_consensus(data: &[u8]) {
    let read = Consensus::parse(data);
    let Some((signed, signatures)) = consensus_signatures(data) else {
        assert!(read.is_err(), "nothing is signed");
        return;
    };
    assert!(signatures.len() <= data.len() / 80, "each has two names");
    let Ok(read) = read else { return };
    let name = "A".repeat(40);
    let signature =
        format!("{name} {name}\n-----BEGIN SIGNATURE-----\nAA==\n-----END SIGNATURE-----\n");
    let again = Consensus::parse(&[signed, signature.as_bytes()].concat());
    let mut again = again.expect("all but the signature is the same");
    again.signatures = read.signatures;
    assert_eq!(again, read);
}

/// Documents of authorities, and text appended to them.
pub(crate) fn signed_document_seeds() -> Vec<crate::Seed> {
    let consensus = include_bytes!("../../crates/engine/netdoc/tests/data/consensus-microdesc");
    let microdescs = include_bytes!("../../crates/engine/netdoc/tests/data/microdescs");
    let object = |kind: &str| format!("-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n");
    let (key, signature) = (object("RSA PUBLIC KEY"), object("SIGNATURE"));
    let certificate = format!(
        "dir-key-certificate-version 3\nfingerprint {}\ndir-key-published 2023-01-01 00:00:00\n\
         dir-key-expires 2100-01-01 00:00:00\ndir-identity-key\n{key}dir-signing-key\n{key}\
         dir-key-certification\n{signature}",
        "A".repeat(40)
    );
    let behind = format!("{certificate}dir-signing-key\n{key}");
    let weights = b"bandwidth-weights Wgg=0\n";
    vec![
        ("signed_documents", "consensus", consensus.to_vec()),
        ("signed_documents", "consensus-and-more", [&consensus[..], weights].concat()),
        ("signed_documents", "microdescs", microdescs.to_vec()),
        ("signed_documents", "certificates", certificate.repeat(2).into_bytes()),
        ("signed_documents", "certificate-and-more", behind.into_bytes()),
    ]
}
