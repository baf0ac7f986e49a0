//! A client that runs: its threads, and what joins them.

use crate::directory::{Following, News};
use crate::event::Event;
use crate::path::Rules;
use crate::proxy::{Choices, Proxy};
use crate::sources::{Directories, SharedGuards};
use crate::state::{self, State};
use crate::strategy::{Strategy, Weighted};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverError, DriverOptions, Remote, unix_time_s};
use netdoc::Fingerprint;
use onion::cell::msg::DesiredUx;
use onion::tunnel::conflux::schedulers::MinRtt;
use onion::tunnel::conflux::{LEGS_MAX, LegScheduler};
use onion::{Duration, Instant};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// What has been learnt is stored this often, besides new guards, which are stored at once.
const SAVE: Duration = Duration::from_secs(300);
/// Only bounds the wait: what matters wakes the thread, or has a time.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a client is to be.
#[derive(Debug)]
pub struct Settings {
    /// Where programs reach it.
    pub socks: SocketAddr,
    /// Directory authorities, by address and directory port; those of which `directories` knows an OR port, by any address.
    pub authorities: Vec<SocketAddr>,
    /// Who else is asked for the directory, and by which way.
    pub directories: Directories,
    /// Whose signatures count; if empty, those of whom the authorities say that they are.
    pub identities: BTreeSet<Fingerprint>,
    /// Where it keeps what it has fetched and learnt. Made if it is not there, in a folder that is.
    pub folder: PathBuf,
    /// How it chooses relays.
    pub strategy: Box<dyn Strategy>,
    /// What holds for all paths.
    pub rules: Rules,
    /// Circuits that are linked into one (proposal 329), where the network has relays enough for them and an exit that links
    /// them; 1 for none. At most [`LEGS_MAX`](onion::tunnel::conflux::LEGS_MAX).
    pub legs: usize,
    /// Which of the linked circuits carries what programs send.
    pub leg_scheduler: &'static dyn LegScheduler,
    /// How exits are asked to use linked circuits.
    pub desired: DesiredUx,
    /// Circuits, busy or idle, are asked how fast they answer, and streams go to the one that is fastest now. Programs of one isolation then use
    /// several circuits, and so several exits see them.
    pub by_latency: bool,
    /// Streams to, and questions about, addresses of this machine and of private networks are refused, and such answers of exits
    /// dropped: C tor's `ClientRejectInternalAddresses` and `ClientDNSRejectInternalAddresses`. For the public network.
    pub rejects_internal: bool,
    /// Events name destinations. Otherwise they say `[scrubbed]`, or nothing.
    pub names_destinations: bool,
}

impl Settings {
    /// For a private network of these authorities: a free port of loopback, relays by weight, and all of them may be on one machine. The
    /// directory comes from directory ports at first, and then through guards.
    #[must_use]
    pub fn new(authorities: Vec<SocketAddr>, folder: PathBuf) -> Self {
        Self {
            socks: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            authorities,
            directories: Directories { has_guards: true, ..Directories::default() },
            identities: BTreeSet::new(),
            folder,
            strategy: Box::new(Weighted),
            rules: Rules { distinct_subnets: false },
            legs: 1,
            leg_scheduler: &MinRtt,
            desired: DesiredUx::HighThroughput,
            by_latency: false,
            rejects_internal: false,
            names_destinations: true,
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
    /// Nothing can listen there.
    #[error("configuration: cannot listen for programs at {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The folder cannot be used.
    #[error("configuration: cannot make the folder `{}`: {source}", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What was remembered cannot be read.
    #[error("configuration: {0}")]
    State(String),
    /// The machine gives no randomness, certificates or threads.
    #[error("machine: {0}")]
    Machine(String),
}

/// A client that runs. Dropping it closes all connections, and waits for them. Its other thread, which may be waiting for an
/// authority's answer, ends by itself.
pub struct ClientProxy {
    socks: SocketAddr,
    is_over: Arc<AtomicBool>,
    remote: Remote,
    end_directory: Option<Sender<()>>,
    engine: Option<JoinHandle<()>>,
}

impl ClientProxy {
    /// Listens for programs, and starts to learn of the network. What happens is told to `events`, until whoever has the other
    /// end drops it. A program that comes before the network is known waits.
    ///
    /// # Errors
    /// [`ClientError`] says who is to blame.
    pub fn start(settings: Settings, events: Sender<Event>) -> Result<Self, ClientError> {
        if settings.authorities.is_empty() {
            return Err(ClientError::NoAuthority);
        }
        let machine = |error: &dyn fmt::Display| ClientError::Machine(error.to_string());
        let Settings {
            socks,
            authorities,
            directories,
            identities,
            folder,
            strategy,
            rules,
            legs,
            leg_scheduler,
            desired,
            by_latency,
            rejects_internal,
            names_destinations,
        } = settings;
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
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        let now = unix_time_s();
        let tls = TlsConfigs::nameless(seed, now).map_err(|error| machine(&error))?;

        let guards = SharedGuards::default();
        guards.set_guards(remembered.guards.ready(Instant::ORIGIN));
        let known = guards.clone();
        let following = Following { authorities, identities, directories, folder, guards };
        let (is_over, directory_rng) =
            (Arc::new(AtomicBool::new(false)), StdRng::from_rng(&mut rng));
        let (ready, started) = channel();
        let (teller, news) = channel();
        let engine = Engine { events, news, guards: known, file, is_over: Arc::clone(&is_over) };
        let work = move || {
            let clock = Clock::start();
            let legs = legs.clamp(1, LEGS_MAX);
            let choices = Choices {
                strategy,
                rules,
                legs,
                leg_scheduler,
                desired,
                by_latency,
                rejects_internal,
                names_destinations,
            };
            let proxy = Proxy::new(choices, remembered, clock.now(), now, rng);
            // Plain connections come in; links that go out have TLS all the same.
            let options = DriverOptions { accepts_plain: true, ..DriverOptions::default() };
            match Driver::new(proxy, clock, tls, vec![listener], options) {
                Ok(driver) => {
                    let _waits_for_it = ready.send(Ok(driver.remote()));
                    engine.run(driver);
                }
                Err(error) => _ = ready.send(Err(error)),
            }
        };
        let engine = Builder::new().name("client".to_owned()).spawn(work);
        let engine = engine.map_err(|error| machine(&error))?;
        let remote = started.recv().map_err(|error| machine(&error))?;
        let remote = remote.map_err(|error| machine(&error))?;

        let waker = remote.clone();
        let tell = move |news| {
            // Who has ended needs no news.
            let _ = teller.send(news);
            waker.wake();
        };
        let (end_directory, end) = channel();
        // If that cannot be started, the engine is ended by the drop.
        let proxy = Self {
            socks: address,
            is_over,
            remote,
            end_directory: Some(end_directory),
            engine: Some(engine),
        };
        let directory = Builder::new()
            .name("directory".to_owned())
            .spawn(move || following.run(directory_rng, tell, &end));
        directory.map_err(|error| machine(&error))?;
        Ok(proxy)
    }

    /// Where programs reach it.
    #[must_use]
    pub const fn socks(&self) -> SocketAddr {
        self.socks
    }
}

impl Drop for ClientProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.remote.wake();
        drop(self.end_directory.take());
        if let Some(engine) = self.engine.take() {
            // A panic has been told of where it happened.
            let _ = engine.join();
        }
    }
}

impl fmt::Debug for ClientProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientProxy").field("socks", &self.socks).finish_non_exhaustive()
    }
}

/// What the thread of the engine has besides its driver.
struct Engine {
    events: Sender<Event>,
    news: Receiver<News>,
    guards: SharedGuards,
    file: PathBuf,
    is_over: Arc<AtomicBool>,
}

impl Engine {
    fn run(&self, mut driver: Driver<Proxy>) {
        if let Err(error) = self.turn(&mut driver) {
            self.tell(Event::Ended(format!("machine: {error}")));
        }
        self.save(driver.node().state(), &self.file);
    }

    fn turn(&self, driver: &mut Driver<Proxy>) -> Result<(), DriverError> {
        let mut save_at = driver.now() + SAVE;
        while !self.is_over.load(Ordering::Acquire) {
            let now = driver.now();
            for news in self.news.try_iter() {
                match news {
                    News::View(view) => {
                        if let Some(problem) = driver.node().lacks(&view) {
                            self.tell(Event::Ended(problem.to_string()));
                            return Ok(());
                        }
                        driver.node_mut().set_view(now, view);
                        self.guards.set_guards(driver.node().state().guards.ready(now));
                    }
                    News::Expired => driver.node_mut().handle_expired(),
                    News::Event(event) => self.tell(event),
                }
            }
            while let Some(event) = driver.node_mut().poll_event() {
                self.tell(event);
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

    fn tell(&self, event: Event) {
        let _nobody_listens = self.events.send(event);
    }

    fn save(&self, state: &State, file: &Path) {
        if let Err(problem) = state.save(file) {
            self.tell(Event::Trouble(format!("machine: {problem}")));
        }
    }
}
