//! Events on a stage, selected by bytes: for fuzzing and random runs.

use super::{HandshakeKind, Pace, Stage, StageModel};
use crate::script::Script;
use alloc::vec::Vec;
use onion::cell::relay::RelayCommand;
use onion::cell::{CircId, Command};
use onion::cell_model::StreamId;
use onion::node::{CloseCause, DnsAnswer};
use onion::router::schedule::SchedulerConfig;
use onion::router::{Parameters, RateLimit};
use onion::{Duration, Rate};
use rand_core::Rng;

/// Maximum number of accepted links in one run.
const LINKS_MAX: usize = 6;

impl Script<'_> {
    fn circ_id(&mut self) -> CircId {
        let number = u32::from(self.next() % 6);
        if number == 5 { CircId::of_responder(1) } else { CircId::of_initiator(number) }
    }

    fn stream_id(&mut self) -> StreamId {
        StreamId(u16::from(self.next() % 4))
    }
}

impl<S: StageModel, R: Rng> Stage<S, R> {
    /// Applies the events that the bytes select, and calls `check` after each.
    pub fn run_script(&mut self, script: &[u8], mut check: impl FnMut(&Self)) {
        let mut script = Script(script);
        while !script.0.is_empty() {
            self.apply(&mut script);
            check(self);
        }
    }

    fn apply(&mut self, script: &mut Script<'_>) {
        let link = script.below(self.links.len());
        match script.next() % 16 {
            0 if self.links.len() < LINKS_MAX => self.apply_accept(script),
            0 | 1 => {
                let kinds = [
                    HandshakeKind::Fast,
                    HandshakeKind::Ntor,
                    HandshakeKind::Congestion,
                    HandshakeKind::Cgo,
                ];
                let (circ_id, kind) = (script.circ_id(), kinds[script.below(4)]);
                self.create(link, circ_id, kind);
            }
            2 => {
                let kinds = [HandshakeKind::Ntor, HandshakeKind::Congestion, HandshakeKind::Cgo];
                let kind = kinds[script.below(3)];
                let (circ_id, to) = (script.circ_id(), script.next() % 4);
                self.extend(link, circ_id, kind, to);
            }
            3 | 4 => self.apply_message(link, script),
            5 => {
                let circ_id = script.circ_id();
                for _ in 0..=script.next() % 32 {
                    let hop = self.hops(link, circ_id).saturating_sub(1);
                    self.send_data(link, circ_id, hop, StreamId(1), 498);
                }
            }
            6 => {
                let circ_id = script.circ_id();
                while self.acknowledge(link, circ_id) && !script.next().is_multiple_of(4) {}
            }
            7 => self.apply_reply(script),
            8 => {
                let (number, bytes) = (script.below(self.destinations()), script.next());
                self.feed(number, u32::from(bytes) << (script.next() % 10));
            }
            9 => self.connect(script.below(self.destinations())),
            10 => {
                let number = script.below(self.destinations());
                let cause = [CloseCause::ByPeer, CloseCause::Refused, CloseCause::TimedOut];
                self.close_destination(number, &cause[script.below(3)]);
            }
            11 => self.apply_answer(script),
            12 => {
                self.advance(Duration::from_micros(
                    u64::from(script.next()) << (script.next() % 20),
                ));
            }
            13 => self.apply_pace(link, script),
            14 => self.apply_configure(script),
            _ => self.apply_raw(link, script),
        }
    }

    fn apply_accept(&mut self, script: &mut Script<'_>) {
        let relay = (!script.next().is_multiple_of(3)).then_some(7);
        let pace = Pace { cells_per_ms: u32::from(script.next() % 40), buffer_cells: 64 };
        self.accept(relay, (!script.next().is_multiple_of(3)).then_some(pace));
    }

    fn apply_message(&mut self, link: usize, script: &mut Script<'_>) {
        let (circ_id, stream_id) = (script.circ_id(), script.stream_id());
        let hop = script.below(3).min(self.hops(link, circ_id));
        let (command, bytes): (RelayCommand, &[u8]) = match script.next() % 12 {
            0..=2 => (RelayCommand::BEGIN, b"192.0.2.80:80\0"),
            3 => (RelayCommand::BEGIN, b"name.example:443\0"),
            4 => (RelayCommand::BEGIN_DIR, &[]),
            5 => (RelayCommand::RESOLVE, b"name.example\0"),
            6 => (RelayCommand::END, &[6]),
            7 => (RelayCommand::XOFF, &[0]),
            8 => (RelayCommand::XON, &[0, 0, 0, 4, 0]),
            9 => (RelayCommand::SENDME, &[0]),
            // The client keeps the layer of the truncated hop, so it may send TRUNCATE only without a next hop.
            10 if self.hops(link, circ_id) < 2 => (RelayCommand::TRUNCATE, &[1]),
            _ => (RelayCommand(script.next()), &[1, 2, 3]),
        };
        self.send_message(link, circ_id, (hop, command), stream_id, bytes);
    }

    /// A next hop sends a message on one of its circuits.
    fn apply_reply(&mut self, script: &mut Script<'_>) {
        let hops: Vec<usize> = self.next_hops().collect();
        let Some(link) = hops.get(script.below(hops.len())).copied() else { return };
        let circuits = self.created_circuits(link);
        let Some(circ_id) = circuits.get(script.below(circuits.len())).copied() else { return };
        match script.next() % 4 {
            0 => self.send_bytes(link, circ_id, Command::DESTROY, &[2]),
            1 => self.reply(link, circ_id, RelayCommand::CONNECTED, StreamId(1), &[]),
            _ => {
                for _ in 0..=script.next() % 64 {
                    self.reply_data(link, circ_id, StreamId(1), 498);
                }
            }
        }
    }

    fn apply_answer(&mut self, script: &mut Script<'_>) {
        let answer = match script.next() % 4 {
            0 => DnsAnswer::NoSuchName,
            1 => DnsAnswer::Failed,
            _ => DnsAnswer::Addresses(Vec::from([[192, 0, 2, 81].into()])),
        };
        self.answer(&answer);
    }

    fn apply_pace(&mut self, link: usize, script: &mut Script<'_>) {
        match script.next() % 4 {
            0 => self.close_link(link),
            1 => self.set_pace(link, None),
            2 => {
                let (circ_id, cells) = (script.circ_id(), u16::from(script.next()));
                // Some reports are malformed or false.
                if cells % 32 == 31 {
                    let body = [script.next(), script.next(), script.next(), script.next(), 0, 0];
                    let len = script.below(body.len() + 1);
                    self.send_feedback_bytes(link, &body[..len]);
                } else if cells % 8 == 7 {
                    self.send_feedback(link, circ_id, cells);
                } else {
                    self.report_forwarded(link, circ_id, cells);
                }
            }
            _ => {
                let pace = Pace { cells_per_ms: u32::from(script.next() % 16), buffer_cells: 32 };
                self.set_pace(link, Some(pace));
            }
        }
    }

    fn apply_configure(&mut self, script: &mut Script<'_>) {
        let rate = Rate::from_byte_per_s(u64::from(script.next()) * 10_000 + 1);
        let limit = RateLimit { rate, burst_bytes: u64::from(script.next()) * 1000 };
        let interval = Duration::from_millis(u64::from(script.next() % 10) + 1);
        match script.next() % 6 {
            0 => self.relay.set_limit(self.now, None),
            1 => self.relay.set_limit(self.now, Some(limit)),
            2 => self.relay.set_scheduler(SchedulerConfig::vanilla()),
            3 => self.relay.set_scheduler(SchedulerConfig::kist_lite(interval)),
            4 => self.relay.set_scheduler(SchedulerConfig::kist(interval)),
            _ => {
                let cells = i32::from(script.next()) * 10;
                let all =
                    [("circ_max_cell_queue_size", cells), ("cc_alg", i32::from(cells > 900) * 2)];
                self.relay.set_parameters(Parameters::from_consensus(all));
            }
        }
        self.settle();
    }

    /// A cell that no honest peer sends.
    fn apply_raw(&mut self, link: usize, script: &mut Script<'_>) {
        let (circ_id, command) = (script.circ_id(), Command::new(script.next() % 13));
        if command.is_variable_length() {
            return;
        }
        let bytes = [script.next(), script.next(), script.next()];
        // Noise desynchronizes the layers: the circuit is unusable afterwards.
        self.forget_circuit(link, circ_id);
        self.send_bytes(link, circ_id, command, &bytes);
    }
}
