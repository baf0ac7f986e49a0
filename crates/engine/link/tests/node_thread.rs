//! A node on a separate thread: tasks, observers, shutdown.

use crate::common::{Puppet, driver, listener};
use link::{Drive, DriverOptions, NodeThread, Observer, ThreadError};
use onion::{Duration, Instant};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// Far more than any step takes, and far less than an unwoken thread sleeps.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// The number of accepted connections before a turn.
    Accepted(u32),
    Failed(String),
    Done,
}

/// Records each call.
struct Recorder {
    sender: Sender<Notice>,
    /// Interval between calls without events.
    every: Option<Duration>,
}

impl Observer<Puppet> for Recorder {
    fn before_turn(&mut self, drive: &mut dyn Drive<Puppet>) -> Option<Instant> {
        let _ = self.sender.send(Notice::Accepted(drive.node().accepted));
        self.every.map(|pause| drive.now() + pause)
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        let _ = self.sender.send(Notice::Failed(failure.to_string()));
    }
}

/// Accepts connections without TLS.
fn start(
    listeners: Vec<TcpListener>,
    every: Option<Duration>,
) -> (NodeThread<Puppet>, Receiver<Notice>) {
    let (sender, notices) = channel();
    let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
    let driver = driver(Puppet::default(), listeners, options);
    let thread = NodeThread::start("node", Box::new(driver), Recorder { sender, every });
    (thread.expect("a thread"), notices)
}

/// Runs a test with a time limit: a thread that is never woken would hang.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel();
    let test = thread::spawn(move || {
        let _sender = sender;
        test();
    });
    let outcome = ended.recv_timeout(2 * PATIENCE);
    assert_eq!(outcome, Err::<(), _>(RecvTimeoutError::Disconnected), "the test does not end");
    test.join().expect("the test passes");
}

fn wait_for(notices: &Receiver<Notice>, notice: &Notice) {
    while notices.recv_timeout(PATIENCE).expect("reported in time") != *notice {}
}

#[test]
fn a_sleeping_thread_runs_tasks() {
    in_time(|| {
        let (thread, notices) = start(vec![], None);
        for count in 1..=100 {
            let (sender, answer) = channel();
            thread.handle().run(move |drive| {
                drive.node_mut().accepted = count;
                sender.send(()).expect("the test waits");
            });
            answer.recv_timeout(PATIENCE).expect("it is done in time");
            wait_for(&notices, &Notice::Accepted(count));
            assert_eq!(thread.handle().call(|drive| drive.node().accepted), Some(count));
        }
    });
}

#[test]
fn an_observer_is_called_after_events_and_timers() {
    in_time(|| {
        let (listener, address) = listener();
        let (_thread, notices) = start(vec![listener], None);
        let _one = TcpStream::connect(address).expect("it listens");
        wait_for(&notices, &Notice::Accepted(1));

        let (_thread, notices) = start(vec![], Some(Duration::from_millis(1)));
        (0..10).for_each(|_| wait_for(&notices, &Notice::Accepted(0)));
    });
}

#[test]
fn a_panic_ends_the_thread_and_is_reported() {
    in_time(|| {
        let (listener, address) = listener();
        let (thread, notices) = start(vec![listener], None);
        let mut peer = TcpStream::connect(address).expect("it listens");
        wait_for(&notices, &Notice::Accepted(1));
        thread.handle().run(|_| panic!("provoked by the test"));
        wait_for(
            &notices,
            &Notice::Failed("a thread has panicked: provoked by the test".to_owned()),
        );
        assert_eq!(peer.read(&mut [0]).expect("it is closed"), 0);
        assert_eq!(thread.handle().call(|_| ()), None, "the thread has ended");
        assert!(matches!(thread.join(), Err(ThreadError::Panicked(_))));
    });
}

#[test]
fn shutdown_closes_connections_after_earlier_tasks() {
    in_time(|| {
        let (listener, address) = listener();
        let (thread, notices) = start(vec![listener], None);
        let mut peer = TcpStream::connect(address).expect("it listens");
        wait_for(&notices, &Notice::Accepted(1));
        let (sender, done) = channel();
        thread.handle().run(move |_| sender.send(Notice::Done).expect("the test listens"));
        thread.join().expect("nothing has failed");
        assert_eq!(done.try_recv(), Ok(Notice::Done));
        assert_eq!(peer.read(&mut [0]).expect("it is closed"), 0);
    });
}
