use super::*;
use std::collections::BTreeMap;

fn advice(text: &str, now: u64, context: Context<'_>) -> Vec<String> {
    let report = check_as_tor(text.as_bytes(), now);
    advise(text.as_bytes(), &report, now, context).iter().map(ToString::to_string).collect()
}

fn alone(text: &str) -> Vec<String> {
    advice(text, NOW, Context::default())
}

const HEADER: &str = "version=1.9.0\nnumber_eligible_relays=9\nnumber_consensus_relays=10\n=====\n";

fn line(number: u8, rest: &str) -> String {
    format!("node_id={} {rest}\n", id(number))
}

/// Whether the only advice has these words.
#[track_caller]
fn assert_only(advice: &[String], words: &str) {
    assert!(advice.len() == 1 && advice[0].contains(words), "{words}: {advice:?}");
}

#[test]
fn a_generated_file_gets_no_advice() {
    assert_eq!(alone(&text(&sample())), Vec::<String>::new());
}

#[test]
fn problems_that_tor_accepts_silently_are_reported() {
    let file = |rest: &str| format!("{NOW}\n{HEADER}{rest}");
    assert_only(&alone(&file(&line(1, "bw=0"))), "bw=0; the minimum is 1");
    assert_only(&alone(&file(&line(1, "bw=5 vote=0"))), "tor votes on none");
    assert_only(&alone(&file(&line(1, "bw=5").repeat(2))[..]), "line 7");
    let good = line(1, "bw=5");
    assert_only(
        &alone(&format!("{NOW}\nversion=1.9.0\n=====\n{good}")),
        "number_eligible_relays and",
    );
    assert_only(&alone(&format!("{}\n{HEADER}{good}", NOW + 60)), "60 s in the future");
    assert_only(&alone(&format!("{}\n{HEADER}{good}", NOW - 40 * 3600)), "40 h old");
    let other = HEADER.replace("=====\n", "latest_bandwidth=2026-01-01T00:00:01\n=====\n");
    assert_only(&alone(&format!("{NOW}\n{other}{good}")), "latest_bandwidth");
    assert_only(&alone(&file(&good).replace("=====\n", "")), "`=====`");
    assert_only(
        &alone(&file(&line(1, &format!("bw=5 error={}", "x".repeat(1000))))),
        "more than 1022",
    );
    assert_eq!(alone("x\n"), Vec::<String>::new(), "tor warns itself");
}

#[test]
fn the_60_percent_gate_and_the_cap_are_checked() {
    let good = line(1, "bw=5");
    let few = HEADER.replace("=9", "=5");
    assert_only(&alone(&format!("{NOW}\n{few}{good}")), "5 of 10 relays, under 60 %");
    // A file cannot relax the requirement, but may tighten it.
    let limit = |header: &str, percent| {
        header.replace("=====", &format!("minimum_percent_eligible_relays={percent}\n====="))
    };
    assert_only(&alone(&format!("{NOW}\n{}{good}", limit(&few, 50))), "5 of 10 relays, under 60 %");
    let strict = alone(&format!("{NOW}\n{}{good}", limit(HEADER, 95)));
    assert_only(&strict, "9 of 10 relays, under 95 %");
    // Forty relays, and one of them with 6 % of all.
    let even: String = (1..40).map(|number| line(number, "bw=100")).collect();
    let file = |bw| format!("{NOW}\n{HEADER}{even}{}", line(40, &format!("bw={bw}")));
    assert_eq!(alone(&file(205)), Vec::<String>::new());
    assert_only(&alone(&file(250)), "has 6 % of all bandwidth");
}

#[test]
fn missing_and_excessive_relays_are_reported() {
    let consensus = Consensus::parse(include_bytes!("../../../tests/data/consensus-ns")).unwrap();
    let up: Vec<RsaId> = consensus
        .routers()
        .iter()
        .filter(|router| router.is_measurable())
        .map(|router| router.fingerprint)
        .collect();
    let file = |relays: &[RsaId]| {
        let lines: String = relays.iter().map(|relay| format!("node_id={relay} bw=5\n")).collect();
        format!("{NOW}\n{HEADER}{lines}")
    };
    let context = Context { consensus: Some(&consensus), ..Context::default() };
    assert_eq!(advice(&file(&up), NOW, context), Vec::<String>::new());
    let with_other = [&up[..], &[id(7)]].concat();
    assert_only(&advice(&file(&with_other), NOW, context), "1 relay has a bandwidth but is not");
    // Strangers don't make up for those that are missing.
    let strangers: Vec<RsaId> =
        (50..50 + up.len()).map(|number| id(u8::try_from(number).unwrap())).collect();
    let of_others = advice(&file(&strangers), NOW, context);
    assert!(
        of_others.iter().any(|problem| problem.contains("by the consensus, it has 0 of")),
        "{of_others:?}"
    );
    let without = advice(&file(&up[1..]), NOW, context);
    let one = format!("1 relay of the consensus is up and has no line that tor takes: {}", up[0]);
    assert!(without.contains(&one), "{without:?}");
    let without = advice(&file(&up[2..]), NOW, context);
    assert!(
        without.iter().any(|problem| problem.contains(&format!("such as {}", up[0]))),
        "{without:?}"
    );
    let limits = BTreeMap::from([(id(1), 4999), (id(2), 5000)]);
    let context = Context { limits_bytes_s: Some(&limits), ..Context::default() };
    let both = file(&[id(1), id(2)]);
    assert_only(&advice(&both, NOW, context), "has 5 KB/s, but its operator allows 4999");
}

/// Both readers of a line have one verdict: that of tor.
#[test]
fn a_line_that_tor_takes_has_a_line_with_that_bandwidth() {
    let consensus = Consensus::parse(include_bytes!("../../../tests/data/consensus-ns")).unwrap();
    let up = consensus.routers().iter().filter(|router| router.is_measurable());
    let up: Vec<RsaId> = up.map(|router| router.fingerprint).collect();
    let context = Context { consensus: Some(&consensus), ..Context::default() };
    let others: String =
        up[1..].iter().map(|fingerprint| format!("node_id={fingerprint} bw=5\n")).collect();
    for words in ["bw=+5", "bw=5\r", "bw=5\x0bKB", "bw=05", "bw=5 vote=1"] {
        let text = format!("{NOW}\n{HEADER}{others}node_id={} {words}\n", up[0]);
        assert_eq!(advice(&text, NOW, context), Vec::<String>::new(), "{words:?}");
        let report = check_as_tor(text.as_bytes(), NOW);
        let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
        let line = parsed.file.relays.last().unwrap();
        assert_eq!(report.relays.get(&up[0]).map(|bw| u64::from(*bw)), Some(line.bw_kb_s));
    }
    // Of two lines tor takes the later, unless that has `vote=0`.
    for (words, expected) in
        [(["bw=5", "bw=7"], 7), (["bw=5", "bw=7 vote=0"], 5), (["bw=5 vote=0", "bw=7"], 7)]
    {
        let text = format!("{NOW}\n{HEADER}{}{}", line(1, words[0]), line(1, words[1]));
        let report = check_as_tor(text.as_bytes(), NOW);
        let parsed = BandwidthFile::parse(text.as_bytes()).unwrap();
        assert_eq!((report.relays[&id(1)], parsed.file.relays.len()), (expected, 1));
        let line = &parsed.file.relays[0];
        assert_eq!((line.bw_kb_s, line.vote), (u64::from(expected), true), "{words:?}");
    }
}

#[test]
fn a_line_that_tor_skips_has_one_verdict() {
    for (rest, is_warned) in [
        ("bw=1000.5", true),
        ("bw=1e3", true),
        ("bw=-1", true),
        ("bw=5 bw=5", true),
        ("bw=5 nick=a\0", true),
        ("", true),
        ("bw=5 vote=0 nick=not-one", false),
    ] {
        let text = format!("{NOW}\n{HEADER}{}{}", line(1, "bw=5"), line(2, rest));
        let report = check_as_tor(text.as_bytes(), NOW);
        let of_line = report.warnings.iter().filter(|warning| warning.line == 7).count();
        let advice = alone(&text);
        assert_eq!((of_line, advice.len()), if is_warned { (1, 0) } else { (0, 1) }, "{rest}");
    }
    // In a header tor leaves lines out without a warning.
    let text = format!("{NOW}\nversion=1.9.0\nodd line=1\n{}{}", &HEADER[14..], line(1, "bw=5"));
    let report = check_as_tor(text.as_bytes(), NOW);
    assert_eq!(alone(&text), Vec::<String>::new());
    assert_eq!(report.lines.iter().filter(|(_, verdict)| verdict.is_fault()).count(), 1);
}

#[test]
fn relays_sharing_an_ed25519_identity_are_reported() {
    let key = |number: u8| crate::text::base64(&[number; 32]);
    let of = |relay: u8, key: &str, rest: &str| {
        line(relay, &format!("bw=5 master_key_ed25519={key}{rest}"))
    };
    let file = |lines: &[String]| alone(&format!("{NOW}\n{HEADER}{}", lines.concat()));
    assert_eq!(
        file(&[of(1, &key(1), ""), of(2, &key(2), ""), line(3, "bw=5")]),
        Vec::<String>::new()
    );
    let twice = file(&[of(1, &key(1), ""), of(2, &key(2), ""), of(3, &key(1), " vote=0")]);
    assert_only(
        &twice,
        &format!("2 relays have the same master_key_ed25519: {}, {}", id(1), id(3)),
    );
    let many: Vec<String> = (1..6).map(|relay| of(relay, &key(1), "")).collect();
    assert_only(&file(&many), "5 relays have the same master_key_ed25519");
}

#[test]
fn measurements_of_authorities_do_not_count_for_the_vote() {
    let consensus = Consensus::parse(include_bytes!("../../../tests/data/consensus-ns")).unwrap();
    let is_authority = |router: &&crate::consensus::Router| {
        router.flags.contains(crate::consensus::Flag::Authority)
    };
    let authority = consensus.routers().iter().find(is_authority).unwrap().fingerprint;
    let text = format!("{NOW}\n{HEADER}node_id={authority} bw=5\n");
    let report = check_as_tor(text.as_bytes(), NOW);
    assert_eq!(report.authorities(&consensus), [authority]);
    let context = Context { consensus: Some(&consensus), ..Context::default() };
    let found = advice(&text, NOW, context);
    assert!(found.iter().any(|problem| problem.contains("votes on none")), "{found:?}");
}
