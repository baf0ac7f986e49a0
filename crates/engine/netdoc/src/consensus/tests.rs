use proptest::prelude::*;

use super::*;

const NS: &str = include_str!("../../tests/data/consensus-ns");
const MICRODESC: &str = include_str!("../../tests/data/consensus-microdesc");
const VOTE: &str = include_str!("../../tests/data/vote");

fn parse(text: &str) -> Result<Consensus, ConsensusError> {
    Consensus::parse(text.as_bytes())
}

#[test]
fn an_ns_consensus_is_read_completely() {
    let c = parse(NS).unwrap();
    assert_eq!(c.flavour, Flavour::Ns);
    assert_eq!(c.valid_after, 1_582_970_400);
    assert_eq!(c.fresh_until - c.valid_after, 3600);
    assert_eq!(c.valid_until - c.valid_after, 3 * 3600);
    assert_eq!(c.voting_delay_s, Some((300, 300)));
    assert_eq!(c.params.get("CircuitPriorityHalflifeMsec"), Some(30_000));
    assert_eq!(c.shared_random.unwrap().reveals, 9);
    assert_eq!(c.shared_random.unwrap().value[0], 0xa2);
    assert_eq!(c.authorities.len(), 8);
    let moria = c.authorities.iter().find(|a| a.nickname == "moria1").unwrap();
    assert_eq!((moria.address, moria.dir_port), (Ipv4Addr::new(128, 31, 0, 34), 9131));
    assert_eq!(c.bandwidth_weights.get("Wgg"), Some(5683));
    assert_eq!(c.signatures, 2);
    assert_eq!(c.routers().len(), 5);

    let r = c.find("comeandgo").unwrap();
    assert_eq!(r.address, Ipv4Addr::new(61, 239, 100, 129));
    assert_eq!((r.or_port, r.dir_port), (443, 9030));
    assert_eq!(r.flags.to_string(), "Fast HSDir Running Stable V2Dir Valid");
    assert_eq!((r.version.as_deref(), r.tor_version()), (Some("Tor 0.4.2.6"), Some("0.4.2.6")));
    assert_eq!((r.bandwidth_kb_s, r.measured_kb_s, r.unmeasured), (Some(170), None, false));
}

#[test]
fn a_microdesc_consensus_is_read_and_unknown_flags_do_no_harm() {
    let c = parse(MICRODESC).unwrap();
    assert_eq!(c.flavour, Flavour::Microdesc);
    assert_eq!(c.params.get("negative"), Some(-5));
    let (first, second) = (c.find("first").unwrap(), c.find("second").unwrap());
    assert_eq!(first.flags.to_string(), "Exit Fast Running Valid");
    assert_eq!(first.microdesc_digest.unwrap()[..3], [1, 2, 3]);
    assert_eq!((second.bandwidth_kb_s, second.unmeasured), (Some(20), true));
    assert_eq!((second.or_port, second.dir_port), (5002, 5003));
    assert_eq!((first.ipv6, second.ipv6), (None, Some("[::1]:5002".parse().unwrap())));
}

#[test]
fn a_vote_has_measured_bandwidths_and_ed25519_identities() {
    let c = Consensus::parse_vote(VOTE.as_bytes()).unwrap();
    let (first, second) = (c.find("first").unwrap(), c.find("second").unwrap());
    assert_eq!((first.bandwidth_kb_s, first.measured_kb_s), (Some(9000), Some(12000)));
    assert_eq!(first.ed25519.unwrap().0, [0xaa; 32]);
    assert_eq!(first.microdesc_digest.unwrap()[31], 32);
    assert_eq!((second.ed25519, second.microdesc_digest), (None, None));
}

#[test]
fn a_vote_is_not_taken_for_a_consensus_nor_a_consensus_for_a_vote() {
    let status = "vote-status vote";
    for vote in [
        VOTE.to_owned(),
        format!("@type network-status-vote-3 1.0\n{VOTE}"),
        VOTE.replace(status, "vote-status vote "),
        VOTE.replace(status, "vote-status opinion"),
        NS.replace("vote-status consensus", status),
        MICRODESC.replace("vote-status consensus", status),
    ] {
        let error = parse(&vote).unwrap_err();
        assert!(matches!(error, ConsensusError::Vote { .. }), "{error}");
    }
    for broken in [
        "",
        "vote-status\n",
        "vote-status maybe\n",
        "vote-status consensus\nvote-status consensus\n",
    ] {
        let error = parse(&NS.replace("vote-status consensus\n", broken)).unwrap_err().to_string();
        assert!(error.contains("`vote-status"), "{broken:?}: {error}");
    }
    assert!(Consensus::parse_vote(NS.as_bytes()).is_err());
}

#[test]
fn the_error_names_an_unknown_flavour() {
    for line in ["network-status-version 3 unknown", "network-status-version 3 microdesc2"] {
        let flavour = line.rsplit(' ').next().unwrap();
        let error = parse(&NS.replacen("network-status-version 3", line, 1)).unwrap_err();
        let expected = ConsensusError::UnknownFlavour { line: 2, flavour: flavour.to_owned() };
        assert_eq!(error, expected);
    }
}

#[test]
fn a_consensus_cut_before_the_end_of_its_first_signature_is_rejected() {
    let whole = NS.find("-----END SIGNATURE-----\n").unwrap() + 24;
    assert_eq!(parse(&NS[..whole]).unwrap().signatures, 1);
    for end in 0..whole {
        let error = parse(&NS[..end]).unwrap_err();
        // A cut first line isn't a consensus yet; all else is called by its name.
        if end > NS.find("vote-status").unwrap() {
            assert!(matches!(error, ConsensusError::Truncated { .. }), "at {end}: {error}");
            assert!(error.to_string().ends_with("fetch it again"), "{error}");
        }
    }
}

#[test]
fn a_cut_second_signature_is_detected() {
    for end in NS.rfind("directory-signature").unwrap() + 1..NS.len() {
        assert!(matches!(parse(&NS[..end]), Err(ConsensusError::Truncated { .. })), "at {end}");
    }
}

#[test]
fn the_error_of_a_cut_consensus_names_its_last_line() {
    let end = NS.find("\ns Fast").unwrap() + 3;
    let error = parse(&NS[..end]).unwrap_err().to_string();
    assert_eq!(error, "truncated after line 33: a line is cut; fetch it again");
}

#[test]
fn other_documents_are_not_taken_for_a_consensus() {
    for other in ["<html>503 busy</html>\n", "router a 1.2.3.4 1 0 0\n", "\n", "\u{0}"] {
        let error = parse(other).unwrap_err();
        assert!(matches!(error, ConsensusError::NotAConsensus { line: 1, .. }), "{error}");
    }
    let page = parse("<html>503 busy</html>\n").unwrap_err().to_string();
    assert!(page.contains("it is an HTML"), "{page}");
    let next = NS.replace("network-status-version 3", "network-status-version 4");
    assert!(matches!(parse(&next), Err(ConsensusError::NotAConsensus { line: 2, .. })));
}

#[test]
fn an_error_names_the_line_and_what_was_expected() {
    let cases = [
        ("valid-after 2020-02-29", "valid-after 2020-02-30", "date and time"),
        ("w Bandwidth=170\n", "w Bandwidth=lots\n", "KB/s as a number"),
        ("r comeandgo ", "r come-and-go ", "expected a relay"),
        ("443 9030", "443 90300", "expected a relay"),
        ("bwauthpid=1", "bwauthpid=4294967296", "32 bits"),
        ("s Authority Running Stable V2Dir Valid\n", "", "no flags"),
        ("directory-footer\n", "", "expected `directory-footer` first"),
        ("-----BEGIN SIGNATURE-----", "-----BEGIN KEY-----", "BEGIN SIGNATURE"),
        ("dir-source tor26 14C1", "dir-source tor26 14C", "expected `dir-source`"),
        ("fresh-until", "fresh-unless", "expected `fresh-until`"),
    ];
    for (from, to, expected) in cases {
        let broken = NS.replacen(from, to, 1);
        assert_ne!(broken, NS, "{from} must be in the sample");
        let error = parse(&broken).unwrap_err();
        assert!(matches!(error, ConsensusError::Malformed { .. }), "{error}");
        let error = error.to_string();
        assert!(error.starts_with("line ") && error.contains(expected), "{from}: {error}");
    }
}

#[test]
fn non_utf8_content_is_rejected_with_its_line_number() {
    for (number, line) in NS.lines().enumerate().skip(2) {
        let begin = line.as_ptr() as usize - NS.as_ptr() as usize;
        let mut bytes = NS.as_bytes().to_vec();
        bytes[begin + line.len() / 2] = 0xff;
        let error = Consensus::parse(&bytes).unwrap_err();
        let ConsensusError::Malformed { line, what, .. } = error else { panic!("{error}") };
        assert_eq!((line, what), (number + 1, "expected UTF-8 text"));
    }
}

/// As tor refuses it ("internal NUL character"). A power failure leaves them at the end.
#[test]
fn nul_bytes_are_named_and_not_taken_for_a_cut() {
    let lines = NS.lines().count();
    let at_end = parse(&format!("{NS}\0\0\0")).unwrap_err();
    assert!(
        matches!(at_end, ConsensusError::Malformed { line, .. } if line == lines + 1),
        "{at_end}"
    );
    let within = parse(&NS.replacen("\ns Fast", "\ns \0Fast", 1)).unwrap_err();
    let cut = parse(&format!("{}\0\0", &NS[..NS.len() / 2])).unwrap_err();
    for error in [at_end, within, cut].map(|error| error.to_string()) {
        assert!(error.contains("NUL") && error.contains("fetch it again"), "{error}");
    }
}

#[test]
fn a_repeated_or_unsorted_relay_is_rejected() {
    let start = NS.find("r comeandgo").unwrap();
    let end = NS.find("r Quintex13").unwrap();
    let twice = format!("{}{}{}", &NS[..end], &NS[start..end], &NS[end..]);
    assert!(parse(&twice).unwrap_err().to_string().contains("ascending"));
    let last = NS.find("directory-footer").unwrap();
    let moved = format!("{}{}{}{}", &NS[..start], &NS[end..last], &NS[start..end], &NS[last..]);
    assert!(parse(&moved).unwrap_err().to_string().contains("ascending"));
}

/// The source of a consensus could append text that no authority has signed.
#[test]
fn other_content_after_the_first_signature_is_rejected() {
    let weights = "bandwidth-weights Wgg=0 Wmg=10000\n";
    let before =
        MICRODESC.replacen("directory-signature", &format!("{weights}directory-signature"), 1);
    assert_eq!(parse(&before).expect("it is signed").bandwidth_weights.get("Wgg"), Some(0));
    let (_, signature) = MICRODESC.split_once("directory-signature").expect("signed");
    let again = format!("directory-signature{signature}");
    for more in [weights.to_owned(), format!("{again}{weights}"), "future thing\n".to_owned()] {
        let error = parse(&format!("{MICRODESC}{more}")).expect_err(&more);
        assert!(error.to_string().contains("nothing but signatures"), "{error}");
    }
    assert_eq!(parse(&format!("{MICRODESC}{again}")).expect("signed twice").signatures, 2);
}

#[test]
fn two_concatenated_documents_are_rejected() {
    let error = parse(&format!("{NS}{NS}")).unwrap_err().to_string();
    assert!(error.contains("nothing but signatures"), "{error}");
}

#[test]
fn relays_are_found_by_fingerprint_and_by_unique_nickname_in_any_case() {
    let c = parse(NS).unwrap();
    let fingerprint = c.find("COMEandgo").unwrap().fingerprint;
    assert_eq!(c.by_fingerprint(&fingerprint).unwrap().nickname.as_str(), "comeandgo");
    assert_eq!(c.find(&format!("${fingerprint}")).unwrap().fingerprint, fingerprint);
    assert!(matches!(c.find("nobody"), Err(LookupError::NotFound { .. })));
    assert!(matches!(c.find(&"0".repeat(40)), Err(LookupError::NotFound { .. })));
    assert!(matches!(c.find("not a name"), Err(LookupError::BadName(_))));

    let twice = NS.replace("r Relay5000 ", "r ComeAndGo ");
    let error = parse(&twice).unwrap().find("comeandgo").cloned().unwrap_err();
    let LookupError::Ambiguous { candidates, .. } = &error else { panic!("{error}") };
    assert_eq!(candidates.len(), 2);
    assert!(error.to_string().contains(&fingerprint.to_string()), "{error}");
}

#[test]
fn a_parameter_is_clamped_and_has_a_default() {
    let params: Params = [("low", -7), ("high", 5000)].into_iter().collect();
    assert_eq!(params.get_clamped("absent", 50, 8, 100), 50);
    assert_eq!(params.get_clamped("low", 50, 8, 100), 8);
    assert_eq!(params.get_clamped("high", 50, 8, 100), 100);
    assert_eq!(params.get_clamped("high", 50, 8, 10_000), 5000);
    assert_eq!(params.get_clamped("high", 50, 100, 8), 50);
    assert_eq!(params.iter().count(), 2);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = Consensus::parse(&bytes);
    }

    #[test]
    fn damaged_documents_never_panic(at in 0..NS.len(), byte: u8, which in 0..3usize) {
        let mut bytes = [NS, MICRODESC, VOTE][which].as_bytes().to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = (Consensus::parse(&bytes), Consensus::parse_vote(&bytes));
        bytes.remove(at);
        let _ = Consensus::parse(&bytes);
    }

    #[test]
    fn any_relay_survives_a_round_trip(
        id in 1u64..u64::MAX,
        name in "[a-zA-Z0-9]{1,19}",
        address: [u8; 4],
        ports: (u16, u16),
        weight: u32,
        flags in 0u16..1 << 14,
    ) {
        let mut key = [0xff; 20];
        key[12..].copy_from_slice(&id.to_be_bytes());
        let flags: Flags =
            Flag::ALL.iter().copied().filter(|f| flags >> (*f as u16) & 1 == 1).collect();
        let address = Ipv4Addr::from(address);
        let entry = format!(
            "r {name} {} {} 2020-02-29 00:00:00 {address} {} {}\ns {flags}\nw Bandwidth={weight}\n",
            crate::text::base64(&key), crate::text::base64(&key), ports.0, ports.1,
        );
        let text = NS.replace("directory-footer\n", &format!("{entry}directory-footer\n"));
        let c = parse(&text).unwrap();
        let r = c.by_fingerprint(&RsaId(key)).unwrap();
        prop_assert_eq!(r.nickname.as_str(), name);
        prop_assert_eq!((r.address, r.or_port, r.dir_port), (address, ports.0, ports.1));
        prop_assert_eq!((r.flags, r.bandwidth_kb_s), (flags, Some(weight)));
    }
}

#[test]
fn protocol_versions_are_read() {
    let consensus = Consensus::parse(NS.as_bytes()).expect("a consensus");
    let mut relay = consensus.routers()[0].clone();
    assert!(relay.supports("Link", 4) && !relay.supports("Link", 99), "{:?}", relay.protocols);
    relay.protocols = Some("Cons=1-2 FlowCtrl=1-2 Relay=1,3-4 Odd=x-2,7".into());
    for (name, version, supported) in [
        ("FlowCtrl", 2, true),
        ("FlowCtrl", 3, false),
        ("Flow", 1, false),
        ("Relay", 2, false),
        ("Relay", 1, true),
        ("Relay", 4, true),
        ("Odd", 2, false),
        ("Odd", 7, true),
        ("None", 1, false),
    ] {
        assert_eq!(relay.supports(name, version), supported, "{name}={version}");
    }
    relay.protocols = None;
    assert!(!relay.supports("Link", 4));
}

#[test]
fn an_archived_consensus_may_be_unsorted_or_lack_a_footer() {
    // Without a footer, with `opt`, and with relays in any order, one of them repeated.
    let (head, rest) = NS.split_at(NS.find("\nr ").unwrap() + 1);
    let (body, foot) = rest.split_at(rest.find("directory-footer").unwrap());
    let signatures = &foot[foot.find("directory-signature").unwrap()..];
    let mut entries: Vec<&str> = body.split_inclusive("\nr ").collect();
    entries.reverse();
    let entries: Vec<String> = entries
        .iter()
        .map(|entry| {
            format!("r {}\n", entry.trim_start_matches("r ").trim_end_matches("r ").trim_end())
        })
        .collect();
    let body = format!("{}{}", entries.concat(), entries[0]).replace("\ns ", "\nopt s ");
    let text = format!("{head}{body}{signatures}");
    assert!(parse(&text).is_err());
    let archived = Consensus::parse_archived(text.as_bytes()).unwrap();
    let listed = |router: &Router| Listed {
        fingerprint: router.fingerprint,
        flags: router.flags,
        bandwidth_kb_s: router.bandwidth_kb_s,
        unmeasured: router.unmeasured,
    };
    let expected: Vec<Listed> = parse(NS).unwrap().routers().iter().map(listed).collect();
    assert_eq!(archived.routers(), expected);
    assert_eq!(archived.signatures, 2);
    // What is cut is refused all the same.
    for cut in [head.len() + 10, text.len() - 40] {
        assert!(Consensus::parse_archived(&text.as_bytes()[..cut]).is_err());
    }
    let no_flags = format!("{head}{}{signatures}", entries[0].replace("\ns ", "\nx "));
    assert!(Consensus::parse_archived(no_flags.as_bytes()).is_err());
    assert!(Consensus::parse_archived(VOTE.as_bytes()).is_err());
}
