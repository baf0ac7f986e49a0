//! A node on a thread of its own: told what to do, looked after, ended.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Puppet, driver, listener};
use link::{Drive, DriverOptions, NodeThread, ThreadError, Watch};
use onion::{Duration, Instant};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;

/// Far more than anything here takes, and far less than a thread sleeps that nobody wakes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// So many connections have come in by a look.
    Accepted(u32),
    Failed(String),
    Done,
}

/// Tells of each look.
struct Witness {
    words: Sender<Word>,
    /// How often it looks though nothing happens.
    every: Option<Duration>,
}

impl Watch<Puppet> for Witness {
    fn look(&mut self, drive: &mut dyn Drive<Puppet>) -> Option<Instant> {
        let _ = self.words.send(Word::Accepted(drive.node().accepted));
        self.every.map(|pause| drive.now() + pause)
    }

    fn handle_failure(&mut self, failure: &ThreadError) {
        let _ = self.words.send(Word::Failed(failure.to_string()));
    }
}

/// Accepts connections without TLS.
fn start(
    listeners: Vec<TcpListener>,
    every: Option<Duration>,
) -> (NodeThread<Puppet>, Receiver<Word>) {
    let (words, heard) = channel();
    let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
    let driver = driver(Puppet::default(), listeners, options);
    let thread = NodeThread::start("node", Box::new(driver), Witness { words, every });
    (thread.expect("a thread"), heard)
}

/// Plays a test, and fails if that never ends: a thread that nobody wakes is waited for in vain.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel();
    let player = thread::spawn(move || {
        let _sender = sender;
        test();
    });
    let outcome = ended.recv_timeout(2 * PATIENCE);
    assert_eq!(outcome, Err::<(), _>(RecvTimeoutError::Disconnected), "it does not end");
    player.join().expect("all holds");
}

fn wait_for(heard: &Receiver<Word>, word: &Word) {
    while heard.recv_timeout(PATIENCE).expect("it is told in time") != *word {}
}

#[test]
fn a_thread_that_sleeps_hears_what_it_is_told() {
    in_time(|| {
        let (thread, heard) = start(vec![], None);
        for count in 1..=100 {
            let (sender, answer) = channel();
            thread.teller().tell(move |drive| {
                drive.node_mut().accepted = count;
                sender.send(()).expect("somebody waits");
            });
            answer.recv_timeout(PATIENCE).expect("it is done in time");
            wait_for(&heard, &Word::Accepted(count));
            assert_eq!(thread.teller().ask(|drive| drive.node().accepted), Some(count));
        }
    });
}

#[test]
fn who_looks_after_a_node_looks_when_something_happens_and_when_it_is_time() {
    in_time(|| {
        let (listener, address) = listener();
        let (_thread, heard) = start(vec![listener], None);
        let _one = TcpStream::connect(address).expect("it listens");
        wait_for(&heard, &Word::Accepted(1));

        let (_thread, heard) = start(vec![], Some(Duration::from_millis(1)));
        (0..10).for_each(|_| wait_for(&heard, &Word::Accepted(0)));
    });
}

#[test]
fn a_panic_ends_it_and_is_told() {
    in_time(|| {
        let (listener, address) = listener();
        let (thread, heard) = start(vec![listener], None);
        let mut peer = TcpStream::connect(address).expect("it listens");
        wait_for(&heard, &Word::Accepted(1));
        thread.teller().tell(|_| panic!("as the test wants it"));
        wait_for(&heard, &Word::Failed("a thread has panicked: as the test wants it".to_owned()));
        assert_eq!(peer.read(&mut [0]).expect("it is closed"), 0);
        assert_eq!(thread.teller().ask(|_| ()), None, "nobody is there");
        assert!(matches!(thread.join(), Err(ThreadError::Panicked(_))));
    });
}

#[test]
fn its_end_closes_its_connections_and_what_it_was_told_before_is_done() {
    in_time(|| {
        let (listener, address) = listener();
        let (thread, heard) = start(vec![listener], None);
        let mut peer = TcpStream::connect(address).expect("it listens");
        wait_for(&heard, &Word::Accepted(1));
        let (sender, done) = channel();
        thread.teller().tell(move |_| sender.send(Word::Done).expect("somebody listens"));
        thread.join().expect("nothing has failed");
        assert_eq!(done.try_recv(), Ok(Word::Done));
        assert_eq!(peer.read(&mut [0]).expect("it is closed"), 0);
    });
}
