//! Networks that are written for Shadow, and what reads them again: tor, and ourselves.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use tornet::Error;
use tornet::export::{Programs, write};
use tornet::network::{Client, Network, Relay, Users};

/// C tor's programs, where there are any.
fn has_tor() -> bool {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    runs("tor") && runs("tor-gencert")
}

/// All that is to be the same; relays without the authorities. Where they are on the map is another test.
fn content(network: &Network) -> (Vec<Relay>, Vec<String>, Vec<String>) {
    let mut network = network.clone();
    network.relays.iter_mut().for_each(|relay| relay.site.node = None);
    network.servers.iter_mut().for_each(|server| server.node = None);
    network.clients.iter_mut().for_each(|client| client.site.node = None);
    let is_authority = |relay: &&Relay| relay.site.name.starts_with("4uthority");
    let relays: Vec<Relay> =
        network.relays.iter().filter(|relay| !is_authority(relay)).cloned().collect();
    let servers = network.servers.iter().map(|server| format!("{server:?}")).collect();
    let client = |client: &Client| {
        let users = match &client.users {
            Users::Models(models) => format!("{models:?}"),
            Users::Fetch(fetch) => format!("{fetch:?}"),
        };
        format!("{:?} {:?} {users}", client.site, client.dirtiness)
    };
    (relays, servers, network.clients.iter().map(client).collect())
}

fn sorted(mut network: Network) -> Network {
    network.relays.sort_by(|a, b| a.site.name.cmp(&b.site.name));
    network.servers.sort_by(|a, b| a.name.cmp(&b.name));
    network.clients.sort_by(|a, b| a.site.name.cmp(&b.site.name));
    network
}

/// Tor's verdict on a host's configuration.
fn verify(folder: &Path, host: &str) -> Result<(), String> {
    let host = folder.join("shadow.data.template/hosts").join(host);
    let mut tor = Command::new("tor");
    tor.args(["--defaults-torrc", "torrc-defaults", "-f", "torrc", "--Address", "11.0.0.1"]);
    tor.args(["--verify-config"]).current_dir(&host).env("HOME", &host);
    let output = tor.output().expect("it starts");
    let problem = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then_some(()).ok_or(problem)
}

const SCENARIO: &str = r#"
[choices]
scheduler = "kist-lite"
congestion_control = true
loss_at_300_ms = 0.015
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
fetch = { every_s = 7.25, count = 3, sizes = [{ bytes = 1000, timeout_s = 10 }] }
[[clients]]
country = "FR"
mbit_per_s = 10
fetch = { every_s = 60, count = 1, sizes = [{ bytes = 1000, timeout_s = 10 }] }
"#;

fn read_scenario(text: &str) -> Network {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, text).expect("it can be written");
    Network::read(&path).expect("a scenario")
}

/// tor's nicknames have no hyphen.
fn without_hyphens(mut network: Network) -> Network {
    network.relays.iter_mut().for_each(|relay| relay.site.name = relay.site.name.replace('-', ""));
    network
}

#[test]
fn an_exported_network_is_read_back_and_tor_accepts_its_files() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let network = sorted(without_hyphens(read_scenario(SCENARIO)));
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let again = Network::read(folder.path()).expect("a sample");
    assert_eq!(content(&again), content(&network));
    assert_eq!(again.relays.len(), network.relays.len() + 3, "there are authorities");
    let relays = again.relays.iter().map(|relay| relay.site.name.as_str());
    let clients = again.clients.iter().map(|client| client.site.name.as_str());
    for host in relays.chain(clients) {
        verify(folder.path(), host).unwrap_or_else(|problem| panic!("{host}: {problem}"));
    }
    let occupied = write(&network, folder.path(), &Programs::default(), 60);
    assert!(occupied.expect_err("it is").to_string().contains("is not empty"));
}

/// What is written, of what Shadow 3 takes (its docs/shadow_config_spec.md): all that it does not know is an error there, and so here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    general: General,
    network: BTreeMap<String, serde_json::Value>,
    hosts: BTreeMap<String, Host>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct General {
    bootstrap_end_time: u64,
    stop_time: u64,
    template_directory: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    network_node_id: u32,
    bandwidth_down: String,
    bandwidth_up: String,
    ip_addr: Option<std::net::Ipv4Addr>,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    path: String,
    args: String,
    start_time: String,
    expected_final_state: Option<String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
}

impl Process {
    fn starts_ms(&self) -> u64 {
        let (number, unit) = self.start_time.split_once(' ').expect("a time with a unit");
        let number: u64 = number.parse().expect("a number");
        match unit {
            "s" => number * 1000,
            "ms" => number,
            _ => panic!("{unit}"),
        }
    }
}

fn config(folder: &Path) -> Config {
    let text = std::fs::read_to_string(folder.join("shadow.config.yaml")).expect("it is there");
    serde_saphyr::from_str(&text).expect("what Shadow takes")
}

/// Relays of a scenario have numbers behind hyphens, and those of a consensus large letters.
#[test]
fn names_that_tor_refuses_are_changed_before_keys_are_generated() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let mut network = read_scenario(SCENARIO);
    network.relays[0].site.name = "Nickname".into();
    assert_eq!(network.relays[1].site.name, "guard-1");
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let again = Network::read(folder.path()).expect("a sample");
    for host in ["nickname", "guard1"] {
        assert!(
            again.relays.iter().any(|relay| relay.site.name == host),
            "{host}: {:?}",
            again.relays
        );
        verify(folder.path(), host).unwrap_or_else(|problem| panic!("{host}: {problem}"));
    }
}

/// Latencies of a map are kept to the nanosecond.
#[test]
fn an_exported_map_has_the_paths_of_the_simulated_world() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let network = read_scenario(SCENARIO);
    let folder = tempfile::tempdir().expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    write(&network, &first, &Programs::default(), 60).expect("it can be written");
    let again = Network::read(&first).expect("a sample");
    let map = again.map.clone().expect("it is there");
    let places = tornet::places::Places::new().expect("the table is sound");
    let find = |country: &str| places.find(country).expect("it is known");
    for (from, there) in map.nodes() {
        for (to, elsewhere) in map.nodes() {
            let country = |node: &tornet::map::Node| node.country.clone().expect("there is one");
            let expected = find(&country(there)).latency_to(&find(&country(elsewhere)));
            let path = map.path(from, to);
            assert_eq!(path.latency, expected);
            assert!((path.loss - 0.015 * expected.as_secs_f64() / 0.3).abs() < 1e-8, "{path:?}");
        }
    }
    write(&again, &second, &Programs::default(), 60).expect("it can be written");
    let read = |folder: &Path| {
        let network = Network::read(folder).expect("a sample");
        let host = |site: &tornet::network::Site| (site.name.clone(), site.country.clone());
        let clients = network.clients.iter().map(|client| host(&client.site));
        (clients.collect::<Vec<_>>(), network.map.expect("it is there").nodes().count())
    };
    assert_eq!(read(&second), read(&first));
}

#[test]
fn exported_files_satisfy_shadows_specification() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let network = without_hyphens(read_scenario(SCENARIO));
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let Config { general, network: map, hosts } = config(folder.path());
    assert_eq!((general.bootstrap_end_time, general.stop_time), (300, 360));
    assert!(folder.path().join(&general.template_directory).join("hosts/exit").is_dir());
    assert_eq!(map["use_shortest_path"], false);
    let map = std::fs::read_to_string(folder.path().join("conf/network.gml")).expect("a map");
    let of_map = |what: &str| map.lines().filter(|line| line.trim().starts_with(what)).count();
    // Complete, with one edge in each direction, and from each place to itself.
    assert_eq!(of_map("edge"), of_map("node").pow(2));
    let (mut addresses, mut tgens) = (Vec::new(), Vec::new());
    for (name, host) in &hosts {
        let is_right = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || character == '-'
        };
        assert!(name.chars().all(is_right) && !name.starts_with('-'), "{name}");
        assert!((host.network_node_id as usize) < of_map("node"), "{name}");
        for rate in [&host.bandwidth_down, &host.bandwidth_up] {
            assert!(
                rate.strip_suffix(" bit").is_some_and(|bits| bits.parse::<u64>().is_ok()),
                "{rate}"
            );
        }
        addresses.extend(host.ip_addr);
        for process in &host.processes {
            // None ends before Shadow does, which is a failure unless it is expected.
            assert_eq!(process.expected_final_state.as_deref(), Some("running"), "{name}");
            assert!(process.starts_ms() < general.stop_time * 1000, "{name}");
            assert!(["tor", "tgen"].contains(&process.path.as_str()), "{name}");
            if process.path == "tgen" {
                assert_eq!(process.environment["OPENBLAS_NUM_THREADS"], "1", "{name}");
                let file = process.args.rsplit('/').next().expect("one");
                assert!(folder.path().join("conf").join(file).is_file(), "{file}");
                tgens.push((file.to_owned(), process.starts_ms()));
            }
        }
    }
    let count = addresses.len();
    assert_eq!(count, network.relays.len() + 3);
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), count, "no address twice");
    // Both of one kind, 30 seconds apart, and not together.
    let both = tgens.iter().filter(|(file, _)| file == "tgen-perf.tgenrc.graphml");
    assert_eq!(both.map(|(_, at)| *at).collect::<Vec<_>>(), [300_000, 330_000]);
}

#[test]
fn exported_graphs_describe_our_users() {
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    let network = without_hyphens(read_scenario(SCENARIO));
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let conf = folder.path().join("conf");
    let read = |name: &str| std::fs::read_to_string(conf.join(name)).expect("it is there");
    let server = read("tgen-server.tgenrc.graphml");
    assert_eq!(server.matches("0 seconds").count(), 2, "streams are given up: {server}");
    // Three downloads: one at once, and two after pauses, the last of which leads nowhere else.
    let counted = read("tgen-perf-2.tgenrc.graphml");
    assert_eq!(counted.matches("target=\"stream_0\"").count(), 3, "{counted}");
    assert_eq!(counted.matches("target=\"pause_").count(), 2, "{counted}");
    // For ever: the same again after each pause.
    let endless = read("tgen-perf.tgenrc.graphml");
    assert!(endless.contains("source=\"pause_1\" target=\"pause_1\""), "{endless}");
    assert_eq!(endless.matches(">path<").count(), 1, "models are sent: {endless}");
}

#[test]
fn models_of_users_are_exported_unchanged() {
    let sample =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data/tornet-0.05-1");
    if !sample.is_dir() {
        skip::this_test!("there is no sample of tornettools");
    }
    if !has_tor() {
        skip::this_test!("it needs tor and tor-gencert");
    }
    // Some of its relays, so that their keys do not take long.
    let mut network = Network::read(&sample).expect("a sample");
    network.relays.retain(|relay| relay.weight > 30_000);
    network.clients.truncate(10);
    let folder = tempfile::tempdir().expect("a folder");
    write(&network, folder.path(), &Programs::default(), 60).expect("it can be written");
    let again = Network::read(folder.path()).expect("a sample");
    assert!(content(&again) == content(&network), "another network");
    assert!(again.clients.iter().any(|client| matches!(client.users, Users::Models(_))));
    assert_eq!(again.models.packet, network.models.packet);
}

#[test]
fn exports_that_are_impossible_are_refused_with_a_reason() {
    let busier = {
        let mut network = without_hyphens(read_scenario(SCENARIO));
        network.choices.load = 1.15;
        network
    };
    let good = without_hyphens(read_scenario(SCENARIO));
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = Programs { tor: "/nowhere/tor".into(), ..Programs::default() };
    let cases =
        [(&busier, Programs::default(), "load = 1"), (&good, nowhere, "cannot read /nowhere/tor")];
    for (number, (network, programs, expected)) in cases.into_iter().enumerate() {
        let error: Error = write(network, &folder.path().join(number.to_string()), &programs, 60)
            .expect_err("it cannot be");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
