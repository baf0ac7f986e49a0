//! Circuits over a star of nodes, cell by cell: links, queues and hop-by-hop windows only.
//!
//! This is the model of the authors of `CircuitStart`: nodes connected through one central point, each with an
//! upload and a download rate and a latency to the centre, and circuits of several nodes that share them. The
//! windows are the engine's ([`HopWindow`]); everything else of a relay is omitted, and so are TCP and losses.
//! It is an exact model of small systems, not of Tor: for that there is [`world`](crate::world).

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::flow::hop::HopWindow;
use onion::{Duration, Instant};

/// One node's link to the centre of the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StarNode {
    /// The serialization time of a cell upwards.
    pub up_per_cell: Duration,
    /// The serialization time of a cell downwards.
    pub down_per_cell: Duration,
    /// The latency to the centre.
    pub delay: Duration,
}

impl StarNode {
    /// A link that sends and receives this number of cells per second.
    #[must_use]
    pub fn new(cells_per_s: f64, delay: Duration) -> Self {
        let per_cell = Duration::from_secs_f64(1.0 / cells_per_s);
        Self { up_per_cell: per_cell, down_per_cell: per_cell, delay }
    }
}

/// A transfer over a circuit: from its first node to its last.
#[derive(Debug)]
pub struct StarCircuit {
    /// The nodes, by number.
    pub path: Vec<usize>,
    /// The number of cells.
    pub cells: u64,
    /// When it begins.
    pub begins: Instant,
    /// A window for each node but the last.
    pub windows: Vec<Box<dyn HopWindow>>,
}

/// One node's state for one circuit.
#[derive(Debug)]
struct Hop {
    /// Queued cells.
    queued: u64,
    window: Box<dyn HopWindow>,
    /// Whether it is in the node's round-robin ring.
    has_turn: bool,
    most_queued: u64,
}

#[derive(Debug)]
struct Circuit {
    path: Vec<usize>,
    cells: u64,
    begins: Instant,
    hops: Vec<Hop>,
    arrived: u64,
    ended: Option<Instant>,
    /// The source's window after each change.
    trace: Vec<(Instant, u32)>,
}

#[derive(Debug)]
struct Node {
    config: StarNode,
    /// Circuits with cells to send and the node's index in each, round-robin.
    turns: VecDeque<(usize, usize)>,
    is_sending: bool,
    /// When everything that has arrived is received.
    received_until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin {
        circuit: usize,
    },
    /// A node has sent a cell.
    Sent {
        node: usize,
    },
    /// A cell is at the centre, for the node with this index in a circuit's path.
    Passed {
        circuit: usize,
        place: usize,
    },
    /// The node with this index has received a cell.
    Received {
        circuit: usize,
        place: usize,
    },
    /// The node with this index gets feedback: the next one has forwarded a cell.
    Fed {
        circuit: usize,
        place: usize,
    },
    /// A node's rates change.
    Changed {
        node: usize,
        up: Duration,
        down: Duration,
    },
}

/// The result of a circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct StarResult {
    /// From its beginning to its last byte; `None` if it did not complete in time.
    pub last_byte: Option<Duration>,
    /// The source's window in cells, after each change.
    pub trace: Vec<(Instant, u32)>,
    /// The longest queue of each node of the path but the last.
    pub most_queued: Vec<u64>,
}

/// The star and its events.
#[derive(Debug, Default)]
pub struct Star {
    nodes: Vec<Node>,
    circuits: Vec<Circuit>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    numbered: u64,
    now: Instant,
}

impl Star {
    /// Adds a node; returns its number.
    pub fn add_node(&mut self, config: StarNode) -> usize {
        let node =
            Node { config, turns: VecDeque::new(), is_sending: false, received_until: self.now };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Adds a circuit; returns its number.
    ///
    /// # Panics
    /// If there is not one window for each node but the last, or a node does not exist.
    pub fn add_circuit(&mut self, config: StarCircuit) -> usize {
        let StarCircuit { path, cells, begins, windows } = config;
        assert_eq!(windows.len() + 1, path.len(), "a window for each node but the last");
        assert!(path.iter().all(|node| *node < self.nodes.len()), "a node does not exist");
        let hop = |window| Hop { queued: 0, window, has_turn: false, most_queued: 0 };
        let hops = windows.into_iter().map(hop).collect();
        let circuit =
            Circuit { path, cells, begins, hops, arrived: 0, ended: None, trace: Vec::new() };
        let number = self.circuits.len();
        self.circuits.push(circuit);
        self.at(begins, Event::Begin { circuit: number });
        number
    }

    /// Changes a node's rates, in cells per second, at this time.
    pub fn change(&mut self, at: Instant, node: usize, cells_per_s: f64) {
        let StarNode { up_per_cell: up, down_per_cell: down, .. } =
            StarNode::new(cells_per_s, Duration::ZERO);
        self.at(at, Event::Changed { node, up, down });
    }

    /// Runs until all circuits have completed, or until `end`.
    pub fn run(&mut self, until: Instant) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            self.handle(event);
        }
    }

    /// The result of each circuit, in the order in which they were added.
    #[must_use]
    pub fn results(self) -> Vec<StarResult> {
        let result = |circuit: Circuit| StarResult {
            last_byte: circuit.ended.map(|ended| ended - circuit.begins),
            trace: circuit.trace,
            most_queued: circuit.hops.iter().map(|hop| hop.most_queued).collect(),
        };
        self.circuits.into_iter().map(result).collect()
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((at, self.numbered, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin { circuit } => {
                let state = &mut self.circuits[circuit];
                state.hops[0].queued = state.cells;
                state.trace.push((self.now, state.hops[0].window.size_cells()));
                self.enqueue(circuit, 0);
            }
            Event::Sent { node } => {
                self.nodes[node].is_sending = false;
                self.send(node);
            }
            Event::Passed { circuit, place } => {
                let node = &mut self.nodes[self.circuits[circuit].path[place]];
                let arrives = self.now + node.config.delay;
                node.received_until = arrives.max(node.received_until) + node.config.down_per_cell;
                let at = node.received_until;
                self.at(at, Event::Received { circuit, place });
            }
            Event::Received { circuit, place } => self.receive(circuit, place),
            Event::Fed { circuit, place } => {
                let state = &mut self.circuits[circuit];
                let window = &mut state.hops[place].window;
                window.handle_feedback(self.now, 1);
                let size = window.size_cells();
                if place == 0 && state.trace.last().is_none_or(|(_, last)| *last != size) {
                    state.trace.push((self.now, size));
                }
                self.enqueue(circuit, place);
            }
            Event::Changed { node, up, down } => {
                let config = &mut self.nodes[node].config;
                (config.up_per_cell, config.down_per_cell) = (up, down);
            }
        }
    }

    fn receive(&mut self, circuit: usize, place: usize) {
        let state = &mut self.circuits[circuit];
        if let Some(hop) = state.hops.get_mut(place) {
            hop.queued += 1;
            hop.most_queued = hop.most_queued.max(hop.queued);
            self.enqueue(circuit, place);
            return;
        }
        state.arrived += 1;
        if state.arrived == state.cells {
            state.ended = Some(self.now);
        }
        self.feed_back(circuit, place);
    }

    /// The node with this index sends feedback to the previous one.
    fn feed_back(&mut self, circuit: usize, place: usize) {
        let Some(before) = place.checked_sub(1) else { return };
        let path = &self.circuits[circuit].path;
        let latency = self.nodes[path[place]].config.delay + self.nodes[path[before]].config.delay;
        self.at(self.now + latency, Event::Fed { circuit, place: before });
    }

    /// A node enters the round-robin ring if it may send.
    fn enqueue(&mut self, circuit: usize, place: usize) {
        let state = &mut self.circuits[circuit];
        let node = state.path[place];
        let hop = &mut state.hops[place];
        if !hop.has_turn && hop.queued > 0 && hop.window.room_cells(self.now) > 0 {
            hop.has_turn = true;
            self.nodes[node].turns.push_back((circuit, place));
            self.send(node);
        }
    }

    /// A node sends the next cell, if it can.
    fn send(&mut self, node: usize) {
        let sender = &mut self.nodes[node];
        if sender.is_sending {
            return;
        }
        let Some((circuit, place)) = sender.turns.pop_front() else { return };
        sender.is_sending = true;
        let sent = self.now + sender.config.up_per_cell;
        let passed = sent + sender.config.delay;
        let hop = &mut self.circuits[circuit].hops[place];
        hop.has_turn = false;
        hop.queued -= 1;
        hop.window.handle_sent(self.now, 1);
        self.at(sent, Event::Sent { node });
        self.at(passed, Event::Passed { circuit, place: place + 1 });
        self.feed_back(circuit, place);
        self.enqueue(circuit, place);
    }
}

/// The smallest window of a circuit's source that keeps its path busy: the number of cells that the bottleneck
/// passes while a cell travels to the next node and its feedback returns.
///
/// All later windows are assumed to be sufficient: if latencies differ, nodes with longer ones need more, but
/// not the source.
#[must_use]
pub fn optimal_window_cells(nodes: &[StarNode]) -> f64 {
    let [source, next, ..] = nodes else { return 0.0 };
    let round_trip = source.up_per_cell + next.down_per_cell + 2 * (source.delay + next.delay);
    let up = nodes.iter().rev().skip(1).map(|node| node.up_per_cell);
    let down = nodes.iter().skip(1).map(|node| node.down_per_cell);
    let slowest = up.chain(down).max().unwrap_or_default();
    round_trip.as_secs_f64() / slowest.as_secs_f64()
}

#[cfg(test)]
mod tests;
