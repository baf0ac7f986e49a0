//! Streams: from a user's request to its result.

use super::circuits::later;
use super::{Client, Timer};
use crate::world::jobs::Sending;
use crate::world::message::{HostId, Job};
use crate::world::net::job_address;
use crate::world::records::{Ending, Record};
use crate::world::users::{Models, Users};
use alloc::string::ToString;
use alloc::vec::Vec;
use onion::cell::msg::BeginFlags;
use onion::cell_model::{HeaderOnly, HeaderOnlyPayload, PayloadSlice, Run, RunRoom};
use onion::client::{
    Application, CircuitNumber, Destination, Figures, Outcome, Progress, StreamNumber,
};
use onion::{Duration, Instant};

/// Maximum number of circuits that a stream tries (C tor gives up after some, too).
pub(super) const TRIES_MAX: u8 = 3;

/// When a stream is given up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    /// After this time.
    pub(super) timeout: Option<Duration>,
    /// After this time without received data.
    pub(super) stallout: Option<Duration>,
}

/// A stream that a user wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) flow: Option<u32>,
    pub(super) job: Job,
    /// The place of its size among the sizes of the configuration, if it is one of those.
    pub(super) size: Option<u8>,
    pub(super) limits: Limits,
}

/// A stream, as the client's users see it.
#[derive(Debug)]
pub(super) struct Stream {
    flow: Option<u32>,
    circuit: CircuitNumber,
    job: Job,
    size: Option<u8>,
    limits: Limits,
    begun: u64,
    tries: u8,
    sending: Sending,
    expected_bytes: u64,
}

/// The application of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// Bytes that may be sent by now, and bytes sent.
    may_send_bytes: u64,
    sent_bytes: u64,
    /// Bytes to send and to receive in all.
    total_bytes: u64,
    expected_bytes: u64,
}

impl Application<HeaderOnly> for Traffic {
    fn has_more(&self, sent_bytes: u64) -> bool {
        sent_bytes < self.may_send_bytes
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut RunRoom) -> usize {
        let len = room.put(sent_bytes, self.may_send_bytes.saturating_sub(sent_bytes));
        self.sent_bytes = sent_bytes + len as u64;
        len
    }

    fn take(&mut self, received_bytes: u64, data: HeaderOnlyPayload<'_>) -> Progress {
        let HeaderOnlyPayload::Run(Run { at, len }) = data else { return Progress::Wrong };
        let received = received_bytes + u64::from(len);
        if at != Run::place(received_bytes) || received > self.expected_bytes {
            return Progress::Wrong;
        }
        debug_assert_eq!(data.len(), len as usize, "the length of a run is that of its data");
        // If data is left to send, the server closes it.
        let is_done = received == self.expected_bytes && self.sent_bytes >= self.total_bytes;
        if is_done { Progress::Complete } else { Progress::Open }
    }
}

impl Client {
    /// Begins a transfer.
    pub(super) fn begin_stream(&mut self, now: u64, request: Request) {
        self.try_stream(now, request, now, 1);
    }

    /// `begun` is the time of the first of the `tries`.
    pub(super) fn try_stream(&mut self, now: u64, request: Request, begun: u64, tries: u8) {
        let Request { flow, job, size, limits } = request;
        let servers = self.servers.len() as u64;
        let circuit = (servers > 0).then(|| self.circuit_for(now, flow)).flatten();
        let Some(circuit) = circuit else {
            self.leave_flow(flow);
            return;
        };
        let place = usize::try_from(self.rng.below(servers)).unwrap_or(0);
        let server = self.servers[place];
        let request_bytes = Models::request_bytes(job);
        let (mut sending, later_bytes, expected_bytes) = match (&self.config.users, job) {
            (_, Job::Fetch(bytes)) => (Sending::default(), 0, u64::from(bytes)),
            (Users::Markov(models, _), Job::Packets(seed)) => {
                let packets = models.packet.packets(seed);
                let (to_server, to_client) = packets.total_bytes();
                (Sending::new(packets.to_server), to_server, to_client)
            }
            (Users::Fetch(_) | Users::Scan(_), Job::Packets(_)) => return,
        };
        // Its clock begins with the request.
        sending.begin(now);
        let traffic = Traffic {
            may_send_bytes: request_bytes,
            sent_bytes: 0,
            total_bytes: request_bytes + later_bytes,
            expected_bytes,
        };
        let address = job_address(server, job).to_string();
        let to = Destination::Host(address, 80, BeginFlags::IPV6_OK);
        let number = self.core.begin(Instant::from_nanos(now), circuit, to, traffic);
        if let Some(circuit) = self.circuits.get_mut(&circuit) {
            circuit.streams += 1;
        }
        if let Some(at) = sending.next_at() {
            self.set(at, Timer::Send(number));
        }
        if let Some(timeout) = limits.timeout {
            self.set(later(begun, timeout), Timer::TimeOut(number));
        }
        if let Some(stallout) = limits.stallout {
            self.set(later(now, stallout), Timer::StallOut(number));
        }
        let stream =
            Stream { flow, circuit, job, size, limits, begun, tries, sending, expected_bytes };
        self.streams.insert(number, stream);
    }

    /// More data is due to be sent on a stream.
    pub(super) fn send_due(&mut self, now: u64, number: StreamNumber) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let bytes = stream.sending.due(now);
        let next_at = stream.sending.next_at();
        if let Some(traffic) = self.core.application_mut(number) {
            traffic.may_send_bytes += bytes;
        }
        self.core.send_more(Instant::from_nanos(now), number);
        if let Some(at) = next_at {
            self.set(at, Timer::Send(number));
        }
    }

    fn remove_stream(&mut self, number: StreamNumber) -> Option<Stream> {
        let stream = self.streams.remove(&number)?;
        if let Some(circuit) = self.circuits.get_mut(&stream.circuit) {
            circuit.streams = circuit.streams.saturating_sub(1);
        }
        self.end_if_unused(stream.circuit);
        Some(stream)
    }

    fn record(&mut self, stream: &Stream, figures: &Figures, last: Option<u64>, ending: Ending) {
        let record = self.record_of(stream, figures, last, ending);
        if record.probe.is_some() {
            // As soon as this event is processed.
            self.set(0, Timer::EndProbe(stream.circuit));
        }
        self.records.push(record);
        self.leave_flow(stream.flow);
    }

    fn record_of(
        &self,
        stream: &Stream,
        figures: &Figures,
        last: Option<u64>,
        ending: Ending,
    ) -> Record {
        let since = |at: Instant| Duration::from_nanos(at.as_nanos().saturating_sub(stream.begun));
        let flow = stream.flow.and_then(|place| self.flows.get(place as usize)?.as_ref());
        Record {
            client: HostId(self.id),
            size: stream.size,
            probe: flow.and_then(|flow| flow.probe),
            bytes: figures.received_bytes,
            begun: Instant::from_nanos(stream.begun),
            first_byte: figures.first_byte_at.map(since),
            last_byte: last.map(|at| since(Instant::from_nanos(at))),
            ending,
        }
    }

    /// Unfinished transfers, in the order of streams.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = Record> {
        self.streams.iter().map(|(number, stream)| {
            let figures = self.core.figures(*number).copied().unwrap_or_default();
            self.record_of(stream, &figures, None, Ending::UnderWay)
        })
    }

    pub(super) fn time_out(&mut self, number: StreamNumber) {
        if !self.streams.contains_key(&number) {
            return;
        }
        let figures = self.core.figures(number).copied().unwrap_or_default();
        self.core.end(number);
        if let Some(stream) = self.remove_stream(number) {
            self.record(&stream, &figures, None, Ending::TimedOut);
        }
    }

    /// Gives up a stream that has received nothing for its `stallout`; otherwise schedules the next check.
    pub(super) fn stall_out(&mut self, now: u64, number: StreamNumber) {
        let Some(stream) = self.streams.get(&number) else { return };
        let Some(stallout) = stream.limits.stallout else { return };
        let figures = self.core.figures(number).copied().unwrap_or_default();
        let last =
            if figures.received_bytes == 0 { stream.begun } else { figures.last_at.as_nanos() };
        let due = later(last, stallout);
        if due <= now {
            self.time_out(number);
        } else {
            self.set(due, Timer::StallOut(number));
        }
    }

    pub(super) fn handle_over(
        &mut self,
        now: u64,
        number: StreamNumber,
        outcome: Outcome,
        figures: &Figures,
    ) {
        if let Some(circuit) = self.answered(number, figures) {
            return self.ask_next(now, circuit);
        }
        let Some(stream) = self.remove_stream(number) else { return };
        let is_whole = figures.received_bytes >= stream.expected_bytes;
        if outcome == Outcome::Complete || is_whole {
            let last = Some(figures.last_at.as_nanos());
            self.record(&stream, figures, last, Ending::Complete);
        } else {
            self.try_again(now, &stream, figures);
        }
    }

    /// All streams of a lost circuit.
    pub(super) fn lose_streams(&mut self, now: u64, circuit: CircuitNumber) {
        let on_it = self.streams.iter().filter(|(_, stream)| stream.circuit == circuit);
        let lost: Vec<StreamNumber> = on_it.map(|(number, _)| *number).collect();
        for number in lost {
            if let Some(stream) = self.remove_stream(number) {
                self.try_again(now, &stream, &Figures::default());
            }
        }
    }

    /// A stream without received data is retried on another circuit; so is one whose circuit is lost.
    fn try_again(&mut self, now: u64, stream: &Stream, figures: &Figures) {
        if stream.tries < TRIES_MAX && figures.received_bytes == 0 {
            let Stream { flow, job, size, limits, begun, tries, .. } = *stream;
            self.try_stream(now, Request { flow, job, size, limits }, begun, tries + 1);
        } else {
            self.record(stream, figures, None, Ending::Lost);
        }
    }
}
