//! Latency probes of circuits: a BEGIN that the last hop must refuse. Queueing on the circuit is
//! included, so that streams are attached to the circuit with the least latency at present
//! (Panchenko et al., §V-A).

use super::Proxy;
use super::pipe::{Pipe, StreamEnd, Touched};
use crate::event::Event;
use onion::client::{Destination, Figures, StreamNumber};
use onion::node::ConnId;
use onion::{Duration, Instant};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

/// Interval between probes of a circuit.
pub(super) const AGAIN: Duration = Duration::from_secs(10);
/// A probe without an answer for this time counts as slower than all answers.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// An address that no relay permits: its own host.
const REFUSED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

impl Proxy {
    /// Probes circuits that are due.
    pub(super) fn ask_circuits(&mut self, now: Instant) {
        if !self.choices.by_latency {
            return;
        }
        let late: Vec<StreamNumber> = self
            .asking
            .iter()
            .filter(|(_, (_, at))| now >= *at + ANSWER_MAX)
            .map(|(stream, _)| *stream)
            .collect();
        for stream in late {
            self.client.end(stream);
            if let Some((circuit, _)) = self.asking.remove(&stream) {
                self.pool.set_latency(circuit, None);
            }
        }
        for circuit in self.pool.take_due(now, AGAIN) {
            let (pipe, touched) = (Rc::new(RefCell::new(Pipe::default())), Touched::default());
            // The stream has no program: only its timing matters.
            let end = StreamEnd { pipe, conn: ConnId(u32::MAX), touched };
            let stream = self.client.begin(now, circuit, Destination::from(REFUSED), end);
            self.asking.insert(stream, (circuit, now));
        }
    }

    /// Handles the end of a stream if it was a probe. Returns whether it was.
    pub(super) fn handle_answered(&mut self, stream: StreamNumber, figures: &Figures) -> bool {
        let Some((circuit, _)) = self.asking.remove(&stream) else { return false };
        // An exit that opens the stream is probed again later, without a latency.
        let rtt = figures.connected_at.is_none().then(|| figures.to_last());
        self.pool.set_latency(circuit, rtt);
        let number = self.pool.get(circuit).map(|circuit| circuit.number);
        if let (Some(circuit), Some(rtt)) = (number, rtt) {
            self.emit(Event::CircuitAnswered { circuit, rtt });
        }
        true
    }
}
