use proptest::prelude::*;

use super::*;

#[test]
fn node_ids_have_a_dollar_unless_asked_otherwise() {
    let file = sample();
    assert!(text(&file).contains(&format!("node_id=${} ", id(1))));
    let plain = file.to_text(NodeIdStyle::Plain).unwrap();
    assert!(plain.contains(&format!("node_id={} ", id(1))) && !plain.contains('$'));
    assert_eq!(BandwidthFile::parse(plain.as_bytes()).unwrap().file, file);
}

#[test]
fn a_file_from_sbws_is_read() {
    let bytes = include_bytes!("../../../tests/data/bandwidth-1.4.0");
    let Parsed { file, skipped } = BandwidthFile::parse(bytes).unwrap();
    assert_eq!(skipped, []);
    assert_eq!(file.header.software.as_deref(), Some("sbws"));
    assert_eq!(file.header.latest_bandwidth, Some(file.timestamp));
    assert_eq!(file.header.other, [("scanner_country".to_owned(), "ZZ".to_owned())]);
    let [first, second] = &file.relays[..] else { panic!("{file:?}") };
    assert_eq!((first.bw_kb_s, first.time, first.vote), (1200, Some(file.timestamp), true));
    assert_eq!(first.master_key_ed25519, Some(Ed25519Id([0xaa; 32])));
    assert_eq!(first.extra, [("error_circ".to_owned(), "0".to_owned())]);
    assert_eq!((second.bw_kb_s, second.unmeasured, second.vote), (1, true, false));
}

#[test]
fn old_files_without_header_or_with_a_short_terminator_are_read() {
    let relay = format!("node_id=${} bw=760 nick=Test scanner=/path\n", id(1));
    for header in ["", "version=1.1.0\n====\n", "version=1.1.0\n=====\n"] {
        let text = format!("1523911758\n{header}{relay}");
        let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
        assert_eq!((parsed.file.relays.len(), &parsed.skipped[..]), (1, &[][..]), "{header}");
    }
}

#[test]
fn a_file_without_a_timestamp_is_rejected() {
    assert_eq!(BandwidthFile::parse(b"").unwrap_err(), ReadError::Empty);
    for bad in ["1523911758", "version=1.4.0\n", "-5\n", "\n"] {
        let error = BandwidthFile::parse(bad.as_bytes()).unwrap_err();
        assert!(matches!(error, ReadError::BadTimestamp { .. }), "{bad:?}");
    }
}

#[test]
fn malformed_lines_are_skipped_and_reported_with_their_numbers() {
    let (a, b) = (id(1), id(2));
    let cases = [
        (format!("node_id=${a} bw=1 bw=2"), "bw: given twice"),
        (format!("node_id=${a} node_id=${b} bw=2"), "node_id: given twice"),
        (format!("node_id=${a} bw=fast"), "bw: expected a number"),
        (format!("node_id=${a}~nick bw=5"), "node_id: expected 40 hex digits"),
        (format!("node_id=${a}"), "without `bw`"),
        ("bw=5 nick=x".to_owned(), "without `node_id`"),
        (String::new(), "without `node_id`"),
        (format!("node_id=${b} bw=7 vote=0"), "a second line for relay"),
        (format!("node_id=${a} bw=7 nick=a\0"), "NUL"),
        (format!("node_id=${} bw=5 nick=no-name", id(3)), "nick: expected a nickname"),
    ];
    for (line, expected) in cases {
        let text = format!("1\nversion=1.4.0\n=====\nnode_id=${b} bw=3\n{line}\n");
        let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
        assert_eq!(parsed.file.relays[0].bw_kb_s, 3);
        assert!(parsed.skipped[0].reason.contains(expected), "{line}: {:?}", parsed.skipped);
        assert_eq!(parsed.skipped[0].line, 5);
    }
    let text = "1\nsoftware=x\nversion=1.4.0\nfile_created=now\nno value\n=====\nnode_id=x";
    let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.skipped.iter().map(|s| s.line).collect::<Vec<_>>(), [3, 4, 5, 7]);
}

#[test]
fn a_file_that_readers_would_misunderstand_is_not_written() {
    let refused = |change: fn(&mut BandwidthFile)| {
        let mut file = sample();
        change(&mut file);
        file.to_text(NodeIdStyle::Dollar).unwrap_err()
    };
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert!(matches!(refused(|f| f.relays[0].bw_kb_s = 0), RenderError::ZeroBandwidth { .. }));
    let huge = refused(|f| f.relays[0].bw_kb_s = 1 << 63);
    assert!(matches!(huge, RenderError::HugeBandwidth { .. }), "{huge}");
    assert!(matches!(refused(|f| f.timestamp += 1), RenderError::LatestDiffers { .. }));
    let bad = [("a b", "c"), ("a", "b c"), ("a", ""), ("", "b"), ("a", "é"), ("a", "b\n")];
    for (key, value) in bad {
        let mut file = sample();
        file.relays[0].extra = vec![pair(key, value)];
        let error = file.to_text(NodeIdStyle::Dollar).unwrap_err();
        assert!(matches!(error, RenderError::BadPair { .. }), "{key}={value}");
    }
    for key in ["bw", "vote", "version", "twice"] {
        let mut file = sample();
        file.relays[0].extra = vec![pair("twice", "1"), pair(key, "1")];
        let error = file.to_text(NodeIdStyle::Dollar).unwrap_err();
        assert_eq!(error, RenderError::ReservedKey { key: key.to_owned() });
    }
    let long = |f: &mut BandwidthFile| f.relays[0].extra = vec![("a".into(), "b".repeat(1000))];
    assert!(matches!(refused(long), RenderError::LineTooLong { .. }));
}

#[test]
fn a_header_is_written_up_to_the_limits_of_a_vote_and_no_further() {
    let mut file = sample();
    let mut fits = 0;
    for n in 0.. {
        let more = ("k".to_owned() + &n.to_string(), "v".repeat(14));
        file.header.other.push(more);
        match file.to_text(NodeIdStyle::Dollar) {
            Ok(text) => {
                fits += 1;
                assert!(check_as_tor(text.as_bytes(), NOW).is_clean());
            }
            Err(error) => {
                assert!(matches!(error, RenderError::HeaderTooLong { .. }), "{error}");
                break;
            }
        }
    }
    assert!(fits > 10);
}

fn arbitrary_time() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(0u64..253_402_207_200)
}

fn arbitrary_pairs() -> impl Strategy<Value = Vec<(String, String)>> {
    // The prefix keeps clear of the format's own keys, the map of repeated ones.
    prop::collection::btree_map("x_[a-z0-9_-]{0,10}", "[!-~]{1,12}", 0..5)
        .prop_map(|pairs| pairs.into_iter().collect())
}

prop_compose! {
    fn arbitrary_relay()(
        n: [u8; 20],
        ed in prop::option::of(any::<[u8; 32]>()),
        nick in prop::option::of("[a-zA-Z0-9]{1,19}"),
        bw_kb_s in 1u64..1 << 63,
        time in arbitrary_time(),
        flags: (bool, bool, bool),
        extra in arbitrary_pairs(),
    ) -> RelayLine {
        RelayLine {
            node_id: RsaId(n),
            bw_kb_s,
            nick: nick.map(|nick| nick.parse().unwrap()),
            master_key_ed25519: ed.map(Ed25519Id),
            time,
            unmeasured: flags.0,
            under_min_report: flags.1,
            vote: flags.2,
            extra,
        }
    }
}

prop_compose! {
    fn arbitrary_file()(
        timestamp in 0u64..253_402_207_200,
        software in prop::option::of("[!-~]{1,10}"),
        version in prop::option::of("[0-9.]{1,8}"),
        times in (arbitrary_time(), arbitrary_time(), any::<bool>()),
        numbers: [Option<u64>; 3],
        other in arbitrary_pairs(),
        relays in prop::collection::vec(arbitrary_relay(), 0..6),
    ) -> BandwidthFile {
        let header = Header {
            version,
            software,
            file_created: times.0,
            earliest_bandwidth: times.1,
            latest_bandwidth: times.2.then_some(timestamp),
            number_eligible_relays: numbers[0],
            percent_eligible_relays: numbers[1],
            minimum_percent_eligible_relays: numbers[2],
            other,
            ..Header::default()
        };
        BandwidthFile { timestamp, header, relays }
    }
}

proptest! {
    #[test]
    fn a_file_survives_a_round_trip(file in arbitrary_file(), plain: bool) {
        let style = if plain { NodeIdStyle::Plain } else { NodeIdStyle::Dollar };
        let text = file.to_text(style).unwrap();
        let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
        prop_assert_eq!(parsed.skipped, []);
        prop_assert_eq!(parsed.file, file);
    }

    #[test]
    fn tor_takes_exactly_the_lines_with_a_vote(file in arbitrary_file()) {
        let text = file.to_text(NodeIdStyle::Dollar).unwrap();
        let report = check_as_tor(text.as_bytes(), file.timestamp);
        let votes = file.relays.iter().filter(|relay| relay.vote);
        prop_assert_eq!(report.relays.len(), votes.count());
        prop_assert!(report.has_terminator && !report.headers.too_long);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>, now: u64, good_start: bool) {
        let mut text = if good_start { b"1\nversion=1.4.0\n=====\n".to_vec() } else { Vec::new() };
        text.extend(bytes);
        let _ = BandwidthFile::parse(&text);
        let _ = check_as_tor(&text, now);
    }

    #[test]
    fn damaged_files_never_panic(file in arbitrary_file(), at: usize, byte: u8) {
        let mut bytes = file.to_text(NodeIdStyle::Dollar).unwrap().into_bytes();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = BandwidthFile::parse(&bytes);
        let report = check_as_tor(&bytes, file.timestamp);
        prop_assert!(report.lines.len() <= bytes.len());
    }
}
