use crate::input::Input;
use netdoc::consdiff;

/// More bytes than any of these texts has.
const MOST: usize = 1 << 20;

/// The first line chooses. With `make`, the text before and after a line of `=` are two lists of lines of two
/// consensuses: the difference turns one into the other. Otherwise it is a script for the first of them, with a
/// correct header: its result is the second or an error. And any bytes may be a difference.
pub fn consdiff(data: &[u8]) {
    let mut input = Input::new(data);
    let is_make = input.bool();
    let text = input.rest();
    let cut = text.windows(3).position(|window| window == b"\n=\n").unwrap_or(text.len());
    let (first, rest) = text.split_at(cut);
    let (from, to) = (consensus(first, "AAAA"), consensus(rest.get(3..).unwrap_or_default(), "B"));
    let _ = consdiff::apply(&from, text, MOST);
    if is_make {
        if let Ok(diff) = consdiff::make(&from, &to) {
            assert!(consdiff::is_diff(&diff) && diff.len() < to.len());
            assert_eq!(consdiff::apply(&from, &diff, to.len()).as_ref(), Ok(&to));
            assert!(consdiff::apply(&from, &diff, to.len() - 1).is_err());
        }
        return;
    }
    let Some(digest) = consdiff::digest_as_signed(&from) else { return };
    let digests = [digest, consdiff::digest_of_all(&to)].map(hex);
    let header = format!("network-status-diff-version 1\nhash {}\n", digests.join(" "));
    let script = rest.get(3..).unwrap_or_default();
    let diff = [header.as_bytes(), script, b"\n"].concat();
    if let Ok(made) = consdiff::apply(&from, &diff, MOST) {
        assert_eq!(made, to);
    }
}

fn hex(digest: consdiff::ConsensusDigest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn consensus(lines: &[u8], signature: &str) -> Vec<u8> {
    let footer = format!(
        "\ndirectory-footer\ndirectory-signature {0} {0}\n-----BEGIN SIGNATURE-----\n{signature}\n\
         -----END SIGNATURE-----\n",
        "0123456789ABCDEF0123456789ABCDEF01234567"
    );
    [b"network-status-version 3\n", lines, footer.as_bytes()].concat()
}
