//! Connections of programs: their requests, and the bytes to and from them.

use super::legs::leg_traffic;
use super::pipe::Pipe;
use super::socks::{Greeting, Refusal, Request, Step, Verdict};
use super::{BUSY_STEP, Proxy};
use crate::event::Event;
use onion::Instant;
use onion::client::{CircuitNumber, StreamNumber};
use onion::node::{CloseCause, ConnId};
use std::cell::RefCell;
use std::io::Write;
use std::net::IpAddr;
use std::rc::Rc;

/// Limit on bytes from a program that wait for its stream.
const TO_TOR_MAX: usize = 128 << 10;
/// Bytes waiting for a program above which its stream is paused (XOFF); it resumes below half of
/// that.
const TO_APP_HIGH: usize = 128 << 10;

/// A program's connection.
pub(super) struct App {
    pub(super) number: u64,
    pub(super) pipe: Rc<RefCell<Pipe>>,
    pub(super) stage: Stage,
    pub(super) asked_at: Instant,
    /// Start of the greeting, or of draining or closing.
    pub(super) since: Instant,
    /// The number of circuits on which its stream was attempted.
    pub(super) attempts: u32,
    is_stream_paused: bool,
    /// The connection is paused.
    is_held: bool,
    /// It is in the queue of writable connections.
    pub(super) is_queued: bool,
}

/// A stream of a program.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pub(super) request: Request,
    pub(super) stream: StreamNumber,
    pub(super) circuit: CircuitNumber,
    pub(super) at: Instant,
}

/// The stage of a program's connection.
pub(super) enum Stage {
    /// The request is incomplete.
    Greeting(Box<Greeting>),
    /// Waiting for a circuit.
    Waiting(Request),
    /// BEGIN sent; the exit has not answered.
    Begun(Begun),
    /// The stream is open.
    Open(Begun),
    /// The program has closed the connection; its last bytes are being sent.
    Draining(Begun),
    /// The stream has ended; the last bytes for the program are being written.
    Closing,
}

impl App {
    /// A new connection from an address, if known.
    pub(super) fn new(number: u64, now: Instant, from: Option<IpAddr>) -> Self {
        Self {
            number,
            pipe: Rc::default(),
            stage: Stage::Greeting(Box::new(Greeting::new(from))),
            asked_at: now,
            since: now,
            attempts: 0,
            is_stream_paused: false,
            is_held: false,
            is_queued: false,
        }
    }

    /// Whether it waits for a circuit or an exit.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting(_) | Stage::Begun(_))
    }

    /// Whether the program has closed its connection.
    pub(super) const fn is_gone(&self) -> bool {
        matches!(self.stage, Stage::Draining(_))
    }

    /// Closes after the pending bytes are written. Returns the previous stage.
    fn close(&mut self, now: Instant) -> Stage {
        self.since = now;
        std::mem::replace(&mut self.stage, Stage::Closing)
    }

    /// The number of bytes that the program may send now.
    pub(super) fn room(&self) -> usize {
        TO_TOR_MAX.saturating_sub(self.pipe.borrow().to_tor.len())
    }
}

impl Proxy {
    pub(super) fn handle_app_bytes(&mut self, now: Instant, conn: ConnId, bytes: &[u8]) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let mut to_tor = bytes.to_vec();
        if let Stage::Greeting(greeting) = &mut app.stage {
            let mut answer = Vec::new();
            let step = greeting.handle_bytes(bytes, &mut answer);
            let _ = app.pipe.borrow_mut().to_app.write_all(&answer);
            to_tor.clear();
            match step {
                Step::More => {}
                Step::Wants(request, early) => {
                    to_tor = early;
                    self.handle_request(now, conn, request);
                }
                Step::Refused(refusal) => self.refuse_request(now, conn, refusal),
            }
        }
        self.wake_app(conn);
        let Some(app) = self.apps.get_mut(&conn) else { return };
        if to_tor.is_empty() || matches!(app.stage, Stage::Closing) {
            return;
        }
        let _ = app.pipe.borrow_mut().to_tor.write_all(&to_tor);
        app.is_held = app.room() == 0;
        if let Stage::Open(Begun { stream, .. }) = app.stage {
            self.client.send_more(now, stream);
        }
    }

    /// Handles a program's request.
    fn handle_request(&mut self, now: Instant, conn: ConnId, request: Request) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        app.asked_at = now;
        match request.verdict(self.choices.rejects_internal) {
            Verdict::Carry(_) => {
                self.last_need = Some(request.need);
                app.stage = Stage::Waiting(request);
                self.must_plan = true;
            }
            Verdict::Answer(reply) => {
                let _ = app.pipe.borrow_mut().to_app.write_all(&reply);
                app.stage = Stage::Waiting(request);
                self.finish_app(now, conn, "answered without a circuit", true);
            }
            Verdict::Refuse(refusal) => self.refuse_request(now, conn, refusal),
        }
    }

    /// Closes the connection of a program whose request is refused.
    fn refuse_request(&mut self, now: Instant, conn: ConnId, refusal: Refusal) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let Refusal { reply, reason, target } = refusal;
        let _ = app.pipe.borrow_mut().to_app.write_all(&reply);
        app.close(now);
        self.emit(Event::RequestRefused { target, reason });
    }

    /// Queues a program's connection for writing, once.
    pub(super) fn wake_app(&mut self, conn: ConnId) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let has_something = !app.pipe.borrow().to_app.is_empty();
        let is_closing = matches!(app.stage, Stage::Closing);
        if (has_something || is_closing) && !std::mem::replace(&mut app.is_queued, true) {
            self.writable.push_back(conn);
        }
    }

    pub(super) fn transmit_to_app(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(app) = self.apps.get_mut(&conn) else { return 0 };
        let mut pipe = app.pipe.borrow_mut();
        let len = pipe.read_for_app(out);
        let left = pipe.to_app.len();
        drop(pipe);
        if len == 0 && matches!(app.stage, Stage::Closing) {
            self.to_close.push_back(conn);
        }
        if app.is_stream_paused && left < TO_APP_HIGH / 2 {
            app.is_stream_paused = false;
            if let Stage::Open(Begun { stream, .. }) = app.stage {
                self.client.resume(now, stream);
            }
        }
        len
    }

    /// Handles changes at the stream ends of pipes.
    pub(super) fn look_at_pipes(&mut self, now: Instant) {
        loop {
            let Some(conn) = self.touched.borrow_mut().pop_front() else { return };
            self.look_at_pipe(now, conn);
        }
    }

    fn look_at_pipe(&mut self, now: Instant, conn: ConnId) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let mut pipe = app.pipe.borrow_mut();
        pipe.look();
        let is_connected = pipe.is_connected;
        let (waiting, unsent) = (pipe.to_app.len(), pipe.to_tor.len());
        drop(pipe);
        if is_connected && let Stage::Begun(begun) = &app.stage {
            let begun = begun.clone();
            let took = now - app.asked_at;
            // Before any data of the destination.
            let granted = begun.request.granted();
            let mut pipe = app.pipe.borrow_mut();
            granted.iter().rev().for_each(|byte| pipe.to_app.push_front(*byte));
            drop(pipe);
            let (stream, target) = (app.number, begun.request.target.clone());
            let circuit = self.pool.get(begun.circuit).map_or(0, |circuit| circuit.number);
            let engine_stream = begun.stream;
            app.stage = Stage::Open(begun);
            self.client.send_more(now, engine_stream);
            self.emit(Event::StreamOpened { stream, circuit, target, took });
        }
        let Some(app) = self.apps.get_mut(&conn) else { return };
        if app.is_held && unsent < TO_TOR_MAX / 2 {
            app.is_held = false;
            self.readable.push_back(conn);
        }
        if app.is_gone() {
            // Nobody reads this data.
            app.pipe.borrow_mut().to_app.clear();
        }
        if waiting > TO_APP_HIGH
            && let Stage::Open(Begun { stream, .. }) = app.stage
            && !std::mem::replace(&mut app.is_stream_paused, true)
        {
            self.client.pause(stream);
        }
        if unsent == 0 && app.is_gone() {
            self.finish_app(now, conn, "the program has closed it", true);
            return;
        }
        self.wake_app(conn);
    }

    /// Handles a program that has closed its connection.
    pub(super) fn handle_app_closed(&mut self, now: Instant, conn: ConnId, cause: &CloseCause) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let has_more = !app.pipe.borrow().to_tor.is_empty();
        match &app.stage {
            // Data that it sent before is still delivered; received data is discarded.
            Stage::Open(begun) if has_more && *cause == CloseCause::ByPeer => {
                app.stage = Stage::Draining(begun.clone());
                app.since = now;
            }
            Stage::Open(_) => self.finish_app(now, conn, "the program has closed it", true),
            _ => self.finish_app(now, conn, "the program has given up", false),
        }
        if !self.apps.get(&conn).is_some_and(App::is_gone) {
            self.apps.remove(&conn);
        }
    }

    /// Ends a program's stream or its request from the client's side, with an event. Pending data
    /// for the program is still written.
    pub(super) fn finish_app(&mut self, now: Instant, conn: ConnId, reason: &str, is_ok: bool) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let was_gone = app.is_gone();
        let stage = app.close(now);
        let (request, begun) = match stage {
            Stage::Waiting(request) => (request, None),
            Stage::Begun(begun) | Stage::Open(begun) | Stage::Draining(begun) => {
                (begun.request.clone(), Some(begun))
            }
            Stage::Greeting(_) | Stage::Closing => return self.wake_app(conn),
        };
        let pipe = app.pipe.borrow();
        let event = Event::StreamClosed {
            stream: app.number,
            circuit: begun
                .as_ref()
                .and_then(|begun| self.pool.get(begun.circuit).map(|circuit| circuit.number)),
            target: request.target,
            sent_bytes: pipe.sent_bytes,
            received_bytes: pipe.received_bytes,
            legs: begun
                .as_ref()
                .map(|begun| leg_traffic(&self.client, begun.circuit))
                .unwrap_or_default(),
            took: now - app.asked_at,
            reason: reason.to_owned(),
            is_ok,
        };
        drop(pipe);
        if let Some(begun) = begun {
            self.detach(&begun);
        }
        self.emit(event);
        if was_gone {
            self.apps.remove(&conn);
        } else {
            self.wake_app(conn);
        }
    }

    /// Schedules a check soon, since a program waits.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.must_plan = true;
        self.plan_at = self.plan_at.min(now + BUSY_STEP);
    }
}
