//! The schedulers without sockets: queues, links and a kernel that is a number.

use super::*;
use crate::cell::{CircId, Command};
use crate::cell_model::Tor;
use crate::crypto::Keystream;
use crate::flow::control::Agreed;
use crate::flow::hop::FixedHopWindow;
use crate::node::ConnId;
use crate::router::circuits::{Circuit, CircuitIndex, Circuits, Hop, OnLink, QueueId};
use crate::router::conns::Conns;
use crate::router::links::{Control, Link, Outputs};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

mod properties;

const fn state(cwnd: u32, unacked: u32, mss: u32, notsent: u32, unwritten: u32) -> SocketState {
    SocketState {
        cwnd_segments: cwnd,
        unacked_segments: unacked,
        mss_bytes: mss,
        notsent_bytes: notsent,
        unwritten_bytes: unwritten,
        rtt_us: 1000,
    }
}

/// A socket that accepts everything at once.
const IDLE: SocketState = state(10_000, 0, 1448, 0, 0);

/// Links, and circuits that send backward cells over them.
struct Stage {
    outputs: Outputs,
    conns: Conns<Tor>,
    circuits: Circuits<Tor>,
    now: Instant,
    /// The kernel's report for each link.
    states: BTreeMap<ConnId, Option<SocketState>>,
    asked: Vec<ConnId>,
    /// Cells by link and circuit, in the order in which they were sent, and when.
    left: Vec<(Instant, ConnId, CircuitIndex)>,
    /// Some of the pending cells may be blocked by the next hop.
    has_windows: bool,
}

impl Stage {
    fn new(config: SchedulerConfig, links: u32) -> Self {
        let outputs = Outputs::new(&config, Instant::ORIGIN);
        let mut conns = Conns::default();
        let states = (0..links).map(|number| (ConnId(number), Some(IDLE))).collect();
        for _ in 0..links {
            conns.add_link(Link::accepted(Instant::ORIGIN, outputs.begin(), None, None));
        }
        let (circuits, asked, left) = (Circuits::default(), Vec::new(), Vec::new());
        Self {
            outputs,
            conns,
            circuits,
            now: Instant::ORIGIN,
            states,
            asked,
            left,
            has_windows: false,
        }
    }

    fn circuit(&mut self, link: u32) -> CircuitIndex {
        let circ_id = CircId::new(u32::try_from(self.circuits.len()).expect("few") + 1);
        let back = OnLink { conn: ConnId(link), circ_id };
        let hop = Hop::Echo(Box::new(Keystream::new(&[0; 16])));
        self.circuits.add(Circuit::new(Instant::ORIGIN, back, hop, Agreed::default()))
    }

    fn queue(&mut self, circuit: CircuitIndex, cells: usize) {
        for _ in 0..cells {
            let known = self.circuits.get_mut(circuit).expect("is there");
            let (conn, queue) = (known.back.conn, &mut known.backward_queue);
            let slot = queue.push(Instant::ORIGIN);
            slot.fill(0);
            slot[..4].copy_from_slice(&circuit.0.to_be_bytes());
            let (id, enqueued) = (QueueId::backward(circuit), queue.enqueued());
            self.outputs.handle_queued(&mut self.conns, conn, id, enqueued);
        }
    }

    /// The next hop reports forwarded cells of a circuit.
    fn feed_back(&mut self, circuit: CircuitIndex, cells: u32) {
        let known = self.circuits.get_mut(circuit).expect("is there");
        let (conn, queue) = (known.back.conn, &mut known.backward_queue);
        if queue.handle_feedback(self.now, cells) == Ok(true) {
            let id = QueueId::backward(circuit);
            self.outputs.handle_released(&mut self.conns, conn, id, queue);
        }
    }

    /// Lets time pass and performs all actions that are due, like a driver.
    fn drain_at(&mut self, ms: u64) {
        self.now = Instant::from_millis(ms);
        self.outputs.set_now(self.now);
        loop {
            if let Some(id) = self.outputs.poll_socket_query(&mut self.conns) {
                self.asked.push(id);
                let state = self.states[&id];
                self.outputs.handle_socket_state(&mut self.conns, id, state.as_ref());
            } else if let Some(id) = self.outputs.poll_writable(&mut self.conns) {
                while self.transmit(id) > 0 {}
            } else {
                return;
            }
        }
    }

    /// One record.
    fn transmit(&mut self, id: ConnId) -> usize {
        let wanted = self.outputs.wanted_cells(&mut self.conns, id);
        let mut cells = vec![[0; CELL_LEN]; wanted];
        let count = self
            .outputs
            .take_cells(&mut self.conns, &mut self.circuits, id, false, &mut cells)
            .cells;
        let has_windows = self.has_windows;
        assert!(count == wanted || has_windows, "all pending cells are available");
        for cell in &cells[..count] {
            let circuit = u32::from_be_bytes(*cell.first_chunk().expect("long enough"));
            self.left.push((self.now, id, CircuitIndex(circuit)));
        }
        count
    }

    fn order(&self) -> Vec<CircuitIndex> {
        self.left.iter().map(|(_, _, circuit)| *circuit).collect()
    }

    fn count(&self, link: u32) -> usize {
        self.left.iter().filter(|(_, id, _)| id.0 == link).count()
    }
}

fn kist() -> SchedulerConfig {
    SchedulerConfig::kist(Duration::from_millis(10))
}

#[test]
fn cells_of_a_quiet_circuit_overtake_bulk_circuits() {
    for config in [kist(), SchedulerConfig::vanilla()] {
        let mut stage = Stage::new(config, 1);
        let bulk = [stage.circuit(0), stage.circuit(0)];
        let quiet = stage.circuit(0);
        for circuit in bulk {
            stage.queue(circuit, 100);
        }
        stage.drain_at(0);
        assert_eq!(stage.left.len(), 200, "{config:?}");
        stage.left.clear();
        for circuit in bulk {
            stage.queue(circuit, 500);
        }
        stage.queue(quiet, 1);
        stage.drain_at(20);
        assert_eq!(stage.order()[0], quiet, "{config:?}");
        // Bulk circuits have equal parts.
        let first = stage.order()[..500].iter().filter(|circuit| **circuit == bulk[0]).count();
        assert!((240..=260).contains(&first), "{first}");
    }
}

#[test]
fn the_link_with_the_quietest_circuit_is_served_first() {
    let mut stage = Stage::new(kist(), 3);
    let circuits = [stage.circuit(0), stage.circuit(1), stage.circuit(2)];
    for (circuit, cells) in circuits.into_iter().zip([500, 100, 300]) {
        stage.queue(circuit, cells);
    }
    stage.drain_at(0);
    stage.left.clear();
    for circuit in circuits {
        stage.queue(circuit, 10);
    }
    stage.drain_at(10);
    let mut order = stage.order();
    order.dedup();
    assert_eq!(order, [circuits[1], circuits[2], circuits[0]]);
}

#[test]
fn cells_sent_long_ago_no_longer_count() {
    let mut stage = Stage::new(kist(), 1);
    let (once, lately) = (stage.circuit(0), stage.circuit(0));
    stage.queue(once, 1000);
    stage.drain_at(0);
    // Five halflives later: 1000 / 32 is less than 40.
    stage.queue(lately, 40);
    stage.drain_at(150_000);
    stage.left.clear();
    stage.queue(lately, 1);
    stage.queue(once, 1);
    stage.drain_at(150_020);
    assert_eq!(stage.order(), [once, lately]);
}

#[test]
fn links_are_served_round_robin_by_records() {
    let mut stage = Stage::new(kist(), 2);
    let circuits = [stage.circuit(0), stage.circuit(1)];
    for circuit in circuits {
        stage.queue(circuit, 31 * 12);
    }
    stage.drain_at(0);
    let mut ahead = 0_i32;
    for (_, id, _) in &stage.left {
        ahead += if id.0 == 0 { 1 } else { -1 };
        // A turn, and a record while both have sent the same.
        assert!(ahead.abs() <= 5 * 31, "{ahead}");
    }
    assert_eq!((ahead, stage.left.len()), (0, 2 * 31 * 12));
}

#[test]
fn after_an_idle_time_a_run_starts_at_once_and_later_cells_wait() {
    let mut stage = Stage::new(kist(), 1);
    let circuit = stage.circuit(0);
    assert_eq!(stage.outputs.next_run_at(), None);
    for (queued_ms, expected_ms) in [(5, 5), (7, 15), (14, 25), (40, 40), (41, 50)] {
        stage.drain_at(queued_ms);
        stage.queue(circuit, 1);
        stage.drain_at(queued_ms);
        let due = stage.outputs.next_run_at();
        if expected_ms == queued_ms {
            assert_eq!(due, None);
        } else {
            assert_eq!(due, Some(Instant::from_millis(expected_ms)));
            stage.drain_at(expected_ms - 1);
            let (last, ..) = stage.left.last().expect("cells were sent");
            assert!(*last < Instant::from_millis(queued_ms), "too soon");
            stage.drain_at(expected_ms);
        }
        assert_eq!(stage.left.pop().expect("left").0, Instant::from_millis(expected_ms));
        stage.left.push((Instant::ORIGIN, ConnId(0), circuit));
    }
}

#[test]
fn vanilla_sends_at_once_without_socket_states() {
    let mut stage = Stage::new(SchedulerConfig::vanilla(), 1);
    let circuit = stage.circuit(0);
    for _ in 0..10 {
        stage.queue(circuit, 7);
        stage.drain_at(1);
    }
    assert_eq!(stage.left.len(), 70);
    assert!(stage.asked.is_empty());
    assert_eq!(stage.outputs.next_run_at(), None);
}

#[test]
fn kist_lite_gives_each_link_a_fixed_limit() {
    let mut stage = Stage::new(SchedulerConfig::kist_lite(Duration::from_millis(10)), 2);
    for link in [0, 1] {
        let circuit = stage.circuit(link);
        stage.queue(circuit, 1000);
    }
    stage.drain_at(0);
    // 32 KiB are 63 cells and their records.
    assert_eq!((stage.count(0), stage.count(1)), (63, 63));
    stage.drain_at(10);
    assert_eq!((stage.count(0), stage.count(1)), (126, 126));
    assert!(stage.asked.is_empty());
}

#[test]
fn each_run_queries_exactly_the_links_with_cells_once() {
    let mut stage = Stage::new(kist(), 5);
    for link in [1, 2, 4] {
        let circuit = stage.circuit(link);
        stage.queue(circuit, 3);
    }
    stage.drain_at(0);
    stage.asked.sort_unstable();
    assert_eq!(stage.asked, [ConnId(1), ConnId(2), ConnId(4)]);
}

#[test]
fn measurers_are_served_round_robin_outside_runs() {
    let mut stage = Stage::new(kist(), 2);
    Outputs::set_measurers(&mut stage.conns, ConnId(0));
    let circuits = [stage.circuit(0), stage.circuit(0)];
    let client = stage.circuit(1);
    stage.queue(client, 1);
    stage.drain_at(0);
    for circuit in circuits {
        stage.queue(circuit, 20);
    }
    stage.queue(client, 1);
    stage.drain_at(1);
    assert_eq!((stage.count(0), stage.count(1)), (40, 1), "the client waits for a run");
    let order: Vec<CircuitIndex> = stage.order()[1..].to_vec();
    assert_eq!(order[..16], [[circuits[0]; 8], [circuits[1]; 8]].concat());
    assert_eq!(stage.asked, [ConnId(1)]);
}

#[test]
fn without_socket_states_kist_uses_the_limit_of_kist_lite() {
    let mut stage = Stage::new(kist(), 2);
    stage.states.insert(ConnId(0), None);
    for link in [0, 1] {
        let circuit = stage.circuit(link);
        stage.queue(circuit, 1000);
    }
    stage.outputs.set_now(Instant::from_millis(1));
    // A driver that does not even ask what to ask for.
    let id = stage.outputs.poll_writable(&mut stage.conns).expect("a run has begun");
    while stage.transmit(id) > 0 {}
    assert_eq!(stage.left.len(), 63, "32 KiB");
    stage.drain_at(1);
    assert_eq!((stage.count(0), stage.count(1)), (63, 63));
    stage.drain_at(11);
    assert_eq!((stage.count(0), stage.count(1)), (126, 1000));
}

#[test]
fn a_window_smaller_than_a_cell_does_not_starve_a_link() {
    let kist = Kist { interval: Duration::from_millis(10), sock_buf_size_factor: 1.0 };
    let cell = CELL_LEN as u64 + RECORD_OVERHEAD_BYTES;
    assert_eq!(kist.limit_bytes(Some(&state(1, 0, 48, 0, 0))), cell);
    assert_eq!(kist.limit_bytes(Some(&state(0, 0, 0, 0, 0))), cell);
    assert_eq!(kist.limit_bytes(Some(&state(1, 1, 48, 0, 0))), 48);
}

#[test]
fn a_changed_scheduler_takes_over_queued_cells() {
    let mut stage = Stage::new(kist(), 1);
    let circuit = stage.circuit(0);
    stage.queue(circuit, 5);
    stage.drain_at(0);
    stage.queue(circuit, 5);
    stage.drain_at(1);
    assert_eq!(stage.left.len(), 5);
    stage.outputs.set_scheduler(&mut stage.conns, &SchedulerConfig::vanilla());
    stage.drain_at(1);
    assert_eq!(stage.left.len(), 10);
    stage.queue(circuit, 1);
    stage.outputs.set_scheduler(&mut stage.conns, &kist());
    stage.drain_at(2);
    assert_eq!(stage.left.len(), 11);
}

#[test]
fn a_closed_link_is_not_scheduled() {
    let mut stage = Stage::new(kist(), 2);
    for link in [0, 1] {
        let circuit = stage.circuit(link);
        stage.queue(circuit, 5);
    }
    stage.drain_at(0);
    for circuit in [0, 1] {
        stage.queue(CircuitIndex(circuit), 5);
    }
    stage.drain_at(1);
    stage.outputs.forget(&mut stage.conns, ConnId(0));
    stage.circuits.remove(CircuitIndex(0));
    stage.drain_at(10);
    assert_eq!((stage.count(0), stage.count(1)), (5, 10));
    assert_eq!(stage.asked.len(), 3);
}

/// Its index is reused by a circuit on another link while an entry of the old one is left.
#[test]
fn cells_are_never_sent_on_the_link_of_another_circuit() {
    let mut stage = Stage::new(kist(), 2);
    let old = stage.circuit(0);
    stage.queue(old, 5);
    let gone = stage.circuits.remove(old).expect("was there");
    stage.outputs.handle_dropped(&mut stage.conns, gone.back.conn, 5, false);
    let new = stage.circuit(1);
    assert_eq!(new, old);
    stage.queue(new, 3);
    let other = stage.circuit(0);
    stage.queue(other, 2);
    stage.drain_at(0);
    assert_eq!((stage.count(0), stage.count(1)), (2, 3));
}

/// A link's control cells do not wait for a run.
#[test]
fn control_cells_are_sent_at_once() {
    let mut stage = Stage::new(kist(), 1);
    let circuit = stage.circuit(0);
    stage.queue(circuit, 1);
    stage.drain_at(0);
    stage.queue(circuit, 1);
    stage.outputs.set_now(Instant::from_millis(1));
    let control = Control { circ_id: CircId::new(1), command: Command::DESTROY, body: [1].into() };
    assert!(stage.outputs.control(&mut stage.conns, ConnId(0), control));
    assert_eq!(stage.outputs.poll_writable(&mut stage.conns), Some(ConnId(0)));
    assert_eq!(stage.transmit(ConnId(0)), 0, "the relay cell still waits for a run");
}

/// Cells that the next hop has not forwarded stay in the circuit's queue and do not block the link for others.
#[test]
fn a_full_hop_window_blocks_only_its_circuit_until_feedback() {
    for config in [kist(), SchedulerConfig::vanilla()] {
        let mut stage = Stage { has_windows: true, ..Stage::new(config, 1) };
        let (windowed, free) = (stage.circuit(0), stage.circuit(0));
        let circuit = stage.circuits.get_mut(windowed).expect("is there");
        circuit.backward_queue.set_window(Some(Box::new(FixedHopWindow::new(12))));
        stage.queue(windowed, 50);
        stage.queue(free, 50);
        stage.drain_at(0);
        let of = |stage: &Stage, circuit| {
            stage.order().iter().filter(|served| **served == circuit).count()
        };
        assert_eq!((of(&stage, windowed), of(&stage, free)), (12, 50), "{config:?}");
        // Cells that arrive meanwhile wait, too.
        stage.queue(windowed, 3);
        stage.drain_at(10);
        assert_eq!(of(&stage, windowed), 12);
        stage.feed_back(windowed, 5);
        stage.drain_at(20);
        assert_eq!(of(&stage, windowed), 17);
        for step in 3..12 {
            stage.feed_back(windowed, 12);
            stage.drain_at(step * 10);
        }
        assert_eq!((of(&stage, windowed), stage.outputs.queued_cells()), (53, 0));
        assert_eq!(stage.conns.output(ConnId(0)).expect("open").pending_cells(), 0);
    }
}
