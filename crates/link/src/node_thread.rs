//! A node on a thread of its own.

use crate::drive::Drive;
use crate::driver::{DriverError, Remote};
use onion::{Duration, Instant};
use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

/// Only bounds the wait: what matters wakes the thread, or has a time.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Who looks after a node on its thread; `()` leaves it alone.
pub trait Watch<N>: Send {
    /// Takes note of what the node has to tell, and tells it what to do. Called before each of its
    /// turns. Returns when the next look is due though nothing has happened; `None` if never.
    fn look(&mut self, drive: &mut dyn Drive<N>) -> Option<Instant>;

    /// The thread ends though nobody has told it to. All connections are closed.
    fn handle_failure(&mut self, failure: &ThreadError);
}

impl<N> Watch<N> for () {
    fn look(&mut self, _: &mut dyn Drive<N>) -> Option<Instant> {
        None
    }

    fn handle_failure(&mut self, _: &ThreadError) {}
}

/// A node, what drives it, and who looks after it, on a thread of their own. Dropping it closes all
/// connections, and waits for the thread's end.
///
/// The thread sleeps until something happens on a socket, a time has come, or somebody tells it
/// something.
pub struct NodeThread<N> {
    teller: Teller<N>,
    thread: Option<JoinHandle<Result<(), ThreadError>>>,
}

/// Tells a node's thread what to do, from any other.
pub struct Teller<N> {
    commands: Sender<Command<N>>,
    remote: Remote,
}

type Task<N> = dyn FnOnce(&mut dyn Drive<N>) + Send;

enum Command<N> {
    Do(Box<Task<N>>),
    Stop,
}

/// A node's thread could not be started, or has ended by itself: never a peer's fault.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Start(io::Error),
    /// The operating system fails the driver.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A bug of ours, in its own words.
    #[error("a thread has panicked: {0}")]
    Panicked(String),
}

impl<N: 'static> NodeThread<N> {
    /// Starts a thread of this name that drives the node at once.
    ///
    /// # Errors
    /// Where the operating system gives no thread.
    pub fn start(
        name: impl Into<String>,
        drive: Box<dyn Drive<N> + Send>,
        watch: impl Watch<N> + 'static,
    ) -> Result<Self, ThreadError> {
        let (commands, receiver) = channel();
        let remote = drive.remote();
        let thread = Builder::new().name(name.into()).spawn(move || work(drive, receiver, watch));
        let thread = Some(thread.map_err(ThreadError::Start)?);
        Ok(Self { teller: Teller { commands, remote }, thread })
    }
}

impl<N> NodeThread<N> {
    /// Tells the thread things, and may be given away.
    #[must_use]
    pub const fn teller(&self) -> &Teller<N> {
        &self.teller
    }

    /// Tells it to end, and does not wait. What it was told before is done.
    pub fn stop(&self) {
        self.teller.command(Command::Stop);
    }

    /// Ends it, and waits for that.
    ///
    /// # Errors
    /// Why it had ended before.
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
        // Whoever looks after the node has been told.
        let _ = self.end();
    }
}

impl<N> Teller<N> {
    /// Has something done on the thread, soon, and before the node's next turn: the one under way may take in
    /// first what comes from sockets meanwhile. A thread that has ended does nothing.
    pub fn tell(&self, task: impl FnOnce(&mut dyn Drive<N>) + Send + 'static) {
        self.command(Command::Do(Box::new(task)));
    }

    /// The same, and waits for what comes of it; `None` if the thread has ended. Not to be called on that
    /// very thread.
    pub fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut dyn Drive<N>) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = channel();
        self.tell(move |drive| _ = sender.send(task(drive)));
        answer.recv().ok()
    }

    /// Has the node looked after now.
    pub fn wake(&self) {
        self.remote.wake();
    }

    fn command(&self, command: Command<N>) {
        // A thread that has ended needs no command.
        let _ = self.commands.send(command);
        self.wake();
    }
}

impl<N> Clone for Teller<N> {
    fn clone(&self) -> Self {
        Self { commands: self.commands.clone(), remote: self.remote.clone() }
    }
}

impl<N> fmt::Debug for Teller<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Teller").finish_non_exhaustive()
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
    mut watch: impl Watch<N>,
) -> Result<(), ThreadError> {
    // Of what a panic leaves behind, nothing is used but the watch, to say so.
    let ended = catch_unwind(AssertUnwindSafe(|| turn(drive, &commands, &mut watch)));
    // Who asks something must not wait for an answer that is still in the queue.
    drop(commands);
    let outcome = match ended {
        Ok(outcome) => outcome.map_err(ThreadError::Driver),
        Err(payload) => Err(ThreadError::panicked(&*payload)),
    };
    outcome.inspect_err(|failure| watch.handle_failure(failure))
}

fn turn<N>(
    mut drive: Box<dyn Drive<N> + Send>,
    commands: &Receiver<Command<N>>,
    watch: &mut impl Watch<N>,
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
        let deadline = watch.look(&mut *drive).map_or(latest, |due| due.min(latest));
        drive.turn(deadline)?;
    }
}
