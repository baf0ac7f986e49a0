//! Common parts of the tests with C tor.

#![expect(clippy::print_stderr, reason = "a long test prints its progress")]

use authority::one_relay::{self, Request};
use authority::shell;
use coordinator::period::{Answer, Event, MeasurerConfig, Period};
use coordinator::{MeasurerId, Outcome, Params, Progress, Record};
use lab::control::BwWatch;
use lab::{Network, NetworkSpec, Node};
use measurer::member::{MemberError, Reports, RoundOrder};
use measurer::{Load, LocalTeam, Member, TeamOptions};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::{Duration, Rate};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A generous timeout for a measurement, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

#[expect(clippy::disallowed_methods, reason = "reports of relays are timed by this clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A lock for one network at a time: floods would disturb each other, and threads and sockets are counted.
pub(crate) fn exclusive() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a network.
pub(crate) fn network(spec: &NetworkSpec) -> Network {
    let started = now();
    let network = Network::start(spec, &mut |_| {});
    let network = network.unwrap_or_else(|error| panic!("no private network of tor: {error}"));
    eprintln!("network up after {:.1} s", started.elapsed().as_secs_f64());
    network
}

/// Claims about one network. All are checked, even if an earlier one fails.
#[derive(Default)]
pub(crate) struct Claims {
    failed: Vec<String>,
}

impl Claims {
    /// Checks a claim.
    pub(crate) fn claim(&mut self, text: &str, check: impl FnOnce()) {
        let started = now();
        let is_true = catch_unwind(AssertUnwindSafe(check)).is_ok();
        let verdict = if is_true { "holds" } else { "FAILS" };
        eprintln!("{verdict}: {text} ({:.1} s)", started.elapsed().as_secs_f64());
        if !is_true {
            self.failed.push(text.to_owned());
        }
    }

    /// Panics if a claim has failed.
    pub(crate) fn conclude(self) {
        assert!(self.failed.is_empty(), "failed claims: {:#?}", self.failed);
    }
}

/// A team, and how it measures.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) measurers: u32,
    pub(crate) pumps: Option<u32>,
    pub(crate) capacity: Rate,
    pub(crate) params: Params,
    pub(crate) always_authenticate: bool,
}

/// A team of two measurers, for measurements of this length.
pub(crate) fn options(seconds: u32) -> Options {
    Options {
        measurers: 2,
        pumps: None,
        capacity: Rate::from_mbit_per_s(2000.0),
        params: Params { seconds, may_have_clients: false, ..Params::default() },
        always_authenticate: false,
    }
}

/// Measurers of this process, which count the circuits of their orders.
pub(crate) struct Team {
    local: LocalTeam,
    pub(crate) options: Options,
    /// Circuits of the round that is being prepared, and of the last one that was.
    circuits: Arc<AtomicU32>,
    planned: AtomicU32,
}

pub(crate) fn team(options: Options) -> Team {
    let Options { measurers, pumps, capacity, .. } = options;
    let capacity = Some(capacity);
    let local = TeamOptions { measurers, pumps, capacity, ..TeamOptions::default() };
    let local = LocalTeam::new(&local).expect("this machine can measure");
    Team { local, options, circuits: Arc::default(), planned: AtomicU32::default() }
}

impl Team {
    /// The planned number of circuits of the last round.
    pub(crate) fn circuits(&self) -> u32 {
        self.planned.load(Ordering::Relaxed)
    }

    /// Measures a relay with the parameters of this team. Returns `None` if `stop` was set.
    pub(crate) fn measure(
        &self,
        request: &Request,
        on_progress: &mut dyn FnMut(Progress),
        stop: &AtomicBool,
    ) -> Option<TeamResult> {
        let Options { params, always_authenticate, .. } = self.options;
        let request = Request { params, always_authenticate, ..request.clone() };
        let mut show = |_: &Period, event| {
            let Event::Progress(_, progress) = event else { return };
            if let Progress::Preparing { .. } = progress {
                self.planned.store(self.circuits.swap(0, Ordering::Relaxed), Ordering::Relaxed);
            }
            on_progress(progress);
        };
        let record = one_relay::measure(self, request, &mut show, stop);
        let record = record.unwrap_or_else(|error| panic!("cannot measure: {error}"))?;
        Some(TeamResult { outcome: record.outcome(), record })
    }
}

impl shell::Team for Team {
    fn configured(&self) -> Vec<MeasurerConfig> {
        self.local.configured()
    }

    fn ask(&self, _: MeasurerId, _: u32) -> Result<Answer, String> {
        Ok(self.local.abilities())
    }

    fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError> {
        let circuits = &self.circuits;
        let counting = |member| Box::new(Counting { member, circuits: Arc::clone(circuits) }) as _;
        Ok(self.local.member(measurer)?.map(counting))
    }
}

/// A member that counts the circuits of its orders.
struct Counting {
    member: Box<dyn Member>,
    circuits: Arc<AtomicU32>,
}

impl Member for Counting {
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        let load = Load::plan(&order, order.rtt.unwrap_or_default());
        self.circuits.fetch_add(load.sockets * load.circuits_per_socket, Ordering::Relaxed);
        self.member.prepare(order, reports)
    }

    fn start(&mut self, delay: Duration) {
        self.member.start(delay);
    }

    fn stop(&mut self) {
        self.member.stop();
    }
}

/// The result of a measurement.
pub(crate) struct TeamResult {
    pub(crate) outcome: Outcome,
    pub(crate) record: Record,
}

/// A relay of a network without defences, with the first guess in Mbit/s.
pub(crate) fn request(node: &Node, guess: f64) -> Request {
    Request::new(node.target(), Rate::from_mbit_per_s(guess))
}

pub(crate) fn ids(node: &Node) -> RelayIds {
    RelayIds { rsa: RsaId(node.rsa()), ed25519: Some(Ed25519Id(node.ed25519())) }
}

/// Measures a relay, and ends the test if that hangs.
pub(crate) fn measure(
    team: &Team,
    request: &Request,
    on_progress: &mut dyn FnMut(Progress),
) -> TeamResult {
    let result = measure_or_cancel(team, request, &mut |progress, _| on_progress(progress));
    result.expect("not cancelled")
}

/// Measures a relay, and ends the test if that hangs. `on_progress` may cancel: then returns `None`.
pub(crate) fn measure_or_cancel(
    team: &Team,
    request: &Request,
    on_progress: &mut dyn FnMut(Progress, &AtomicBool),
) -> Option<TeamResult> {
    let cancel = AtomicBool::new(false);
    let (done, watched) = channel::<()>();
    let timed_out =
        move |patience| watched.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
    thread::scope(|scope| {
        let cancel = &cancel;
        scope.spawn(move || {
            if timed_out(PATIENCE) {
                cancel.store(true, Ordering::Relaxed);
                if timed_out(Duration::from_secs(30)) {
                    eprintln!("a measurement hangs and cannot be cancelled");
                    std::process::exit(101); // the network's supervisor cleans up
                }
            }
        });
        let mut on_progress = |progress| on_progress(progress, cancel);
        let result = team.measure(request, &mut on_progress, cancel);
        drop(done);
        result
    })
}

/// The text of a failure; panics if there is an estimate.
pub(crate) fn failure(result: &TeamResult) -> String {
    match &result.outcome {
        Outcome::Failed { .. } => result.outcome.to_string(),
        Outcome::Measured(estimate) => panic!("unexpected estimate: {estimate}"),
    }
}

/// The last round of a measurement, and the relay's own reports during it.
pub(crate) struct Observed {
    pub(crate) result: TeamResult,
    /// The planned numbers.
    pub(crate) sockets: u32,
    pub(crate) circuits: u32,
    /// The measured rate of each second.
    pub(crate) series: Vec<Rate>,
    /// The bytes written by the relay in each second that lies mostly within the round.
    pub(crate) reported: Vec<Rate>,
    /// The relay's processor time in the round.
    pub(crate) cpu: Duration,
}

impl Observed {
    pub(crate) fn reported_median(&self) -> Rate {
        median(&self.reported)
    }

    /// The estimate and the relay's own report, in Mbit/s. Panics without an estimate.
    pub(crate) fn estimate_and_report(&self) -> (f64, f64) {
        let outcome = &self.result.outcome;
        let estimate = outcome.estimate().unwrap_or_else(|| panic!("no estimate: {outcome}"));
        let (estimate, reported) =
            (estimate.capacity.as_mbit_per_s(), self.reported_median().as_mbit_per_s());
        eprintln!("  estimate {estimate:.2}, the relay reported {reported:.2} Mbit/s; {outcome}");
        (estimate, reported)
    }
}

fn median(rates: &[Rate]) -> Rate {
    let mut bytes: Vec<u64> = rates.iter().map(|rate| rate.as_byte_per_s()).collect();
    bytes.sort_unstable();
    Rate::from_byte_per_s(coordinator::median(&bytes).expect("a report of the relay"))
}

/// Measures a relay and records its own reports; `on_second` is called after each second.
pub(crate) fn observe(
    team: &Team,
    request: &Request,
    node: &Node,
    on_second: &mut dyn FnMut(u32),
) -> Observed {
    let watch = node.watch_bandwidth().expect("an answer of the relay");
    let mut samples: Vec<(Instant, u64)> = Vec::new();
    let (mut sockets, mut series) = (0, Vec::new());
    let (mut started, mut cpu_before) = (now(), Duration::ZERO);
    let result = measure(team, request, &mut |progress| match progress {
        Progress::Preparing { sockets: planned, .. } => {
            sockets = planned;
            series.clear();
        }
        Progress::Started { .. } => {
            started = now();
            cpu_before = node.cpu_time().unwrap_or_default();
            let _earlier = take(&watch, started);
        }
        Progress::Second { index, measured, .. } => {
            series.push(measured);
            on_second(index);
        }
    });
    let length = Duration::from_secs(u64::from(team.options.params.seconds));
    let cpu = node.cpu_time().unwrap_or_default().saturating_sub(cpu_before);
    samples.extend(take(&watch, started + length + Duration::from_millis(1500)));
    let half = Duration::from_millis(500);
    let within = |at: Instant| at >= started + half && at < started + length + half;
    let reported = samples.iter().filter(|(at, _)| within(*at));
    let reported = reported.map(|(_, bytes)| Rate::from_byte_per_s(*bytes)).collect();
    Observed { result, sockets, circuits: team.circuits(), series, reported, cpu }
}

/// The samples of written bytes that arrive until `end`.
fn take(watch: &BwWatch, end: Instant) -> Vec<(Instant, u64)> {
    let next = || watch.recv_timeout(end.saturating_duration_since(now())).ok().flatten();
    std::iter::from_fn(next).map(|sample| (sample.at, sample.event.written_bytes)).collect()
}

/// Waits until `look` returns a value.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = now();
    // A channel without a sender, for waiting.
    let (_sender, receiver) = channel::<()>();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}");
        let _timeout = receiver.recv_timeout(Duration::from_millis(20));
    }
}

/// A node's log.
pub(crate) fn log(node: &Node) -> String {
    fs::read_to_string(node.dir().join("log")).expect("a log")
}

/// The heartbeat of a tor process.
pub(crate) struct Heartbeat {
    pub(crate) circuits_open: u64,
    /// The actions of its defences since its start.
    pub(crate) defences: String,
}

pub(crate) fn heartbeat(node: &Node) -> Heartbeat {
    const DEFENCES: &str = "DoS mitigation since startup:";
    let before = log(node).matches(DEFENCES).count();
    let mut control = node.control().expect("an answer of the relay");
    control.request("SIGNAL HEARTBEAT").expect("known");
    let text = wait_for("a heartbeat", || {
        Some(log(node)).filter(|text| text.matches(DEFENCES).count() > before)
    });
    let (_, defences) = text.rsplit_once(DEFENCES).expect("just found");
    let (head, _) = text.rsplit_once(" circuits open").expect("part of a heartbeat");
    let circuits_open = head.rsplit(' ').next().and_then(|word| word.parse().ok());
    Heartbeat {
        circuits_open: circuits_open.expect("a number"),
        defences: defences.lines().next().unwrap_or_default().to_owned(),
    }
}

/// Warnings in a relay's log since it had `before` bytes.
pub(crate) fn warnings_since(node: &Node, before: usize) -> Vec<String> {
    let text = log(node);
    let new = text.get(before..).unwrap_or_default().lines();
    new.filter(|line| line.contains("[warn]") || line.contains("[err]"))
        // Directory documents, which a new network may not have yet.
        .filter(|line| !line.contains("http status code"))
        // Too few relays for circuits of its own.
        .filter(|line| !line.contains("No available nodes when trying to choose node"))
        // The machine was too busy for some seconds.
        .filter(|line| !line.contains("too slow to handle") && !line.contains("clock just jumped"))
        .map(str::to_owned)
        .collect()
}

/// This process's established TCP connections to a port of 127.0.0.1.
pub(crate) fn own_connections_to(address: SocketAddr) -> usize {
    assert_eq!(address.ip(), Ipv4Addr::LOCALHOST);
    let wanted = format!("0100007F:{:04X}", address.port());
    let links = fs::read_dir("/proc/self/fd").expect("a folder");
    let own: Vec<String> = links
        .filter_map(|link| Some(fs::read_link(link.ok()?.path()).ok()?.to_str()?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    let rows = table.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
    // Remote address, state, inode.
    rows.filter(|row| row.len() > 9 && row[2] == wanted && row[3] == "01")
        .filter(|row| own.contains(&format!("socket:[{}]", row[9])))
        .count()
}

/// Threads of this process, and its open files.
pub(crate) fn threads_and_files() -> (usize, usize) {
    let entries = |path| fs::read_dir(path).expect("a folder").flatten();
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    // Threads of concurrent tests have the names of their functions.
    let threads =
        entries("/proc/self/task").map(name).filter(|name| !name.is_empty() && !name.contains('_'));
    (threads.count(), entries("/proc/self/fd").count())
}

/// A server that is not a relay. Passes each connection to a closure, and keeps it open until it is dropped.
pub(crate) struct Stranger {
    pub(crate) address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stranger {
    pub(crate) fn new(mut greet: impl FnMut(&mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.expect("a connection");
                greet(&mut stream);
                open.push(stream);
            }
        });
        Self { address, is_over, thread: Some(thread) }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _woken = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _its_panic_is_printed = thread.join();
        }
    }
}
