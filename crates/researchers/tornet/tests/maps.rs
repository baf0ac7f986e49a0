//! Samples for Shadow with a map, which determines the places of hosts and the paths between them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use tornet::network::Network;
use tornet::results::finish;
use tornet::run::{Plan, run};

const TGEN: &str = r#"<graphml>
  <key attr.name="time" attr.type="string" for="node" id="t"/>
  <key attr.name="recvsize" attr.type="string" for="node" id="r"/>
  <key attr.name="timeout" attr.type="string" for="node" id="o"/>
  <graph edgedefault="directed">
    <node id="start"/>
    <node id="pause"><data key="t">2 seconds</data></node>
    <node id="stream"><data key="r">2000 bytes</data><data key="o">15 seconds</data></node>
    <edge source="start" target="pause"/>
    <edge source="pause" target="pause"/>
    <edge source="pause" target="stream"/>
  </graph>
</graphml>
"#;

/// Clients at node 7, all others at node 3, so that a cell passes once from one to the other.
fn map(between: &str) -> String {
    format!(
        r#"graph [
  directed 0
  node [ id 3 host_bandwidth_up "100 Mbit" host_bandwidth_down "100 Mbit" ]
  node [ id 7 host_bandwidth_up "100 Mbit" host_bandwidth_down "100 Mbit" ]
  node [ id 9 ]
  edge [ source 3 target 3 latency "5 ms" ]
  edge [ source 7 target 7 latency "5 ms" ]
  edge [ source 3 target 9 latency "4 ms" packet_loss 0.0 ]
  edge [ source 9 target 7 latency "4 ms" packet_loss 0.0 ]
  edge [ source 3 target 7 {between} ]
]
"#
    )
}

/// Three relays, a server and a client, with this content of `network:`.
fn write(folder: &Path, network: &str) {
    let mut config = format!("general:\n  stop_time: 60\n{network}hosts:\n");
    let mut weights = String::new();
    for (number, name) in ["first", "second", "third"].iter().enumerate() {
        config += &format!(
            "  {name}:\n    network_node_id: 3\n    bandwidth_up: 50 Mbit\n    bandwidth_down: 50 Mbit\n    processes:\n    \
             - path: tor\n      args: [\"-f\", \"torrc\"]\n"
        );
        weights += &format!("node_id=${number:040X}\tbw=100\tnick={name}\n");
    }
    config += "  server:\n    network_node_id: 3\n    processes:\n    - path: tgen\n      args: tgen-server.graphml\n";
    config += "  client:\n    network_node_id: 7\n    processes:\n    - path: /usr/bin/tor\n    - path: /usr/bin/tgen\n      args: ../../../conf/tgen-perf.graphml\n";
    let all: Vec<String> = (0..3).map(|number| format!("{number:040X}")).collect();
    let all = all.join(",");
    let torrc = format!("TestingDirAuthVoteGuard {all}\nTestingDirAuthVoteExit {all}\n");
    std::fs::create_dir_all(folder.join("conf")).expect("a folder");
    for (name, text) in [
        ("shadow.config.yaml", &config),
        ("v3bw", &weights),
        ("conf/tor.relay.authority.torrc", &torrc),
        ("conf/tgen-perf.graphml", &TGEN.to_owned()),
    ] {
        std::fs::write(folder.join(name), text).expect("it can be written");
    }
}

fn with_file(folder: &Path, map: &str, by_shortest: bool) {
    let network = format!(
        "network:\n  use_shortest_path: {by_shortest}\n  graph:\n    type: gml\n    file:\n      path: conf/here.gml\n"
    );
    write(folder, &network);
    std::fs::write(folder.join("conf/here.gml"), map).expect("it can be written");
}

/// The median time to the first byte, in seconds, of what there is.
fn first_byte(folder: &Path) -> f64 {
    let network = Network::read(folder).expect("a sample");
    let plan = Plan { seconds: 60, warm_up_s: 10, threads: 2, seed: 1 };
    let outcome = run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it works");
    let summary = finish(&network, &plan, &outcome, None).expect("it can be written");
    let [size] = &summary.downloads[..] else { panic!("one size: {:?}", summary.downloads) };
    assert!(size.complete > 10, "{size:?}");
    size.first_byte_median_s.expect("there are some")
}

#[test]
fn latency_follows_the_map_not_the_countries() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = |between: &str, by_shortest| {
        with_file(folder.path(), &map(between), by_shortest);
        first_byte(folder.path())
    };
    let (near, far) = (time("latency \"20 ms\"", false), time("latency \"120 ms\"", false));
    // BEGIN and CONNECTED, then the request and the first byte: four times the path between the nodes. A scheduler runs every 10 ms.
    let longer = far - near;
    assert!((0.38..0.44).contains(&longer), "{near} and {far} s");
    // Over a node without hosts it is 8 ms, as by Shadow's default.
    let shortest = time("latency \"120 ms\"", true);
    assert!((0.03..0.07).contains(&(near - shortest)), "{near} and {shortest} s");
}

#[test]
fn loss_follows_the_map() {
    let folder = tempfile::tempdir().expect("a folder");
    let lost = |loss: &str| {
        let between = format!("latency \"20 ms\" packet_loss {loss}");
        with_file(folder.path(), &map(&between), false);
        let network = Network::read(folder.path()).expect("a sample");
        let plan = Plan { seconds: 60, warm_up_s: 10, threads: 1, seed: 1 };
        let outcome = run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it works");
        finish(&network, &plan, &outcome, None).expect("it can be written").lost_flights
    };
    assert_eq!(lost("0.0"), 0);
    assert!(lost("0.1") > 5);
}

#[test]
fn a_host_has_the_rate_of_its_node_unless_it_has_one_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    with_file(folder.path(), &map("latency \"20 ms\""), false);
    let network = Network::read(folder.path()).expect("a sample");
    let mbit = |rate: onion::Rate| rate.as_bit_per_s() / 1_000_000;
    assert!(
        network.relays.iter().all(|relay| mbit(relay.site.up) == 50 && relay.site.node == Some(3))
    );
    let client = &network.clients[0].site;
    assert_eq!((mbit(client.up), mbit(client.down), client.node), (100, 100, Some(7)));
}

#[test]
fn inline_maps_and_shadows_switch_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let indented = map("latency \"20 ms\"").replace('\n', "\n        ");
    write(
        folder.path(),
        &format!("network:\n  graph:\n    type: gml\n    inline: |\n        {indented}\n"),
    );
    let network = Network::read(folder.path()).expect("a sample");
    assert_eq!(network.map.expect("there is one").nodes().count(), 2);
    write(folder.path(), "network:\n  graph:\n    type: 1_gbit_switch\n");
    let config = folder.path().join("shadow.config.yaml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let text = text.replace("network_node_id: 3", "network_node_id: 0");
    std::fs::write(&config, text.replace("network_node_id: 7", "network_node_id: 0"))
        .expect("it can be written");
    assert!(first_byte(folder.path()) < 0.2);
}

/// As in samples from before Shadow 2: countries say where they are.
#[test]
fn a_map_without_hosts_is_not_used() {
    let folder = tempfile::tempdir().expect("a folder");
    with_file(folder.path(), &map("latency \"20 ms\""), false);
    let config = folder.path().join("shadow.config.yaml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let hint = |node: &str| format!("network_node_id: {node}");
    let text = text.replace(&hint("3"), "options: { country_code_hint: DE }\n    bandwidth_up: 50 Mbit\n    bandwidth_down: 50 Mbit");
    let text = text.replace(&hint("7"), "options: { country_code_hint: US }\n    bandwidth_up: 50 Mbit\n    bandwidth_down: 50 Mbit");
    // Relays have rates of their own already.
    let doubled = "    bandwidth_up: 50 Mbit\n    bandwidth_down: 50 Mbit\n";
    std::fs::write(&config, text.replace(&doubled.repeat(2), doubled)).expect("it can be written");
    assert!(Network::read(folder.path()).expect("a sample").map.is_none());
    let far = first_byte(folder.path());
    assert!(far > 0.2, "{far} s from Germany to the United States");
}

#[test]
fn errors_of_a_map_name_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let problem = |text: &str| {
        with_file(folder.path(), text, false);
        Network::read(folder.path()).expect_err("it cannot work").to_string()
    };
    let good = map("latency \"20 ms\"");
    let lonely = problem(&good.replace("source 3 target 7", "source 3 target 8"));
    assert!(lonely.contains("here.gml: the map has no edge from node 3 to node 7"), "{lonely}");
    let nowhere = problem(&good.replace("id 7", "id 70"));
    assert!(nowhere.contains("node 7, which is not on the map"), "{nowhere}");
    with_file(folder.path(), &good, false);
    let config = folder.path().join("shadow.config.yaml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let packed = text.replace("path: conf/here.gml", "path: conf/here.gml\n      compression: xz");
    std::fs::write(&config, packed).expect("it can be written");
    let packed = Network::read(folder.path()).expect_err("it is packed").to_string();
    assert!(packed.contains("unpack it"), "{packed}");
}
