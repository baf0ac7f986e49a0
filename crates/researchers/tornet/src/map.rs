//! A map of a network, as in Shadow: nodes, and latency and loss between each pair.
//!
//! In GML: lists of names with values, in brackets. A map of the whole Internet has millions of edges, so the
//! text is read in one pass and only the necessary part of edges is kept; crates that read GML build trees of
//! everything, and do not parse fractions.

use crate::places::Places;
use crate::units::{shadow_rate, shadow_time};
use onion::{Duration, Rate};
use petgraph::algo::dijkstra;
use petgraph::graph::{DiGraph, NodeIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Add;

/// The attributes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The ISO 3166 code of its country, if stated.
    pub country: Option<String>,
    /// The default upload rate of hosts there.
    pub up: Option<Rate>,
    /// The default download rate of hosts there.
    pub down: Option<Rate>,
}

/// The path from one node to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MapPath {
    /// The one-way latency.
    pub latency: Duration,
    /// The packet loss rate.
    pub loss: f64,
}

/// The nodes of a map that have hosts, and the paths between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    nodes: BTreeMap<u32, Node>,
    paths: BTreeMap<(u32, u32), MapPath>,
}

impl Map {
    /// Shadow's built-in map: one node, 1 Gbit/s for all hosts, 1 ms.
    #[must_use]
    pub fn one_switch() -> Self {
        let rate = Some(Rate::from_mbit_per_s(1000.0));
        let node = Node { country: None, up: rate, down: rate };
        let path = MapPath { latency: Duration::from_millis(1), loss: 0.0 };
        Self { nodes: BTreeMap::from([(0, node)]), paths: BTreeMap::from([((0, 0), path)]) }
    }

    /// Reads a map in GML, of which these nodes are used. By Shadow's rules: from one node to another there is
    /// one edge, or with `by_shortest` the path of minimum latency over any nodes; from a node to itself always
    /// its own edge. An edge of an undirected map counts in both directions, so that one from 1 to 2 and one
    /// from 2 to 1 are duplicates.
    ///
    /// # Errors
    /// If the text is malformed or incomplete.
    pub fn parse(text: &str, by_shortest: bool, used: &BTreeSet<u32>) -> Result<Self, String> {
        let mut drawn = Drawn::read(text, Wanted { by_shortest, used })?;
        let paths =
            if by_shortest { drawn.shortest(used) } else { std::mem::take(&mut drawn.edges) };
        for (from, to) in used.iter().flat_map(|from| used.iter().map(move |to| (*from, *to))) {
            if !drawn.nodes.contains_key(&from) {
                return Err(format!("hosts are at node {from}, which is not on the map"));
            }
            if !paths.contains_key(&(from, to)) {
                return Err(format!("the map has no edge from node {from} to node {to}"));
            }
        }
        if let Some(end) = drawn.ends.iter().find(|end| !drawn.nodes.contains_key(end)) {
            return Err(format!("an edge leads from or to node {end}, which is not on the map"));
        }
        drawn.nodes.retain(|id, _| used.contains(id));
        Ok(Self { nodes: drawn.nodes, paths })
    }

    /// All nodes with hosts.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// One of them.
    #[must_use]
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// The path between two of them; without latency and loss if one does not exist.
    #[must_use]
    pub fn path(&self, from: u32, to: u32) -> MapPath {
        self.paths.get(&(from, to)).copied().unwrap_or_default()
    }

    /// The node of a host with a known country only: a node in that country, otherwise the nearest one with a
    /// known country, otherwise the first.
    #[must_use]
    pub fn nearest(&self, country: &str, known: &Places) -> Option<u32> {
        let here = known.find(country).ok();
        let distance = |node: &Node| {
            let there = known.find(node.country.as_deref()?).ok()?;
            here.map(|here| here.latency_to(&there))
        };
        let far = |(id, node): (&u32, &Node)| {
            let is_elsewhere = node.country.as_deref() != Some(country);
            (is_elsewhere, distance(node).unwrap_or(Duration::MAX), *id)
        };
        self.nodes.iter().map(far).min().map(|(_, _, id)| id)
    }
}

/// A map as parsed.
#[derive(Debug, Default)]
struct Drawn {
    nodes: BTreeMap<u32, Node>,
    edges: BTreeMap<(u32, u32), MapPath>,
    /// The ends of edges.
    ends: BTreeSet<u32>,
}

/// Which edges are kept.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    by_shortest: bool,
    used: &'a BTreeSet<u32>,
}

impl Wanted<'_> {
    fn has(self, from: u32, to: u32) -> bool {
        self.by_shortest || (self.used.contains(&from) && self.used.contains(&to))
    }

    /// Which of two edges between the same nodes counts: with `by_shortest` the better one; otherwise Shadow
    /// refuses the map.
    fn better(self, from: u32, to: u32, one: MapPath, other: MapPath) -> Result<MapPath, String> {
        if !self.by_shortest || (from == to && self.used.contains(&from)) {
            return Err(format!("two edges lead from node {from} to node {to}"));
        }
        Ok(if Cost::from_path(other) < Cost::from_path(one) { other } else { one })
    }
}

/// The attributes of an edge or a node that have been read so far.
#[derive(Default)]
struct Item {
    id: Option<u32>,
    source: Option<u32>,
    target: Option<u32>,
    path: MapPath,
    has_latency: bool,
    node: Node,
}

impl Item {
    fn take(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = |value: &str| {
            value.parse::<u32>().map(Some).map_err(|_| format!("no such {name}: {value:?}"))
        };
        match name {
            "id" => self.id = number(value)?,
            "source" => self.source = number(value)?,
            "target" => self.target = number(value)?,
            "latency" => {
                self.path.latency = shadow_time(value)?;
                self.has_latency = true;
                if self.path.latency.is_zero() {
                    return Err("a latency of nothing".into());
                }
            }
            "packet_loss" => {
                let loss = value.parse::<f64>().ok().filter(|loss| (0.0..=1.0).contains(loss));
                self.path.loss = loss.ok_or_else(|| format!("no such packet_loss: {value:?}"))?;
            }
            "country_code" => self.node.country = Some(value.to_owned()),
            "host_bandwidth_up" | "bandwidth_up" => self.node.up = Some(shadow_rate(value)?),
            "host_bandwidth_down" | "bandwidth_down" => self.node.down = Some(shadow_rate(value)?),
            _ => {}
        }
        Ok(())
    }
}

impl Drawn {
    /// Parses the text, and keeps wanted edges.
    fn read(text: &str, wanted: Wanted<'_>) -> Result<Self, String> {
        let mut drawn = Self::default();
        let mut is_directed = false;
        // The open lists, outermost first, and the attributes of the innermost edge or node.
        let mut open: Vec<&str> = Vec::new();
        let mut item = Item::default();
        let mut name = None;
        for token in Tokens(text) {
            match (token?, name.take()) {
                (Token::Bare("["), Some(list)) => {
                    open.push(list);
                    if open == ["graph", "node"] || open == ["graph", "edge"] {
                        item = Item::default();
                    }
                }
                (Token::Bare("]"), None) => {
                    if open == ["graph", "node"] {
                        let id = item.id.ok_or("a node without an id")?;
                        if drawn.nodes.insert(id, std::mem::take(&mut item.node)).is_some() {
                            return Err(format!("two nodes have the id {id}"));
                        }
                    } else if open == ["graph", "edge"] {
                        drawn.add(&item, wanted)?;
                    }
                    open.pop().ok_or("a bracket too many")?;
                }
                (Token::Bare(word), None) => name = Some(word),
                (Token::Text(text), None) => return Err(format!("the value {text:?} has no name")),
                (Token::Bare(value) | Token::Text(value), Some(name)) => match open[..] {
                    ["graph"] if name == "directed" => is_directed = value == "1",
                    ["graph", "node" | "edge"] => item.take(name, value)?,
                    _ => {}
                },
            }
        }
        if let Some(list) = open.last() {
            return Err(format!("the list {list} has no end"));
        }
        if !is_directed {
            for ((from, to), path) in drawn.edges.clone() {
                let path = match drawn.edges.get(&(to, from)) {
                    Some(back) if from != to => wanted.better(from, to, path, *back)?,
                    _ => path,
                };
                drawn.edges.insert((to, from), path);
            }
        }
        Ok(drawn)
    }

    fn add(&mut self, item: &Item, wanted: Wanted<'_>) -> Result<(), String> {
        let (Some(source), Some(target)) = (item.source, item.target) else {
            return Err("an edge without a source or target".into());
        };
        if !item.has_latency {
            return Err(format!("the edge from node {source} to node {target} has no latency"));
        }
        self.ends.extend([source, target]);
        let ends = (source, target);
        if wanted.has(source, target) {
            let path = match self.edges.get(&ends) {
                Some(known) => wanted.better(ends.0, ends.1, *known, item.path)?,
                None => item.path,
            };
            self.edges.insert(ends, path);
        }
        Ok(())
    }

    /// The paths of minimum latency between these nodes.
    fn shortest(&self, used: &BTreeSet<u32>) -> BTreeMap<(u32, u32), MapPath> {
        let mut graph = DiGraph::new();
        let places: BTreeMap<u32, NodeIndex> =
            self.nodes.keys().map(|id| (*id, graph.add_node(*id))).collect();
        for ((from, to), path) in &self.edges {
            if let (Some(from), Some(to)) = (places.get(from), places.get(to)) {
                graph.add_edge(*from, *to, Cost::from_path(*path));
            }
        }
        let mut paths = BTreeMap::new();
        for from in used {
            let Some(place) = places.get(from) else { continue };
            let costs = dijkstra(&graph, *place, None, |edge| *edge.weight());
            for to in used.iter().filter(|to| *to != from) {
                if let Some(cost) = places.get(to).and_then(|place| costs.get(place)) {
                    paths.insert((*from, *to), cost.path());
                }
            }
            if let Some(own) = self.edges.get(&(*from, *from)) {
                paths.insert((*from, *from), *own);
            }
        }
        paths
    }
}

/// Of several consecutive edges: latencies add up, and a packet must pass all of them.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
struct Cost {
    latency: Duration,
    loss: f64,
}

impl Cost {
    const fn from_path(path: MapPath) -> Self {
        Self { latency: path.latency, loss: path.loss }
    }

    const fn path(self) -> MapPath {
        MapPath { latency: self.latency, loss: self.loss }
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self { latency: Duration::ZERO, loss: 0.0 }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        let passing = (1.0 - self.loss) * (1.0 - more.loss);
        Self { latency: self.latency.saturating_add(more.latency), loss: 1.0 - passing }
    }
}

enum Token<'a> {
    /// A name, a number or a bracket.
    Bare(&'a str),
    /// A quoted string.
    Text(&'a str),
}

/// The rest of the text.
struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.0 = self.0.trim_start();
            // Comments end with their line.
            let Some(comment) = self.0.strip_prefix('#') else { break };
            self.0 = comment.split_once('\n').map_or("", |(_, rest)| rest);
        }
        let first = self.0.chars().next()?;
        if first == '"' {
            let Some((text, rest)) = self.0[1..].split_once('"') else {
                self.0 = "";
                return Some(Err("a quotation without an end".into()));
            };
            self.0 = rest;
            return Some(Ok(Token::Text(text)));
        }
        let is_end =
            |character: char| character.is_whitespace() || matches!(character, '[' | ']' | '"');
        let len = if is_end(first) { 1 } else { self.0.find(is_end).unwrap_or(self.0.len()) };
        let (word, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(Ok(Token::Bare(word)))
    }
}

#[cfg(test)]
mod tests;
