//! Tests of `flashflow bwfile gate`: a file made from a real consensus, real files, and files that are broken in one way each.

use netdoc::consensus::Consensus;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use testbin::{Ended, Scratch};

/// A consensus of the public network of 2022: 6,088 relays.
const CONSENSUS: &str = "consensus/2022-11-19-10-00-00-consensus";

/// A file of real data, or its path where it is missing.
fn data(name: &str) -> Result<PathBuf, PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data").join(name);
    match fs::metadata(&path) {
        Ok(_) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(path),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

macro_rules! real {
    ($name:expr) => {
        match data($name) {
            Ok(path) => path,
            Err(path) => skip::this_test!("{} does not exist", path.display()),
        }
    };
}

/// A relay of the consensus with the weight that the file gives it.
#[derive(Clone)]
struct Line {
    relay: String,
    kb_s: f64,
    first_octet: u8,
    more: String,
}

/// Lines with the weights of the consensus, up to a tenth more or less.
fn good(consensus: &Consensus) -> Vec<Line> {
    let routers = consensus.routers().iter().filter(|router| router.is_measurable());
    let line = |(place, router): (usize, &netdoc::Router)| Line {
        relay: router.fingerprint.to_string(),
        kb_s: f64::from(router.bandwidth_kb_s.unwrap_or(1))
            * (0.9 + 0.2 * (place * 7 % 11) as f64 / 10.0),
        first_octet: router.address.octets()[0],
        more: "flashflow_mode=echo flashflow_conclusive=1".to_owned(),
    };
    let mut lines: Vec<Line> = routers.enumerate().map(line).collect();
    // The largest relays come first.
    lines.sort_by(|left, right| right.kb_s.total_cmp(&left.kb_s));
    lines
}

fn text(time_unix_s: u64, lines: &[Line]) -> String {
    let mut text = format!("{time_unix_s}\nversion=1.9.0\n=====\n");
    for Line { relay, kb_s, more, .. } in lines {
        // A file has whole numbers from 1 on.
        let kb_s = kb_s.round().max(1.0);
        writeln!(text, "node_id=${relay} bw={kb_s:.0} {more}").expect("memory");
    }
    text
}

fn failed(ended: &Ended) -> Vec<String> {
    let values = ended.values();
    let fails = values.iter().filter(|value| value["verdict"] == "fail");
    fails.map(|value| value["check"].as_str().expect("a name").to_owned()).collect()
}

/// Changes a good file, and whether the previous one has the same change.
type Break = (&'static [&'static str], bool, fn(&mut Vec<Line>));

#[test]
fn a_file_of_the_public_network_passes_and_each_broken_one_fails_what_was_broken() {
    let consensus = real!(CONSENSUS);
    let scratch = Scratch::new();
    let parsed = Consensus::parse(&fs::read(&consensus).expect("there")).expect("a consensus");
    let (made, lines) = (parsed.valid_after, good(&parsed));
    // Nine countries, by the first octet.
    let country = |octet: u8| char::from(b'A' + octet % 9);
    let geoip: String = (1..=223u8)
        .map(|octet| format!("{octet}.0.0.0,{octet}.255.255.255,X{}\n", country(octet)))
        .collect();
    fs::write(scratch.path("geoip"), geoip).expect("space");
    let run = |lines: &[Line], previous: &[Line], at: u64, more: &str| {
        fs::write(scratch.path("new"), text(made, lines) + more).expect("space");
        fs::write(scratch.path("old"), text(made - 3600, previous)).expect("space");
        let (at, consensus) = (at.to_string(), consensus.to_str().expect("UTF-8"));
        let fixed = ["bwfile", "gate", "new", "--previous", "old", "--geoip", "geoip", "--json"];
        let given = ["--at", &at, "--consensus", consensus];
        scratch.run(&[&fixed[..], &given].concat())
    };
    let ended = run(&lines, &lines, made + 3600, "");
    assert_eq!(failed(&ended), Vec::<String>::new(), "{:#?}", ended.out);
    ended.assert_code(0);
    let summary = ended.values().pop().expect("a summary");
    assert_eq!(
        (&summary["passed"], &summary["not_checked"]),
        (&json!(true), &json!(1)),
        "the distance"
    );

    let late = run(&lines, &lines, made + 37 * 3600, "");
    assert_eq!(failed(&late), ["age"]);
    late.assert_code(1);
    assert_eq!(failed(&run(&lines, &lines, made - 3600, "")), ["age"], "from the future");
    let cut = "node_id=$0123456789012345678901234567890123456789 bw";
    assert_eq!(failed(&run(&lines, &lines, made, cut)), ["bad_lines"]);

    let cases: [Break; 12] = [
        (&["compared", "missing"], true, |lines| {
            let mut place = 0;
            lines.retain(|_| {
                place += 1;
                place % 8 != 0
            });
        }),
        (&["measured", "compared", "missing"], true, |lines| {
            lines.truncate(lines.len() * 55 / 100);
        }),
        (&["total_fall"], false, |lines| lines.iter_mut().for_each(|line| line.kb_s *= 0.75)),
        (&["total_rise"], false, |lines| lines.iter_mut().for_each(|line| line.kb_s *= 1.3)),
        (&["scale"], true, |lines| lines.iter_mut().for_each(|line| line.kb_s *= 8.0)),
        (&["deviating"], true, |lines| {
            for (place, line) in lines.iter_mut().enumerate() {
                line.kb_s *= if place % 10 < 6 { 0.25 } else { 1.0 };
            }
        }),
        (&["largest_share"], true, |lines| lines[0].kb_s *= 30.0),
        (&["large_losses"], false, |lines| {
            lines[10..16].iter_mut().for_each(|line| line.kb_s *= 0.5);
        }),
        (&["large_gains"], false, |lines| {
            lines[10..16].iter_mut().for_each(|line| line.kb_s *= 2.0);
        }),
        (&["lower_bounds"], false, |lines| {
            let more = "flashflow_mode=echo flashflow_conclusive=0 flashflow_cause=team_too_small";
            lines[..20].iter_mut().for_each(|line| line.more = more.to_owned());
        }),
        (&["bias_by_country"], true, |lines| {
            for line in lines.iter_mut().filter(|line| line.first_octet % 9 == 4) {
                line.kb_s *= 0.6;
            }
        }),
        (&["measured", "compared", "missing", "total_fall", "large_losses"], false, |lines| {
            lines.iter_mut().for_each(|line| line.more += " vote=0");
        }),
    ];
    for (expected, in_both, break_it) in cases {
        let mut broken = lines.clone();
        break_it(&mut broken);
        let previous = if in_both { &broken } else { &lines };
        let ended = run(&broken, previous, made + 3600, "");
        assert_eq!(failed(&ended), expected, "{:#?}", ended.out);
        ended.assert_code(1);
    }
}

#[test]
fn real_files_of_sbws_and_torflow_are_judged() {
    let documents = real!("archives-sample/documents");
    let scratch = Scratch::new();
    // Cropped files: most relays of the header are missing.
    for (name, at, fails) in [
        ("bandwidth_file_v1.4", "1555882600", "measured"),
        ("bandwidth_file_v1.2", "1547444200", "measured"),
        ("bandwidth_file_v1.0", "1547487700", "largest_share"),
    ] {
        let path = documents.join(name);
        let path = path.to_str().expect("UTF-8");
        let ended = scratch.run(&["bwfile", "gate", path, "--at", at, "--json"]);
        ended.assert_code(1);
        assert_eq!(failed(&ended), [fails], "{name}");
        let old = scratch.run(&["bwfile", "gate", path, "--json"]);
        assert_eq!(failed(&old), ["age", fails], "{name}, today");
        let shown = scratch.run(&["bwfile", "show", path, "--header", "--json"]);
        shown.assert_code(0);
        let unknown = shown.values().into_iter().filter(|line| line["meaning"].is_null());
        assert_eq!(unknown.collect::<Vec<Value>>(), Vec::<Value>::new(), "{name}");
    }
}

/// A vote of an authority on relays 1 to `count`, all with this measurement.
fn vote(authority: u8, count: u8, kb_s: u32) -> String {
    let base64 = |bytes: &[u8]| {
        let mut text = String::new();
        netdoc::write::push_base64_lines(&mut text, bytes);
        text.trim_end().trim_end_matches('=').to_owned()
    };
    let identity = format!("{authority:02X}").repeat(20);
    let mut text = format!(
        "network-status-version 3\nvote-status vote\nconsensus-methods 32 33 34\npublished 2026-11-22 00:50:00\n\
         valid-after 2026-11-22 01:00:00\nfresh-until 2026-11-22 02:00:00\nvalid-until 2026-11-22 04:00:00\n\
         voting-delay 300 300\nknown-flags Fast Running Valid\n\
         dir-source auth{authority} {identity} 127.0.0.1 127.0.0.1 80 443\ncontact none\n"
    );
    for relay in 1..=count {
        let (identity, digest) = (base64(&[relay; 20]), base64(&[9; 20]));
        writeln!(
            text,
            "r relay{relay} {identity} {digest} 2026-11-22 00:00:00 10.0.0.{relay} 9001 0\ns Fast Running Valid\n\
             v Tor 0.4.9.11\nw Bandwidth=1000 Measured={kb_s}\np reject 1-65535"
        )
        .expect("memory");
    }
    text + &format!(
        "directory-footer\ndirectory-signature {identity} {identity}\n-----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
    )
}

#[test]
fn votes_limits_and_output_are_options() {
    let scratch = Scratch::new();
    let relay = |number: u8| format!("{number:02X}").repeat(20);
    let line = |number: u8| format!("node_id=${} bw=500\n", relay(number));
    let header = "1767225600\nversion=1.9.0\nnumber_consensus_relays=20\n=====\n";
    let file = header.to_owned() + &(1..=17).map(line).collect::<String>();
    fs::write(scratch.path("new"), file).expect("space");
    // As tor's `v3-status-votes`. Our own vote, number 3, has measured fewer.
    let votes = vote(1, 20, 400) + &vote(2, 20, 600) + &vote(3, 5, 1);
    fs::write(scratch.path("votes"), votes).expect("space");
    let gate = |more: &[&str]| {
        let fixed =
            ["bwfile", "gate", "new", "--at", "1767229200", "--votes", "votes", "--own", "auth3"];
        scratch.run(&[&fixed[..], more].concat())
    };
    let ended = gate(&["--json"]);
    ended.assert_code(1);
    assert_eq!(failed(&ended), ["compared", "missing"], "85 % and 15 %");
    let found = ended.values();
    let missing = found.iter().find(|value| value["check"] == "missing").expect("a check");
    assert_eq!((&missing["figure"], &missing["limit"]), (&json!(15.0), &json!(10.0)));
    let what = missing["what"].as_str().expect("text");
    assert!(what.starts_with("3 of 20 relays") && what.contains("3 no line"), "{what}");

    let limits = ["--limit", "compared_min_percent=80", "--limit", "missing_max_percent=15"];
    gate(&limits).assert_code(0);
    gate(&[&limits[..], &["--strict"]].concat()).assert_code(1);
    fs::write(
        scratch.path("c.toml"),
        "[gate]\ncompared_min_percent = 80\nmissing_max_percent = 15\n",
    )
    .expect("space");
    gate(&["--config", "c.toml"]).assert_code(0);
    // Those of the command line take precedence.
    gate(&["--config", "c.toml", "--limit", "missing_max_percent=5"]).assert_code(1);

    let text = gate(&[]);
    assert!(text.out[0].starts_with("pass  bad_lines"), "{:?}", text.out);
    assert!(
        text.out.last().is_some_and(|last| last.contains("does not pass: of 15 checks, 2 failed"))
    );
    let metrics = gate(&["--prometheus"]).out;
    for line in ["flashflow_gate_passed 0", "flashflow_gate_figure{check=\"missing\"} 15"] {
        assert!(metrics.iter().any(|known| known == line), "no {line} in {metrics:#?}");
    }

    for (more, parts) in [
        (&["--limit", "age=3"][..], &["no such limit", "age_max_h"][..]),
        (&["--limit", "age_max_h"], &["NAME=NUMBER"]),
        (&["--limit", "age_max_h=-1"], &["age_max_h"]),
        (&["--previous", "none"], &["cannot read the previous file none"]),
        (&["--previous", "votes"], &["votes"]),
        (&["--votes", "new"], &["there is no vote in it"]),
    ] {
        let ended = gate(more);
        ended.assert_code(2);
        assert!(parts.iter().all(|part| ended.error.contains(part)), "{more:?}: {}", ended.error);
    }
    fs::write(scratch.path("own"), vote(3, 5, 1)).expect("space");
    let ended = scratch.run(&["bwfile", "gate", "new", "--votes", "own", "--own", "auth3"]);
    ended.assert_code(2);
    assert!(ended.error.contains("all are of --own"), "{}", ended.error);
    scratch.run(&["bwfile", "gate", "none"]).assert_code(2);
}

#[test]
fn each_other_place_has_checks_of_its_own() {
    let scratch = Scratch::new();
    let file = |header: &str, kb_s: &dyn Fn(u8) -> u64| {
        let line = |number: u8| {
            let relay = format!("{number:02X}").repeat(20);
            format!("node_id=${relay} bw={}\n", kb_s(number))
        };
        let lines: String = (1..=20).map(line).collect();
        format!("1767225600\nversion=1.9.0\nnumber_consensus_relays=20\n{header}=====\n{lines}")
    };
    let write = |name: &str, text: String| fs::write(scratch.path(name), text).expect("space");
    write("new", file("scanner_country=AT\n", &|_| 1000));
    // In France, relays 1 to 4 are four times as fast; in the US, all but these have half of our weights.
    write("fr", file("scanner_country=FR\n", &|number| if number <= 4 { 4000 } else { 1000 }));
    write("us", file("scanner_country=US\n", &|number| if number <= 4 { 1000 } else { 500 }));
    let gate = |more: &[&str]| {
        let fixed = ["bwfile", "gate", "new", "--at", "1767229200", "--place", "fr"];
        scratch.run(&[&fixed[..], more].concat())
    };
    let us = ["--place", "us"];
    let ended = gate(&[&us[..], &["--json"]].concat());
    ended.assert_code(1);
    let found: Vec<Value> =
        ended.values().into_iter().filter(|value| value["place"].is_string()).collect();
    let figures: Vec<Value> = found
        .iter()
        .map(|check| json!([check["place"], check["check"], check["figure"], check["verdict"]]))
        .collect();
    let expected = [
        json!(["FR", "place_ratio", 1.0, "pass"]),
        json!(["FR", "place_deviating", 50.0, "fail"]),
        json!(["US", "place_ratio", 2.0, "fail"]),
        json!(["US", "place_deviating", 0.0, "pass"]),
    ];
    assert_eq!(figures, expected, "{found:#?}");
    let what = found[1]["what"].as_str().expect("text");
    for part in ["FR: 4 of 20 relays", "0.25 times", "bwfile explain --place"] {
        assert!(what.contains(part), "no {part} in {what}");
    }

    let limits =
        ["--limit", "place_deviating_max_percent=50", "--limit", "place_ratio_max_factor=2"];
    gate(&[&us[..], &limits].concat()).assert_code(0);
    gate(&["--limit", "place_deviating_max_percent=50"]).assert_code(0);
    gate(&["--limit", "deviation_percent=80"]).assert_code(0);

    // Two files of one country, and one without a country, have different names.
    write("us2", file("scanner_country=US\n", &|_| 1000));
    write("none", file("", &|_| 1000));
    let metrics = gate(&["--place", "us", "--place", "us2", "--place", "none", "--prometheus"]).out;
    for line in [
        "flashflow_gate_figure{check=\"place_ratio\",place=\"FR\"} 1",
        "flashflow_gate_figure{check=\"place_ratio\",place=\"US (us)\"} 2",
        "flashflow_gate_check_failed{check=\"place_ratio\",place=\"US (us)\"} 1",
        "flashflow_gate_figure{check=\"place_ratio\",place=\"US (us2)\"} 1",
        "flashflow_gate_limit{check=\"place_ratio\",place=\"none\"} 1.25",
    ] {
        assert!(metrics.iter().any(|known| known == line), "no {line} in {metrics:#?}");
    }

    // A team that stopped a while ago is no measure of ours.
    write("us", file("", &|_| 500).replacen("1767225600", "1767000000", 1));
    let text = gate(&[&us[..], &["--limit", "deviation_percent=80"]].concat());
    text.assert_code(0);
    assert!(text.out.concat().contains("us: its newest result and ours are 62 h apart"));
    for (place, parts) in [("absent", "file of another place absent"), ("c.toml", "c.toml")] {
        write("c.toml", "[gate]\n".to_owned());
        let ended = gate(&["--place", place]);
        ended.assert_code(2);
        assert!(ended.error.contains(parts), "{}", ended.error);
    }
}
