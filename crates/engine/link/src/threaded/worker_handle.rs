//! An I/O thread, as seen by the node's thread.

use super::io_worker::IoWorker;
use super::messages::{FIRST_GRANT, IoCommand, IoEvent};
use crate::driver::{Driver, DriverError, Waker};
use onion::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Commands in the queue between two threads; further ones wait in the handle.
const COMMANDS_MAX: usize = 1024;

/// Interval at which a thread polls for commands even if nothing wakes it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The handle of one I/O thread.
///
/// It is no [`NodeThread`](crate::NodeThread), because commands and events are the traffic itself,
/// each with up to a record of bytes. They are plain values in bounded queues, which gives
/// backpressure in both directions. A thread that is awake is not woken, which saves a system call
/// for each.
pub(super) struct WorkerHandle {
    /// `None` during shutdown.
    commands: Option<SyncSender<IoCommand>>,
    /// Commands for which the queue had no room. The limits on data in flight bound them.
    waiting: VecDeque<IoCommand>,
    has_new: bool,
    /// Bytes that the TLS handshakes of the thread may still read.
    pub(super) handshakes_granted: usize,
    waker: Waker,
    /// The thread polls for commands before it waits for its sockets.
    is_awake: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerHandle {
    pub(super) fn start(
        place: usize,
        driver: Driver<IoWorker>,
        events: SyncSender<(usize, IoEvent)>,
    ) -> Result<Self, DriverError> {
        let (sender, commands) = sync_channel(COMMANDS_MAX);
        let waker = driver.waker();
        let is_awake = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&is_awake);
        let thread = Builder::new()
            .name(format!("sockets {place}"))
            .spawn(move || work(place, driver, &commands, &events, &theirs))
            .map_err(DriverError::of("cannot make a thread"))?;
        Ok(Self {
            commands: Some(sender),
            waiting: VecDeque::new(),
            has_new: false,
            handshakes_granted: FIRST_GRANT,
            waker,
            is_awake,
            thread: Some(thread),
        })
    }

    /// Queues a command. Call [`wake`](Self::wake) afterwards.
    pub(super) fn send(&mut self, command: IoCommand) {
        self.has_new = true;
        self.waiting.push_back(command);
        self.flush();
    }

    fn flush(&mut self) {
        let Some(commands) = &self.commands else { return };
        while let Some(command) = self.waiting.pop_front() {
            match commands.try_send(command) {
                Ok(()) => {}
                Err(TrySendError::Full(command)) => {
                    self.waiting.push_front(command);
                    return;
                }
                // The thread has ended and has reported why.
                Err(TrySendError::Disconnected(_)) => self.waiting.clear(),
            }
        }
    }

    /// Wakes the thread if there are new commands and it sleeps.
    pub(super) fn wake(&mut self) {
        self.flush();
        if std::mem::take(&mut self.has_new) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.waker.wake();
        }
        // Commands that wait for space must be sent before the node sleeps.
        self.has_new = !self.waiting.is_empty();
    }

    /// Whether the thread has ended unexpectedly.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Stops the thread and waits for its end.
    pub(super) fn stop(&mut self) {
        self.commands = None;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The panic has been printed.
            let _ = thread.join();
        }
    }
}

fn work(
    place: usize,
    mut driver: Driver<IoWorker>,
    commands: &Receiver<IoCommand>,
    events: &SyncSender<(usize, IoEvent)>,
    is_awake: &AtomicBool,
) {
    loop {
        // Cleared before the queue is polled: a command that arrives later finds the thread asleep
        // and wakes it.
        is_awake.store(false, Ordering::SeqCst);
        let now = driver.now();
        loop {
            match commands.try_recv() {
                Ok(IoCommand::Tls(tls)) => driver.set_tls(*tls),
                Ok(IoCommand::StopListening) => driver.stop_listening(),
                Ok(command) => {
                    if matches!(command, IoCommand::GrantHandshakes(_)) {
                        driver.resume_handshakes();
                    }
                    driver.node_mut().handle_command(now, command);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        if let Err(error) = driver.turn(now + POLL_INTERVAL) {
            // Ignored during shutdown.
            let _ = events.send((place, IoEvent::Failed(error.to_string())));
            return;
        }
        is_awake.store(true, Ordering::SeqCst);
        while let Some(event) = poll_event(&mut driver) {
            if events.send((place, event)).is_err() {
                return;
            }
        }
    }
}

fn poll_event(driver: &mut Driver<IoWorker>) -> Option<IoEvent> {
    let (io_worker, sockets) = driver.node_and_sockets();
    io_worker.poll_event(|conn| sockets.duplicate(conn))
}

impl DriverError {
    pub(crate) fn of(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, source }
    }

    pub(crate) fn of_thread(problem: String) -> Self {
        Self { what: "a thread that serves sockets has ended", source: io::Error::other(problem) }
    }
}
