//! A measurer whose members are scripted by the test, and coordinators.

use crate::keys::{PublicKey, SecretKey};
use crate::remote::connect::Route;
use crate::{HandedList, MeasurerServer, RemoteMeasurer, Remotes, Rules, ServerOptions, tls};
use measurer::member::{FailureKind, MemberError, MemberReport, Reports, RoundOrder, WorkerLoad};
use measurer::{Consent, Member, Site};
use onion::measure::Second;
use onion::{Duration, Rate};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};

/// A generous timeout, for the slowest machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const MEASURER: u8 = 1;
pub(super) const COORDINATOR: u8 = 2;
pub(super) const OTHER_COORDINATOR: u8 = 3;
pub(super) const STRANGER: u8 = 4;

/// Its keys take a while to generate.
static SITE: LazyLock<Site> = LazyLock::new(|| Site::new().expect("keys"));

pub(super) fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

pub(super) fn public(number: u8) -> PublicKey {
    key(number).public()
}

/// A command to a scripted member.
pub(super) enum Command {
    Prepared(Box<RoundOrder>, Reports),
    Started(Duration),
    Stopped,
}

struct ScriptedMember(Sender<Command>);

impl Member for ScriptedMember {
    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        self.0
            .send(Command::Prepared(Box::new(order), reports))
            .map_err(|_| MemberError("over".to_owned()))
    }

    fn start(&mut self, delay: Duration) {
        let _ = self.0.send(Command::Started(delay));
    }

    fn stop(&mut self) {
        let _ = self.0.send(Command::Stopped);
    }
}

/// The rules of a measurer that obeys these coordinators.
pub(super) fn rules(coordinators: &[u8], consent: Consent) -> Rules {
    let coordinators = coordinators.iter().map(|seed| public(*seed)).collect();
    Rules { coordinators, consent, peers: BTreeSet::new(), handed: HandedList::Ignored }
}

/// A measurer's daemon of 1000 Mbit/s, and the commands to its members.
pub(super) struct Daemon {
    server: MeasurerServer,
    commands: Receiver<Command>,
}

impl Daemon {
    pub(super) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(super) fn start_at(listen: SocketAddr) -> Self {
        Self::with_stop_file(listen, None)
    }

    pub(super) fn with_stop_file(listen: SocketAddr, stop_file: Option<PathBuf>) -> Self {
        let (sender, commands) = channel();
        let sender = Mutex::new(sender);
        let server = MeasurerServer::start(ServerOptions {
            listen,
            key: key(MEASURER),
            rules: rules(&[COORDINATOR, OTHER_COORDINATOR], Consent::local_only()),
            capacity: Rate::from_mbit_per_s(1000.0),
            sockets_max: 5000,
            members: Box::new(move || {
                Ok(Box::new(ScriptedMember(sender.lock().expect("no panic").clone())))
            }),
            site: SITE.clone(),
            pumps: 2,
            stop_file,
        });
        Self { server: server.expect("a free port"), commands }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(super) fn reload(&self, rules: Rules) {
        self.server.reload(rules).expect("a good key");
    }

    pub(super) fn prepared(&self) -> (RoundOrder, Reports) {
        match self.commands.recv_timeout(PATIENCE) {
            Ok(Command::Prepared(order, reports)) => (*order, reports),
            Ok(_) => panic!("the member got another command"),
            Err(_) => panic!("the member got no command"),
        }
    }

    /// Waits until a member gets the order to prepare, or until there is a report instead.
    pub(super) fn prepared_or(&self, reports: &Receiver<MemberReport>) -> Option<MemberReport> {
        loop {
            if let Ok(report) = reports.try_recv() {
                return Some(report);
            }
            if let Ok(command) = self.commands.recv_timeout(Duration::from_millis(1)) {
                assert!(matches!(command, Command::Prepared(..)), "the member got another command");
                return None;
            }
        }
    }

    pub(super) fn started(&self) -> Duration {
        match self.commands.recv_timeout(PATIENCE) {
            Ok(Command::Started(delay)) => delay,
            _ => panic!("the member is not started"),
        }
    }

    pub(super) fn stopped(&self) {
        let command = self.commands.recv_timeout(PATIENCE);
        assert!(matches!(command, Ok(Command::Stopped)), "the member is not stopped");
    }

    /// Whether members got no unexpected command.
    pub(super) fn is_quiet(&self) -> bool {
        self.commands.try_recv().is_err()
    }
}

/// The sessions of one coordinator.
pub(super) fn remotes(number: u8) -> Remotes {
    Remotes::start(key(number)).expect("a thread")
}

/// A coordinator's view of the daemon at this address.
pub(super) fn remote(remotes: &Remotes, at: SocketAddr) -> RemoteMeasurer {
    remotes.measurer(at, public(MEASURER)).expect("a good key")
}

/// Reports of a round, in a channel.
pub(super) fn reports() -> (Reports, Receiver<MemberReport>) {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let reports = move |report| {
        let _ = sender.lock().expect("no panic").send(report);
    };
    (Arc::new(reports), receiver)
}

pub(super) fn second(index: u32) -> MemberReport {
    let index_bytes = u64::from(index) * 1000;
    MemberReport::Second(Second { index, bytes: 514 + index_bytes, checked_cells: 3 }, None)
}

pub(super) fn load() -> MemberReport {
    MemberReport::Load(WorkerLoad { wall: Duration::from_secs(2), ..WorkerLoad::default() })
}

/// Asserts that the next report is the loss of the measurer, with this text in its reason.
pub(super) fn assert_broken(reports: &Receiver<MemberReport>, text: &str) {
    match reports.recv_timeout(PATIENCE) {
        Ok(MemberReport::Failed { kind: FailureKind::Broken, detail }) => {
            assert!(detail.contains(text), "{detail}");
        }
        other => panic!("{other:?} instead of a lost measurer"),
    }
}

/// Runs a whole round, which shows that both sides work.
pub(super) fn assert_measures(daemon: &Daemon, member: &mut dyn Member) {
    let (reporter, received) = reports();
    member.prepare(crate::testing::order(), reporter).expect("a thread");
    let (order, notify) = daemon.prepared();
    assert_eq!(order, crate::testing::order());
    let next = || received.recv_timeout(PATIENCE).expect("a report");
    notify(MemberReport::Ready { sockets: 8 });
    assert_eq!(next(), MemberReport::Ready { sockets: 8 });
    member.start(Duration::from_secs(50));
    let delay = daemon.started();
    assert!(
        !delay.is_zero() && delay <= Duration::from_secs(50),
        "less the latency of the message"
    );
    for report in [second(0), load(), second(1)] {
        notify(report.clone());
        assert_eq!(next(), report);
    }
    member.stop();
    daemon.stopped();
}

/// The route of a raw coordinator to the daemon.
pub(super) fn route(own: u8, at: SocketAddr) -> Route {
    let tls = tls::client_config(&key(own), public(MEASURER)).expect("a good key");
    Route { at, pinned: public(MEASURER), own: public(own), tls: Arc::new(tls) }
}

/// Runs a raw coordinator.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    // Several threads, so that a test may block on the daemon.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}
