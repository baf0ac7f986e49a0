//! Runs a node on a separate thread.

use crate::drive::Drive;
use crate::driver::{DriverError, Waker};
use onion::{Duration, Instant};
use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

/// Upper limit of a wait: events, timers and wakers end it earlier.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Observes a node on its thread; `()` does nothing.
pub trait Observer<N>: Send {
    /// Called before each turn of the node, to read its events and give it commands. Returns when
    /// it wants to be called next without an event; `None` if never.
    fn before_turn(&mut self, drive: &mut dyn Drive<N>) -> Option<Instant>;

    /// The thread ends because of a failure. All connections are closed.
    fn handle_failure(&mut self, failure: &ThreadError);
}

impl<N> Observer<N> for () {
    fn before_turn(&mut self, _: &mut dyn Drive<N>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, _: &ThreadError) {}
}

/// A thread that runs a node, its driver and its observer. Dropping it closes all connections and
/// waits for the thread to end.
///
/// The thread sleeps until a socket is ready, a timer expires, or a [`NodeHandle`] sends a task.
pub struct NodeThread<N> {
    handle: NodeHandle<N>,
    thread: Option<JoinHandle<Result<(), ThreadError>>>,
}

/// Sends tasks to a node's thread from other threads.
pub struct NodeHandle<N> {
    commands: Sender<Command<N>>,
    waker: Waker,
}

type Task<N> = dyn FnOnce(&mut dyn Drive<N>) + Send;

enum Command<N> {
    Do(Box<Task<N>>),
    Stop,
}

/// A node's thread could not be started, or has failed. Never caused by a peer.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The operating system provides no thread.
    #[error("cannot start a thread: {0}")]
    Start(io::Error),
    /// An operating system call of the driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A bug; the panic message.
    #[error("a thread has panicked: {0}")]
    Panicked(String),
}

impl<N: 'static> NodeThread<N> {
    /// Starts a thread with this name that drives the node.
    ///
    /// # Errors
    /// [`ThreadError::Start`] if the operating system provides no thread.
    pub fn start(
        name: impl Into<String>,
        drive: Box<dyn Drive<N> + Send>,
        observer: impl Observer<N> + 'static,
    ) -> Result<Self, ThreadError> {
        let (commands, receiver) = channel();
        let waker = drive.waker();
        let thread =
            Builder::new().name(name.into()).spawn(move || work(drive, receiver, observer));
        let thread = Some(thread.map_err(ThreadError::Start)?);
        Ok(Self { handle: NodeHandle { commands, waker }, thread })
    }
}

impl<N> NodeThread<N> {
    /// The handle with which other threads send tasks; it can be cloned.
    #[must_use]
    pub const fn handle(&self) -> &NodeHandle<N> {
        &self.handle
    }

    /// Requests shutdown without waiting for it. Tasks sent before are still run.
    pub fn stop(&self) {
        self.handle.command(Command::Stop);
    }

    /// Stops the thread and waits for its end.
    ///
    /// # Errors
    /// [`ThreadError`] if it has failed before.
    pub fn join(mut self) -> Result<(), ThreadError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), ThreadError> {
        self.stop();
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(payload)) => Err(ThreadError::panicked(&*payload)),
            None => Ok(()),
        }
    }
}

impl<N> Drop for NodeThread<N> {
    fn drop(&mut self) {
        // The observer has received the failure.
        let _ = self.end();
    }
}

impl<N> NodeHandle<N> {
    /// Runs a task on the thread before the node's next turn. The current turn may still receive
    /// data from sockets first. Has no effect if the thread has ended.
    pub fn run(&self, task: impl FnOnce(&mut dyn Drive<N>) + Send + 'static) {
        self.command(Command::Do(Box::new(task)));
    }

    /// Runs a task on the thread and waits for its result; `None` if the thread has ended. Must not
    /// be called on that thread.
    pub fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut dyn Drive<N>) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = channel();
        self.run(move |drive| _ = sender.send(task(drive)));
        answer.recv().ok()
    }

    /// Starts a turn of the node now.
    pub fn wake(&self) {
        self.waker.wake();
    }

    fn command(&self, command: Command<N>) {
        // Ignored if the thread has ended.
        let _ = self.commands.send(command);
        self.wake();
    }
}

impl<N> Clone for NodeHandle<N> {
    fn clone(&self) -> Self {
        Self { commands: self.commands.clone(), waker: self.waker.clone() }
    }
}

impl<N> fmt::Debug for NodeHandle<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHandle").finish_non_exhaustive()
    }
}

impl<N> fmt::Debug for NodeThread<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl ThreadError {
    fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::Panicked(text.unwrap_or("no reason given").to_owned())
    }
}

fn work<N>(
    drive: Box<dyn Drive<N> + Send>,
    commands: Receiver<Command<N>>,
    mut observer: impl Observer<N>,
) -> Result<(), ThreadError> {
    // After a panic nothing is used but the observer, to report it.
    let ended = catch_unwind(AssertUnwindSafe(|| turn(drive, &commands, &mut observer)));
    // A caller must not wait for an answer to a task that is still queued.
    drop(commands);
    let outcome = match ended {
        Ok(outcome) => outcome.map_err(ThreadError::Driver),
        Err(payload) => Err(ThreadError::panicked(&*payload)),
    };
    outcome.inspect_err(|failure| observer.handle_failure(failure))
}

fn turn<N>(
    mut drive: Box<dyn Drive<N> + Send>,
    commands: &Receiver<Command<N>>,
    observer: &mut impl Observer<N>,
) -> Result<(), DriverError> {
    loop {
        loop {
            match commands.try_recv() {
                Ok(Command::Do(task)) => task(&mut *drive),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => break,
            }
        }
        let latest = drive.now() + LONGEST_WAIT;
        let deadline = observer.before_turn(&mut *drive).map_or(latest, |due| due.min(latest));
        drive.turn(deadline)?;
    }
}
