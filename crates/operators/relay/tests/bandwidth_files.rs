//! Compares votes of C tor authorities by bandwidth files with `netdoc::check_as_tor`, for valid and invalid lines.
//!
//! The relays are descriptors without processes, so that many lines can be compared.

use crate::common::publish_to_all;
use crate::common::recorded_vote::{self, RecordedVote};
use lab::{Network, NetworkSpec, Node};
use link::{Clock, IdentityIssuer, LongTermKeys, unix_time_s};
use netdoc::RsaId;
use netdoc::fetch::{Fetcher, Resource};
use onion::Duration;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use relay::descriptor::{Announcement, Capabilities, TapKey, write};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;

/// Relays that only have descriptors.
const RELAYS: u16 = 24;
/// Number of files with random lines, unless the environment asks for more. Three authorities read one file each in every
/// voting period of ten seconds.
const DRAWN: usize = 9;
/// Environment variable with the number of files. 200 take half an hour.
const DRAWN_VARIABLE: &str = "FLASHFLOW_BANDWIDTH_FILES";
/// Environment variable with the file for recorded votes, if they are to be kept.
const KEPT_VARIABLE: &str = "FLASHFLOW_BANDWIDTH_KEEP";
/// Number of lines of each file.
const LINES: usize = 120;
/// Time from the making of a vote to its `valid-after`.
const VOTE_BEFORE_S: u64 = 5;

/// Publishes descriptors of relays at all authorities.
fn publish_relays(network: &Network) -> Vec<RsaId> {
    let rng = &mut StdRng::from_seed([1; 32]);
    let mut issuer = IdentityIssuer::new([2; 32], unix_time_s()).expect("keys");
    let mut all = Vec::new();
    for number in 0..RELAYS {
        let keys = LongTermKeys::generate(rng).expect("keys");
        let certified = issuer.certify(&keys).expect("certificates");
        let tap = TapKey::generate(&keys, rng).expect("a key");
        let announcement = Announcement {
            nickname: format!("paper{number}").parse().expect("a nickname"),
            address: Ipv4Addr::LOCALHOST,
            or_port: 20_000 + number,
            rate_bytes_s: 1 << 30,
            burst_bytes_s: 1 << 30,
            observed_bytes_s: 1 << 20,
            published: unix_time_s(),
            uptime_s: 100,
            contact: None,
            capabilities: Capabilities::of_engine(false),
            exit: None,
            family: Vec::new(),
            family_certs: Vec::new(),
            overload: String::new(),
        };
        let text = write(&announcement, None, &keys, &certified, &tap).expect("written");
        publish_to_all(network, &text);
        all.push(certified.identity.rsa);
    }
    all
}

/// A valid or invalid line about a relay. Each kind is a plausible mistake of a generator, or is parsed by C in a special way.
fn line(relay: &RsaId, kind: usize, bw: u32) -> Vec<u8> {
    let hex = relay.to_string();
    let lower = hex.to_lowercase();
    let cut = &hex[..39];
    let text = match kind {
        0 => format!("node_id=${hex} bw={bw}\n"),
        1 => format!("node_id={hex} bw={bw}\n"),
        2 => format!("bw={bw} node_id=${lower} nick=paper time=2026-01-01T00:00:00\n"),
        3 => format!("node_id=${hex} bw={bw} vote=0\n"),
        4 => format!("vote=0 node_id=${hex} bw={bw} unmeasured=1\n"),
        5 => format!("node_id=${hex} bw={bw} vote=01\n"),
        6 => format!("node_id=${hex} bw={bw} vote=1\n"),
        7 => format!("node_id=${hex} bw={bw} bw={bw}\n"),
        8 => format!("node_id=${hex} node_id=${hex} bw={bw}\n"),
        9 => format!("node_id=${hex} bw=-{bw}\n"),
        10 => format!("node_id=${hex} bw=+{bw}\n"),
        11 => format!("node_id=${hex} bw=000{bw}\n"),
        12 => format!("node_id=${hex} bw=0\n"),
        13 => format!("node_id=${hex} bw=\n"),
        14 => format!("node_id=${hex} bw={bw}kb\n"),
        15 => format!("node_id=${hex} bw={bw}.5\n"),
        16 => format!("node_id=${hex} bw=0x{bw:x}\n"),
        // From 2^31 on, an authority makes a vote that it cannot parse, because `Measured=` is negative.
        17 => format!("node_id=${hex} bw={}\n", i32::MAX),
        18 => format!("node_id=${hex} bw={}\n", u64::from(bw) + (1 << 32)),
        19 => format!("node_id=${hex} bw=99999999999999999999999\n"),
        20 => format!("node_id=${hex} bw={}\n", (1u64 << 32) + u64::from(bw / 2)),
        21 => format!("node_id=${cut} bw={bw}\n"),
        22 => format!("node_id=${hex}0 bw={bw}\n"),
        23 => format!("node_id=$${hex} bw={bw}\n"),
        24 => format!("node_id=${hex}~paper bw={bw}\n"),
        25 => format!("node_id=${cut}X bw={bw}\n"),
        26 => format!("node_id= bw={bw}\n"),
        27 => format!("node_id=${hex}\n"),
        28 => format!("bw={bw}\n"),
        29 => format!("node_id=${hex}\tbw={bw}\n"),
        30 => format!("  node_id=${hex}   bw={bw}  \n"),
        31 => format!("node_id=${hex} bw={bw}\r\n"),
        32 => format!("node_id=${hex} xbw={bw}\n"),
        33 => format!("node_id=${hex} bw ={bw}\n"),
        34 => format!("NODE_ID=${hex} BW={bw}\n"),
        35 => format!("node_id=${hex},bw={bw}\n"),
        36 => format!("node_id=${hex} bw={bw} error={}\n", "x".repeat(1500)),
        37 => format!("{}node_id=${hex} bw={bw}\n", "a=b ".repeat(600)),
        38 => format!("node_id=${hex} bw={bw}\0 vote=0\n"),
        39 => format!("node_id=${hex} \0bw={bw}\n"),
        40 => "\n".to_owned(),
        41 => "   \n".to_owned(),
        42 => "=====\n".to_owned(),
        43 => "====\n".to_owned(),
        44 => "software=late\n".to_owned(),
        45 => format!("# node_id=${hex} bw={bw}\n"),
        46 => format!("node_id=${hex} bw=1{bw} vote=0x\n"),
        47 => format!("node_id=${hex} bw={bw} master_key_ed25519=\n"),
        48 => format!("node_id=${hex} bw={bw} vote\n"),
        49 => format!("bw= {bw} node_id=${hex}\n"),
        50 => format!("node_id=${hex} bw={bw} rtt=380 success=1 error_stream=0\n"),
        _ => format!("node_id=${hex} bw={bw} \u{e9}\n"),
    };
    text.into_bytes()
}

const KINDS: usize = 52;

/// A file of random valid and invalid lines, several for each relay.
fn drawn(relays: &[RsaId], now: u64, rng: &mut StdRng) -> Vec<u8> {
    let mut text =
        format!("{}\nversion=1.9.0\nsoftware=corpus\n", now - rng.random_range(0..100_000))
            .into_bytes();
    if rng.random_bool(0.8) {
        text.extend(b"=====\n");
    }
    for _ in 0..LINES {
        let relay = &relays[rng.random_range(0..relays.len())];
        // Half of the lines are valid, so that some relays are voted on.
        let kind = if rng.random_bool(0.3) { 0 } else { rng.random_range(0..KINDS) };
        text.extend(line(relay, kind, rng.random_range(1..100_000)));
    }
    if rng.random_bool(0.3) {
        text.pop();
    }
    text
}

/// Files with unusual headers or structure.
fn odd(relays: &[RsaId], now: u64) -> Vec<(&'static str, Vec<u8>)> {
    let body: String =
        (100..).zip(relays).map(|(bw, relay)| format!("node_id=${relay} bw={bw}\n")).collect();
    let with = |head: &str| format!("{head}{body}").into_bytes();
    let headers = |count: usize| {
        let lines: String = (0..count).map(|number| format!("key{number}=value\n")).collect();
        with(&format!("{now}\nversion=1.9.0\n{lines}=====\n"))
    };
    vec![
        ("empty", Vec::new()),
        ("a newline", b"\n".to_vec()),
        ("no timestamp", with("version=1.9.0\n=====\n")),
        ("a date instead", with("2026-01-01T00:00:00\n=====\n")),
        ("a blank before the time", with(&format!(" {now}\n=====\n"))),
        ("a blank after the time", with(&format!("{now} \n=====\n"))),
        ("a carriage return", with(&format!("{now}\r\n=====\r\n"))),
        ("the time alone", format!("{now}\n").into_bytes()),
        ("the time without an end", now.to_string().into_bytes()),
        ("almost stale", with(&format!("{}\n=====\n", now - 3 * 86_400 + 600))),
        ("stale", with(&format!("{}\n=====\n", now - 3 * 86_400 - 60))),
        ("of the future", with(&format!("{}\n=====\n", now + 86_400))),
        ("a negative time", with("-5\n=====\n")),
        ("a time beyond 64 bits", with("99999999999999999999999\n=====\n")),
        ("no terminator", with(&format!("{now}\nversion=1.9.0\nsoftware=corpus\n"))),
        ("a short terminator", with(&format!("{now}\nversion=1.9.0\n====\n"))),
        ("no header", with(&format!("{now}\n"))),
        ("50 lines of header", headers(48)),
        ("51 lines of header", headers(49)),
        ("60 lines of header", headers(58)),
        ("a header of 1024 bytes", {
            let head = format!("{now}\nversion=1.9.0\n");
            // `timestamp=`, and blanks instead of newlines but for the last.
            let used = "timestamp=".len() + head.len() - 1;
            let filler = "x".repeat(1024 - used - " long=".len());
            with(&format!("{head}long={filler}\n=====\n"))
        }),
        ("a header of 1025 bytes", {
            let head = format!("{now}\nversion=1.9.0\n");
            let used = "timestamp=".len() + head.len() - 1;
            let filler = "x".repeat(1025 - used - " long=".len());
            with(&format!("{head}long={filler}\n=====\n"))
        }),
        (
            "odd headers",
            with(&format!(
                "{now}\nversion=1.9.0\nhas a=blank\nnovalue=\n=nokey\nnoequals\n\nkey=v=w\ttab=1\n=====\nlate=1\n"
            )),
        ),
        (
            "vote=0 in the header",
            with(&format!("{now}\nvote=0\nnode_id={} bw=9 vote=0\n", relays[0])),
        ),
    ]
}

/// The relevant content of a vote.
struct Vote {
    valid_after: u64,
    /// `Measured=` of each relay, in KB/s, as 32 bits.
    measured: BTreeMap<RsaId, u32>,
    /// All listed relays.
    listed: Vec<RsaId>,
    headers: Option<String>,
    digest: Option<String>,
}

impl Vote {
    fn fetch(authority: &Node) -> Option<Self> {
        let address = authority.dir_addr().expect("an authority");
        let bytes = Fetcher::default().get(address, &Resource::CurrentVote).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let parsed = netdoc::consensus::Consensus::parse_vote(&bytes).expect("a vote");
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key));
            found.map(str::to_owned)
        };
        // Parsed here, because `%d` makes large values negative, which parsers of votes refuse.
        let weights = text.lines().filter_map(|line| line.strip_prefix("w "));
        let measured = |line: &str| {
            let found = line.split(' ').find_map(|pair| pair.strip_prefix("Measured="))?;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "32 bits, signed or not"
            )]
            Some(found.parse::<i64>().expect("a number") as u32)
        };
        let listed: Vec<RsaId> = parsed.routers().iter().map(|router| router.fingerprint).collect();
        let weights: Vec<Option<u32>> = weights.map(measured).collect();
        assert_eq!(weights.len(), listed.len());
        let pairs = listed.iter().zip(weights);
        let measured = pairs.filter_map(|(relay, bw)| bw.map(|bw| (*relay, bw))).collect();
        let headers = value("bandwidth-file-headers ");
        let digest = value("bandwidth-file-digest sha256=");
        Some(Self { valid_after: parsed.valid_after, measured, listed, headers, digest })
    }
}

/// Waits for the vote that was made after this time.
fn vote_after(authority: &Node, unix_s: u64) -> Vote {
    let (_nobody, nothing) = channel::<()>();
    let clock = Clock::start();
    let patience = clock.now() + Duration::from_secs(100);
    loop {
        if let Some(vote) = Vote::fetch(authority)
            && vote.valid_after > unix_s + VOTE_BEFORE_S
        {
            return vote;
        }
        assert!(clock.now() < patience, "{}: no vote", authority.nickname());
        let _timeout = nothing.recv_timeout(Duration::from_millis(300));
    }
}

/// Tor's warnings when it verifies a configuration with this bandwidth file.
fn logged(folder: &Path, file: &Path) -> Vec<String> {
    let text = "AuthoritativeDirectory 1\nV3AuthoritativeDirectory 1\nContactInfo nobody\nAddress 127.0.0.1\n\
                ORPort 127.0.0.1:9\nDirPort 127.0.0.1:9\nAssumeReachable 1\nTestingTorNetwork 1\nExitRelay 0\n\
                DirAuthority test orport=9 v3ident=0000000000000000000000000000000000000001 127.0.0.1:9 \
                0000000000000000000000000000000000000002\nSocksPort 0\n";
    let torrc = folder.join("torrc");
    fs::write(&torrc, text).expect("written");
    let mut tor = Command::new("tor");
    tor.args(["--verify-config", "--defaults-torrc", "/dev/null", "-f"]).arg(&torrc);
    tor.arg("--DataDirectory").arg(folder).arg("--V3BandwidthsFile").arg(file);
    let ended = tor.output().expect("tor");
    assert!(ended.status.success(), "{ended:?}");
    let text = String::from_utf8(ended.stdout).expect("tor escapes other bytes");
    let warnings = text.lines().filter_map(|line| Some(line.split_once(" [warn] ")?.1));
    let about_files = |warning: &&str| {
        warning.contains("andwidth file") || warning.contains("andwidth measurement file")
    };
    warnings.filter(about_files).map(str::to_owned).collect()
}

/// Tor reads the file when it verifies its configuration, which takes milliseconds and needs no network.
#[test]
fn tor_logs_the_warnings_that_the_check_quotes() {
    let folder = tempfile::tempdir().expect("a folder");
    let relays: Vec<RsaId> = (1..25).map(|number| RsaId([number; 20])).collect();
    let now = unix_time_s();
    let mut corpus: Vec<(String, Vec<u8>)> =
        odd(&relays, now).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    let mut every = format!("{now}\nversion=1.9.0\n=====\n").into_bytes();
    (0..KINDS).for_each(|kind| every.extend(line(&relays[kind % relays.len()], kind, 777)));
    corpus.push(("each kind".to_owned(), every));
    for (name, bytes) in [
        ("annotated", format!("@type bandwidth-file 1.0\n{now}\n").into_bytes()),
        ("a byte-order mark", format!("\u{feff}{now}\n").into_bytes()),
        ("compressed", b"\x1f\x8b\x08\x00\x00\xff\n'\"\\\t".to_vec()),
        ("a NUL", format!("{now}\n=====\n\0\nbw=1\0\n").into_bytes()),
        (
            "odd bytes",
            [format!("{now}\n=====\n").as_bytes(), b"bw=\x01\x7f\x80\xff'\"\\\r\n"].concat(),
        ),
    ] {
        corpus.push((name.to_owned(), bytes));
    }
    let mut kinds = BTreeSet::new();
    for (name, bytes) in &corpus {
        let path = folder.path().join("file");
        fs::write(&path, bytes).expect("written");
        // Tor's age may differ by a second.
        let is_age =
            |warning: &String| warning.starts_with("Bandwidth measurement file stale. Age: ");
        let expected: Vec<String> = netdoc::check_as_tor(bytes, unix_time_s())
            .warnings
            .into_iter()
            .map(|warning| warning.text)
            .collect();
        let found = logged(folder.path(), &path);
        let is_same =
            |(ours, tors): (&String, &String)| ours == tors || (is_age(ours) && is_age(tors));
        assert!(
            expected.len() == found.len() && expected.iter().zip(&found).all(is_same),
            "{name}: {expected:#?} {found:#?}"
        );
        kinds.extend(
            found.iter().filter_map(|warning| warning.split(':').next()).map(str::to_owned),
        );
    }
    // All warnings of tor about bandwidth files, except that it cannot open one.
    assert_eq!(kinds.len(), 11, "{kinds:#?}");
}

#[test]
fn authorities_vote_as_the_check_predicts() {
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let relays = publish_relays(&network);
    let known: Vec<[u8; 20]> = relays.iter().map(|relay| relay.0).collect();
    network.wait_until_running(&known, Duration::from_secs(100)).expect("listed");

    let rng = &mut StdRng::from_seed([3; 32]);
    let mut now = unix_time_s();
    let mut corpus: Vec<(String, Vec<u8>)> =
        odd(&relays, now).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    // Each kind of line at least once, as the only line of its relay.
    for (part, kinds) in (0..KINDS).collect::<Vec<_>>().chunks(relays.len()).enumerate() {
        let mut text = format!("{now}\nversion=1.9.0\n=====\n").into_bytes();
        kinds.iter().zip(&relays).for_each(|(kind, relay)| text.extend(line(relay, *kind, 777)));
        corpus.push((format!("each kind, part {part}"), text));
    }
    let asked = std::env::var(DRAWN_VARIABLE).ok().and_then(|text| text.parse().ok());
    for number in 0..asked.unwrap_or(DRAWN) {
        corpus.push((format!("drawn {number}"), drawn(&relays, now, rng)));
    }
    let mut all: Vec<RecordedVote> = Vec::new();
    for files in corpus.chunks(network.authorities().len()) {
        for ((_, bytes), authority) in files.iter().zip(network.authorities()) {
            let path = network.dir().join(format!("{}.v3bw", authority.nickname()));
            fs::write(&path, bytes).expect("written");
            let line = format!("SETCONF V3BandwidthsFile=\"{}\"", path.display());
            authority.control().expect("answers").request(&line).expect("taken");
        }
        now = unix_time_s();
        for ((name, bytes), authority) in files.iter().zip(network.authorities()) {
            let Vote { measured, listed, headers, digest, .. } = vote_after(authority, now);
            assert!(relays.iter().all(|relay| listed.contains(relay)), "{name}");
            all.push(RecordedVote {
                name: name.clone(),
                now_unix_s: now,
                file: String::from_utf8(bytes.clone()).expect("text"),
                listed: listed.iter().map(ToString::to_string).collect(),
                measured: measured.iter().map(|(relay, bw)| (relay.to_string(), *bw)).collect(),
                headers,
                digest,
            });
        }
    }
    if let Some(path) = std::env::var_os(KEPT_VARIABLE) {
        recorded_vote::write(path.as_ref(), &all).expect("written");
    }
    let wrong: Vec<String> = all.iter().flat_map(RecordedVote::differences).collect();
    let lines: usize = all.iter().map(|vote| vote.report().lines.len()).sum();
    let taken: usize = all.iter().map(|vote| vote.measured.len()).sum();
    eprintln!("{} files, {lines} lines, {taken} votes on relays", corpus.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The corpus is useful only if tor accepts some lines and refuses others.
    assert!(lines > 1000 && taken > 200, "{lines} {taken}");
    network.stop().expect("down");
}
