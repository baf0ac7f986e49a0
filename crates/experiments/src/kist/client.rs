//! A client: a link to the relay, with bulk circuits and a quiet one.

use super::server::Servers;
use super::trace::SharedTrace;
use crate::error::Result;
use lab::load::{Nodes, rng};
use link::{Drive, DriverOptions, Namespace, NodeThread, Observer, ThreadError, unix_time_s};
use onion::cell::relay::MAX_DATA_LEN;
use onion::circuit::NextHop;
use onion::client::{CircuitNumber, CircuitPlan, Client, ClientEvent, Outcome, Transfer};
use onion::measure::load::Target;
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use std::net::SocketAddr;

/// What a small page takes: with the receipt after it, ten cells.
const ANSWER_BYTES: u64 = 10 * MAX_DATA_LEN as u64 - Transfer::RECEIPT_LEN as u64;

/// More than any run carries.
const BULK_BYTES: u64 = 1 << 40;

/// A stream's window is half of its circuit's: this number of streams fills it.
const BULK_STREAMS: u64 = 2;

/// Least time from one request of a quiet circuit to the next.
const PAUSE: Duration = Duration::from_millis(150);

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkLoad {
    /// Of one client each.
    pub(super) links: u32,
    pub(super) bulk_per_link: u32,
}

/// Starts one of the clients. Its circuits lead through the relay to the servers.
pub(super) fn start(
    namespace: &Namespace,
    nodes: &Nodes,
    trace: SharedTrace,
    relay: Target,
    servers: &Servers,
    number: u32,
    load: BulkLoad,
) -> Result<NodeThread<Client<StdRng>>> {
    // By CREATE_FAST the relay's onion key is not needed.
    let relay = NextHop { address: relay.address, ids: relay.ids, onion_key: [0; 32] };
    let path = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![relay, servers.exit]) };
    let mut client = Client::new(unix_time_s(), rng()?);
    let now = nodes.clock.now();
    let errands = Errands {
        number,
        to: servers.at,
        // The first on the link, and so the relay's numbers of circuits favour nobody else.
        quiet: client.open(now, &path),
        bulk: (0..load.bulk_per_link).map(|_| client.open(now, &path)).collect(),
        building: 1 + load.bulk_per_link,
        has_bulk_begun: false,
        // Apart from the seeds of all other streams.
        asked: ((u64::from(number) + 1) << 32, now),
        asks_at: None,
        trace,
    };
    Ok(nodes.start(Some(namespace), client, Vec::new(), DriverOptions::default(), errands)?)
}

/// What a client does in addition to its node.
struct Errands {
    /// Which of the clients.
    number: u32,
    to: SocketAddr,
    quiet: CircuitNumber,
    bulk: Vec<CircuitNumber>,
    /// Circuits that do not stand yet.
    building: u32,
    has_bulk_begun: bool,
    /// The seed of the last request, and when it was sent.
    asked: (u64, Instant),
    /// The next request; none while an answer is under way.
    asks_at: Option<Instant>,
    trace: SharedTrace,
}

impl Observer<Client<StdRng>> for Errands {
    /// Notes what has happened, and does what is due.
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            self.hear(event, now);
        }
        let mut trace = self.trace.lock();
        trace.received_bytes.insert(self.number, client.received_bytes());
        if trace.is_loaded && !self.has_bulk_begun {
            self.has_bulk_begun = true;
            for circuit in &self.bulk {
                for seed in 0..BULK_STREAMS {
                    let transfer = Transfer::download(seed, BULK_BYTES);
                    client.begin(now, *circuit, self.to.into(), transfer);
                }
            }
        }
        if self.asks_at.is_some_and(|at| at <= now) {
            self.asks_at = None;
            self.asked = (self.asked.0 + 1, now);
            let transfer = Transfer::download(self.asked.0, ANSWER_BYTES);
            client.begin(now, self.quiet, self.to.into(), transfer);
        }
        self.asks_at
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.trace.fail(failure);
    }
}

impl Errands {
    fn hear(&mut self, event: ClientEvent, now: Instant) {
        match event {
            ClientEvent::Built { .. } => {
                self.building -= 1;
                if self.building == 0 {
                    self.trace.lock().ready += 1;
                    self.asks_at = Some(now);
                }
            }
            // Bulk is never complete.
            ClientEvent::Over { outcome: Outcome::Complete, figures, .. } => {
                let (seed, asked_at) = self.asked;
                self.trace.lock().came.insert(seed, figures);
                self.asks_at = Some(now.max(asked_at + PAUSE));
            }
            ClientEvent::Over { outcome, .. } => {
                self.trace.fail(format!("a client's stream: {outcome}"));
            }
            // Of sets of circuits, of which there are none.
            ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
            ClientEvent::Lost { cause, .. } => {
                self.trace.fail(format!("a client's circuit: {cause}"));
            }
        }
    }
}
