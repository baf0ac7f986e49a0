use super::*;
use proptest::prelude::*;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

fn country(code: &str) -> Country {
    code.parse().expect("a country")
}

/// A table in the format of tor's files: numbers for IPv4, addresses for IPv6.
const TABLE: &str = "# a comment\n16777216,16777471,AU\n16777472,16778239,CN\n2001:db8::,2001:db8::ffff,DE\n16778240,16779263,??\n";

#[test]
fn tables_in_tors_format_are_parsed() {
    let table = Countries::parse(TABLE).expect("a table");
    let find = |address: &str| table.find(address.parse().expect("an address"));
    assert_eq!(find("1.0.0.0"), Some(country("AU")));
    assert_eq!(find("1.0.0.255"), Some(country("AU")));
    assert_eq!(find("1.0.1.0"), Some(country("CN")));
    assert_eq!(find("1.0.4.1"), None, "of which nothing is known");
    assert_eq!(find("0.255.255.255"), None);
    assert_eq!(find("2001:db8::1"), Some(country("DE")));
    assert_eq!(find("2001:db8::1:0"), None);
    assert!(table.has(country("DE")) && !table.has(country("FR")));
}

/// A string, as MaxMind's format has it.
fn text(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).expect("short");
    [&[0x40 | len], text.as_bytes()].concat()
}

/// A file of MaxMind's by its specification (version 2.0): the lower half of IPv4 is in Germany, and of the rest nothing is known.
fn maxmind() -> Vec<u8> {
    const NODES: u8 = 1;
    // To the left the first byte of the data, behind the tree and 16 bytes; to the right nothing.
    let tree = [0, 0, NODES + 16, 0, 0, NODES];
    let map = |entries: &[(&str, Vec<u8>)]| {
        let pairs = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
        let count = u8::try_from(entries.len()).expect("few");
        [0xe0 | count].into_iter().chain(pairs).collect::<Vec<u8>>()
    };
    let data = map(&[("country", map(&[("iso_code", text("DE"))]))]);
    let metadata = map(&[
        ("node_count", vec![0xc1, NODES]),
        ("record_size", vec![0xa1, 24]),
        ("ip_version", vec![0xa1, 4]),
        ("database_type", text("Country")),
        ("languages", vec![0x00, 0x04]),
        ("binary_format_major_version", vec![0xa1, 2]),
        ("binary_format_minor_version", vec![0xa0]),
        ("build_epoch", vec![0x01, 0x02, 1]),
        ("description", vec![0xe0]),
    ]);
    [&tree[..], &[0; 16], &data, b"\xab\xcd\xefMaxMind.com", &metadata].concat()
}

#[test]
fn tables_in_maxminds_format_are_read_as_well_as_tors() {
    let folder = tempfile::tempdir().expect("a folder");
    let (theirs, tors) = (folder.path().join("x.mmdb"), folder.path().join("geoip"));
    fs::write(&theirs, maxmind()).expect("written");
    fs::write(&tors, "200.0.0.0,200.0.0.255,BR\n").expect("written");
    let table = Countries::read(&[theirs, tors]).expect("tables");
    let find = |address: &str| table.find(address.parse().expect("an address"));
    assert_eq!(find("10.1.2.3"), Some(country("DE")));
    assert_eq!(find("200.0.0.7"), Some(country("BR")));
    assert_eq!(find("210.0.0.7"), None);
}

#[test]
fn a_broken_table_is_refused_with_its_line() {
    for (text, word) in [
        ("1,2", "no country"),
        ("1,2,DEU", "two letters"),
        ("x,2,DE", "not an address"),
        ("9,2,DE", "before the first"),
        ("1,5,DE\n5,6,FR", "overlap"),
        ("# nothing\n", "empty"),
    ] {
        let error = Countries::parse(text).expect_err(text).to_string();
        assert!(error.contains(word), "{text:?}: {error}");
    }
    let error = Countries::read(&["nowhere/geoip".into()]).expect_err("no file").to_string();
    assert!(error.contains("tor-geoipdb"), "{error}");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.mmdb");
    fs::write(&path, "no such thing").expect("written");
    assert!(matches!(Countries::read(&[path]), Err(CountriesError::MaxMind { .. })));
}

#[test]
fn each_country_is_on_one_continent() {
    for (code, continent) in [
        ("DE", Continent::Europe),
        ("us", Continent::NorthAmerica),
        ("TR", Continent::Asia),
        ("AS", Continent::Oceania),
        ("NA", Continent::Africa),
        ("BR", Continent::SouthAmerica),
    ] {
        assert_eq!(country(code).continent(), Some(continent), "{code}");
        assert_eq!(continent.code().parse(), Ok(continent));
    }
    assert_eq!(country("ZZ").continent(), None);
    let mut codes = std::collections::BTreeSet::new();
    for letters in 0..26 * 26_u16 {
        let letter = |place: u16| char::from(b'A' + u8::try_from(place).expect("a letter"));
        let code: String = [letter(letters / 26), letter(letters % 26)].into_iter().collect();
        codes.extend(country(&code).continent().map(|_| code));
    }
    // ISO 3166-1 has 249 codes; XK is in use besides.
    assert_eq!(codes.len(), 250);
}

proptest! {
    #[test]
    fn no_text_causes_a_panic_and_a_found_address_is_in_its_range(
        text in "([0-9:,.a-f?]{0,20},[A-Z?]{2}\n){0,4}",
        first in any::<u32>(), len in 0_u32..1000, at in any::<u32>(),
    ) {
        let _ = Countries::parse(&text);
        let last = first.saturating_add(len);
        let table = Countries::parse(&format!("{first},{last},DE")).expect("a table");
        let found = table.find(IpAddr::V4(Ipv4Addr::from_bits(at)));
        prop_assert_eq!(found.is_some(), (first..=last).contains(&at));
    }
}
