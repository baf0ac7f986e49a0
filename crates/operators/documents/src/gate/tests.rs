#![expect(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use super::*;
use netdoc::bwfile::{BandwidthFile, Header, NodeIdStyle, RelayLine};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const NOW: u64 = 1_800_000_000;
const RELAYS: usize = 240;
const GEOIP: &str = "10.0.0.0,10.0.255.255,AT\n10.1.0.0,10.1.255.255,BR\n10.2.0.0,10.2.255.255,CA\n10.3.0.0,10.3.255.255,DE\n";

/// A file that passes all checks, with all that it is compared with. Relay 0 is the largest.
struct World {
    file: BandwidthFile,
    previous: BandwidthFile,
    others: Option<Others>,
    round_trips_ms: BTreeMap<RsaId, f64>,
    limits: Limits,
    places: Vec<Result<Place, UnreadPlace>>,
    now_unix_s: u64,
    /// Lines that are appended.
    more: String,
    has_previous: bool,
}

fn relay(place: usize) -> RsaId {
    let mut bytes = [7; 20];
    bytes[..8].copy_from_slice(&(place as u64).to_be_bytes());
    RsaId(bytes)
}

/// Two relays in each network, networks in four countries.
fn address(place: usize) -> Ipv4Addr {
    let network = place / 2;
    Ipv4Addr::new(10, (network % 4) as u8, (network / 4) as u8, (place % 2) as u8 + 1)
}

/// From 60 MB/s downwards.
fn kb_s(place: usize) -> u64 {
    (60_000.0 * 0.98_f64.powi(place as i32)) as u64
}

impl World {
    fn new() -> Self {
        let line = |place: usize| {
            let extra = [("flashflow_mode", "transit"), ("flashflow_conclusive", "1")];
            let extra = extra.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
            let line = RelayLine::new(relay(place), kb_s(place));
            RelayLine { time: Some(NOW - 600), extra, ..line }
        };
        let header = Header {
            version: Some("1.9.0".to_owned()),
            number_consensus_relays: Some(RELAYS as u64),
            ..Header::default()
        };
        let relays = (0..RELAYS).map(line).collect();
        let file = BandwidthFile { timestamp: NOW - 600, header, relays };
        // Others differ by up to a fifth, regardless of location.
        let theirs =
            |place: usize| kb_s(place) as f64 * (0.8 + 0.4 * ((place * 37 % 41) as f64 / 40.0));
        let others = Others {
            source: "the votes of one, two".to_owned(),
            medians_kb_s: (0..RELAYS).map(|place| (relay(place), theirs(place) as u32)).collect(),
            measured: vec![RELAYS as u64; 2],
            measurable: (0..RELAYS).map(|place| (relay(place), address(place))).collect(),
        };
        let ms = |place: usize| (place / 2 * 53 % 120) as f64;
        Self {
            previous: file.clone(),
            file,
            others: Some(others),
            round_trips_ms: (0..RELAYS).map(|place| (relay(place), ms(place))).collect(),
            limits: Limits::default(),
            places: Vec::new(),
            now_unix_s: NOW,
            more: String::new(),
            has_previous: true,
        }
    }

    fn outcome(&self) -> Outcome {
        let text = |file: &BandwidthFile| file.to_text(NodeIdStyle::Dollar).expect("a valid file");
        let (file, previous) = (text(&self.file) + &self.more, text(&self.previous));
        let countries = Countries::parse(GEOIP).expect("a table");
        let with = Comparison {
            previous: self.has_previous.then_some(previous.as_bytes()),
            consensus: None,
            others: self.others.as_ref(),
            round_trips_ms: Some(&self.round_trips_ms),
            countries: Some(&countries),
            places: &self.places,
        };
        judge(file.as_bytes(), self.now_unix_s, with, &self.limits)
    }

    /// Multiplies the weights of some relays, in both files if it is not to be a change.
    fn scale(&mut self, factor: f64, in_both: bool, which: impl Fn(usize) -> bool) {
        let files = [Some(&mut self.file), in_both.then_some(&mut self.previous)];
        for file in files.into_iter().flatten() {
            for (place, line) in
                file.relays.iter_mut().enumerate().filter(|(place, _)| which(*place))
            {
                line.bw_kb_s = (kb_s(place) as f64 * factor) as u64;
            }
        }
    }

    fn others(&mut self) -> &mut Others {
        self.others.as_mut().expect("there from the beginning")
    }

    /// Adds the file of another place, with these weights in KB/s.
    fn add_place(&mut self, name: &str, kb_s: impl Fn(usize) -> u64) {
        let relays =
            (0..RELAYS).map(|place| RelayLine::new(relay(place), kb_s(place).max(1))).collect();
        let file = BandwidthFile { timestamp: NOW - 600, header: Header::default(), relays };
        let bytes = file.to_text(NodeIdStyle::Dollar).expect("a valid file").into_bytes();
        let (name, path) = (name.to_owned(), name.into());
        self.places.push(Ok(Place { name, path, bytes, file }));
    }

    /// Keeps the votes on this number of relays in both files.
    fn keep(&mut self, count: usize) {
        for file in [&mut self.file, &mut self.previous] {
            for line in file.relays.iter_mut().skip(count) {
                (line.vote, line.unmeasured) = (false, true);
                line.extra = vec![("error".to_owned(), "busy,_retry_in_17_s".to_owned())];
            }
        }
    }
}

fn failed(outcome: &Outcome) -> Vec<CheckName> {
    outcome.failed().map(|check| check.check).collect()
}

#[test]
fn a_good_file_passes_all_checks() {
    let outcome = World::new().outcome();
    assert_eq!(
        (failed(&outcome), outcome.not_checked(), outcome.passed),
        (vec![], 0, true),
        "{outcome:#?}"
    );
    assert_eq!(outcome.checks.len(), 15);
    let text = serde_json::to_string(&outcome).expect("JSON");
    assert_eq!(serde_json::from_str::<Outcome>(&text).expect("what was written"), outcome);
}

/// Breaks a good file so that one check fails.
type Break = fn(&mut World);

#[test]
fn each_limit_fails_alone_if_it_alone_is_violated() {
    let cases: [(CheckName, Break); 18] = [
        (CheckName::BadLines, |world| world.more = "node_id=$12 bw=5\n".to_owned()),
        (CheckName::Age, |world| world.now_unix_s += 36 * 3600),
        (CheckName::Age, |world| world.now_unix_s -= 3600),
        (CheckName::Measured, |world| {
            world.keep(RELAYS * 55 / 100);
            world.others = None;
        }),
        (CheckName::Compared, |world| world.others().measured = vec![300, 200, 280]),
        (CheckName::Missing, |world| {
            world.keep(RELAYS * 85 / 100);
            world.others().measured = vec![RELAYS as u64 * 85 / 100];
        }),
        (CheckName::TotalFall, |world| world.scale(0.79, false, |_| true)),
        (CheckName::TotalRise, |world| world.scale(1.27, false, |_| true)),
        (CheckName::Scale, |world| world.scale(8.0, true, |_| true)),
        (CheckName::Deviating, |world| world.scale(0.25, true, |place| place % 10 < 6)),
        (CheckName::LargestShare, |world| {
            world.scale(3.0, true, |place| place == 0);
        }),
        (CheckName::LargeLosses, |world| {
            world.scale(0.6, false, |place| (10..18).contains(&place));
        }),
        (CheckName::LargeGains, |world| world.scale(1.6, false, |place| (10..18).contains(&place))),
        (CheckName::LowerBounds, |world| {
            for line in &mut world.file.relays[..15] {
                line.extra[1].1 = "0".to_owned();
                line.extra.push((crate::CAUSE.to_owned(), "team_too_small".to_owned()));
            }
        }),
        (CheckName::BiasByDistance, |world| {
            let far = world.round_trips_ms.clone();
            world.scale(0.6, true, |place| far[&relay(place)] >= 96.0);
        }),
        (CheckName::BiasByCountry, |world| world.scale(0.6, true, |place| place / 2 % 4 == 2)),
        (CheckName::PlaceRatio, |world| world.add_place("FR", |place| kb_s(place) * 13 / 10)),
        (CheckName::PlaceDeviating, |world| {
            world.add_place("FR", |place| kb_s(place) * if place % 8 == 0 { 3 } else { 1 });
        }),
    ];
    for (name, break_it) in cases {
        let mut world = World::new();
        break_it(&mut world);
        let outcome = world.outcome();
        assert_eq!(failed(&outcome), [name], "{outcome:#?}");
        assert!(!outcome.passed);
        let check = outcome.failed().next().expect("one");
        assert!(check.what.contains(". "), "what to do: {}", check.what);
        // The operator can allow it.
        let mut limits = serde_json::to_value(world.limits).expect("numbers");
        if check.figure.is_some_and(|figure| figure >= 0.0) {
            limits[&check.limit_name] = check.figure.into();
            world.limits = serde_json::from_value(limits).expect("numbers");
            assert_eq!(failed(&world.outcome()), [], "{name:?} at its limit");
        }
    }
}

#[test]
fn bad_lines_are_those_that_tor_or_the_specification_refuses() {
    let bad = |more: &str| {
        let mut world = World::new();
        world.more = more.to_owned();
        let outcome = world.outcome();
        outcome.checks[0].figure
    };
    let (known, unknown) = (relay(0), relay(RELAYS));
    for (more, expected) in [
        (String::new(), 0.0),
        (format!("node_id=${unknown} bw=5 vote=0\n"), 0.0),
        (format!("node_id=${known} bw=60000\n"), 1.0),
        (format!("node_id=${unknown} bw=0\n"), 1.0),
        (format!("node_id=${unknown} bw=2147483648\n"), 1.0),
        (format!("node_id=${unknown} bw=5 bw=6\nnode_id=${unknown} bw=5"), 2.0),
    ] {
        assert_eq!(bad(&more), Some(expected), "{more}");
    }
    for (header, expected) in [
        ("scanner_country=AT\nmu=5\n", 0.0),
        ("scanner_country=Austria\nmu=5\n", 1.0),
        ("latest_bandwidth=2027-01-15T07:00:00\n", 1.0),
        ("latest_bandwidth=2027-01-15T08:00:00\n", 0.0),
    ] {
        let text = format!("{NOW}\nversion=1.9.0\n{header}=====\nnode_id=${known} bw=5\n");
        let outcome = judge(text.as_bytes(), NOW, Comparison::default(), &Limits::default());
        assert_eq!(outcome.checks[0].figure, Some(expected), "{header}");
    }
    let annotated = format!("@type bandwidth-file 1.0\n{NOW}\nnode_id=${known} bw=5\n");
    let outcome = judge(annotated.as_bytes(), NOW, Comparison::default(), &Limits::default());
    assert_eq!(outcome.checks[0].figure, Some(1.0), "tor refuses it");
}

#[test]
fn a_check_without_its_data_is_not_made_and_says_what_it_needs() {
    let mut world = World::new();
    (world.others, world.has_previous) = (None, false);
    let outcome = world.outcome();
    let made = outcome.checks.iter().filter(|check| check.figure.is_some());
    let made: Vec<CheckName> = made.map(|check| check.check).collect();
    use CheckName::{Age, BadLines, LargestShare, LowerBounds, Measured};
    assert_eq!(made, [BadLines, Age, Measured, LargestShare, LowerBounds]);
    assert!(outcome.passed && outcome.not_checked() == 10);
    let missing = outcome.checks.iter().filter(|check| check.figure.is_none());
    assert!(missing.into_iter().all(|check| check.what.contains("--")), "{outcome:#?}");
}

#[test]
fn each_place_is_compared_alone_and_regardless_of_its_scale() {
    let mut world = World::new();
    world.add_place("FR", |place| kb_s(place) * (8 + place as u64 % 5) / 10);
    world.add_place("US", |place| kb_s(place) / if place == 3 { 16 } else { 4 });
    world.add_place("JP", |_| 0);
    world.places[2].as_mut().expect("added").file.timestamp -= 37 * 3600;
    let outcome = world.outcome();
    let checks = outcome
        .checks
        .iter()
        .filter_map(|check| Some((check.place.as_deref()?, check.check, check.verdict)));
    use CheckName::{PlaceDeviating, PlaceRatio};
    use CheckVerdict::{Fail, NotChecked, Pass};
    let expected = [
        ("FR", PlaceRatio, Pass),
        ("FR", PlaceDeviating, Pass),
        ("US", PlaceRatio, Fail),
        ("US", PlaceDeviating, Pass),
        ("JP", PlaceRatio, NotChecked),
        ("JP", PlaceDeviating, NotChecked),
    ];
    assert_eq!(checks.collect::<Vec<_>>(), expected, "{outcome:#?}");
    let deviating = &outcome.checks[outcome.checks.len() - 3];
    assert!(deviating.what.contains(&format!("US: 1 of {RELAYS} relays")), "{}", deviating.what);
    assert!(deviating.what.contains(&format!("{} 4.", relay(3))), "{}", deviating.what);
    let stale = outcome.checks.last().expect("a check");
    assert!(stale.what.contains("JP: its newest result and ours are 37 h apart"), "{}", stale.what);
    // A file without votes.
    world.places.truncate(2);
    world.add_place("JP", kb_s);
    world.places[2].as_mut().expect("added").bytes =
        format!("{NOW}\nversion=1.9.0\n=====\n").into_bytes();
    let outcome = world.outcome();
    let check = outcome.checks.last().expect("a check");
    assert_eq!((check.figure, check.what.contains("no relay has a vote in both")), (None, true));
}

#[test]
fn many_small_relays_that_differ_between_places_hold_back_no_file() {
    let figure = |differs: &dyn Fn(usize) -> bool| {
        let mut world = World::new();
        world.add_place("FR", |place| kb_s(place) * if differs(place) { 3 } else { 1 });
        let outcome = world.outcome();
        let check = outcome.checks.last().expect("a check").clone();
        (check.figure.expect("checked"), outcome.passed)
    };
    let (many_small, passed) = figure(&|place| place >= RELAYS * 3 / 4);
    assert!((5.0..6.0).contains(&many_small) && passed, "{many_small}");
    let (three_large, passed) = figure(&|place| place < 3);
    assert!(three_large > 14.0 && !passed, "{three_large}");
}

#[test]
fn missing_relays_have_reasons() {
    let mut world = World::new();
    world.keep(RELAYS - 50);
    world.file.relays.truncate(RELAYS - 10);
    let outcome = world.outcome();
    let check = outcome.failed().find(|check| check.check == CheckName::Missing).expect("missing");
    assert!(check.what.starts_with("50 of 240 relays"), "{}", check.what);
    assert!(check.what.contains("40 busy, retry in … s (such as"), "{}", check.what);
    assert!(check.what.contains("10 no line"), "{}", check.what);
}

#[test]
fn lower_bounds_for_clients_do_not_count() {
    let mut world = World::new();
    for line in &mut world.file.relays {
        line.extra[1].1 = "0".to_owned();
        line.extra.push((crate::CAUSE.to_owned(), "clients_unknown".to_owned()));
    }
    assert_eq!(failed(&world.outcome()), []);
    for line in &mut world.file.relays {
        line.extra.pop();
    }
    assert_eq!(failed(&world.outcome()), [CheckName::LowerBounds], "an unknown cause counts");
}

#[test]
fn what_is_no_bandwidth_file_or_has_no_votes_fails() {
    let limits = Limits::default();
    for text in ["", "<html>\n", "1800000000", "@type bandwidth-file 1.0\n"] {
        let outcome = judge(text.as_bytes(), NOW, Comparison::default(), &limits);
        assert_eq!(failed(&outcome), [CheckName::BadLines], "{text:?}");
    }
    let empty = format!("{NOW}\nversion=1.9.0\n=====\n");
    let outcome = judge(empty.as_bytes(), NOW, Comparison::default(), &limits);
    assert_eq!(failed(&outcome), [CheckName::Measured]);
    let mut world = World::new();
    for line in &mut world.file.relays {
        line.vote = false;
    }
    assert!(failed(&world.outcome()).contains(&CheckName::TotalFall));
}

#[test]
fn limits_are_read_from_a_configuration_and_wrong_ones_are_named() {
    let read = |text: &str| toml::from_str::<Limits>(text).map_err(|error| error.to_string());
    let limits = read("age_max_h = 12\nbias_level = 0.001").expect("valid");
    assert_eq!((limits.age_max_h, limits.bias_level), (12.0, 0.001));
    assert_eq!(Limits { age_max_h: 36.0, bias_level: 0.01, ..limits }, Limits::default());
    assert!(read("age_h = 12").expect_err("unknown").contains("age_h"));
    for text in ["age_max_h = -1", "age_max_h = nan", "scale_max_factor = 0.5", "bias_level = 0"] {
        let problem = read(text).expect("a number").validate().expect_err(text);
        assert!(text.contains(problem.split('`').nth(1).expect("a name")), "{problem}");
    }
    assert_eq!(Limits::default().validate(), Ok(()));
}

#[test]
fn medians_are_of_the_votes_of_most_other_authorities() {
    let vote = |text: &str| Consensus::parse_vote(text.as_bytes()).expect("a vote");
    let (one, two) = (relay(1), relay(2));
    let votes = [("a", 10, Some(7)), ("b", 20, None), ("c", 30, Some(9)), ("own", 99, Some(1))];
    let votes: Vec<Consensus> = votes
        .iter()
        .enumerate()
        .map(|(place, (name, first, second))| vote(&vote_text(place, name, *first, *second)))
        .collect();
    let others = Others::from_votes(&votes, Some("OWN")).expect("three");
    assert_eq!(others.medians_kb_s, BTreeMap::from([(one, 20), (two, 7)]));
    assert_eq!(
        (others.measured.as_slice(), others.source.as_str()),
        (&[2, 1, 2][..], "the votes of a, b, c")
    );
    assert_eq!(others.measurable.keys().copied().collect::<Vec<_>>(), [one, two]);
    let identity = votes[3].authorities[0].fingerprint.to_string();
    assert_eq!(Others::from_votes(&votes, Some(&identity)), Some(others));
    let fewer = Others::from_votes(&votes[..2], None).expect("two");
    assert_eq!(
        fewer.medians_kb_s,
        BTreeMap::from([(one, 10)]),
        "half is not most; the lower of two"
    );
    assert_eq!(Others::from_votes(&votes[3..], Some("own")), None);
}

#[test]
fn votes_are_read_from_files_and_folders() {
    let folder = tempfile::tempdir().expect("a folder");
    let both = format!(
        "@type network-status-vote-3 1.0\n{}{}",
        vote_text(0, "a", 5, None),
        vote_text(1, "b", 6, None)
    );
    std::fs::write(folder.path().join("v3-status-votes"), &both).expect("space");
    assert_eq!(read_votes(&folder.path().join("v3-status-votes")).expect("two").len(), 2);
    std::fs::write(folder.path().join("vote-c"), vote_text(2, "c", 7, None)).expect("space");
    assert_eq!(read_votes(folder.path()).expect("three").len(), 3);
    std::fs::write(folder.path().join("notes"), "none\n").expect("space");
    let error = read_votes(folder.path()).expect_err("no vote").to_string();
    assert!(error.contains("notes") && error.contains("/tor/status-vote/current"), "{error}");
}

proptest! {
    #[test]
    fn no_file_makes_it_panic(
        words in prop::collection::vec("(1800000000|=====|node_id=\\$[0-7]{40}|bw=[0-9]{0,20}|vote=0|flashflow_conclusive=0|@x)[ \n]", 0..40),
        previous in "[ -~\n]{0,60}",
    ) {
        let text = format!("{NOW}\n{}", words.concat());
        let others = World::new().others;
        let with = Comparison { previous: Some(previous.as_bytes()), others: others.as_ref(), ..Comparison::default() };
        for bytes in [text.as_bytes(), words.concat().as_bytes()] {
            let outcome = judge(bytes, NOW, with, &Limits::default());
            prop_assert!(!outcome.passed, "no relay of the others is measured");
        }
    }
}

/// A vote of an authority on two relays.
fn vote_text(place: usize, name: &str, first: u32, second: Option<u32>) -> String {
    let entry = |number: usize, measured: Option<u32>| {
        let measured = measured.map_or_else(String::new, |kb_s| format!(" Measured={kb_s}"));
        let identity = base64(&relay(number).0);
        format!(
            "r relay{number} {identity} {} 2026-11-22 00:00:00 10.0.0.{number} 9001 0\ns Fast Running Valid\nv Tor 0.4.9.11\n\
             w Bandwidth=1000{measured}\np reject 1-65535\n",
            base64(&[9; 20])
        )
    };
    let identity = RsaId([place as u8 + 1; 20]);
    format!(
        "network-status-version 3\nvote-status vote\nconsensus-methods 32 33 34\npublished 2026-11-22 00:50:00\n\
         valid-after 2026-11-22 01:00:00\nfresh-until 2026-11-22 02:00:00\nvalid-until 2026-11-22 04:00:00\n\
         voting-delay 300 300\nknown-flags Fast Running Valid\ndir-source {name} {identity} 127.0.0.1 127.0.0.1 80 443\n\
         contact none\n{}{}directory-footer\ndirectory-signature {identity} {identity}\n\
         -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n",
        entry(1, Some(first)),
        entry(2, second)
    )
}

/// Unpadded base64 of an identity.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    netdoc::write::push_base64_lines(&mut text, bytes);
    text.trim_end().trim_end_matches('=').to_owned()
}
