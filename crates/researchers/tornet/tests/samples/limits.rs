//! Limits of relays: what tor makes of its files and arguments.

use super::with_downloads;
use std::process::Command;

/// The limit of one relay, in bytes per second.
fn limit(defaults: &str, own: &str, arguments: &str) -> Result<Option<u64>, String> {
    let mut folder = with_downloads("", "time=60", "recvsize=1000");
    let words = format!("--defaults-torrc torrc-defaults -f torrc{arguments}");
    folder.hosts = folder.hosts.replacen("--defaults-torrc torrc-defaults -f torrc", &words, 1);
    let host = "shadow.data.template/hosts/quince";
    folder
        .file(&format!("{host}/torrc-defaults"), defaults)
        .file(&format!("{host}/torrc"), own)
        .file("conf/rates.torrc", "BandwidthRate 7 MB\n");
    let network = folder.read()?;
    let relay =
        network.relays.iter().find(|relay| relay.site.name == "quince").expect("it is there");
    Ok(relay.limit.map(onion::Rate::as_byte_per_s))
}

/// What tor itself makes of the same: the rate that relayed traffic may have.
fn limit_by_tor(defaults: &str, own: &str, arguments: &[&str]) -> Option<u64> {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("shadow.data.template/hosts/quince");
    std::fs::create_dir_all(&host).expect("a folder");
    std::fs::create_dir_all(folder.path().join("conf")).expect("a folder");
    std::fs::write(folder.path().join("conf/rates.torrc"), "BandwidthRate 7 MB\n")
        .expect("it is written");
    std::fs::write(host.join("torrc-defaults"), defaults).expect("it is written");
    std::fs::write(
        host.join("torrc"),
        format!("{own}\nORPort 9001\nAddress 11.0.0.1\nDataDirectory .\n"),
    )
    .expect("it is written");
    let mut tor = Command::new("tor");
    tor.args(["--defaults-torrc", "torrc-defaults", "-f", "torrc"]).args(arguments);
    tor.args(["--dump-config", "full"]).current_dir(&host).env("HOME", &host);
    let output = tor.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    assert!(value("BandwidthRate").is_some(), "tor refuses {own:?}: {text}{output:?}");
    // One gigabyte is what tor has without any limit.
    value("RelayBandwidthRate")
        .filter(|value| *value > 0)
        .or(value("BandwidthRate"))
        .filter(|value| *value != 1 << 30)
}

#[test]
fn a_relays_limit_is_the_one_that_tor_computes_from_its_files() {
    if Command::new("tor").arg("--version").output().is_err() {
        skip::this_test!("it needs tor");
    }
    let mut cases: Vec<(&str, String, Vec<&str>)> = [
        "BandwidthRate 1250000",
        "BandwidthRate 1250000 bytes",
        "bandwidthrate 10 MBits",
        "BandwidthRate 10mbits",
        "BANDWIDTHRATE \"2 MB\" # twice",
        "BandwidthRate 2 MB # comment",
        "+BandwidthRate 2 MB",
        "BandwidthRate 2 MB\nBandwidthRate 3 MB",
        "\tBandwidthRate\t5\tMB ",
        "BandwidthRate \\\n 2 MB",
        "BandwidthRate 3 \\\n# comment\n MB",
        "BandwidthRate 2.5 MBits",
        "BandwidthRate .5 GBits",
        "BandwidthRate 3 MB\r",
        "BandwidthRateBytes 3 MB",
        "BandwidthR 2 MB",
        "RelayBandwidthRate 2 MB",
        "RelayBandwidthRate 3 MB\nBandwidthRate 2 MB",
        "RelayBandwidthRate 2 MB\nBandwidthRate 3 MB",
        "RelayBandwidthBurst 2 MB",
        "RelayBandwidthRate 0\nBandwidthRate 2 MB",
        "MaxAdvertisedBandwidth 2 MB",
        "MaxAdvertisedBandwidth 2 MB\nBandwidthRate 3 MB",
        "%include ../../../conf/rates.torrc",
        "BandwidthRate 8 MB\n%include \"../../../conf/rates.torrc\"",
        "%include ../../../conf/*.torrc",
        "%include ../../../conf",
        "# BandwidthRate 2 MB",
        "Nickname quince\n\n#x\nBandwidthRate 2 m",
    ]
    .into_iter()
    .map(|own| ("", own.to_owned(), Vec::new()))
    .collect();
    for unit in
        ["kb", "kbyte", "kbytes", "kilobyte", "kilobytes", "kilobit", "kilobits", "kbit", "kbits"]
    {
        cases.push(("", format!("BandwidthRate 1000 {unit}"), Vec::new()));
    }
    for unit in [
        "m",
        "mb",
        "MByte",
        "mbytes",
        "megabyte",
        "megabytes",
        "megabit",
        "Megabits",
        "mbit",
        "mbits",
        "gbit",
        "GBits",
        "gigabit",
        "gigabits",
    ] {
        cases.push(("", format!("BandwidthRate 1 {unit}"), Vec::new()));
    }
    for unit in
        ["gb", "gbyte", "gbytes", "gigabyte", "gigabytes", "tbit", "tbits", "terabit", "terabits"]
    {
        cases.push(("", format!("BandwidthRate 0.001 {unit}"), Vec::new()));
    }
    let defaults = "BandwidthRate 3 MB\nRelayBandwidthBurst 5 MB\n";
    cases.push((defaults, String::new(), Vec::new()));
    cases.push((defaults, "BandwidthRate 4 MB".into(), Vec::new()));
    cases.push(("BandwidthRate 3 MB\n", "BandwidthRate 4 MB".into(), Vec::new()));
    cases.push((
        "BandwidthRate 3 MB\n",
        "BandwidthRate 4 MB".into(),
        vec!["--BandwidthRate", "5 MB"],
    ));
    cases.push(("", String::new(), vec!["--quiet", "-bandwidthrate", "3000000"]));
    cases.push(("", String::new(), vec!["+RelayBandwidthRate", "3000000"]));
    for (defaults, own, arguments) in cases {
        let quoted =
            arguments.iter().map(|argument| format!(" \"{argument}\"")).collect::<String>();
        let found =
            limit(defaults, &own, &quoted).unwrap_or_else(|error| panic!("{own:?}: {error}"));
        let expected = limit_by_tor(defaults, &own, &arguments);
        assert_eq!(found, expected, "{defaults:?}, {own:?}, {arguments:?}");
    }
}

#[test]
fn an_invalid_limit_is_reported_with_its_file() {
    let error = limit("", "BandwidthRate quick", "").expect_err("it is none");
    assert!(
        error.contains("hosts/quince/torrc: bandwidthrate:") && error.contains("quick"),
        "{error}"
    );
}

/// Samples are passed on without the files that all hosts include.
#[test]
fn a_missing_included_file_counts_as_empty() {
    let found = limit("%include ../../../conf/tor.common.torrc\nBandwidthRate 1250000\n", "", "");
    assert_eq!(found, Ok(Some(1_250_000)));
}

/// Until spring 2021: limits are arguments of tor, and paths begin at the sample.
#[test]
fn a_relay_of_an_older_sample_takes_its_limit_from_its_arguments() {
    let mut folder = with_downloads("", "time=60", "recvsize=1000");
    let words = "--Nickname quince --defaults-torrc conf/tor.common.torrc -f conf/tor.exitrelay.torrc --BandwidthRate 1250000 --BandwidthBurst 9999999";
    folder.hosts = folder.hosts.replacen("--defaults-torrc torrc-defaults -f torrc", words, 1);
    folder.file("conf/tor.exitrelay.torrc", "BandwidthRate 1 MB\n");
    let network = folder.network();
    let relay =
        network.relays.iter().find(|relay| relay.site.name == "quince").expect("it is there");
    assert_eq!(relay.limit.map(onion::Rate::as_byte_per_s), Some(1_250_000));
}
