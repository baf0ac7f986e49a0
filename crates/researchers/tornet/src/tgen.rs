//! The traffic of a TGen process, from its graph of actions.
//!
//! TGen walks from `start` along all edges without a weight, and along one of those with weights. Supported are
//! the graphs that tornettools writes, and similar ones: traffic by models, and downloads after pauses. Other
//! graphs are rejected, with the unsupported node.

use crate::error::{Error, read};
use crate::graphml::{Attributes, Graph};
use crate::units::{tgen_size, tgen_time, tgen_times};
use onion::Duration;
use sim::world::{Fetch, Size};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// TGen's default timeout of a silent stream.
const STALLOUT: Duration = Duration::from_secs(30);

/// The traffic of a process.
#[derive(Debug)]
pub(crate) struct Actions {
    /// The time from its start to its first action.
    pub(crate) delay: Duration,
    /// The destinations of its streams, `host:port`.
    pub(crate) peers: Vec<String>,
    pub(crate) doing: Doing,
}

#[derive(Debug)]
pub(crate) enum Doing {
    /// It is a server.
    Serves,
    Downloads(Fetch),
    /// Flows of streams of packets, by models.
    Traffic(ModelFiles),
}

/// The files of the models, as named by the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelFiles {
    pub(crate) flow: String,
    pub(crate) stream: String,
    pub(crate) packet: String,
}

impl Actions {
    /// # Errors
    /// If there is no such file, it is not a TGen graph, or it is not supported.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        Self::parse(&read(path)?).map_err(|problem| Error::malformed(path, problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let graph = Graph::parse(text)?;
        let walk = Walk::new(&graph)?;
        let (delay, doing) = walk.doing()?;
        let peers = graph.nodes.iter().filter_map(|(_, of)| of.get("peers"));
        let peers =
            peers.flat_map(|peer| peer.split(',')).map(str::trim).filter(|peer| !peer.is_empty());
        Ok(Self { delay, peers: peers.map(str::to_owned).collect(), doing })
    }

    /// Whether its streams lead to onion services only.
    pub(crate) fn asks_onion_services(&self) -> bool {
        let is_onion =
            |peer: &String| peer.split(':').next().is_some_and(|host| host.ends_with(".onion"));
        !self.peers.is_empty() && self.peers.iter().all(is_onion)
    }
}

/// The action of a node, from its ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    End,
    Pause,
    Stream,
    Flow,
    Traffic,
}

impl Kind {
    /// In the order in which TGen searches for them.
    const ALL: [(&str, Self); 6] = [
        ("start", Self::Start),
        ("end", Self::End),
        ("pause", Self::Pause),
        ("stream", Self::Stream),
        ("flow", Self::Flow),
        ("traffic", Self::Traffic),
    ];

    fn of(id: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(name, _)| id.contains(name));
        let problem =
            || format!("node {id}: TGen knows start, end, pause, stream, flow and traffic");
        found.map(|(_, kind)| kind).ok_or_else(problem)
    }
}

struct Walk<'a> {
    start: &'a str,
    nodes: BTreeMap<&'a str, (Kind, &'a Attributes)>,
    /// From each node: the target, and the weight, if there is one.
    edges: BTreeMap<&'a str, Vec<(&'a str, Option<f64>)>>,
}

/// The successors of a node: downloads of which one begins, and the next pause.
struct Next<'a> {
    streams: Vec<(&'a str, f64)>,
    pause: Option<&'a str>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph) -> Result<Self, String> {
        let mut nodes = BTreeMap::new();
        let mut start = None;
        for (id, of) in &graph.nodes {
            let kind = Kind::of(id)?;
            if kind == Kind::Start && start.replace(id.as_str()).is_some() {
                return Err(format!("node {id}: a second start"));
            }
            nodes.insert(id.as_str(), (kind, of));
        }
        let start = start.ok_or("there is no start")?;
        let mut edges: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for (source, target, of) in &graph.edges {
            let at = |problem: &str| format!("edge {source} to {target}: {problem}");
            if !nodes.contains_key(source.as_str()) || !nodes.contains_key(target.as_str()) {
                return Err(at("there is no such node"));
            }
            let text = of.get("weight").filter(|text| !text.is_empty());
            let weight =
                text.map(|text| weight(text).map_err(|problem| at(&problem))).transpose()?;
            edges.entry(source.as_str()).or_default().push((target.as_str(), weight));
        }
        Ok(Self { start, nodes, edges })
    }

    fn kind(&self, id: &str) -> Kind {
        self.nodes.get(id).map_or(Kind::End, |(kind, _)| *kind)
    }

    /// All successors of a node.
    fn from(&self, id: &str) -> &[(&'a str, Option<f64>)] {
        self.edges.get(id).map_or(&[], Vec::as_slice)
    }

    fn own<'s>(&'s self, id: &'s str, name: &str) -> Option<(&'s str, &'s str)> {
        let (_, of) = self.nodes.get(id)?;
        Some((id, of.get(name).map(String::as_str).filter(|value| !value.is_empty())?))
    }

    /// An option of a node, or otherwise of the start, as in TGen.
    fn option<T>(
        &self,
        id: &str,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        let found = self.own(id, name).or_else(|| self.own(self.start, name));
        let parse = |(id, text): (&str, &str)| {
            parse(text).map_err(|problem| format!("node {id}: {name}: {problem}"))
        };
        found.map(parse).transpose()
    }

    /// The time from its start, and the traffic.
    fn doing(&self) -> Result<(Duration, Doing), String> {
        let delay = self.option(self.start, "time", tgen_time)?.unwrap_or_default();
        let leads_to =
            |kind: Kind| self.from(self.start).iter().any(|(target, _)| self.kind(target) == kind);
        if self.from(self.start).is_empty() && self.own(self.start, "serverport").is_some() {
            Ok((delay, Doing::Serves))
        } else if leads_to(Kind::Traffic) {
            Ok((delay, Doing::Traffic(self.traffic()?)))
        } else {
            let (more, fetch) = self.downloads()?;
            Ok((delay.saturating_add(more), Doing::Downloads(fetch)))
        }
    }

    fn traffic(&self) -> Result<ModelFiles, String> {
        let [(traffic, _)] = self.from(self.start) else {
            return Err(format!(
                "node {}: it leads to traffic and to something else, which is not simulated",
                self.start
            ));
        };
        if let Some((other, _)) = self.from(traffic).iter().find(|(target, _)| target != traffic) {
            return Err(format!(
                "node {traffic}: it leads to {other}: what follows traffic is not simulated"
            ));
        }
        let file = |name: &str| {
            let path = self.option(traffic, name, |text| Ok(text.to_owned()))?;
            path.ok_or_else(|| format!("node {traffic}: no {name}"))
        };
        Ok(ModelFiles {
            flow: file("flowmodelpath")?,
            stream: file("streammodelpath")?,
            packet: file("packetmodelpath")?,
        })
    }

    /// Downloads, each after a delay, and the delay before the first. The set of downloads to choose from is
    /// always the same.
    fn downloads(&self) -> Result<(Duration, Fetch), String> {
        let mut delay = Duration::ZERO;
        let mut pauses: Option<Vec<Duration>> = None;
        let mut sizes: Option<Vec<Size>> = None;
        let mut count = 0;
        let mut at = self.start;
        let mut passed = BTreeSet::from([at]);
        let goes_round = loop {
            let next = self.next(at)?;
            let goes_round = next.pause == Some(at);
            let is_first = sizes.is_none();
            if !next.streams.is_empty() {
                let group = next
                    .streams
                    .iter()
                    .map(|(id, weight)| self.size(id, *weight))
                    .collect::<Result<Vec<Size>, String>>()?;
                if sizes.as_ref().is_some_and(|sizes| *sizes != group) {
                    return Err(format!(
                        "node {at}: other downloads than before, which is not simulated"
                    ));
                }
                sizes = Some(group);
                count += 1;
            }
            if at != self.start {
                let times = self.times(at)?;
                // The time before the first download is not a pause between two.
                if is_first && !goes_round {
                    let [time] = times[..] else {
                        return Err(format!(
                            "node {at}: several times before the first download, which is not simulated"
                        ));
                    };
                    delay = delay.saturating_add(time);
                } else if pauses.as_ref().is_some_and(|pauses| *pauses != times) {
                    return Err(format!(
                        "node {at}: another time than of the pause before, which is not simulated"
                    ));
                } else if goes_round && times.iter().all(Duration::is_zero) {
                    return Err(format!(
                        "node {at}: a pause of nothing that leads to itself: TGen would never go on"
                    ));
                } else {
                    pauses = Some(times);
                }
            }
            match next.pause {
                Some(pause) if goes_round || passed.insert(pause) => at = pause,
                Some(pause) => {
                    return Err(format!(
                        "node {at}: it leads back to {pause}, which is not simulated: a pause may lead to itself"
                    ));
                }
                None => break false,
            }
            if goes_round {
                break true;
            }
        };
        let mut sizes = sizes.ok_or("there is no download: no stream follows")?;
        sizes.sort_by_key(|size| size.bytes);
        // A client with a single download has no pause and needs none.
        let pauses = pauses.unwrap_or_else(|| vec![Duration::from_mins(1)]);
        Ok((delay, Fetch { pauses, count: (!goes_round).then_some(count), sizes }))
    }

    fn next(&self, at: &str) -> Result<Next<'a>, String> {
        let mut next = Next { streams: Vec::new(), pause: None };
        let mut weights = 0;
        for (target, weight) in self.from(at) {
            let problem = match (self.kind(target), weight) {
                (Kind::Stream, _) if let Some((after, _)) = self.from(target).first() => {
                    return Err(format!(
                        "node {target}: it leads to {after}: what follows a download is not simulated; downloads begin after pauses"
                    ));
                }
                (Kind::Stream, weight) => {
                    weights += usize::from(weight.is_some());
                    next.streams.push((target, weight.unwrap_or(1.0)));
                    continue;
                }
                (Kind::Pause, None) if next.pause.is_none() => {
                    next.pause = Some(target);
                    continue;
                }
                (Kind::Pause, None) => "a second pause at the same time",
                (Kind::Pause, Some(_)) => "a weight of a pause",
                (Kind::Start, _) => "an edge back to the start",
                (Kind::End, _) => "an end",
                (Kind::Flow, _) => "a flow without traffic",
                (Kind::Traffic, _) => "traffic together with downloads",
            };
            return Err(format!("edge {at} to {target}: {problem} is not simulated"));
        }
        let streams = next.streams.len();
        if (weights == 0 && streams > 1) || (weights > 0 && weights < streams) {
            return Err(format!(
                "node {at}: it starts several downloads at the same time, which is not simulated"
            ));
        }
        if streams > 0 && next.streams.iter().all(|(_, weight)| *weight <= 0.0) {
            return Err(format!("node {at}: weight: all weights are 0"));
        }
        Ok(next)
    }

    fn times(&self, pause: &str) -> Result<Vec<Duration>, String> {
        // The start's own time is not a default of pauses.
        let (_, text) = self.own(pause, "time").ok_or_else(|| {
            format!("node {pause}: no time: a pause that waits for others is not simulated")
        })?;
        tgen_times(text).map_err(|problem| format!("node {pause}: time: {problem}"))
    }

    fn size(&self, id: &str, weight: f64) -> Result<Size, String> {
        let problem = |what: &str| format!("node {id}: recvsize: {what}");
        let bytes = self.option(id, "recvsize", tgen_size)?;
        let bytes = bytes.ok_or_else(|| {
            problem("missing: streams by a model of packets alone are not simulated")
        })?;
        let bytes =
            u32::try_from(bytes).map_err(|_| problem("four GiB or more are not simulated"))?;
        if bytes == 0 {
            return Err(problem("nothing: only downloads are simulated"));
        }
        let limit = |time: Option<Duration>| time.filter(|time| !time.is_zero());
        let timeout = limit(self.option(id, "timeout", tgen_time)?);
        let stallout = limit(Some(self.option(id, "stallout", tgen_time)?.unwrap_or(STALLOUT)));
        Ok(Size { weight, bytes, timeout, stallout })
    }
}

fn weight(text: &str) -> Result<f64, String> {
    let weight: f64 = text.parse().map_err(|_| format!("weight: no number: {text:?}"))?;
    let is_right = weight.is_finite() && weight >= 0.0;
    is_right
        .then_some(weight)
        .ok_or_else(|| format!("weight: {text}: not a finite number of 0 or more"))
}
