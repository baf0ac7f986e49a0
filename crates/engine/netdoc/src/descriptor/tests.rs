use proptest::prelude::*;

use super::*;

const SAMPLE: &str = include_str!("../../tests/data/server-descriptors");

/// The three descriptors of the sample, without annotations.
fn three() -> Vec<String> {
    SAMPLE.split("@type server-descriptor 1.0\n").skip(1).map(str::to_owned).collect()
}

#[test]
fn a_descriptor_is_read_with_its_units() {
    let (good, bad) = parse_all(SAMPLE.as_bytes());
    assert_eq!((good.len(), bad.len()), (3, 0));
    let d = &good[0];
    assert_eq!(d.nickname.as_str(), "dc6jgk5b");
    assert_eq!(d.address, Ipv4Addr::new(62, 141, 48, 177));
    assert_eq!((d.or_port, d.dir_port), (443, 9030));
    assert_eq!(d.fingerprint.to_string(), "846B3EAAF0C07FF72FC79AEBB11FA3ADC58F240F");
    let ed25519 = d.ed25519.unwrap().to_string();
    assert_eq!(ed25519, "cvBD6VtTgGHX9teN59R3rGppq4ZBEvz/v74QOAlu3NI");
    assert_eq!(d.bandwidth_avg_bytes_s, 4_594_304);
    assert_eq!(d.bandwidth_burst_bytes_s, 4_594_304);
    assert_eq!(d.bandwidth_observed_bytes_s, 3_046_428);
    assert_eq!(d.published, 1_582_965_505);
    assert_eq!(d.uptime_s, Some(5_000_987));
    assert_eq!(d.platform().unwrap(), "Tor 0.4.2.5 on Linux");
    assert_eq!(d.tor_version(), Some("0.4.2.5"));
    assert_eq!(d.contact().unwrap(), "see https://www.artikel5ev.de/torcontact/");
    assert!(d.proto.unwrap().contains("FlowCtrl=1"));
    assert!(d.ntor_onion_key.is_some() && !d.hibernating && d.overload_general.is_none());
    assert_eq!(d.family().len(), d.family_text.unwrap().split(' ').count());
    assert_eq!(good[1].ed25519, None);
    assert!(good[2].hibernating);
}

#[test]
fn annotations_change_nothing() {
    let bare = three().concat();
    assert_eq!(parse_all(SAMPLE.as_bytes()), parse_all(bare.as_bytes()));
}

#[test]
fn the_key_comes_from_the_certificate_where_the_line_is_missing() {
    let first = &three()[0];
    let line = first.lines().find(|l| l.starts_with("master-key-ed25519")).unwrap();
    let without = first.replace(&format!("{line}\n"), "");
    let (good, _) = parse_all(without.as_bytes());
    assert_eq!(good[0].ed25519, parse_all(first.as_bytes()).0[0].ed25519);

    let other = first.replace(line, &format!("master-key-ed25519 {}", "q".repeat(42) + "o"));
    let (good, bad) = parse_all(other.as_bytes());
    assert!(good.is_empty() && bad[0].reason.contains("isn't the key certified"), "{bad:?}");
}

#[test]
fn a_bad_descriptor_is_reported_and_the_others_are_kept() {
    let cases = [
        ("bandwidth 102400 204800 147087", "bandwidth 102400 204800", "three bandwidths"),
        ("published 2020-02-29", "published 2020-02-31", "date and time"),
        ("fingerprint E26E", "fingerprint E26", "40 hex digits"),
        ("router Unnamed 62.", "router Un-named 62.", "`router` name"),
        ("router Unnamed 62.", "router Unnamed 620.", "`router` name"),
        ("bandwidth 102400", "platform again\nbandwidth 102400", "given twice"),
        ("fingerprint E26E", "no-fingerprint", "without `fingerprint`"),
        ("-----BEGIN SIGNATURE-----", "-----", "BEGIN SIGNATURE"),
    ];
    for (from, to, expected) in cases {
        let mut parts = three();
        parts[1] = parts[1].replacen(from, to, 1);
        let text = parts.concat();
        let (good, bad) = parse_all(text.as_bytes());
        let names: Vec<_> = good.iter().map(|d| d.address.octets()[0]).collect();
        assert_eq!((names, bad.len()), (vec![62, 191], 1), "{from}");
        assert!(bad[0].reason.contains(expected), "{from}: {}", bad[0]);
        let lines = parts[0].lines().count();
        assert_eq!(bad[0].first_line, lines + 1, "{from}");
        assert!(bad[0].line > lines && bad[0].line <= lines + parts[1].lines().count());
    }
}

#[test]
fn a_cut_last_descriptor_is_rejected_and_the_others_are_kept() {
    let start = SAMPLE.rfind("router Unnamed").unwrap();
    for end in start + 1..SAMPLE.len() {
        let (good, bad) = parse_all(&SAMPLE.as_bytes()[..end]);
        assert_eq!((good.len(), bad.len()), (2, 1), "cut at {end}");
    }
}

#[test]
fn a_descriptor_cut_by_the_next_one_is_rejected_and_the_next_one_is_kept() {
    let parts = three();
    for end in 1..parts[0].len() - 1 {
        let text = format!("{}\n{}", &parts[0][..end], parts[1]);
        let (good, bad) = parse_all(text.as_bytes());
        assert_eq!(good.len(), 1, "cut at {end}: {bad:?}");
        assert!(good[0].ed25519.is_none() && bad.len() == 1, "cut at {end}");
    }
}

#[test]
fn stray_text_is_reported_once() {
    let text = format!("<html>\noops\n\n{}", three()[0]);
    let (good, bad) = parse_all(text.as_bytes());
    assert_eq!((good.len(), bad.len(), bad[0].line), (1, 1, 1));
    assert!(bad[0].to_string().contains("found \"<html>\""), "{}", bad[0]);
}

#[test]
fn a_non_utf8_contact_is_kept_unchanged() {
    let mut bytes = three()[0].clone().into_bytes();
    let at = three()[0].find("contact see").unwrap() + 8;
    bytes[at] = 0xe9;
    let (good, bad) = parse_all(&bytes);
    assert!(bad.is_empty());
    assert_eq!(good[0].contact_bytes.unwrap()[0], 0xe9);
    assert!(good[0].contact().unwrap().starts_with('\u{fffd}'));
}

#[test]
fn overload_timestamps_are_read() {
    let text = three()[0].replace("uptime ", "overload-general 1 2020-02-29 07:00:00\nuptime ");
    assert_eq!(parse_all(text.as_bytes()).0[0].overload_general, Some(1_582_959_600));
}

/// `Desc=3` and `Desc=4`: proposals 321 and 350.
#[test]
fn tap_keys_are_optional_and_family_certificates_are_read() {
    let first = &three()[0];
    let (before, rest) = first.split_once("onion-key\n").unwrap();
    let (_, signing) = rest.split_once("signing-key\n").unwrap();
    let (signing, rest) = signing.split_once("onion-key-crosscert\n").unwrap();
    let (_, after) = rest.split_once("-----END CROSSCERT-----\n").unwrap();
    let cert = "family-cert\n-----BEGIN FAMILY CERT-----\nAQwA\n-----END FAMILY CERT-----\n";
    let text = format!("{before}signing-key\n{signing}{cert}{after}");
    assert!(!text.contains("\nonion-key"));
    let (good, bad) = parse_all(text.as_bytes());
    assert_eq!((good.len(), bad.len()), (1, 0), "{bad:?}");
    assert_eq!(good[0].ntor_onion_key, parse_all(first.as_bytes()).0[0].ntor_onion_key);
    assert_eq!(good[0].family_certs, [vec![1, 12, 0]]);
}

#[test]
fn family_certificates_are_limited_and_invalid_ones_skipped() {
    let object = |base64: &str| {
        format!("family-cert\n-----BEGIN FAMILY CERT-----\n{base64}\n-----END FAMILY CERT-----\n")
    };
    let read = |certs: String| {
        let text = three()[0].replace("contact see", &format!("{certs}contact see"));
        let (good, bad) = parse_all(text.as_bytes());
        assert_eq!((good.len(), bad.len()), (1, 0), "{bad:?}");
        good[0].family_certs.clone()
    };
    assert!(read(String::new()).is_empty());
    let long = ["A".repeat(64).as_str(); 12].join("\n");
    let some = [object("AQwA"), object("A*"), object(&long), object("AQwB")].concat();
    assert_eq!(read(some), [[1, 12, 0], [1, 12, 1]]);
    assert_eq!(read(object("AQwA").repeat(1000)).len(), 32);
    let cut = three()[0].replace("contact see", "family-cert\ncontact see");
    assert_eq!(parse_all(cut.as_bytes()).1.len(), 1);
}

#[test]
fn families_are_read_from_the_line_and_members_that_name_nobody_are_left_out() {
    let id = "0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91";
    let family = format!("family ${id} {id} ${id}~a ${id}=b Nick nick ${id}0 $short");
    let text = three()[1].replace("uptime ", &format!("{family}\nuptime "));
    let (good, _) = parse_all(text.as_bytes());
    let family = good[0].family();
    assert_eq!(family.len(), 2, "{family:?}");
    let other = RsaId([1; 20]);
    assert!(family.names(&id.parse().unwrap(), &"x".parse().unwrap()));
    assert!(family.names(&other, &"NICK".parse().unwrap()));
}

/// Tor refuses each of them (`Found 2 … elements; maximum is 1`).
#[test]
fn an_item_given_twice_is_named() {
    for line in [
        "family a",
        "proto Link=1",
        "hibernating 1",
        "hidden-service-dir",
        "extra-info-digest AA",
        "published 2020-02-29 10:00:00",
        "bandwidth 1 2 3",
        "opt uptime 5",
    ] {
        let text =
            three()[1].replace("router-signature", &format!("{line}\n{line}\nrouter-signature"));
        let (good, bad) = parse_all(text.as_bytes());
        let keyword = line.strip_prefix("opt ").unwrap_or(line).split(' ').next().unwrap();
        assert!(good.is_empty() && bad.len() == 1, "{line}");
        assert_eq!(bad[0].reason, format!("`{keyword}` is given twice"));
    }
    let mut objects = three()[0].clone();
    let from = objects.find("identity-ed25519\n").unwrap();
    let end = objects.find("-----END ED25519 CERT-----\n").unwrap() + 27;
    let object = objects[from..end].to_owned();
    objects.insert_str(from, &object);
    let (_, bad) = parse_all(objects.as_bytes());
    assert_eq!(bad[0].reason, "`identity-ed25519` is given twice");
}

/// As tor refuses a descriptor with "internal NUL character".
#[test]
fn nul_bytes_are_named_wherever_they_are() {
    let parts = three();
    for (before, after) in [
        ("platform Tor", "platform \0Tor"),
        ("platform Tor", "\0\nplatform Tor"),
        ("-----BEGIN SIGNATURE-----\n", "-----BEGIN SIGNATURE-----\nAA\0\n"),
        ("-----BEGIN SIGNATURE-----\n", "\0-----BEGIN SIGNATURE-----\n"),
        ("router Unnamed", "router Unn\0amed"),
    ] {
        let middle = parts[1].replacen(before, after, 1);
        assert_ne!(middle, parts[1], "{before}");
        let text = [&*parts[0], &*middle, &*parts[2]].concat();
        let (good, bad) = parse_all(text.as_bytes());
        assert_eq!((good.len(), bad.len()), (2, 1), "{before:?}");
        assert!(bad[0].reason.contains("NUL"), "{after:?}: {}", bad[0]);
    }
    // What a power failure leaves: the end of the last descriptor, or all behind it.
    for text in [format!("{}\0\0\0", parts[0]), format!("{}\0\0", &parts[0][..400])] {
        let (_, bad) = parse_all(text.as_bytes());
        assert!(bad.len() == 1 && bad[0].reason.contains("NUL"), "{bad:?}");
    }
}

#[test]
fn other_documents_in_a_file_are_no_damaged_descriptors() {
    let parts = three();
    let extra = "extra-info Unnamed E26E\npublished 2020-02-29 10:00:00\nrouter-signature\n\
        -----BEGIN SIGNATURE-----\nAA\n-----END SIGNATURE-----\n";
    let micro = "onion-key\nntor-onion-key AAAA\n";
    for annotation in ["", "@type x 1.0\n"] {
        let text = [&parts[0], annotation, extra, annotation, extra, &parts[1], annotation, extra]
            .concat();
        let found = newest(text.as_bytes());
        assert_eq!((found.descriptors.len(), found.bad.len()), (2, 0), "{:?}", found.bad);
        assert_eq!(found.others, [("extra-info documents", 3)].into());
        assert!(found.dropped().is_none());
        let told = found.left_out().unwrap();
        assert!(told.contains("extra-info documents (3)"), "{told}");
    }
    let text = [&parts[0], "@type microdescriptor 1.0\n", micro, "<html>\n"].concat();
    let found = newest(text.as_bytes());
    assert_eq!((found.descriptors.len(), found.bad.len(), found.others.len()), (1, 0, 1));
    let text = [&*parts[0], "<html>\n"].concat();
    let found = newest(text.as_bytes());
    assert_eq!((found.descriptors.len(), found.bad.len()), (1, 1), "a page is no document of Tor");
    assert_eq!(found.left_out(), None);
    // A cut descriptor before an extra-info does not take that with it.
    let cut = [&parts[0][..400], "\n", extra, &parts[1]].concat();
    let found = newest(cut.as_bytes());
    assert_eq!((found.descriptors.len(), found.bad.len(), found.others.len()), (1, 1, 1));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_or_loop(bytes: Vec<u8>) {
        prop_assert!(iter(&bytes).count() <= bytes.len());
    }

    #[test]
    fn damaged_documents_never_panic(
        at in 0..SAMPLE.len(),
        replacement in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = SAMPLE.as_bytes().to_vec();
        let end = bytes.len().min(at + 20);
        bytes.splice(at..end, replacement);
        let (good, _) = parse_all(&bytes);
        prop_assert!(good.len() <= 3);
    }

    #[test]
    fn bandwidths_survive_a_round_trip(avg in 1u64..1 << 31, burst in 0u64..1 << 31, observed in 0u64..1 << 31) {
        let line = format!("bandwidth {avg} {burst} {observed}");
        let text = three()[1].replace("bandwidth 102400 204800 147087", &line);
        let (good, _) = parse_all(text.as_bytes());
        let d = &good[0];
        let read = (d.bandwidth_avg_bytes_s, d.bandwidth_burst_bytes_s, d.bandwidth_observed_bytes_s);
        prop_assert_eq!(read, (avg, burst, observed));
    }
}

#[test]
fn the_newest_descriptor_wins_and_the_first_of_equally_old_ones() {
    let parts = three();
    let dated = |date: &str, bandwidth: &str| {
        let line = parts[0].lines().find(|line| line.starts_with("published ")).unwrap();
        let text = parts[0].replacen(line, &format!("published 2020-02-{date}"), 1);
        text.replacen("bandwidth 4594304", &format!("bandwidth {bandwidth}"), 1)
    };
    let (old, new, same) =
        (dated("28 10:00:00", "1000"), dated("29 10:00:00", "2000"), dated("29 10:00:00", "3000"));
    let fingerprint = parse_all(parts[0].as_bytes()).0[0].fingerprint;
    for (order, expected) in
        [([&old, &new, &same], 2000), ([&new, &old, &same], 2000), ([&same, &new, &old], 3000)]
    {
        let text = format!("{}{}{}{}{}", order[0], parts[1], order[1], parts[2], order[2]);
        let found = newest(text.as_bytes());
        assert_eq!((found.descriptors.len(), found.replaced, found.bad.len()), (3, 2, 0));
        let descriptor = found
            .descriptors
            .iter()
            .find(|descriptor| descriptor.fingerprint == fingerprint)
            .unwrap();
        assert_eq!(descriptor.bandwidth_avg_bytes_s, expected);
        assert_eq!(found.dropped(), None);
    }
}

#[test]
fn descriptors_that_cannot_be_read_are_counted() {
    let parts = three();
    let broken = parts[1].replacen("published", "unpublished", 1);
    let one = format!("{}{broken}", parts[0]);
    let found = newest(one.as_bytes());
    assert_eq!((found.descriptors.len(), found.bad.len()), (1, 1));
    let words = found.dropped().unwrap();
    assert!(words.starts_with("1 descriptor cannot be read"), "{words}");
    let two = format!("{broken}{}{broken}", parts[0]);
    let words = newest(two.as_bytes()).dropped().unwrap();
    assert!(
        words.starts_with("2 descriptors cannot be read and do not count; the first: "),
        "{words}"
    );
    assert!(newest(b"").dropped().is_none());
}

#[test]
fn descriptors_that_c_tor_rejects_are_rejected() {
    let with = |from: &str, to: &str| {
        let text = three()[1].replacen(from, to, 1);
        parse_all(text.as_bytes()).0.len()
    };
    let bandwidth = "bandwidth 102400 204800 147087";
    for (numbers, is_taken) in [
        ("1 0 0", 1),
        ("2147483647 2147483647 2147483647", 1),
        ("0 204800 147087", 0),
        ("2147483648 204800 147087", 0),
        ("102400 2147483648 147087", 0),
        ("102400 204800 18446744073709551615", 0),
    ] {
        assert_eq!(with(bandwidth, &format!("bandwidth {numbers}")), is_taken, "{numbers}");
    }
    assert_eq!(with(" 443 ", " 0 ") + with(" 9001 ", " 0 "), 1, "one of the two is its port");
    // Of descriptors before 2009.
    assert_eq!(with("fingerprint E26E", "opt fingerprint E26E"), 1);
    assert_eq!(with("bandwidth 102400", "opt bandwidth 102400"), 1);
}
