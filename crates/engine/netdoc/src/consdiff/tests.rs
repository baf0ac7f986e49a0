use super::*;
use proptest::prelude::*;

const MOST: usize = 1 << 20;

/// A consensus of these lines, with signatures by which two of the same content differ.
fn consensus(lines: &[String], signature: &str) -> Vec<u8> {
    let mut text = "network-status-version 3\n".to_owned();
    lines.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    text.push_str("directory-footer\n");
    for _ in 0..2 {
        text.push_str(
            "directory-signature 0123456789ABCDEF0123456789ABCDEF01234567 \
             0123456789ABCDEF0123456789ABCDEF01234567\n",
        );
        text.push_str("-----BEGIN SIGNATURE-----\n");
        text.push_str(signature);
        text.push_str("\n-----END SIGNATURE-----\n");
    }
    text.into_bytes()
}

fn numbered(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    numbers.into_iter().map(|number| format!("r relay{number} {}", number * 7919)).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// Checks the content, except for the digests.
#[test]
fn a_diff_is_the_ed_script_of_c_tor() {
    let from = consensus(&numbered(1..40), "AAAA");
    let mut lines = numbered(1..40);
    lines[9] = "r changed".to_owned();
    lines.remove(20);
    lines.insert(30, "r new".to_owned());
    let to = consensus(&lines, "BBBB");
    let diff = make(&from, &to).expect("of use");
    let diff = text(&diff);
    let digests = [digest_as_signed(&from).expect("signed"), digest_of_all(&to)];
    let digests = digests.map(hex::encode_upper).join(" ");
    // The first signature is line 42.
    let expected = format!(
        "network-status-diff-version 1\nhash {digests}\n42,$d\n41a\n{}.\n32a\nr new\n.\n22d\n\
         11c\nr changed\n.\n",
        text(&to).split_once("directory-footer\n").expect("a footer").1,
    );
    assert_eq!(diff, expected);
    assert_eq!(apply(&from, diff.as_bytes(), MOST), Ok(to));
}

#[test]
fn a_diff_applies_to_the_same_consensus_with_other_signatures() {
    let lines = numbered(1..40);
    let (ours, theirs) = (consensus(&lines, "AAAA"), consensus(&lines, "CCCC"));
    let to = consensus(&numbered(2..41), "BBBB");
    let diff = make(&ours, &to).expect("of use");
    assert_eq!(digest_as_signed(&ours), digest_as_signed(&theirs));
    assert_eq!(apply(&theirs, &diff, MOST), Ok(to.clone()));
    let other = consensus(&numbered(3..41), "AAAA");
    assert_eq!(apply(&other, &diff, MOST), Err(DiffError::OtherBase));
    let most_bytes = to.len() - 1;
    assert_eq!(apply(&ours, &diff, most_bytes), Err(DiffError::TooLong { most_bytes }));
    assert!(is_diff(&diff) && !is_diff(&to));
}

/// A script behind a header that is right for these two.
fn scripted(from: &[u8], to: &[u8], script: &str) -> Vec<u8> {
    let digests = [digest_as_signed(from).expect("signed"), digest_of_all(to)];
    let digests = digests.map(hex::encode_upper).join(" ");
    format!("network-status-diff-version 1\nhash {digests}\n{script}").into_bytes()
}

#[test]
fn diffs_that_c_tor_rejects_are_rejected() {
    let from = consensus(&numbered(1..10), "AAAA");
    let refuse = |script: &str| apply(&from, &scripted(&from, &from, script), MOST).is_err();
    assert!(!refuse("2c\nr relay1 7919\n.\n"), "the unmodified diff is accepted");
    assert!(!refuse("3,4d\n2a\nr relay2 15838\nr relay3 23757\n.\n"));
    for script in [
        "2a\n.\n",
        "2a\nr x\n",
        "2,3a\nr x\n.\n",
        "3,2d\n",
        "2,2d\n",
        "0d\n",
        "2,$c\nx\n.\n",
        "99d\n",
        "2d\n5d\n",
        "2x\n",
        "d\n",
        "\n",
        "+2d\n",
        "2d",
        "1000000000000000000000000d\n",
        "18446744073709551615d\n",
        "18446744073709551614,18446744073709551615d\n",
        "4294967298d\n",
        "2a\nr x\n.\n2,3d\n",
        "5,6d\n4,5d\n",
    ] {
        assert!(refuse(script), "{script:?}");
    }
    assert!(apply(&from, b"network-status-diff-version 2\n", MOST).is_err());
    assert!(apply(&from, b"network-status-diff-version 1\nhash 00 11\n", MOST).is_err());
    assert_eq!(apply(&from, &scripted(&from, &from, "2d\n"), MOST), Err(DiffError::WrongResult));
}

#[test]
fn only_consensuses_have_a_diff() {
    let good = consensus(&numbered(1..40), "AAAA");
    let unsigned = b"network-status-version 3\n";
    let annotated = [b"@type network-status-consensus-3 1.0\n", &good[..]].concat();
    for bad in [&unsigned[..], &annotated, &good[..good.len() - 1]] {
        assert!(make(&good, bad).is_err() && make(bad, &good).is_err());
    }
    let mut lines = numbered(1..40);
    lines[3] = ".".to_owned();
    let dotted = consensus(&lines, "AAAA");
    assert!(matches!(make(&good, &dotted), Err(DiffError::Consensus { which: "new", .. })));
    let other = consensus(&numbered(100..140), "BBBB");
    assert_eq!(make(&good, &other), Err(DiffError::Useless));
}

proptest! {
    /// Any removed, changed and inserted lines.
    #[test]
    fn applying_a_diff_gives_its_target(
        base in prop::collection::vec(0u32..60, 20..120),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..3, 0u32..60), 0..12),
    ) {
        let from = consensus(&numbered(base.iter().copied()), "AAAA");
        let mut lines = base;
        for (at, kind, number) in edits {
            let at = at.index(lines.len());
            match kind {
                0 if lines.len() > 1 => _ = lines.remove(at),
                1 => lines.insert(at, number),
                _ => lines[at] = number,
            }
        }
        let to = consensus(&numbered(lines), "BBBB");
        match make(&from, &to) {
            Ok(diff) => {
                prop_assert_eq!(apply(&from, &diff, to.len()), Ok(to.clone()));
                prop_assert!(diff.len() < to.len());
                // No byte of it may be another, be it of its commands, its lines or its digests.
                let mut altered = diff;
                let at = altered.len() / 2;
                altered[at] ^= 1;
                prop_assert!(apply(&from, &altered, MOST).is_err());
            }
            Err(error) => prop_assert_eq!(error, DiffError::Useless),
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(script in "([0-9]{0,3}(,([0-9]{1,2}|\\$))?[acdx]\n(r x\n\\.\n)?){0,6}") {
        let from = consensus(&numbered(1..30), "AAAA");
        let _ = apply(&from, &scripted(&from, &from, &script), MOST);
        let _ = apply(&from, script.as_bytes(), MOST);
    }
}
