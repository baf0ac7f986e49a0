//! A real client that downloads by the rules of `sim::world`'s clients: prebuilt circuits, one for each download, and a time limit for
//! each.

use super::Download;
use crate::error::{Error, Result};
use link::{Drive, Observer, ThreadError};
use onion::client::{
    CircuitNumber, CircuitPlan, Client, ClientEvent, Outcome, StreamNumber, Transfer,
};
use onion::{Duration, Instant};
use rand::rngs::StdRng;
use sim::world::{Fetch, Size};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tornet::network::Choices;

/// The size of a simulated client's request.
const REQUEST_BYTES: u64 = 1000;

/// The results of all clients, shared by their threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Results(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    downloads: Vec<Download>,
    /// Clients that have finished all downloads.
    finished_clients: usize,
    failure: Option<String>,
}

impl Results {
    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this number of clients has finished all downloads.
    pub(super) fn are_complete(&self, clients: usize) -> Result<bool> {
        let recorded = self.lock();
        match &recorded.failure {
            Some(failure) => Err(Error::clients(failure)),
            None => Ok(recorded.finished_clients >= clients),
        }
    }

    pub(super) fn take(&self) -> Vec<Download> {
        std::mem::take(&mut self.lock().downloads)
    }
}

/// The download schedule of a client node.
pub(super) struct DownloadSchedule {
    place: usize,
    size: Size,
    every: Duration,
    /// Downloads that have not begun.
    left: u32,
    plan: CircuitPlan,
    to: SocketAddr,
    /// When the network began.
    began: Instant,
    /// When the next download begins.
    next_at: Instant,
    /// Unused circuits, and whether they are open.
    ready: VecDeque<(CircuitNumber, bool)>,
    ready_max: usize,
    running: BTreeMap<StreamNumber, RunningDownload>,
    seeds: u64,
    is_finished: bool,
    results: Results,
}

/// A running download.
#[derive(Clone, Copy, Debug)]
struct RunningDownload {
    circuit: CircuitNumber,
    requested_at: Instant,
}

/// A client whose downloads to schedule.
pub(super) struct ScheduledClient<'a> {
    /// The client's location in the network.
    pub(super) place: usize,
    pub(super) fetch: &'a Fetch,
    pub(super) choices: &'a Choices,
}

impl DownloadSchedule {
    /// Schedules the downloads of a client over circuits of this plan from the server `to`. The network began at `began`; the first
    /// download begins after the ramp.
    pub(super) fn new(
        client: ScheduledClient<'_>,
        plan: CircuitPlan,
        to: SocketAddr,
        began: Instant,
        results: Results,
    ) -> Result<Self> {
        let ScheduledClient { place, fetch, choices } = client;
        let (&[size], &[every], Some(left)) = (&fetch.sizes[..], &fetch.pauses[..], fetch.count)
        else {
            return Err(Error::clients(
                "on real sockets, a client has one size, one pause and a limited number of downloads",
            ));
        };
        Ok(Self {
            place,
            size,
            every,
            left,
            plan,
            to,
            began,
            next_at: began + choices.ramp,
            ready: VecDeque::new(),
            ready_max: choices.ready_circuits.into(),
            running: BTreeMap::new(),
            // Different from those of all other clients.
            seeds: (place as u64) << 32,
            is_finished: false,
            results,
        })
    }

    fn handle_event(&mut self, client: &mut Client<StdRng>, event: ClientEvent) {
        match event {
            ClientEvent::Built { circuit, .. } => {
                let ready = self.ready.iter_mut().find(|(opened, _)| *opened == circuit);
                ready.into_iter().for_each(|(_, is_open)| *is_open = true);
            }
            ClientEvent::Over { stream, outcome, figures } => {
                let Some(download) = self.running.remove(&stream) else { return };
                client.destroy(download.circuit);
                let last_at = (outcome == Outcome::Complete).then_some(figures.last_at);
                self.record(download, figures.received_bytes, figures.first_byte_at, last_at);
            }
            // No circuit is expected to fail here.
            ClientEvent::Lost { cause, .. } => {
                let problem = format!("a client's circuit: {cause}");
                self.results.lock().failure.get_or_insert(problem);
            }
            // There are no Conflux sets.
            ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
        }
    }

    fn record(
        &self,
        download: RunningDownload,
        bytes: u64,
        first: Option<Instant>,
        last: Option<Instant>,
    ) {
        self.results.lock().downloads.push(Download {
            client: self.place,
            begun: download.requested_at - self.began,
            bytes,
            first_byte: first.map(|at| at - download.requested_at),
            last_byte: last.map(|at| at - download.requested_at),
        });
    }

    /// Gives up downloads that exceed their time limit.
    fn give_up(&mut self, client: &mut Client<StdRng>, now: Instant) {
        let Some(timeout) = self.size.timeout else { return };
        let is_due = |download: &RunningDownload| download.requested_at + timeout <= now;
        let due: Vec<StreamNumber> = self
            .running
            .iter()
            .filter(|(_, download)| is_due(download))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in due {
            let figures = client.figures(stream).copied().unwrap_or_default();
            client.end(stream);
            if let Some(download) = self.running.remove(&stream) {
                client.destroy(download.circuit);
                self.record(download, figures.received_bytes, figures.first_byte_at, None);
            }
        }
    }

    /// Begins a download, over an open circuit if there is one.
    fn begin(&mut self, client: &mut Client<StdRng>, now: Instant) {
        let open = self.ready.iter().position(|(_, is_open)| *is_open).unwrap_or(0);
        let ready = self.ready.remove(open).map(|(circuit, _)| circuit);
        let circuit = ready.unwrap_or_else(|| client.open(now, &self.plan));
        self.seeds += 1;
        let transfer = Transfer {
            seed: self.seeds,
            download_bytes: u64::from(self.size.bytes) - Transfer::RECEIPT_LEN as u64,
            upload_bytes: REQUEST_BYTES - Transfer::REQUEST_LEN as u64,
        };
        let stream = client.begin(now, circuit, self.to.into(), transfer);
        self.running.insert(stream, RunningDownload { circuit, requested_at: now });
        self.left -= 1;
        self.next_at = now + self.every;
    }
}

impl Observer<Client<StdRng>> for DownloadSchedule {
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            self.handle_event(client, event);
        }
        self.give_up(client, now);
        while self.left > 0 && self.next_at <= now {
            self.begin(client, now);
        }
        if self.left == 0 && self.running.is_empty() && !self.is_finished {
            self.is_finished = true;
            self.results.lock().finished_clients += 1;
        }
        while self.ready.len() < self.ready_max && !self.is_finished {
            self.ready.push_back((client.open(now, &self.plan), false));
        }
        let next = (self.left > 0).then_some(self.next_at);
        let gives_up = self
            .running
            .values()
            .filter_map(|download| Some(download.requested_at + self.size.timeout?));
        next.into_iter().chain(gives_up).min()
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.results.lock().failure.get_or_insert_with(|| failure.to_string());
    }
}
