//! Networks that are written for Shadow, and what reads them again: tor, and ourselves.

use std::path::Path;
use std::process::Command;
use tornet::Error;
use tornet::export::{Programs, write};
use tornet::network::{Client, Network, Relay, Users};

/// Stock tor's programs, where there are any.
fn has_tor() -> bool {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    runs("tor") && runs("tor-gencert")
}

/// All that is to be the same; relays without the authorities.
fn told(network: &Network) -> (Vec<Relay>, Vec<String>, Vec<String>) {
    let is_authority = |it: &&Relay| it.site.name.starts_with("4uthority");
    let relays: Vec<Relay> =
        network.relays.iter().filter(|it| !is_authority(it)).cloned().collect();
    let servers = network.servers.iter().map(|it| format!("{it:?}")).collect();
    let client = |it: &Client| {
        let users = match &it.users {
            Users::Models(models) => format!("{models:?}"),
            Users::Fetch(fetch) => format!("{fetch:?}"),
        };
        format!("{:?} {:?} {users}", it.site, it.dirtiness)
    };
    (relays, servers, network.clients.iter().map(client).collect())
}

fn sorted(mut network: Network) -> Network {
    network.relays.sort_by(|a, b| a.site.name.cmp(&b.site.name));
    network.servers.sort_by(|a, b| a.name.cmp(&b.name));
    network.clients.sort_by(|a, b| a.site.name.cmp(&b.site.name));
    network
}

/// What tor says of a host's configuration.
fn verify(folder: &Path, host: &str) -> Result<(), String> {
    let host = folder.join("shadow.data.template/hosts").join(host);
    let mut tor = Command::new("tor");
    tor.args(["--defaults-torrc", "torrc-defaults", "-f", "torrc", "--Address", "11.0.0.1"]);
    tor.args(["--verify-config"]).current_dir(&host).env("HOME", &host);
    let output = tor.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(()).ok_or(said)
}

const SCENARIO: &str = r#"
[choices]
scheduler = "kist-lite"
congestion_control = true
[[relays]]
count = 2
name = "guard"
country = "DE"
mbit_per_s = 100
limit_mbit_per_s = 40
guard = true
[[relays]]
count = 2
country = "NL"
mbit_per_s = 30.5
weight = 7
[[relays]]
name = "exit"
country = "US"
mbit_per_s = 50
exit = true
[[servers]]
country = "US"
mbit_per_s = 10000
[[clients]]
count = 2
country = "DE"
mbit_per_s = 100
fetch = { every_s = 60, sizes = [{ bytes = 51200, timeout_s = 15, weight = 3 }, { bytes = 1048576, timeout_s = 60.5 }] }
[[clients]]
country = "FR"
mbit_per_s = 10
fetch = { every_s = 7.25, sizes = [{ bytes = 1000, timeout_s = 10 }] }
"#;

fn read_scenario(text: &str) -> Network {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).expect("it can be written");
    Network::read(&path).expect("a scenario")
}

/// tor's nicknames have no hyphen.
fn without_hyphens(mut network: Network) -> Network {
    network.relays.iter_mut().for_each(|it| it.site.name = it.site.name.replace('-', ""));
    network
}

#[test]
fn what_is_written_for_shadow_is_the_same_network_and_tor_takes_it() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let network = sorted(without_hyphens(read_scenario(SCENARIO)));
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let again = Network::read(folder.path()).expect("a sample");
    assert_eq!(told(&again), told(&network));
    assert_eq!(again.relays.len(), network.relays.len() + 3, "there are authorities");
    let relays = again.relays.iter().map(|it| it.site.name.as_str());
    let clients = again.clients.iter().map(|it| it.site.name.as_str());
    for host in relays.chain(clients) {
        verify(folder.path(), host).unwrap_or_else(|said| panic!("{host}: {said}"));
    }
    let occupied = write(&network, folder.path(), &Programs::default(), 60);
    assert!(occupied.expect_err("it is").to_string().contains("is not empty"));
}

#[test]
fn users_models_are_written_as_they_were_read() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/tornet-0.05-1");
    if !sample.is_dir() {
        skip::this_test!("there is no sample of tornettools");
    }
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    // Some of its relays, so that their keys do not take long.
    let mut network = Network::read(&sample).expect("a sample");
    network.relays.retain(|it| it.weight > 30_000);
    network.clients.truncate(10);
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let again = Network::read(folder.path()).expect("a sample");
    assert!(told(&again) == told(&network), "another network");
    assert!(again.clients.iter().any(|it| matches!(it.users, Users::Models(_))));
    assert_eq!(again.models.packet, network.models.packet);
}

#[test]
fn what_cannot_be_exported_is_told_with_its_reason() {
    let hyphened = read_scenario(SCENARIO);
    let busier = {
        let mut network = without_hyphens(read_scenario(SCENARIO));
        network.choices.load = 1.15;
        network
    };
    let good = without_hyphens(read_scenario(SCENARIO));
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = Programs { tor: "/nowhere/tor".into(), ..Programs::default() };
    let cases = [
        (&hyphened, Programs::default(), "cannot be a name in Shadow"),
        (&busier, Programs::default(), "load = 1"),
        (&good, nowhere, "cannot read /nowhere/tor"),
    ];
    for (number, (network, programs, expected)) in cases.into_iter().enumerate() {
        let error: Error = write(network, &folder.path().join(number.to_string()), &programs, 60)
            .expect_err("it cannot be");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
