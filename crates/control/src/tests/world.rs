//! A measurer whose members are scripted by the test, and coordinators.

use crate::keys::{PublicKey, SecretKey};
use crate::remote::connect::Route;
use crate::{HandedList, MeasurerServer, Remotes, Rules, ServerOptions, tls};
use measurer::member::{
    FailureKind, MeasurerKey, MemberError, MemberReport, Reports, RoundOrder, WorkerLoad,
};
use measurer::{Consent, Member};
use onion::measure::Second;
use onion::{Duration, Rate};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// Longer than anything takes, on the slowest machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const MEASURER: u8 = 1;
pub(super) const COORDINATOR: u8 = 2;
pub(super) const OTHER_COORDINATOR: u8 = 3;
pub(super) const STRANGER: u8 = 4;

pub(super) fn key(number: u8) -> SecretKey {
    SecretKey::from_seed([number; 32])
}

pub(super) fn public(number: u8) -> PublicKey {
    key(number).public()
}

/// A command to a scripted member.
pub(super) enum Told {
    Prepared(Box<RoundOrder>, Reports),
    Started(Duration),
    Stopped,
}

struct ScriptedMember(Sender<Told>);

impl Member for ScriptedMember {
    fn key(&self) -> MeasurerKey {
        MeasurerKey(public(MEASURER).0)
    }

    fn prepare(&mut self, order: RoundOrder, reports: Reports) -> Result<(), MemberError> {
        self.0
            .send(Told::Prepared(Box::new(order), reports))
            .map_err(|_| MemberError("over".to_owned()))
    }

    fn start(&mut self, delay: Duration) {
        let _ = self.0.send(Told::Started(delay));
    }

    fn stop(&mut self) {
        let _ = self.0.send(Told::Stopped);
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
    told: Receiver<Told>,
}

impl Daemon {
    pub(super) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    pub(super) fn start_at(listen: SocketAddr) -> Self {
        let (sender, told) = channel();
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
        });
        Self { server: server.expect("a free port"), told }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(super) fn reload(&self, rules: Rules) {
        self.server.reload(rules).expect("a good key");
    }

    pub(super) fn prepared(&self) -> (RoundOrder, Reports) {
        match self.told.recv_timeout(PATIENCE) {
            Ok(Told::Prepared(order, reports)) => (*order, reports),
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
            if let Ok(told) = self.told.recv_timeout(Duration::from_millis(1)) {
                assert!(matches!(told, Told::Prepared(..)), "the member got another command");
                return None;
            }
        }
    }

    pub(super) fn started(&self) -> Duration {
        match self.told.recv_timeout(PATIENCE) {
            Ok(Told::Started(delay)) => delay,
            _ => panic!("the member is not started"),
        }
    }

    pub(super) fn stopped(&self) {
        let told = self.told.recv_timeout(PATIENCE);
        assert!(matches!(told, Ok(Told::Stopped)), "the member is not stopped");
    }

    /// Whether members got no unexpected command.
    pub(super) fn is_quiet(&self) -> bool {
        self.told.try_recv().is_err()
    }
}

/// The sessions of one coordinator.
pub(super) fn remotes(number: u8) -> Remotes {
    Remotes::start(key(number)).expect("a thread")
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

/// The next report, which must say that the measurer is lost, with this word in its reason.
pub(super) fn assert_broken(reports: &Receiver<MemberReport>, word: &str) {
    match reports.recv_timeout(PATIENCE) {
        Ok(MemberReport::Failed { kind: FailureKind::Broken, detail }) => {
            assert!(detail.contains(word), "{detail}");
        }
        other => panic!("{other:?} instead of a lost measurer"),
    }
}

/// A whole round, which shows that both sides are well.
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
    assert!(!delay.is_zero() && delay <= Duration::from_secs(50), "less the message's way");
    for report in [second(0), load(), second(1)] {
        notify(report.clone());
        assert_eq!(next(), report);
    }
    member.stop();
    daemon.stopped();
}

/// How a raw coordinator gets to the daemon.
pub(super) fn route(own: u8, at: SocketAddr) -> Route {
    let tls = tls::client_config(&key(own), public(MEASURER)).expect("a good key");
    Route { at, pinned: public(MEASURER), own: public(own), tls: Arc::new(tls) }
}

/// Runs a raw coordinator.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    // Of several threads, so that a test may wait for the daemon.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime
        .expect("a runtime")
        .block_on(async { tokio::time::timeout(PATIENCE, work).await.expect("in time") })
}
