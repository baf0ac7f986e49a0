//! Streams, from a program's request to their end.

use super::Proxy;
use super::apps::{App, Begun, Stage};
use super::pipe::StreamEnd;
use super::socks::{Status, Verdict};
use crate::path::NoPath;
use crate::pool::Choice;
use onion::cell::msg::EndReason;
use onion::client::{CircuitNumber, Outcome, StreamNumber};
use onion::node::ConnId;
use onion::{Duration, Instant};
use std::io::Write;
use std::rc::Rc;

/// Time limit for a program's request: C tor's `SocksTimeout`.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Time after which an exit without an answer is replaced: C tor's first timeout.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Limit on circuits on which a stream is attempted.
const ATTEMPTS_MAX: u32 = 3;

impl Proxy {
    /// Attaches waiting streams to circuits, and builds circuits where there are none.
    pub(super) fn attach_waiting(&mut self, now: Instant) {
        if !self.has_bootstrapped {
            return;
        }
        let is_waiting = |stage: &Stage| matches!(stage, Stage::Waiting(_));
        let waiting: Vec<ConnId> = self
            .apps
            .iter()
            .filter(|(_, app)| is_waiting(&app.stage))
            .map(|(conn, _)| *conn)
            .collect();
        for conn in waiting {
            let Some(app) = self.apps.get(&conn) else { continue };
            let Stage::Waiting(request) = &app.stage else { continue };
            let (need, isolation) = (request.need, request.isolation.clone());
            match self.pool.choose(need, &isolation, now) {
                Choice::Use(circuit) => self.begin(now, conn, circuit),
                Choice::Wait => {}
                Choice::Open if !self.has_exit(need) => {
                    let why = NoPath::Exit.to_string();
                    self.refuse(now, conn, Status::GENERAL_FAILURE, &why);
                }
                Choice::Open => {
                    if let Some(circuit) = self.open_circuit(now, need) {
                        self.pool.reserve(circuit, &isolation);
                    }
                }
            }
        }
    }

    /// Begins a program's stream on an open circuit.
    fn begin(&mut self, now: Instant, conn: ConnId, circuit: CircuitNumber) {
        let Some(app) = self.apps.get_mut(&conn) else { return };
        let Stage::Waiting(request) = &app.stage else { return };
        // Refused requests never get here.
        let verdict = request.verdict(self.choices.rejects_internal);
        let (request, Verdict::Carry(destination)) = (request.clone(), verdict) else { return };
        let (pipe, touched) = (Rc::clone(&app.pipe), Rc::clone(&self.touched));
        let end = StreamEnd { pipe, conn, touched };
        let stream = self.client.begin(now, circuit, destination, end);
        app.attempts += 1;
        app.stage = Stage::Begun(Begun { request, stream, circuit, at: now });
        self.by_stream.insert(stream, conn);
        self.pool.handle_begun(circuit, now);
        self.hurry(now);
        // This is the scheduled check itself.
        self.must_plan = false;
    }

    /// Removes a stream here and in the engine.
    pub(super) fn detach(&mut self, begun: &Begun) {
        if self.by_stream.remove(&begun.stream).is_some() {
            self.client.end(begun.stream);
        }
        self.pool.handle_over(begun.circuit);
    }

    /// Handles a stream that the other side has ended.
    pub(super) fn handle_over(&mut self, now: Instant, stream: StreamNumber, outcome: Outcome) {
        let Some(conn) = self.by_stream.remove(&stream) else { return };
        let Some(app) = self.apps.get_mut(&conn) else { return };
        match (&app.stage, outcome) {
            (Stage::Begun(begun), Outcome::Complete) if begun.request.is_lookup() => {
                let answer = app.pipe.borrow_mut().answer.take().unwrap_or_default();
                let (reply, is_found) =
                    begun.request.answered(&answer, self.choices.rejects_internal);
                let _ = app.pipe.borrow_mut().to_app.write_all(&reply);
                let reason = if is_found { "answered" } else { "there is no answer" };
                self.finish_app(now, conn, reason, is_found);
            }
            (Stage::Begun(begun), Outcome::Ended(reason)) => {
                let begun = begun.clone();
                self.handle_refusal(now, conn, &begun, reason);
            }
            (_, Outcome::Ended(reason)) => {
                let is_ok = reason == EndReason::DONE;
                self.finish_app(now, conn, &reason.to_string(), is_ok);
            }
            (_, Outcome::WrongBytes { .. }) => {
                self.finish_app(now, conn, "the exit ignores XOFF", false);
            }
            (_, Outcome::Complete) => self.finish_app(now, conn, "complete", true),
        }
    }

    /// Handles an exit that refuses a stream: another may accept it.
    fn handle_refusal(&mut self, now: Instant, conn: ConnId, begun: &Begun, reason: EndReason) {
        let Some(app) = self.apps.get(&conn) else { return };
        // The destination's own answer, which is the same for all exits; a name is resolved by two
        // exits.
        let most = match reason {
            EndReason::CONNECT_REFUSED | EndReason::CONN_RESET | EndReason::DONE => 1,
            EndReason::RESOLVE_FAILED => 2,
            _ => ATTEMPTS_MAX,
        };
        if app.attempts < most {
            self.try_elsewhere(now, conn, begun);
        } else {
            self.refuse(now, conn, Status::from_reason(reason), &reason.to_string());
        }
    }

    /// Detaches a program's stream and retires its circuit.
    fn try_elsewhere(&mut self, now: Instant, conn: ConnId, begun: &Begun) {
        self.pool.retire(begun.circuit);
        self.detach(begun);
        if let Some(app) = self.apps.get_mut(&conn) {
            app.stage = Stage::Waiting(begun.request.clone());
        }
        self.hurry(now);
    }

    /// Replies to a program that its stream cannot be opened.
    fn refuse(&mut self, now: Instant, conn: ConnId, status: Status, reason: &str) {
        if let Some(app) = self.apps.get_mut(&conn) {
            let reply = match &app.stage {
                Stage::Waiting(request) => request.refused(status),
                Stage::Begun(begun) => begun.request.refused(status),
                _ => Vec::new(),
            };
            let _ = app.pipe.borrow_mut().to_app.write_all(&reply);
        }
        self.finish_app(now, conn, reason, false);
    }

    /// Handles a closed circuit: streams that are not open move to others, open streams end.
    pub(super) fn lose_streams(&mut self, now: Instant, circuit: CircuitNumber, cause: &str) {
        let is_on = |stage: &Stage| match stage {
            Stage::Begun(begun) | Stage::Open(begun) | Stage::Draining(begun) => {
                begun.circuit == circuit
            }
            _ => false,
        };
        let lost: Vec<ConnId> =
            self.apps.iter().filter(|(_, app)| is_on(&app.stage)).map(|(conn, _)| *conn).collect();
        for conn in lost {
            let Some(app) = self.apps.get(&conn) else { continue };
            match &app.stage {
                Stage::Begun(begun) if app.attempts < ATTEMPTS_MAX => {
                    let begun = begun.clone();
                    self.try_elsewhere(now, conn, &begun);
                }
                Stage::Begun(_) => {
                    self.refuse(now, conn, Status::GENERAL_FAILURE, cause);
                }
                _ => self.finish_app(now, conn, &format!("its circuit is gone: {cause}"), false),
            }
        }
    }

    /// Closes connections of programs that send no request, or read nothing.
    fn end_overdue_programs(&mut self, now: Instant) {
        let is_overdue = |app: &App| match app.stage {
            Stage::Greeting(_) | Stage::Draining(_) | Stage::Closing => now >= app.since + WAIT_MAX,
            Stage::Waiting(_) | Stage::Begun(_) | Stage::Open(_) => false,
        };
        let overdue: Vec<ConnId> =
            self.apps.iter().filter(|(_, app)| is_overdue(app)).map(|(conn, _)| *conn).collect();
        for conn in overdue {
            match self.apps.get(&conn).map(|app| &app.stage) {
                Some(Stage::Draining(_)) => {
                    let why = "the program has disconnected, and its last bytes are not accepted";
                    self.finish_app(now, conn, why, false);
                }
                _ => self.to_close.push_back(conn),
            }
        }
    }

    /// Ends requests that have timed out.
    pub(super) fn end_overdue_streams(&mut self, now: Instant) {
        self.end_overdue_programs(now);
        let waiting: Vec<ConnId> =
            self.apps.iter().filter(|(_, app)| app.is_waiting()).map(|(conn, _)| *conn).collect();
        for conn in waiting {
            let Some(app) = self.apps.get(&conn) else { continue };
            if now >= app.asked_at + WAIT_MAX {
                let why = match self.has_bootstrapped {
                    true => "no circuit in time",
                    false => "the network is not known yet",
                };
                self.refuse(now, conn, Status::TTL_EXPIRED, why);
            } else if let Stage::Begun(begun) = &app.stage
                && now >= begun.at + ANSWER_MAX
            {
                let begun = begun.clone();
                if app.attempts < ATTEMPTS_MAX {
                    self.try_elsewhere(now, conn, &begun);
                } else {
                    self.refuse(now, conn, Status::TTL_EXPIRED, "no exit has answered");
                }
            }
        }
    }
}
