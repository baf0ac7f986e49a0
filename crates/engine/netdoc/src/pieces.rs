//! Splits concatenated documents without parsing them, byte by byte as their authors signed them.
//!
//! Each piece contains the part that is hashed to name the document; the caller computes the
//! digest.

use crate::text::{Line, Lines};

/// A document, with the part that its digest covers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece<'a> {
    /// The whole document.
    pub text: &'a [u8],
    /// The part that its digest covers.
    pub digested: &'a [u8],
}

/// The microdescriptors of an answer or a file. Their names are the SHA-256 of the whole text
/// (dir-spec.txt, section 3.3). Text before the first, and annotations, are skipped.
pub fn microdescs(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"onion-key", None)
}

/// The server descriptors of an answer or a file. Their names are the SHA-1 of the part that their
/// RSA signature covers (dir-spec.txt, section 1.3). Descriptors without a signature are skipped.
pub fn server_descriptors(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"router", Some(b"router-signature"))
}

/// The authority certificates of an answer or a file. The digest covers the part that their
/// certification signs (dir-spec.txt, section 3.1).
pub fn authority_certificates(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"dir-key-certificate-version", Some(b"dir-key-certification"))
}

/// The votes or consensuses of a file, such as tor's `v3-status-votes`. The digest is of no use: it covers the whole text
/// here, other than what a signature covers.
pub fn network_statuses(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"network-status-version", None)
}

/// Splits at lines with the keyword `first`. The digest covers everything up to the line with the
/// keyword `signature`, which is required, or else the whole text.
fn cut<'a>(
    bytes: &'a [u8],
    first: &'static [u8],
    signature: Option<&'static [u8]>,
) -> impl Iterator<Item = Piece<'a>> {
    let mut lines = Lines::new(bytes);
    std::iter::from_fn(move || {
        let begins = |line: Line<'_>| line.keyword().0 == first;
        loop {
            while lines.peek().is_some_and(|line| !begins(line)) {
                lines.next();
            }
            let from = lines.position(bytes);
            let mut is_whole = lines.next()?.complete;
            let mut digested = None;
            while let Some(line) = lines.peek().filter(|line| !begins(*line)) {
                // What follows belongs to the next document, or to none.
                if line.bytes.starts_with(b"@") {
                    break;
                }
                lines.next();
                is_whole = line.complete;
                if Some(line.keyword().0) == signature {
                    digested = Some(from..lines.position(bytes));
                }
            }
            let text = &bytes[from..lines.position(bytes)];
            let digested = match (signature, digested) {
                (Some(_), Some(range)) => &bytes[range],
                (Some(_), None) => continue,
                (None, _) => text,
            };
            // A truncated document cannot have the right digest, but may contain a `first` line.
            if is_whole {
                return Some(Piece { text, digested });
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts<'a>(pieces: impl Iterator<Item = Piece<'a>>) -> Vec<(&'a str, &'a str)> {
        let text = |bytes| std::str::from_utf8(bytes).expect("text");
        pieces.map(|piece| (text(piece.text), text(piece.digested))).collect()
    }

    #[test]
    fn documents_are_split_at_their_first_lines() {
        let two =
            b"@last-listed x\nonion-key\nkey\nntor-onion-key a\n@last-listed y\nonion-key\nid b\n";
        let expected = ["onion-key\nkey\nntor-onion-key a\n", "onion-key\nid b\n"];
        assert_eq!(texts(microdescs(two)), expected.map(|text| (text, text)));

        let descriptors =
            b"stray\nrouter a 1.2.3.4\nrouter-signature\n-----BEGIN SIGNATURE-----\nx\n\
            -----END SIGNATURE-----\nrouter b\nno signature\nrouter c\nrouter-signature\ncut";
        let first = "router a 1.2.3.4\nrouter-signature\n";
        let whole = format!("{first}-----BEGIN SIGNATURE-----\nx\n-----END SIGNATURE-----\n");
        assert_eq!(texts(server_descriptors(descriptors)), [(&*whole, first)]);

        let certs = b"dir-key-certificate-version 3\nx\ndir-key-certification\nsig\n";
        let digested = "dir-key-certificate-version 3\nx\ndir-key-certification\n";
        let expected = [(std::str::from_utf8(certs).expect("text"), digested)];
        assert_eq!(texts(authority_certificates(certs)), expected);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_pieces_are_substrings(
            text in "((onion-key|router|router-signature|dir-key-certification|@a|x)[ \n]){0,20}",
        ) {
            for piece in microdescs(text.as_bytes()).chain(server_descriptors(text.as_bytes())) {
                prop_assert!(piece.text.starts_with(piece.digested));
                prop_assert!(piece.text.ends_with(b"\n"));
            }
        }
    }
}
