//! A real client that fetches what `sim::world`'s clients do, by the same rules: prebuilt circuits, one for each download, which is given up after its time.

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

/// Bytes by which a simulated client asks for its download.
const REQUEST_BYTES: u64 = 1000;

/// The results of clients, for all threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    downloads: Vec<Download>,
    /// Clients that have fetched all that they want.
    over: usize,
    failure: Option<String>,
}

impl Notes {
    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this number of clients has fetched all that they want.
    pub(super) fn are_over(&self, clients: usize) -> Result<bool> {
        let noted = self.lock();
        noted
            .failure
            .as_ref()
            .map_or(Ok(noted.over >= clients), |failure| Err(Error::clients(failure)))
    }

    pub(super) fn take(&self) -> Vec<Download> {
        std::mem::take(&mut self.lock().downloads)
    }
}

/// What a client does in addition to its node.
pub(super) struct Errands {
    place: usize,
    size: Size,
    every: Duration,
    /// Downloads that have not begun.
    left: u32,
    plan: CircuitPlan,
    to: SocketAddr,
    /// When the network began, and when the next download does.
    began: Instant,
    next_at: Instant,
    /// Circuits that nobody has used, and whether they stand.
    ready: VecDeque<(CircuitNumber, bool)>,
    ready_max: usize,
    open: BTreeMap<StreamNumber, Open>,
    seeds: u64,
    is_over: bool,
    notes: Notes,
}

/// A download under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    circuit: CircuitNumber,
    asked_at: Instant,
}

/// The downloads of a client.
pub(super) struct OfClient<'a> {
    /// The client's location in the network.
    pub(super) place: usize,
    pub(super) fetch: &'a Fetch,
    pub(super) choices: &'a Choices,
}

impl Errands {
    /// The downloads of a client, over circuits of this plan to a server. The network began at `began`; the first download begins after the
    /// ramp.
    pub(super) fn new(
        client: OfClient<'_>,
        plan: CircuitPlan,
        to: SocketAddr,
        began: Instant,
        notes: Notes,
    ) -> Result<Self> {
        let OfClient { place, fetch, choices } = client;
        let (&[size], &[every], Some(left)) = (&fetch.sizes[..], &fetch.pauses[..], fetch.count)
        else {
            return Err(Error::clients(
                "on real sockets a client fetches one size, with one pause, and not for ever",
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
            open: BTreeMap::new(),
            // Apart from those of all other clients.
            seeds: (place as u64) << 32,
            is_over: false,
            notes,
        })
    }

    fn hear(&mut self, client: &mut Client<StdRng>, event: ClientEvent) {
        match event {
            ClientEvent::Built { circuit, .. } => {
                let ready = self.ready.iter_mut().find(|(it, _)| *it == circuit);
                ready.into_iter().for_each(|(_, stands)| *stands = true);
            }
            ClientEvent::Over { stream, outcome, figures } => {
                let Some(open) = self.open.remove(&stream) else { return };
                client.destroy(open.circuit);
                let last_at = (outcome == Outcome::Complete).then_some(figures.last_at);
                self.note(open, figures.received_bytes, figures.first_byte_at, last_at);
            }
            // Nothing gets lost here that could be tried again.
            ClientEvent::Lost { cause, .. } => {
                let problem = format!("a client's circuit: {cause}");
                self.notes.lock().failure.get_or_insert(problem);
            }
            // Of sets of circuits, of which there are none.
            ClientEvent::LegBuilt { .. } | ClientEvent::LegLost { .. } => {}
        }
    }

    fn note(&self, open: Open, bytes: u64, first: Option<Instant>, last: Option<Instant>) {
        self.notes.lock().downloads.push(Download {
            client: self.place,
            begun: open.asked_at - self.began,
            bytes,
            first_byte: first.map(|at| at - open.asked_at),
            last_byte: last.map(|at| at - open.asked_at),
        });
    }

    /// Gives up what has not come in time.
    fn give_up(&mut self, client: &mut Client<StdRng>, now: Instant) {
        let Some(timeout) = self.size.timeout else { return };
        let is_due = |it: &Open| it.asked_at + timeout <= now;
        let due: Vec<StreamNumber> =
            self.open.iter().filter(|(_, it)| is_due(it)).map(|(stream, _)| *stream).collect();
        for stream in due {
            let figures = client.figures(stream).copied().unwrap_or_default();
            client.end(stream);
            if let Some(open) = self.open.remove(&stream) {
                client.destroy(open.circuit);
                self.note(open, figures.received_bytes, figures.first_byte_at, None);
            }
        }
    }

    /// A download begins, over an open circuit, if there is one.
    fn begin(&mut self, client: &mut Client<StdRng>, now: Instant) {
        let standing = self.ready.iter().position(|(_, stands)| *stands).unwrap_or(0);
        let ready = self.ready.remove(standing).map(|(circuit, _)| circuit);
        let circuit = ready.unwrap_or_else(|| client.open(now, &self.plan));
        self.seeds += 1;
        let transfer = Transfer {
            seed: self.seeds,
            download_bytes: u64::from(self.size.bytes) - Transfer::RECEIPT_LEN as u64,
            upload_bytes: REQUEST_BYTES - Transfer::REQUEST_LEN as u64,
        };
        let stream = client.begin(now, circuit, self.to.into(), transfer);
        self.open.insert(stream, Open { circuit, asked_at: now });
        self.left -= 1;
        self.next_at = now + self.every;
    }
}

impl Observer<Client<StdRng>> for Errands {
    fn before_turn(&mut self, drive: &mut dyn Drive<Client<StdRng>>) -> Option<Instant> {
        let now = drive.now();
        let client = drive.node_mut();
        while let Some(event) = client.poll_event() {
            self.hear(client, event);
        }
        self.give_up(client, now);
        while self.left > 0 && self.next_at <= now {
            self.begin(client, now);
        }
        if self.left == 0 && self.open.is_empty() && !self.is_over {
            self.is_over = true;
            self.notes.lock().over += 1;
        }
        while self.ready.len() < self.ready_max && !self.is_over {
            self.ready.push_back((client.open(now, &self.plan), false));
        }
        let next = (self.left > 0).then_some(self.next_at);
        let gives_up = self.open.values().filter_map(|it| Some(it.asked_at + self.size.timeout?));
        next.into_iter().chain(gives_up).min()
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        self.notes.lock().failure.get_or_insert_with(|| failure.to_string());
    }
}
