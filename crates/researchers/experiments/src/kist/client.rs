//! A client with one link to the relay, which carries bulk circuits and a quiet one.

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

/// The size of a small page: with the receipt after it, ten cells.
const ANSWER_BYTES: u64 = 10 * MAX_DATA_LEN as u64 - Transfer::RECEIPT_LEN as u64;

/// More than any run transfers.
const BULK_BYTES: u64 = 1 << 40;

/// The streams that fill a circuit's window: a stream's window is half of it.
const BULK_STREAMS: u64 = 2;

/// The minimum time between two requests on a quiet circuit.
const PAUSE: Duration = Duration::from_millis(150);

/// The load of all clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkLoad {
    /// The number of links, with one client each.
    pub(super) links: u32,
    pub(super) bulk_per_link: u32,
}

/// Starts a client, whose circuits go through the relay to the servers.
pub(super) fn start(
    namespace: &Namespace,
    nodes: &Nodes,
    trace: SharedTrace,
    relay: Target,
    servers: &Servers,
    number: u32,
    load: BulkLoad,
) -> Result<NodeThread<Client<StdRng>>> {
    // CREATE_FAST does not use the relay's onion key.
    let relay = NextHop { address: relay.address, ids: relay.ids, onion_key: [0; 32] };
    let path = CircuitPlan { is_fast: true, ..CircuitPlan::new(vec![relay, servers.exit]) };
    let mut client = Client::new(unix_time_s(), rng()?);
    let now = nodes.clock.now();
    let traffic = ClientTraffic {
        number,
        to: servers.at,
        // The first on the link, so that no bulk circuit has a lower circuit number.
        quiet: client.open(now, &path),
        bulk: (0..load.bulk_per_link).map(|_| client.open(now, &path)).collect(),
        building: 1 + load.bulk_per_link,
        has_bulk_begun: false,
        // Distinct from the seeds of all other streams.
        last_request: ((u64::from(number) + 1) << 32, now),
        next_request: None,
        trace,
    };
    Ok(nodes.start(Some(namespace), client, Vec::new(), DriverOptions::default(), traffic)?)
}

/// The traffic of a client.
struct ClientTraffic {
    /// The index of the client.
    number: u32,
    to: SocketAddr,
    quiet: CircuitNumber,
    bulk: Vec<CircuitNumber>,
    /// The number of circuits that are not open yet.
    building: u32,
    has_bulk_begun: bool,
    /// The seed and the time of the last request.
    last_request: (u64, Instant),
    /// The time of the next request; `None` while an answer is under way.
    next_request: Option<Instant>,
    trace: SharedTrace,
}

impl Observer<Client<StdRng>> for ClientTraffic {
    /// Records events, and starts due transfers.
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            self.handle_event(event, now);
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
        if self.next_request.take_if(|at| *at <= now).is_some() {
            let seed = self.last_request.0 + 1;
            self.last_request = (seed, now);
            client.begin(now, self.quiet, self.to.into(), Transfer::download(seed, ANSWER_BYTES));
        }
        self.next_request
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.trace.fail(failure);
    }
}

impl ClientTraffic {
    fn handle_event(&mut self, event: ClientEvent, now: Instant) {
        match event {
            ClientEvent::Built { .. } => {
                self.building -= 1;
                if self.building == 0 {
                    self.trace.lock().ready += 1;
                    self.next_request = Some(now);
                }
            }
            // A quiet circuit's answer: bulk transfers never complete.
            ClientEvent::Over { outcome: Outcome::Complete, figures, .. } => {
                let (seed, requested_at) = self.last_request;
                self.trace.lock().answers.insert(seed, figures);
                self.next_request = Some(now.max(requested_at + PAUSE));
            }
            ClientEvent::Over { outcome, .. } => {
                self.trace.fail(format!("a client's stream: {outcome}"));
            }
            // Events of linked circuits, which this client has not.
            ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
            ClientEvent::Lost { cause, .. } => {
                self.trace.fail(format!("a client's circuit: {cause}"));
            }
        }
    }
}
