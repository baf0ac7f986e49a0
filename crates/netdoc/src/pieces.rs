//! Documents as a directory keeps them: cut apart, byte by byte as their authors signed them, and not
//! read any further.
//!
//! What is hashed to name a document is part of it; the digest is left to the caller.

use crate::text::{Line, Lines};

/// A document, and its part of which the digest is its name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece<'a> {
    /// The whole document.
    pub text: &'a [u8],
    /// What its digest is of.
    pub digested: &'a [u8],
}

/// The microdescriptors of an answer or a file, one by one; their names are the SHA-256 of them whole
/// (dir-spec.txt, section 3.3). What comes before the first is left out, and so are annotations.
pub fn microdescs(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"onion-key", None)
}

/// The server descriptors of an answer or a file, one by one; their names are the SHA-1 of what their
/// RSA signature covers (dir-spec.txt, section 1.3). One without a signature is left out.
pub fn server_descriptors(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"router", Some(b"router-signature"))
}

/// The certificates of authorities in an answer or a file, one by one. The digest is that which their
/// certification signs (dir-spec.txt, section 3.1).
pub fn authority_certificates(bytes: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    cut(bytes, b"dir-key-certificate-version", Some(b"dir-key-certification"))
}

/// Cuts at lines that begin with the keyword `first`. The digest is of everything up to the line with
/// the keyword `signature`, which must be there, or of all.
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
                // What follows is the next one's, or nobody's.
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
            // What is cut in the middle can't have the right digest, but may look like a beginning.
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
    fn documents_are_cut_apart_at_their_first_lines() {
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
        fn no_bytes_make_it_panic_and_pieces_are_parts(
            text in "((onion-key|router|router-signature|dir-key-certification|@a|x)[ \n]){0,20}",
        ) {
            for piece in microdescs(text.as_bytes()).chain(server_descriptors(text.as_bytes())) {
                prop_assert!(piece.text.starts_with(piece.digested));
                prop_assert!(piece.text.ends_with(b"\n"));
            }
        }
    }
}
