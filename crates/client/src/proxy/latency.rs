//! How fast circuits answer, with what waits on them: each is asked now and then by a BEGIN that its last hop must refuse, so that streams can go to the one with
//! the least latency now (Panchenko et al., §V-A).

use super::Proxy;
use super::pipe::{Pipe, StreamEnd, Touched};
use crate::event::Event;
use onion::client::{Destination, Figures, StreamNumber};
use onion::node::ConnId;
use onion::{Duration, Instant};
use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

/// A circuit is asked again after so long.
pub(super) const AGAIN: Duration = Duration::from_secs(10);
/// One that has not answered for so long counts as slower than all that have.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// What no relay lets a stream reach: its own machine.
const REFUSED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

impl Proxy {
    /// Asks circuits that were not asked of late.
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
            // Nobody is at this end, and nothing comes of it but its time.
            let end = StreamEnd { pipe, conn: ConnId(u32::MAX), touched };
            let stream = self.client.begin(now, circuit, Destination::from(REFUSED), end);
            self.asking.insert(stream, (circuit, now));
        }
    }

    /// A stream is over: whether it was such a question.
    pub(super) fn handle_answered(&mut self, stream: StreamNumber, figures: &Figures) -> bool {
        let Some((circuit, _)) = self.asking.remove(&stream) else { return false };
        // Who lets it out is asked again later, and is no faster for it.
        let rtt = figures.connected_at.is_none().then(|| figures.to_last());
        self.pool.set_latency(circuit, rtt);
        let number = self.pool.get(circuit).map(|it| it.number);
        if let (Some(circuit), Some(rtt)) = (number, rtt) {
            self.tell(Event::CircuitAnswered { circuit, rtt });
        }
        true
    }
}
