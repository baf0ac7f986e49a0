//! TGen's graphs: servers, benchmarks, users, and the models.

use super::{Plan, put};
use crate::error::Error;
use crate::network::Users;
use sim::world::{Delay, Fetch, MarkovModel, Observation};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The destinations of streams.
const PORT: u16 = 80;

/// The prefixes of the models' file names, by which they are found again.
const MODELS: [&str; 3] =
    ["tgen.tor-flowmodel.graphml", "tgen.tor-streammodel.graphml", "tgen.tor-packetmodel.graphml"];

/// A stream is given up neither when it is silent nor when it is slow, as in this simulator. TGen's default is
/// 30 s of silence.
const WITHOUT_END: [(&str, &str); 2] = [("stallout", "0 seconds"), ("timeout", "0 seconds")];

/// A stream names the server's copy of its model. Otherwise it would send the model itself: 25 KB in
/// tornettools' samples.
const PATH_ONLY: (&str, &str) = ("packetmodelmode", "path");

/// The benchmarks of one kind. The first is named as in tornettools' samples.
pub(super) fn perf_name(place: usize) -> String {
    let number = if place == 0 { String::new() } else { format!("-{}", place + 1) };
    format!("tgen-perf{number}.tgenrc.graphml")
}

pub(super) fn write(plan: &Plan<'_>, folder: &Path) -> Result<(), Error> {
    let conf = folder.join("conf");
    let mut server = Graph::new();
    let port = PORT.to_string();
    let [stallout, timeout] = WITHOUT_END;
    server.node("start", &[("serverport", &port), ("loglevel", "message"), stallout, timeout]);
    put(&conf.join("tgen-server.tgenrc.graphml"), &server.finish())?;
    let peers: Vec<String> =
        plan.network.servers.iter().map(|server| format!("{}:{PORT}", server.name)).collect();
    let peers = peers.join(",");
    for (place, fetch) in plan.fetches.iter().enumerate() {
        put(&conf.join(perf_name(place)), &perf(fetch, &peers))?;
    }
    if !plan.network.clients.iter().any(|client| matches!(client.users, Users::Models(_))) {
        return Ok(());
    }
    let models = &plan.network.models;
    for (name, model) in MODELS.into_iter().zip([&models.flow, &models.stream, &models.packet]) {
        put(&conf.join(name), &model_graph(model))?;
    }
    let mut users = Graph::new();
    users.node("start", &[("peers", &peers), ("loglevel", "message"), stallout, timeout]);
    let path = |name: &str| format!("../../../conf/{name}");
    let [flow, stream, packet] = MODELS.map(path);
    users.node(
        "traffic",
        &[
            ("socksproxy", "localhost:9050"),
            ("socksauthseed", "1"),
            ("flowmodelpath", &flow),
            ("streammodelpath", &stream),
            ("packetmodelpath", &packet),
            PATH_ONLY,
        ],
    );
    users.edge("start", "traffic", &[]);
    put(&conf.join("tgen-markov.tgenrc.graphml"), &users.finish())
}

/// The benchmarks of one kind: a download at the beginning, and one after each pause, each over a new circuit.
/// One download repeats after each pause, unless they are counted.
fn perf(fetch: &Fetch, peers: &str) -> String {
    let mut graph = Graph::new();
    let proxy = ("socksproxy", "localhost:9050");
    graph.node("start", &[("peers", peers), proxy, ("loglevel", "info"), PATH_ONLY]);
    for (place, size) in fetch.sizes.iter().enumerate() {
        let bytes = format!("{} bytes", size.bytes);
        let timeout = time(size.timeout.unwrap_or_default());
        let stallout = time(size.stallout.unwrap_or_default());
        // Streams with different user names and passwords share no circuit, and those from a seed are redrawn
        // for each.
        let seed = (place + 1).to_string();
        let stream = [
            ("sendsize", "1000 bytes"),
            ("recvsize", &*bytes),
            ("stallout", &*stallout),
            ("timeout", &timeout),
            ("socksauthseed", &seed),
        ];
        graph.node(&stream_name(place), &stream);
    }
    let every: Vec<String> = fetch.pauses.iter().map(|pause| time(*pause)).collect();
    let every = every.join(",");
    let downloads = |graph: &mut Graph, from: &str| {
        for (place, size) in fetch.sizes.iter().enumerate() {
            graph.edge(from, &stream_name(place), &[("weight", &size.weight.to_string())]);
        }
    };
    let mut last = "start".to_owned();
    for number in 1..fetch.count.unwrap_or(2) {
        let pause = format!("pause_{number}");
        graph.node(&pause, &[("time", &every)]);
        graph.edge(&last, &pause, &[]);
        downloads(&mut graph, &last);
        last = pause;
    }
    if fetch.count != Some(0) {
        downloads(&mut graph, &last);
    }
    if fetch.count.is_none() {
        graph.edge(&last, &last, &[]);
    }
    graph.finish()
}

fn stream_name(place: usize) -> String {
    format!("stream_{place}")
}

fn time(time: onion::Duration) -> String {
    if time.subsec_nanos() == 0 {
        format!("{} seconds", time.as_secs())
    } else {
        format!("{} milliseconds", time.as_millis())
    }
}

fn model_graph(model: &MarkovModel) -> String {
    let mut graph = Graph { is_model: true, ..Graph::new() };
    for place in 0..model.states.len() {
        let number = format!("state{place}");
        let name = if place == model.start { "start" } else { &number };
        graph.node(&format!("s{place}"), &[("type", "state"), ("name", name)]);
    }
    for (id, name) in [("o1", "+"), ("o2", "-"), ("o3", "F")] {
        graph.node(id, &[("type", "observation"), ("name", name)]);
    }
    for (place, state) in model.states.iter().enumerate() {
        let source = format!("s{place}");
        for (weight, to) in &state.transitions {
            let of = [("type", "transition"), ("weight", &*weight.to_string())];
            graph.edge(&source, &format!("s{to}"), &of);
        }
        for (weight, observation, delay) in &state.emissions {
            let target = match observation {
                Observation::ToServer => "o1",
                Observation::ToClient => "o2",
                Observation::End => "o3",
            };
            let (distribution, params) = match delay {
                Delay::Uniform(low, high) => {
                    ("uniform", [("param_low", Some(low)), ("param_high", Some(high))])
                }
                Delay::Normal(mean, deviation) => {
                    ("normal", [("param_location", Some(mean)), ("param_scale", Some(deviation))])
                }
                Delay::LogNormal(mean, deviation) => (
                    "lognormal",
                    [("param_location", Some(mean)), ("param_scale", Some(deviation))],
                ),
                Delay::Exponential(rate) => {
                    ("exponential", [("param_rate", Some(rate)), ("", None)])
                }
                Delay::Pareto(scale, shape) => {
                    ("pareto", [("param_scale", Some(scale)), ("param_shape", Some(shape))])
                }
            };
            let params = params.map(|(name, value)| (name, value.map(f64::to_string)));
            let weight = weight.to_string();
            let mut of =
                vec![("type", "emission"), ("weight", &*weight), ("distribution", distribution)];
            of.extend(params.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
            graph.edge(&source, target, &of);
        }
    }
    graph.finish()
}

/// A graph being written, and its attribute names so far.
struct Graph {
    /// TGen parses numbers of models as numbers, and all else as strings.
    is_model: bool,
    keys: BTreeMap<(&'static str, String), usize>,
    body: String,
}

impl Graph {
    const fn new() -> Self {
        Self { is_model: false, keys: BTreeMap::new(), body: String::new() }
    }

    fn node(&mut self, id: &str, attributes: &[(&str, &str)]) {
        let _infallible = write!(self.body, "<node id=\"{id}\">");
        self.data("node", attributes);
        self.body += "</node>\n";
    }

    fn edge(&mut self, source: &str, target: &str, attributes: &[(&str, &str)]) {
        let _infallible = write!(self.body, "<edge source=\"{source}\" target=\"{target}\">");
        self.data("edge", attributes);
        self.body += "</edge>\n";
    }

    fn data(&mut self, of: &'static str, attributes: &[(&str, &str)]) {
        for (name, value) in attributes {
            let next = self.keys.len();
            let key = *self.keys.entry((of, (*name).to_owned())).or_insert(next);
            // Host names, numbers and words: nothing that XML would have to escape.
            let _infallible = write!(self.body, "<data key=\"d{key}\">{value}</data>");
        }
    }

    fn finish(self) -> String {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n",
        );
        for ((of, name), key) in &self.keys {
            let is_number = self.is_model && (name.starts_with("param_") || name == "weight");
            let kind = if is_number { "double" } else { "string" };
            let _infallible = writeln!(
                text,
                "<key id=\"d{key}\" for=\"{of}\" attr.name=\"{name}\" attr.type=\"{kind}\"/>"
            );
        }
        text + "<graph edgedefault=\"directed\">\n" + &self.body + "</graph>\n</graphml>\n"
    }
}
