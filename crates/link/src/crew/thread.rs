//! A thread that carries, as the hub holds it.

use super::messages::{Errand, Event};
use super::porter::Porter;
use crate::driver::{Driver, DriverError, Remote};
use onion::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Orders in a queue between two threads; more wait with the hub.
const ORDERS_MAX: usize = 1024;

/// A thread looks for errands at least so often, though it is woken for them.
const LOOK: Duration = Duration::from_secs(1);

/// One thread, from outside.
///
/// It is no [`NodeThread`](crate::NodeThread): here errands and events are the traffic itself, each with a
/// record's worth of bytes. So they are plain values in bounded queues, by which either side holds the
/// other back, and a thread that is awake is not woken, which would be a system call for each.
pub(super) struct Hand {
    /// `None` once it is to end.
    errands: Option<SyncSender<Errand>>,
    /// Orders that the queue had no room for. The bounds on what may be under way bound them.
    waiting: VecDeque<Errand>,
    has_news: bool,
    remote: Remote,
    /// It will look for errands before it waits for its sockets.
    is_awake: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hand {
    pub(super) fn start(
        place: usize,
        driver: Driver<Porter>,
        events: SyncSender<(usize, Event)>,
    ) -> Result<Self, DriverError> {
        let (sender, errands) = sync_channel(ORDERS_MAX);
        let remote = driver.remote();
        let is_awake = Arc::new(AtomicBool::new(true));
        let theirs = Arc::clone(&is_awake);
        let thread = Builder::new()
            .name(format!("sockets {place}"))
            .spawn(move || work(place, driver, &errands, &events, &theirs))
            .map_err(DriverError::of("cannot make a thread"))?;
        let (waiting, has_news) = (VecDeque::new(), false);
        Ok(Self {
            errands: Some(sender),
            waiting,
            has_news,
            remote,
            is_awake,
            thread: Some(thread),
        })
    }

    /// Gives an errand; [`wake`](Self::wake) sees to it that it is heard.
    pub(super) fn tell(&mut self, errand: Errand) {
        self.has_news = true;
        self.waiting.push_back(errand);
        self.pass_on();
    }

    fn pass_on(&mut self) {
        let Some(errands) = &self.errands else { return };
        while let Some(errand) = self.waiting.pop_front() {
            match errands.try_send(errand) {
                Ok(()) => {}
                Err(TrySendError::Full(errand)) => {
                    self.waiting.push_front(errand);
                    return;
                }
                // It has ended, and has said why.
                Err(TrySendError::Disconnected(_)) => self.waiting.clear(),
            }
        }
    }

    /// Wakes the thread if there is something new and it sleeps.
    pub(super) fn wake(&mut self) {
        self.pass_on();
        if std::mem::take(&mut self.has_news) && !self.is_awake.swap(true, Ordering::SeqCst) {
            self.remote.wake();
        }
        // What has no room yet must not be forgotten while the node waits.
        self.has_news = !self.waiting.is_empty();
    }

    /// Whether it has ended, though nobody has told it to.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends it, and waits for that.
    pub(super) fn stop(&mut self) {
        self.errands = None;
        self.remote.wake();
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed.
            let _ = thread.join();
        }
    }
}

fn work(
    place: usize,
    mut driver: Driver<Porter>,
    errands: &Receiver<Errand>,
    events: &SyncSender<(usize, Event)>,
    is_awake: &AtomicBool,
) {
    loop {
        // First the word, then the look: an order that comes after the look finds us asleep and wakes us.
        is_awake.store(false, Ordering::SeqCst);
        let now = driver.now();
        loop {
            match errands.try_recv() {
                Ok(Errand::Tls(tls)) => driver.set_tls(*tls),
                Ok(Errand::StopListening) => driver.stop_listening(),
                Ok(errand) => driver.node_mut().handle_errand(now, errand),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        if let Err(error) = driver.turn(now + LOOK) {
            // Nobody listens if all ends.
            let _ = events.send((place, Event::Failed(error.to_string())));
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

fn poll_event(driver: &mut Driver<Porter>) -> Option<Event> {
    let (porter, sockets) = driver.node_and_sockets();
    porter.poll_event(|conn| sockets.duplicate(conn))
}

impl DriverError {
    pub(crate) fn of(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { what, source }
    }

    pub(crate) fn of_thread(problem: String) -> Self {
        Self { what: "a thread that serves sockets has ended", source: io::Error::other(problem) }
    }
}
