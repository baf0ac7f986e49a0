//! The task that talks to one measurer. It connects on demand, and reconnects after the session was lost.

use super::connect::{ConnectError, Route, Session};
use crate::check::{DELAY_MAX, plain, report_in};
use crate::frames::Lost;
use crate::messages::{End, FromCoordinator, FromMeasurer, Hello};
use measurer::member::{FailureKind, MemberReport, Reports, RoundOrder};
use onion::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, watch};

/// The number of lines of the opt-in list in a message. With an IPv6 address each, they fit in `MESSAGE_MAX_BYTES`.
const LINES_PER_MESSAGE: usize = 80;

/// The receiver of a round's reports, until it is closed: later reports are dropped.
#[derive(Clone)]
pub(super) struct ReportSink(Arc<Mutex<Option<Reports>>>);

impl ReportSink {
    pub(super) fn new(reports: Reports) -> Self {
        Self(Arc::new(Mutex::new(Some(reports))))
    }

    /// Waits for a report that is being delivered.
    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn deliver(&self, report: MemberReport) {
        if let Some(reports) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            reports(report);
        }
    }

    fn broken(&self, detail: String) {
        self.deliver(MemberReport::Failed { kind: FailureKind::Broken, detail });
    }
}

/// A command of a member.
pub(super) enum Command {
    /// Create a session, and return the measurer's first message.
    Greet { answer: std::sync::mpsc::SyncSender<Result<Hello, ConnectError>> },
    /// Begin a round, and return its number.
    Prepare { key: RoundKey, order: Box<RoundOrder>, sink: ReportSink },
    /// Start it.
    Start { key: RoundKey, delay: Duration },
    /// End it.
    Stop { key: RoundKey },
}

/// A round as its member names it. The task assigns numbers in the session's order.
#[derive(Clone)]
pub(super) struct RoundKey(Arc<()>);

impl RoundKey {
    pub(super) fn new() -> Self {
        Self(Arc::new(()))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

struct Round {
    key: RoundKey,
    sink: ReportSink,
}

pub(super) struct SessionTask {
    route: Route,
    session: Option<Session>,
    /// The opt-in list for a measurer that takes it.
    list: watch::Receiver<Arc<[String]>>,
    /// The rounds by their numbers in the session.
    rounds: BTreeMap<u64, Round>,
    /// Numbers continue from one session to the next.
    newest: u64,
}

enum News {
    Command(Option<Command>),
    List,
    Message(Result<Option<FromMeasurer>, Lost>),
}

impl SessionTask {
    pub(super) const fn new(route: Route, list: watch::Receiver<Arc<[String]>>) -> Self {
        Self { route, session: None, list, rounds: BTreeMap::new(), newest: 0 }
    }

    /// Executes commands until all senders are dropped.
    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let news = match &mut self.session {
                Some(session) => tokio::select! {
                    command = commands.recv() => News::Command(command),
                    message = session.from_measurer.next() => News::Message(message),
                    Ok(()) = self.list.changed() => News::List,
                },
                None => News::Command(commands.recv().await),
            };
            match news {
                News::Command(Some(command)) => self.execute(command).await,
                News::Command(None) => return,
                News::List => self.send_list().await,
                News::Message(Ok(Some(message))) => self.handle_message(message),
                News::Message(Ok(None)) => self.lose("it ended the session"),
                News::Message(Err(lost)) => self.lose(&plain(&lost.0)),
            }
        }
    }

    async fn execute(&mut self, command: Command) {
        match command {
            Command::Greet { answer } => {
                let hello = self.connected().await.map(|session| session.hello.clone());
                // The caller may be gone.
                let _ = answer.send(hello);
            }
            Command::Prepare { key, order, sink } => {
                if let Err(error) = self.connected().await {
                    return sink.broken(error.to_string());
                }
                self.newest += 1;
                let round = self.newest;
                self.rounds.insert(round, Round { key, sink });
                self.send(FromCoordinator::Prepare { round, order: *order });
            }
            Command::Start { key, delay } => {
                if let Some(round) = self.number(&key) {
                    // All members start together: the latency of the message is part of the delay.
                    let latency =
                        self.session.as_ref().map_or(Duration::ZERO, |session| session.latency);
                    let delay = delay.saturating_sub(latency).min(DELAY_MAX);
                    self.send(FromCoordinator::Start { round, delay });
                }
            }
            Command::Stop { key } => {
                if let Some(round) = self.number(&key) {
                    self.rounds.remove(&round);
                    self.send(FromCoordinator::Stop { round });
                }
            }
        }
    }

    async fn connected(&mut self) -> Result<&mut Session, ConnectError> {
        // The session may have been lost unnoticed.
        if self.session.as_ref().is_some_and(|session| session.to_measurer.is_closed()) {
            self.lose("the connection is lost");
        }
        // Its greeting may be of weeks ago, and clocks are adjusted: a new one shows what they are now.
        let at = self.route.at;
        if self.session.as_ref().is_some_and(|session| session.check_clock(at).is_err()) {
            self.lose("the clocks have to be compared again");
        }
        if self.session.is_none() {
            let session = self.route.connect().await?;
            session.check_clock(at)?;
            self.session = Some(session);
            self.send_list().await;
        }
        self.session.as_mut().ok_or(ConnectError::Ended)
    }

    /// Sends the opt-in list, if the measurer takes it.
    async fn send_list(&mut self) {
        let lines = Arc::clone(&self.list.borrow_and_update());
        let Some(session) = self.session.as_ref().filter(|session| session.hello.takes_opt_in)
        else {
            return;
        };
        let mut chunks = lines.chunks(LINES_PER_MESSAGE).peekable();
        // An empty list replaces the previous one as well.
        let mut chunk = chunks.next().unwrap_or_default();
        loop {
            let is_last = chunks.peek().is_none();
            let message = FromCoordinator::OptIn { lines: chunk.to_vec(), is_last };
            // A lost connection is noticed at the next command.
            if session.to_measurer.send(message).await.is_err() || is_last {
                return;
            }
            chunk = chunks.next().unwrap_or_default();
        }
    }

    fn number(&self, key: &RoundKey) -> Option<u64> {
        let found = self.rounds.iter().find(|(_, round)| round.key.is(key));
        found.map(|(number, _)| *number)
    }

    fn send(&mut self, message: FromCoordinator) {
        let Some(session) = &self.session else { return };
        if session.to_measurer.try_send(message).is_err() {
            self.lose("it does not read, or is gone");
        }
    }

    fn handle_message(&mut self, message: FromMeasurer) {
        match message {
            FromMeasurer::End(End { reason, .. }) => return self.lose(&plain(&reason)),
            FromMeasurer::Hello(_) => return self.lose("it greets twice"),
            _ => {}
        }
        match report_in(message) {
            // Also for rounds that have ended.
            Ok(Some((number, report))) => {
                if let Some(round) = self.rounds.get(&number) {
                    round.sink.deliver(report);
                }
            }
            Ok(None) => self.lose("its message belongs to no round"),
            Err(error) => self.lose(&format!("its message is invalid: {error}")),
        }
    }

    fn lose(&mut self, reason: &str) {
        self.session = None;
        for round in std::mem::take(&mut self.rounds).into_values() {
            round.sink.broken(format!(
                "the session with the measurer at {} is lost: {reason}",
                self.route.at
            ));
        }
    }
}

/// When the thread ends, so do its sessions.
impl Drop for SessionTask {
    fn drop(&mut self) {
        self.lose("the coordinator is ending");
    }
}
