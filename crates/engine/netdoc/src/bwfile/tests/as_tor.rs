use super::*;

const RELAY: &str = "node_id=$0101010101010101010101010101010101010101";

fn check(rest: &str) -> Report {
    check_as_tor(format!("{NOW}\n{rest}").as_bytes(), NOW)
}

/// The verdict on one line after the header.
fn line(text: &str) -> LineVerdict {
    check(&format!("version=1.4.0\n=====\n{text}")).lines.pop().unwrap().1
}

fn reason(text: &str) -> (&'static str, bool) {
    match line(text) {
        LineVerdict::Skipped { reason, warns } => (reason, warns),
        other => panic!("{text:?} is {other:?}"),
    }
}

#[test]
fn tor_accepts_a_generated_file_without_warnings() {
    let text = text(&sample());
    let report = check_as_tor(text.as_bytes(), NOW);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.relays.values().copied().collect::<Vec<_>>(), [2000, 5]);
    assert_eq!(report.headers.lines.len(), 13);
    assert_eq!(report.headers.joined_len, report.headers.lines.join(" ").len());
    assert_eq!(report.skipped().count(), 0);
}

#[test]
fn a_file_is_stale_after_three_days_and_a_second() {
    let text = text(&sample());
    let newest = sample().timestamp;
    let verdict = |age: u64| check_as_tor(text.as_bytes(), newest + age).verdict;
    assert_eq!(verdict(3 * 86_400), FileVerdict::Read);
    assert_eq!(verdict(3 * 86_400 + 1), FileVerdict::Stale { age_s: 3 * 86_400 + 1 });
    assert!(check_as_tor(text.as_bytes(), newest + 300_000).relays.is_empty());
    // Tor doesn't mind a file from the future.
    assert_eq!(check_as_tor(text.as_bytes(), 0).verdict, FileVerdict::Read);
}

#[test]
fn the_first_line_is_a_number_as_strtoul_reads_it() {
    let verdict = |text: &str| check_as_tor(text.as_bytes(), 100).verdict;
    assert_eq!(verdict(""), FileVerdict::Empty);
    for bad in ["100", "\n", "x\n", "100 \n", "100\r\n", "100\0\n", "99999999999999999999\n"] {
        assert_eq!(verdict(bad), FileVerdict::BadTimestamp, "{bad:?}");
    }
    for good in ["100\n", " 100\n", "+100\n", "0100\n"] {
        assert_eq!(verdict(good), FileVerdict::Read, "{good:?}");
    }
    assert!(matches!(verdict("-300000\n"), FileVerdict::Stale { .. }));
}

#[test]
fn tor_skips_broken_relay_lines_and_warns() {
    for (text, expected) in [
        (format!("{RELAY} bw=1 bw=1\n"), "it has bw= twice"),
        (format!("{RELAY} {RELAY} bw=1\n"), "it has node_id= twice"),
        (format!("{RELAY} bw=x\n"), "its bw= isn't a number"),
        (format!("{RELAY} bw=\n"), "its bw= isn't a number"),
        (format!("{RELAY} bw=-1\n"), "its bw= isn't a number"),
        (format!("{RELAY} bw=1x\n"), "its bw= isn't a number"),
        (format!("{RELAY} bw=9223372036854775808\n"), "its bw= isn't a number"),
        (format!("{RELAY}0 bw=1\n"), "its node_id= isn't 40 hex digits"),
        (format!("{RELAY}~nick bw=1\n"), "its node_id= isn't 40 hex digits"),
        (format!("bw=1 {RELAY}\r\n"), "its node_id= isn't 40 hex digits"),
        (format!("{RELAY}\n"), "it has no bw= or no node_id="),
        ("bw=1\n".to_owned(), "it has no bw= or no node_id="),
        ("version=1.4.0\n".to_owned(), "it has no bw= or no node_id="),
        (" \n".to_owned(), "it is empty"),
        ("\n".to_owned(), "it is empty"),
        (format!("{RELAY} bw=1"), "it doesn't end with a newline"),
        (format!("{RELAY} bw=1\0\n"), "it doesn't end with a newline"),
    ] {
        assert_eq!(reason(&text), (expected, true), "{text:?}");
    }
}

#[test]
fn a_warning_is_quoted_as_tor_logs_it() {
    let warnings = |bytes: &[u8]| {
        let report = check_as_tor(bytes, NOW);
        report.warnings.into_iter().map(|warning| (warning.line, warning.text)).collect::<Vec<_>>()
    };
    let file = |line: &[u8]| [format!("{NOW}\nversion=1.4.0\n=====\n").as_bytes(), line].concat();
    let relay = |rest: &[u8]| file(&[RELAY.as_bytes(), rest].concat());
    // What tor 0.4.9.11 logs; `tor_logs_the_warnings_that_the_check_quotes` in the crate `relay` compares them with tor.
    for (bytes, line, expected) in [
        (Vec::new(), 1, "Empty bandwidth file".to_owned()),
        (b"100".to_vec(), 1, r#"Long or truncated time in bandwidth file: "100""#.to_owned()),
        (b"1\r\n".to_vec(), 1, r#"Non-integer time in bandwidth file: "1\r""#.to_owned()),
        (
            format!("{}\n", NOW - 300_000).into_bytes(),
            1,
            "Bandwidth measurement file stale. Age: 300000".to_owned(),
        ),
        (
            relay(b" bw=1e3 x='\"\\\t\x01\xe9\r\n"),
            4,
            format!(
                r#"Invalid bandwidth in bandwidth file line: "{RELAY} bw=1e3 x=\'\"\\\t\001\351\r\n""#
            ),
        ),
        (relay(b" bw=1"), 4, format!(r#"Incomplete line in bandwidth file: "{RELAY} bw=1""#)),
        (file(b"\n"), 4, r#"Invalid line in bandwidth file: "\n""#.to_owned()),
        (file(b"\0x\n"), 4, "Empty line in bandwidth file".to_owned()),
    ] {
        assert_eq!(warnings(&bytes), [(line, expected)]);
    }
    assert_eq!(warnings(&relay(b" bw=1\n")), []);
}

#[test]
fn tor_silently_skips_lines_without_a_vote() {
    for text in ["bw=1 vote=0", "vote=0 bw=1 bw=1", "vote=01", "bw=1 unmeasured=1 vote=0"] {
        assert_eq!(reason(&format!("{RELAY} {text}\n")), ("vote=0", false), "{text:?}");
    }
    // It parses from left to right, and warns about some lines before that.
    assert_eq!(reason(&format!("{RELAY} bw=x vote=0\n")).0, "its bw= isn't a number");
}

#[test]
fn tor_accepts_what_strtol_accepts() {
    for (bw, expected) in
        [("0", 0), ("+7", 7), ("-0", 0), ("007", 7), ("7\r", 7), ("4294967297", 1)]
    {
        let LineVerdict::Relay { bw_kb_s, .. } = line(&format!("{RELAY} bw={bw}\n")) else {
            panic!("{bw}")
        };
        assert_eq!(bw_kb_s, expected, "{bw}");
    }
    let plain = RELAY.replace('$', "").to_lowercase().replace("NODE_ID", "node_id");
    assert!(matches!(line(&format!("\t{plain}\t bw=1\n")), LineVerdict::Relay { .. }));
    assert!(matches!(line(&format!("{RELAY} bw=1 vote=1\n")), LineVerdict::Relay { .. }));
}

#[test]
fn the_later_of_two_lines_for_a_relay_gets_the_vote() {
    let report = check(&format!("=====\n{RELAY} bw=1\n{RELAY} bw=2\n"));
    assert_eq!(report.relays.values().copied().collect::<Vec<_>>(), [2]);
    assert!(!report.is_clean());
}

#[test]
fn the_first_accepted_relay_ends_a_header_without_terminator() {
    let report = check(&format!(
        "a=1\n====\n{RELAY} bw=1 vote=0\nb=2\n{RELAY} bw=1\nc=3\n{RELAY} bw=5 vote=0\n"
    ));
    assert!(!report.has_terminator);
    assert_eq!(report.headers.lines[1..], ["a=1", "b=2"]);
    let reasons: Vec<_> = report.skipped().collect();
    assert_eq!(
        reasons,
        [
            (3, "as a header line, it isn't key=value"),
            (4, "vote=0"),
            (7, "it has no bw= or no node_id="),
            (8, "vote=0"),
        ]
    );
}

#[test]
fn a_vote_has_50_header_lines_without_spaces() {
    let many: String = (0..60).map(|n| format!("k{n}=v\n")).collect();
    let report = check(&format!("a=with space\n{many}=====\n"));
    assert_eq!(report.headers.lines.len(), 50);
    assert_eq!(report.headers.lines[1], "k0=v");
    let reasons: Vec<_> = report.skipped().collect();
    assert_eq!(reasons[0], (2, "as a header line, it has a space"));
    assert_eq!((reasons.len(), reasons[1].1), (12, "the vote has its 50 header lines already"));
    assert!(report.is_clean(), "none of it is worth a warning");
}

#[test]
fn headers_over_1024_bytes_are_missing_from_the_vote() {
    let timestamp = format!("timestamp={NOW} ").len();
    for (len, too_long) in [(1024, false), (1025, true)] {
        let report = check(&format!("k={}\n=====\n", "v".repeat(len - timestamp - 2)));
        assert_eq!((report.headers.joined_len, report.headers.too_long), (len, too_long));
        assert_eq!(report.is_clean(), !too_long);
    }
}

#[test]
fn an_overflowing_bandwidth_invalidates_the_whole_vote() {
    for (bw, breaks) in
        [(i32::MAX as u64, false), (1 << 31, true), ((1 << 32) + 5, false), (i64::MAX as u64, true)]
    {
        let report = check(&format!("version=1.4.0\n=====\n{RELAY} bw={bw}\n"));
        assert_eq!(
            (report.breaks_vote().next().is_some(), report.is_clean()),
            (breaks, !breaks),
            "{bw}"
        );
    }
}
