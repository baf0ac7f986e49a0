//! Circuits over a star of nodes, cell by cell: nothing but links, queues, and windows from hop to hop.
//!
//! It is what the authors of `CircuitStart` simulate: nodes that are joined through one point in the middle, each with a rate up
//! and down and a way to the middle, and circuits of several nodes that share them. The windows are the
//! engine's own ([`HopWindow`]); all else of a relay is left out, and so are TCP and losses. An exact model of small things, not
//! of Tor: for that there is [`world`](crate::world).

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::flow::hop::HopWindow;
use onion::{Duration, Instant};

/// One node's way to the middle of the star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StarNode {
    /// How long a cell takes to be sent.
    pub up_per_cell: Duration,
    /// How long a cell takes to be received.
    pub down_per_cell: Duration,
    /// The way to the middle.
    pub delay: Duration,
}

impl StarNode {
    /// One that sends and receives so many cells a second.
    #[must_use]
    pub fn new(cells_per_s: f64, delay: Duration) -> Self {
        let per_cell = Duration::from_secs_f64(1.0 / cells_per_s);
        Self { up_per_cell: per_cell, down_per_cell: per_cell, delay }
    }
}

/// A transfer over a circuit: from the first of its nodes to the last.
#[derive(Debug)]
pub struct StarCircuit {
    /// The nodes, by their number.
    pub path: Vec<usize>,
    /// Cells to be sent.
    pub cells: u64,
    /// When it begins.
    pub begins: Instant,
    /// A window for each node but the last.
    pub windows: Vec<Box<dyn HopWindow>>,
}

/// One node at work for one circuit.
#[derive(Debug)]
struct Hop {
    /// Cells that wait to go on.
    queued: u64,
    window: Box<dyn HopWindow>,
    /// It is among those that have turns on the node's way up.
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
    /// The source's window, whenever it changed.
    trace: Vec<(Instant, u32)>,
}

#[derive(Debug)]
struct Node {
    config: StarNode,
    /// Circuits (and the place in each) that have something to send, in turn.
    turns: VecDeque<(usize, usize)>,
    is_sending: bool,
    /// When all that has come is received.
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
    /// A cell is in the middle, for the node in this place of a circuit's path.
    Passed {
        circuit: usize,
        place: usize,
    },
    /// A node in this place has received a cell.
    Received {
        circuit: usize,
        place: usize,
    },
    /// The node in this place hears that the next has passed a cell on.
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

/// What became of a circuit.
#[derive(Clone, Debug, PartialEq)]
pub struct StarResult {
    /// From its begin to its last byte; `None` if it did not end in time.
    pub last_byte: Option<Duration>,
    /// The source's window in cells, whenever it changed.
    pub trace: Vec<(Instant, u32)>,
    /// Most cells that waited at each node of the path but the last.
    pub most_queued: Vec<u64>,
}

/// The star, and all that is to happen.
#[derive(Debug, Default)]
pub struct Star {
    nodes: Vec<Node>,
    circuits: Vec<Circuit>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    numbered: u64,
    now: Instant,
}

impl Star {
    /// Another node; gives its number.
    pub fn add_node(&mut self, config: StarNode) -> usize {
        let node =
            Node { config, turns: VecDeque::new(), is_sending: false, received_until: self.now };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Another circuit; gives its number.
    ///
    /// # Panics
    /// Where there is not one window for each node but the last, or a node that there is not.
    pub fn add_circuit(&mut self, config: StarCircuit) -> usize {
        let StarCircuit { path, cells, begins, windows } = config;
        assert_eq!(windows.len() + 1, path.len(), "a window for each node but the last");
        assert!(path.iter().all(|node| *node < self.nodes.len()), "a node that there is not");
        let hop = |window| Hop { queued: 0, window, has_turn: false, most_queued: 0 };
        let hops = windows.into_iter().map(hop).collect();
        let circuit =
            Circuit { path, cells, begins, hops, arrived: 0, ended: None, trace: Vec::new() };
        let number = self.circuits.len();
        self.circuits.push(circuit);
        self.at(begins, Event::Begin { circuit: number });
        number
    }

    /// A node sends and receives so many cells a second from then on.
    pub fn change(&mut self, at: Instant, node: usize, cells_per_s: f64) {
        let StarNode { up_per_cell: up, down_per_cell: down, .. } =
            StarNode::new(cells_per_s, Duration::ZERO);
        self.at(at, Event::Changed { node, up, down });
    }

    /// Lets time pass until all circuits have ended, or until then.
    pub fn run(&mut self, until: Instant) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            self.handle(event);
        }
    }

    /// What became of each circuit, in the order in which they were added.
    #[must_use]
    pub fn results(self) -> Vec<StarResult> {
        let result = |it: Circuit| StarResult {
            last_byte: it.ended.map(|ended| ended - it.begins),
            trace: it.trace,
            most_queued: it.hops.iter().map(|hop| hop.most_queued).collect(),
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
                let it = &mut self.circuits[circuit];
                it.hops[0].queued = it.cells;
                it.trace.push((self.now, it.hops[0].window.size_cells()));
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
                let it = &mut self.circuits[circuit];
                let window = &mut it.hops[place].window;
                window.handle_feedback(self.now, 1);
                let size = window.size_cells();
                if place == 0 && it.trace.last().is_none_or(|(_, last)| *last != size) {
                    it.trace.push((self.now, size));
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
        let it = &mut self.circuits[circuit];
        if let Some(hop) = it.hops.get_mut(place) {
            hop.queued += 1;
            hop.most_queued = hop.most_queued.max(hop.queued);
            self.enqueue(circuit, place);
            return;
        }
        it.arrived += 1;
        if it.arrived == it.cells {
            it.ended = Some(self.now);
        }
        self.feed_back(circuit, place);
    }

    /// The node in this place tells the one before it that a cell is passed on.
    fn feed_back(&mut self, circuit: usize, place: usize) {
        let Some(before) = place.checked_sub(1) else { return };
        let path = &self.circuits[circuit].path;
        let way = self.nodes[path[place]].config.delay + self.nodes[path[before]].config.delay;
        self.at(self.now + way, Event::Fed { circuit, place: before });
    }

    /// A hop gets its place in the turns of its node, if it may send something.
    fn enqueue(&mut self, circuit: usize, place: usize) {
        let it = &mut self.circuits[circuit];
        let node = it.path[place];
        let hop = &mut it.hops[place];
        if !hop.has_turn && hop.queued > 0 && hop.window.room_cells(self.now) > 0 {
            hop.has_turn = true;
            self.nodes[node].turns.push_back((circuit, place));
            self.send(node);
        }
    }

    /// A node sends the next cell, if it can.
    fn send(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.is_sending {
            return;
        }
        let Some((circuit, place)) = it.turns.pop_front() else { return };
        it.is_sending = true;
        let sent = self.now + it.config.up_per_cell;
        let passed = sent + it.config.delay;
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

/// The least window of a circuit's source with which nothing on its way is idle: what the slowest of its nodes passes
/// while a cell is on its way to the next node and the word of it on its way back.
///
/// All windows that come after it are taken for as large as they need be: where ways differ, the nodes with the longer ones
/// need more, and the source not.
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
