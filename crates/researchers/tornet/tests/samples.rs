//! Folders of tornettools, of several versions and as their users change them: where files are, and what hosts do.

mod limits;

use onion::Duration;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;
use tornet::network::{Client, Network, Users};
use tornet::run::{Plan, run};

const RELAYS: [&str; 4] = ["quince", "medlar", "sloe", "damson"];

/// A small folder in the layout of tornettools 2: four relays, a server, and clients as wanted.
struct Folder {
    folder: TempDir,
    hosts: String,
    files: BTreeMap<PathBuf, String>,
}

impl Folder {
    fn new() -> Self {
        let mut made = Self {
            folder: tempfile::tempdir().expect("a folder"),
            hosts: String::new(),
            files: BTreeMap::new(),
        };
        let fingerprint = |number: usize| format!("{number:040X}");
        let mut weights = String::from("946684801\n");
        for (number, name) in RELAYS.into_iter().enumerate() {
            made.host(name, "", &[("tor", "--defaults-torrc torrc-defaults -f torrc", "2")]);
            weights += &format!("node_id=${}\tbw=100\tnick={name}\n", fingerprint(number));
        }
        made.host("orchard", "", &[("tgen", "../../../conf/tgen-server.tgenrc.graphml", "300")]);
        let all: Vec<String> = (0..4).map(fingerprint).collect();
        let all = all.join(",");
        made.file("shadow.data.template/hosts/bwauthority/v3bw", &weights)
            .file(
                "conf/tor.relay.authority.torrc",
                &format!("testingdirauthvoteguard {all}\nTestingDirAuthVoteExit \"{all}\"\n"),
            )
            .file("conf/tgen-server.tgenrc.graphml", &graph(&[("start", "serverport=80")], &[]));
        made
    }

    fn host(&mut self, name: &str, more: &str, processes: &[(&str, &str, &str)]) -> &mut Self {
        self.hosts += &format!(
            "  {name}:\n    network_node_id: 0\n    bandwidth_down: 100 Mbit\n    bandwidth_up: 100000000\n{more}    processes:\n"
        );
        for (program, args, at) in processes {
            self.hosts += &format!(
                "    - path: ~/.local/bin/{program}\n      args: '{args}'\n      start_time: {at}\n"
            );
        }
        self
    }

    /// A client that runs this graph.
    fn client(&mut self, name: &str, graph: &str, at: &str) -> &mut Self {
        let tgen = ("tgen", graph, at);
        self.host(name, "", &[("tor", "--defaults-torrc torrc-defaults -f torrc", "240"), tgen])
    }

    fn file(&mut self, path: &str, text: &str) -> &mut Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn read(&self) -> Result<Network, String> {
        let graph = "graph [ node [ id 0 ] edge [ source 0 target 0 latency \"10 ms\" ] ]";
        let config = format!(
            "general:\n  bootstrap_end_time: 5 min\n  stop_time: 1 h\nnetwork:\n  graph:\n    type: gml\n    inline: '{graph}'\nhosts:\n{}",
            self.hosts
        );
        std::fs::write(self.path().join("shadow.config.yaml"), config).expect("it can be written");
        for (path, text) in &self.files {
            let path = self.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("it can be written");
        }
        Network::read(self.path()).map_err(|error| error.to_string())
    }

    fn network(&self) -> Network {
        self.read().expect("a sample")
    }
}

/// Nodes with their options, `name=value;…`, and edges with weights or without.
fn graph(nodes: &[(&str, &str)], edges: &[(&str, &str, &str)]) -> String {
    let names = [
        "time",
        "recvsize",
        "sendsize",
        "timeout",
        "stallout",
        "serverport",
        "peers",
        "flowmodelpath",
        "streammodelpath",
        "packetmodelpath",
    ];
    let mut text = String::from("<graphml>");
    for name in names {
        text +=
            &format!("<key attr.name=\"{name}\" attr.type=\"string\" for=\"node\" id=\"{name}\"/>");
    }
    text += "<key attr.name=\"weight\" attr.type=\"string\" for=\"edge\" id=\"weight\"/><graph edgedefault=\"directed\">";
    for (id, options) in nodes {
        text += &format!("<node id=\"{id}\">");
        for (name, value) in options.split(';').filter_map(|option| option.split_once('=')) {
            text += &format!("<data key=\"{name}\">{value}</data>");
        }
        text += "</node>";
    }
    for (source, target, weight) in edges {
        text += &format!("<edge source=\"{source}\" target=\"{target}\">");
        if !weight.is_empty() {
            text += &format!("<data key=\"weight\">{weight}</data>");
        }
        text += "</edge>";
    }
    text + "</graph></graphml>"
}

/// A download of one size after each pause, with these options.
fn downloads(start: &str, pause: &str, stream: &str) -> String {
    graph(
        &[("start", start), ("pause", pause), ("stream", stream)],
        &[("start", "pause", ""), ("pause", "pause", ""), ("pause", "stream", "1.0")],
    )
}

const PERF: &str = "../../../conf/tgen-perf-exit.tgenrc.graphml";
const PERF_FILE: &str = "conf/tgen-perf-exit.tgenrc.graphml";

/// A folder with one client that downloads.
fn with_downloads(start: &str, pause: &str, stream: &str) -> Folder {
    let mut folder = Folder::new();
    folder.client("cider", PERF, "300").file(PERF_FILE, &downloads(start, pause, stream));
    folder
}

/// Bytes, time-out and stall-out in seconds.
type Download = (u32, Option<u64>, Option<u64>);

fn fetch(client: &Client) -> (Vec<u64>, Option<u32>, Vec<Download>) {
    let Users::Fetch(fetch) = &client.users else { panic!("it fetches: {client:?}") };
    let seconds = |duration: Duration| duration.as_secs();
    let size = |size: &sim::world::Size| {
        (size.bytes, size.timeout.map(seconds), size.stallout.map(seconds))
    };
    (
        fetch.pauses.iter().map(Duration::as_secs).collect(),
        fetch.count,
        fetch.sizes.iter().map(size).collect(),
    )
}

#[test]
fn the_bandwidth_file_of_any_version_of_tornettools_is_found() {
    let here = "shadow.data.template/hosts/bwauthority/v3bw";
    for elsewhere in [
        here,
        "v3bw",
        "v3bw.init.consensus",
        "shadow.data.template/hosts/bwauthority/v3bw.init.consensus",
    ] {
        let mut folder = with_downloads("", "time=60", "recvsize=1000");
        let text = folder.files.remove(Path::new(here)).expect("it is there");
        // A link that an archive has made a file of.
        folder.file(here, "v3bw.init.consensus").file(elsewhere, &text);
        assert_eq!(folder.network().relays.len(), 4, "{elsewhere}");
    }
    let mut folder = with_downloads("", "time=60", "recvsize=1000");
    folder.files.remove(Path::new(here));
    let missing = folder.read().expect_err("there is none");
    assert!(missing.contains("cannot read") && missing.contains(here), "{missing}");
}

#[test]
fn hosts_of_onion_services_and_their_clients_are_left_out_and_named() {
    let mut folder = with_downloads("peers=orchard:80", "time=60", "recvsize=1000");
    let server = "../../../conf/tgen-server.tgenrc.graphml";
    let onion = downloads("peers=abcdefgh.onion:8080", "time=60", "recvsize=1000");
    folder
        // By what tornettools calls them,
        .client("server2onionservice", server, "300")
        .client("markovclient2onionservice", "tgenrc.graphml", "300")
        // by their peers, by a server next to tor, and by tor's options.
        .client("perry", "../../../conf/tgen-perf-hidden.tgenrc.graphml", "300")
        .file("conf/tgen-perf-hidden.tgenrc.graphml", &onion)
        .client("mead", server, "300")
        .client("wine", PERF, "300")
        .file("shadow.data.template/hosts/wine/torrc-defaults", "%include ../../../conf/hs.torrc\n")
        .file("conf/hs.torrc", "HiddenServiceDir hs\n");
    let network = folder.network();
    let clients: Vec<&str> =
        network.clients.iter().map(|client| client.site.name.as_str()).collect();
    assert_eq!((clients, network.servers.len()), (vec!["cider"], 1));
    let remark = network.remark().expect("something is left out");
    assert!(remark.starts_with("5 hosts of onion services left out"), "{remark}");
    for name in ["server2onionservice", "markovclient2onionservice", "perry", "mead", "wine"] {
        assert!(remark.contains(name), "{remark}");
    }
}

#[test]
fn a_host_with_a_quantity_becomes_numbered_hosts() {
    let mut folder = with_downloads("", "time=60", "recvsize=1000");
    folder.host("press", "    quantity: 3\n", &[("tor", "-f torrc", "240"), ("tgen", PERF, "300")]);
    let network = folder.network();
    let names: Vec<&str> = network.clients.iter().map(|client| client.site.name.as_str()).collect();
    assert_eq!(names, ["cider", "press1", "press2", "press3"]);
}

/// Of tgen's process by Shadow, and of the walk by TGen.
#[test]
fn users_begin_when_shadow_and_tgen_start_them() {
    let begins = |at: &str, start: &str| {
        let mut folder = Folder::new();
        folder.client("cider", PERF, at);
        folder.file(PERF_FILE, &downloads(start, "time=60", "recvsize=1000"));
        folder.network().clients[0].begins.as_secs()
    };
    assert_eq!(begins("300", ""), 0, "when the network has bootstrapped");
    assert_eq!(begins("2", ""), 0);
    assert_eq!(begins("300", "time=5 minutes"), 300);
    assert_eq!(begins("300", "time=7"), 7);
    assert_eq!(begins("10 min", ""), 300);
    assert_eq!(begins("\"310 s\"", "time=2 Min"), 130);
}

#[test]
fn downloads_begin_at_the_start() {
    let folder = with_downloads("time=20 s", "time=2", "recvsize=1 kb;timeout=10");
    let network = folder.network();
    let plan = Plan { seconds: 60, warm_up_s: 0, threads: 1, seed: 1 };
    let outcome = run(&network, &plan, &AtomicBool::new(false), &|_, _| ()).expect("it works");
    let begun: Vec<f64> = outcome
        .records
        .iter()
        .map(|record| (record.begun - onion::Instant::ORIGIN).as_secs_f64())
        .collect();
    assert!(begun.len() > 10 && begun.iter().all(|time| *time >= 20.0), "{begun:?}");
}

#[test]
fn downloads_are_read_with_tgens_defaults_and_units() {
    let read = |start: &str, pause: &str, stream: &str| {
        fetch(&with_downloads(start, pause, stream).network().clients[0])
    };
    // tornettools' own.
    let own = read("", "time=1 minute", "recvsize=50 KiB;stallout=0 seconds;timeout=15 seconds");
    assert_eq!(own, (vec![60], None, vec![(51_200, Some(15), None)]));
    // No limit of time if none is set, and TGen's 30 seconds of silence.
    let free = read("", "time=1", "recvsize=5 mib");
    assert_eq!(free, (vec![1], None, vec![(5 << 20, None, Some(30))]));
    let off = read("", "time=1", "recvsize=5;timeout=0;stallout=0 ms");
    assert_eq!(off, (vec![1], None, vec![(5, None, None)]));
    // The start's options are defaults, but for its time.
    let inherited = read("recvsize=7;timeout=9;stallout=3", "time=1,2 s,3 SECONDS", "timeout=8");
    assert_eq!(inherited, (vec![1, 2, 3], None, vec![(7, Some(8), Some(3))]));
}

#[test]
fn a_stream_without_a_time_limit_is_downloaded_among_the_others() {
    let mut folder = Folder::new();
    let both = graph(
        &[
            ("start", ""),
            ("pause", "time=1"),
            ("stream_a", "recvsize=100;timeout=5"),
            ("stream_b", "recvsize=200"),
        ],
        &[
            ("start", "pause", ""),
            ("pause", "pause", ""),
            ("pause", "stream_a", "3"),
            ("pause", "stream_b", "1e0"),
        ],
    );
    folder.client("cider", PERF, "300").file(PERF_FILE, &both);
    let (_, _, sizes) = fetch(&folder.network().clients[0]);
    assert_eq!(sizes, [(100, Some(5), Some(30)), (200, None, Some(30))]);
}

#[test]
fn errors_of_a_tgen_graph_name_the_node_or_edge_and_the_attribute() {
    let weighted = |weight: &str| {
        graph(
            &[("start", ""), ("pause", "time=1"), ("stream", "recvsize=1")],
            &[("start", "pause", ""), ("pause", "pause", ""), ("pause", "stream", weight)],
        )
    };
    let walk = |nodes: &[(&str, &str)], edges: &[(&str, &str, &str)]| {
        let mut all = vec![("start", ""), ("pause", "time=1"), ("stream", "recvsize=1")];
        all.extend(nodes);
        graph(&all, edges)
    };
    let cases = [
        (weighted("nan"), "edge pause to stream: weight: nan"),
        (weighted("-1"), "edge pause to stream: weight: -1"),
        (weighted("inf"), "edge pause to stream: weight: inf"),
        (weighted("much"), "edge pause to stream: weight: no number: \"much\""),
        (weighted("0"), "node pause: weight: all weights are 0"),
        (downloads("", "time=1 fortnight", "recvsize=1"), "node pause: time: no such unit"),
        (downloads("", "time=1,,2", "recvsize=1"), "node pause: time: no such number"),
        (downloads("", "", "recvsize=1"), "node pause: no time"),
        (downloads("", "time=0", "recvsize=1"), "node pause: a pause of nothing"),
        (downloads("time=soon", "time=1", "recvsize=1"), "node start: time:"),
        (downloads("", "time=1", "recvsize=1 page"), "node stream: recvsize: no such unit"),
        (downloads("", "time=1", "recvsize=1 TiB"), "node stream: recvsize: four GiB"),
        (downloads("", "time=1", "timeout=3"), "node stream: recvsize: missing"),
        (downloads("timeout=x", "time=1", "recvsize=1"), "node start: timeout:"),
        (
            walk(&[], &[("start", "stream", ""), ("stream", "pause", "")]),
            "node stream: it leads to pause",
        ),
        (walk(&[("rest", "")], &[("start", "stream", "")]), "node rest: TGen knows"),
        (walk(&[], &[("start", "pause", ""), ("pause", "start", "")]), "edge pause to start"),
        (
            walk(
                &[("stream2", "recvsize=2")],
                &[("start", "stream", ""), ("start", "stream2", "")],
            ),
            "node start: it starts several",
        ),
        (walk(&[], &[("start", "pause", "")]), "no download"),
    ];
    for (graph, expected) in cases {
        let mut folder = Folder::new();
        folder.client("cider", PERF, "300").file(PERF_FILE, &graph);
        let error = folder.read().expect_err(expected);
        assert!(
            error.contains("tgen-perf-exit") && error.contains(expected),
            "{error}, not {expected}"
        );
    }
}

fn model(edges: &str) -> String {
    let keys = [
        "type:node",
        "name:node",
        "type:edge",
        "weight:edge",
        "distribution:edge",
        "param_low:edge",
        "param_high:edge",
        "param_rate:edge",
        "param_location:edge",
        "param_scale:edge",
    ];
    let mut text = String::from("<graphml>");
    for key in keys {
        let (name, of) = key.split_once(':').expect("both");
        let id = format!("{}{name}", &of[..1]);
        text += &format!("<key attr.name=\"{name}\" for=\"{of}\" id=\"{id}\"/>");
    }
    text += "<graph edgedefault=\"directed\">";
    for (id, kind, name) in [
        ("a", "state", "start"),
        ("b", "state", "busy"),
        ("c", "state", "idle"),
        ("p", "observation", "+"),
        ("f", "observation", "F"),
    ] {
        text += &format!(
            "<node id=\"{id}\"><data key=\"ntype\">{kind}</data><data key=\"nname\">{name}</data></node>"
        );
    }
    for edge in edges.split(' ').filter(|edge| !edge.is_empty()) {
        let [ends, weight, delay] = edge.split('/').collect::<Vec<_>>()[..] else {
            panic!("{edge}")
        };
        let (source, target) = ends.split_at(1);
        let kind = if "pf".contains(target) { "emission" } else { "transition" };
        text += &format!(
            "<edge source=\"{source}\" target=\"{target}\"><data key=\"etype\">{kind}</data><data key=\"eweight\">{weight}</data>"
        );
        let (distribution, parameters) = delay.split_once(':').unwrap_or((delay, ""));
        text += &format!("<data key=\"edistribution\">{distribution}</data>");
        for (name, value) in parameters.split(',').filter_map(|parameter| parameter.split_once('='))
        {
            text += &format!("<data key=\"eparam_{name}\">{value}</data>");
        }
        text += "</edge>";
    }
    text + "</graph></graphml>"
}

const PACED: &str = "ab/1/ bb/1/ bp/1/exponential:rate=1e-6";
const ENDS: &str = "ab/1/ bb/1/ bp/1/uniform:low=0,high=0 bf/1/uniform:low=0,high=0";

fn with_models(flow: &str, stream: &str) -> Folder {
    let mut folder = Folder::new();
    folder
        .client("cider", "tgenrc.graphml", "300")
        .file("conf/tgen.tor-flowmodel-60000000usec.graphml", &model(flow))
        .file("conf/tgen.tor-streammodel-x.graphml", &model(stream))
        .file("conf/tgen.tor-packetmodel-x.graphml", &model(ENDS));
    folder
}

#[test]
fn a_model_that_neither_pauses_nor_ends_is_refused_with_the_state() {
    let good = with_models(PACED, ENDS).read();
    assert!(good.is_ok(), "{good:?}");
    let instant = "uniform:low=0,high=0";
    for (flow, state) in [
        (format!("ab/1/ bb/1/ bp/1/{instant}"), "state b"),
        // With an end of probability zero, over two states, and with pauses of zero.
        (format!("ab/1/ bb/1/ bp/1/{instant} bf/0/{instant}"), "state b"),
        (format!("ab/1/ bc/1/ cb/1/ bp/1/{instant} cp/1/{instant}"), "state b"),
        ("ab/1/ bb/1/ bp/1/normal:location=0,scale=0".to_owned(), "state b"),
        ("ab/1/ bb/1/ bp/1/exponential:rate=1e9".to_owned(), "state b"),
        (format!("ab/1/ bc/1/ bp/1/exponential:rate=1e-6 cc/1/ cp/1/{instant}"), "state c"),
    ] {
        for (folder, file) in
            [(with_models(&flow, ENDS), "flowmodel"), (with_models(PACED, &flow), "streammodel")]
        {
            let error = folder.read().expect_err("a run would not end");
            assert!(error.contains(state) && error.contains(file), "{error}");
        }
    }
    // A burst that ends by chance, or a state that pauses now and then, is sound.
    for flow in [
        ENDS.to_owned(),
        format!("ab/1/ bb/1/ bc/1/ bp/1/{instant} cb/1/ cp/1/exponential:rate=1e-6"),
    ] {
        let read = with_models(&flow, ENDS).read();
        assert!(read.is_ok(), "{read:?}");
    }
}

#[test]
fn weights_and_parameters_that_tgen_refuses_are_refused_with_their_edge() {
    for (flow, expected) in [
        (PACED.replace("bp/1", "bp/-1"), "edge b to p: weight is -1"),
        (PACED.replace("bp/1", "bp/nan"), "edge b to p: weight"),
        (PACED.replace("bb/1", "bb/inf"), "edge b to b: weight"),
        (PACED.replace("bp/1", "bp/0"), "state b: weight"),
        (PACED.replace("1e-6", "0"), "edge b to p: param_rate is 0"),
        (
            PACED.replace("exponential:rate=1e-6", "uniform:low=2,high=1"),
            "edge b to p: param_low is 2",
        ),
        (
            PACED.replace("exponential:rate=1e-6", "normal:location=1,scale=-1"),
            "edge b to p: param_scale is -1",
        ),
    ] {
        let error = with_models(&flow, ENDS).read().expect_err(expected);
        assert!(error.contains(expected), "{error}, not {expected}");
    }
}

/// Since tornettools gives each client a graph of its own, which names the models.
#[test]
fn a_client_has_the_models_and_the_delay_of_its_own_graph() {
    let mut folder = with_models(PACED, ENDS);
    let traffic = |flow: &str| {
        graph(
            &[
                ("start", "time=37;peers=orchard:80"),
                (
                    "traffic",
                    &format!(
                        "flowmodelpath=../../../conf/{flow};streammodelpath=../../../conf/tgen.tor-streammodel-x.graphml;packetmodelpath=../../../conf/tgen.tor-packetmodel-x.graphml"
                    ),
                ),
            ],
            &[("start", "traffic", ""), ("traffic", "traffic", "")],
        )
    };
    let other = "tgen.tor-flowmodel-7usec.graphml";
    folder
        .client("perry", "tgenrc.graphml", "300")
        .file("shadow.data.template/hosts/perry/tgenrc.graphml", &traffic(other))
        .file(&format!("conf/{other}"), &model(&PACED.replace("1e-6", "2e-6")));
    let network = folder.network();
    let rate = |name: &str| {
        let client =
            network.clients.iter().find(|client| client.site.name == name).expect("it is there");
        let Users::Models(models) = &client.users else { panic!("{client:?}") };
        (format!("{:?}", models.flow.states[1].emissions[0].2), client.begins.as_secs())
    };
    assert_eq!(rate("perry"), ("Exponential(2e-6)".to_owned(), 37));
    // Whose graph is not there has the first of the folder.
    assert_eq!(rate("cider"), ("Exponential(1e-6)".to_owned(), 0));
}
