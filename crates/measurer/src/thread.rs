//! A thread that drives one node, and takes commands.

use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Remote};
use onion::Duration;
use onion::node::Node;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

/// A node whose end can be commanded: it then closes all its connections.
pub(crate) trait Stop: Node {
    fn stop(&mut self);
}

/// What a thread needs.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    pub(crate) tls: TlsConfigs,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) options: DriverOptions,
}

type Task<N> = Box<dyn FnOnce(&mut Driver<N>) + Send>;

enum Command<N> {
    Do(Task<N>),
    Stop,
}

/// A node's thread; dropping it stops the node and waits for its end.
pub(crate) struct NodeThread<N> {
    commands: Sender<Command<N>>,
    remote: Remote,
    thread: Option<JoinHandle<()>>,
}

impl<N: Stop + Send + 'static> NodeThread<N> {
    /// Starts a thread that drives `node` at once. `watch` is called on it whenever something may have
    /// happened, and `broken` if the driver fails.
    pub(crate) fn spawn(
        node: N,
        setup: Setup,
        mut watch: impl FnMut(&mut Driver<N>) + Send + 'static,
        broken: impl FnOnce(String) + Send + 'static,
    ) -> Result<Self, ThreadError> {
        let Setup { name, clock, tls, listeners, options } = setup;
        let driver = Driver::new(node, clock, tls, listeners, options)?;
        let remote = driver.remote();
        let (commands, receiver) = channel();
        let thread = thread::Builder::new()
            .name(name)
            .spawn(move || {
                if let Err(error) = run(driver, &receiver, &mut watch) {
                    broken(error.to_string());
                }
            })
            .map_err(ThreadError::Spawn)?;
        Ok(Self { commands, remote, thread: Some(thread) })
    }

    /// Has something done on the thread, soon.
    pub(crate) fn act(&self, task: impl FnOnce(&mut Driver<N>) + Send + 'static) {
        self.command(Command::Do(Box::new(task)));
    }
}

impl<N> NodeThread<N> {
    fn command(&self, command: Command<N>) {
        // A thread that has ended needs no command.
        let _ = self.commands.send(command);
        self.remote.wake();
    }

    /// Tells it to stop, and does not wait.
    pub(crate) fn stop(&self) {
        self.command(Command::Stop);
    }
}

impl<N> Drop for NodeThread<N> {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; the missing reports end the measurement.
            let _ = thread.join();
        }
    }
}

/// A thread that could not be started: our machine's fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ThreadError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("cannot start a thread: {0}")]
    Spawn(std::io::Error),
}

fn run<N: Stop>(
    mut driver: Driver<N>,
    commands: &Receiver<Command<N>>,
    watch: &mut impl FnMut(&mut Driver<N>),
) -> Result<(), DriverError> {
    /// Only bounds the wait: everything that matters wakes the driver.
    const LONGEST_WAIT: Duration = Duration::from_secs(1);
    loop {
        loop {
            match commands.try_recv() {
                Ok(Command::Do(task)) => task(&mut driver),
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                    driver.node_mut().stop();
                    let now = driver.now();
                    return driver.turn(now); // closes the connections
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        let deadline = driver.now() + LONGEST_WAIT;
        driver.turn(deadline)?;
        watch(&mut driver);
    }
}
