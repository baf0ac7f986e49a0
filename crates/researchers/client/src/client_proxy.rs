//! A running client: its threads and the channels between them.

use crate::choices::Choices;
use crate::directory::{DirectoryEvent, DirectoryThread};
use crate::event::Event;
use crate::proxy::Proxy;
use crate::sources::{Directories, SharedGuards};
use crate::state::{self, State};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Waker, unix_time_s};
use netdoc::RsaId;
use onion::{Duration, Instant};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Interval at which state is saved. New guards are saved at once.
const SAVE: Duration = Duration::from_secs(300);
/// Upper limit of a wait: events and timers end it earlier.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Settings of a client.
#[derive(Debug)]
pub struct Settings {
    /// Address of the SOCKS proxy.
    pub socks: SocketAddr,
    /// The directory addresses of the authorities. For an authority with an OR port in
    /// `directories`, the address only identifies it.
    pub authorities: Vec<SocketAddr>,
    /// Further directories, and how to reach directories.
    pub directories: Directories,
    /// The authorities whose signatures count; if empty, each authority states its own identity.
    pub identities: BTreeSet<RsaId>,
    /// Folder for documents and state. It is created if necessary, but its parent is not.
    pub folder: PathBuf,
    /// How the client selects relays and serves programs.
    pub choices: Choices,
}

impl Settings {
    /// Settings for a private network: a free port of loopback, relays by weight, and several
    /// relays on one host. Documents come from directory ports at first, and then through guards.
    #[must_use]
    pub fn new(authorities: Vec<SocketAddr>, folder: PathBuf) -> Self {
        Self {
            socks: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            authorities,
            directories: Directories { has_guards: true, ..Directories::default() },
            identities: BTreeSet::new(),
            folder,
            choices: Choices::default(),
        }
    }
}

/// Why a client cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No authority is configured.
    #[error(
        "configuration: no directory authority is given; a client learns of the network from them"
    )]
    NoAuthority,
    /// The SOCKS address is not available.
    #[error("configuration: cannot listen for programs at {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The I/O error.
        source: io::Error,
    },
    /// The folder cannot be created.
    #[error("configuration: cannot make the folder `{}`: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The saved state cannot be read.
    #[error("configuration: {0}")]
    State(String),
    /// The host provides no randomness, certificates or threads.
    #[error("machine: {0}")]
    Machine(String),
}

/// A running client. Dropping it closes all connections and waits for them. The directory thread
/// may still wait for an answer and ends afterwards.
pub struct ClientProxy {
    socks: SocketAddr,
    is_over: Arc<AtomicBool>,
    waker: Waker,
    end_directory: Option<Sender<()>>,
    engine: Option<JoinHandle<()>>,
}

impl ClientProxy {
    /// Starts the SOCKS proxy and the directory thread. Events are sent to `events` until the
    /// receiver is dropped. Requests that arrive before the client has bootstrapped wait.
    ///
    /// # Errors
    /// [`ClientError`] names who is to blame.
    pub fn start(settings: Settings, events: Sender<Event>) -> Result<Self, ClientError> {
        if settings.authorities.is_empty() {
            return Err(ClientError::NoAuthority);
        }
        let machine = |error: &dyn fmt::Display| ClientError::Machine(error.to_string());
        let Settings { socks, authorities, directories, identities, folder, choices } = settings;
        if !folder.is_dir() {
            let failed = |source| ClientError::Folder { folder: folder.clone(), source };
            std::fs::create_dir(&folder).map_err(failed)?;
        }
        let file = folder.join(state::FILE);
        let remembered = State::load(&file).map_err(ClientError::State)?;
        let listen = |source| ClientError::Listen { address: socks, source };
        let listener = TcpListener::bind(socks).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;

        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(|error| machine(&error))?;
        let now = unix_time_s();
        let tls = TlsConfigs::client().map_err(|error| machine(&error))?;

        let guards = SharedGuards::default();
        guards.set_guards(remembered.guards.ready(Instant::ORIGIN));
        let known = guards.clone();
        let directory_thread =
            DirectoryThread { authorities, identities, directories, folder, guards };
        let (is_over, directory_rng) =
            (Arc::new(AtomicBool::new(false)), StdRng::from_rng(&mut rng));
        let (ready, started) = channel();
        let (sender, news) = channel();
        let engine = Engine { events, news, guards: known, file, is_over: Arc::clone(&is_over) };
        let work = move || {
            let clock = Clock::start();
            let proxy = Proxy::new(choices, remembered, clock.now(), now, rng);
            // Incoming connections are plain; outgoing links use TLS regardless.
            let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
            match Driver::new(proxy, clock, tls, vec![listener], options) {
                Ok(driver) => {
                    let _waits_for_it = ready.send(Ok(driver.waker()));
                    engine.run(driver);
                }
                Err(error) => _ = ready.send(Err(error)),
            }
        };
        let engine = Builder::new().name("client".to_owned()).spawn(work);
        let engine = engine.map_err(|error| machine(&error))?;
        let waker = started.recv().map_err(|error| machine(&error))?;
        let waker = waker.map_err(|error| machine(&error))?;

        let news_waker = waker.clone();
        let report = move |news| {
            // Ignored if the engine has ended.
            let _ = sender.send(news);
            news_waker.wake();
        };
        let (end_directory, end) = channel();
        // If this thread cannot be started, dropping `proxy` stops the engine.
        let proxy = Self {
            socks: address,
            is_over,
            waker,
            end_directory: Some(end_directory),
            engine: Some(engine),
        };
        let directory = Builder::new()
            .name("directory".to_owned())
            .spawn(move || directory_thread.run(directory_rng, report, &end));
        directory.map_err(|error| machine(&error))?;
        Ok(proxy)
    }

    /// The address of the SOCKS proxy.
    #[must_use]
    pub const fn socks(&self) -> SocketAddr {
        self.socks
    }
}

impl Drop for ClientProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
        drop(self.end_directory.take());
        if let Some(engine) = self.engine.take() {
            // The panic has been reported where it happened.
            let _ = engine.join();
        }
    }
}

impl fmt::Debug for ClientProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProxy").field("socks", &self.socks).finish_non_exhaustive()
    }
}

/// State of the engine's thread in addition to its driver.
struct Engine {
    events: Sender<Event>,
    news: Receiver<DirectoryEvent>,
    guards: SharedGuards,
    file: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl Engine {
    fn run(&self, mut driver: Driver<Proxy>) {
        if let Err(error) = self.turn(&mut driver) {
            self.emit(Event::Ended { error: format!("machine: {error}") });
        }
        self.save(driver.node().state(), &self.file);
    }

    fn turn(&self, driver: &mut Driver<Proxy>) -> Result<(), DriverError> {
        let mut save_at = driver.now() + SAVE;
        while !self.is_over.load(Ordering::Acquire) {
            let now = driver.now();
            driver.node_mut().set_unix_time(now, unix_time_s());
            for news in self.news.try_iter() {
                match news {
                    DirectoryEvent::NetDir(netdir) => {
                        if let Some(problem) = driver.node().lacks(&netdir) {
                            self.emit(Event::Ended { error: problem.to_string() });
                            return Ok(());
                        }
                        driver.node_mut().set_netdir(now, netdir);
                        self.guards.set_guards(driver.node().state().guards.ready(now));
                    }
                    DirectoryEvent::Expired => driver.node_mut().handle_expired(),
                    DirectoryEvent::Event(event) => self.emit(event),
                }
            }
            while let Some(event) = driver.node_mut().poll_event() {
                self.emit(event);
            }
            if let Some(state) = driver.node_mut().poll_state() {
                self.guards.set_guards(state.guards.ready(now));
                self.save(&state, &self.file);
            }
            if now >= save_at {
                save_at = now + SAVE;
                self.guards.set_guards(driver.node().state().guards.ready(now));
                self.save(driver.node().state(), &self.file);
            }
            driver.turn(now + LONGEST_WAIT)?;
        }
        Ok(())
    }

    fn emit(&self, event: Event) {
        let _nobody_listens = self.events.send(event);
    }

    fn save(&self, state: &State, file: &Path) {
        if let Err(problem) = state.save(file) {
            self.emit(Event::Trouble { reason: format!("machine: {problem}") });
        }
    }
}
