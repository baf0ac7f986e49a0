use super::exchange::{Counts, Exchange, ExchangeConfig, Route};
use super::report::{CapacityPeer, CapacityReport, Lost, PeerReport};
use super::token::Token;
use crate::local::{COALESCE, Site, share_of};
use crate::member::MemberError;
use link::{Drive, Driver, DriverOptions, NodeThread, Observer, ThreadError};
use onion::{Duration, Instant, Rate};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

/// Maximum number of other members.
const PEERS_MAX: usize = 255;
/// Maximum number of connections to each.
const SOCKETS_MAX: u16 = 160;
/// Longest test.
const SECONDS_MAX: u32 = 600;
/// Longest delay before the test.
const DELAY_MAX: Duration = Duration::from_secs(60);
/// Maximum number of pumps, and of ports on which they listen.
pub const PORTS_MAX: usize = 16;
/// The maximum delay until a cancellation is noticed.
const CANCEL_LATENCY: Duration = Duration::from_millis(50);

/// One measurer's part of a capacity test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityTest {
    /// Our index in the team.
    pub index: u16,
    /// All other measurers of the test.
    pub peers: Vec<CapacityPeer>,
    /// The secret of this test, which the coordinator draws for each test.
    pub token: Token,
    /// The number of connections to each peer, 1 to 160, and from each.
    pub sockets: u16,
    /// Length of the load, 1 to 600 seconds; the paper's is 60 (§4.2).
    pub seconds: u32,
    /// The maximum rate to all peers together: that of its link.
    pub rate: Rate,
}

/// Invalid parameters of a test. The coordinator that ordered it is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// No peer, or too many.
    #[error("a capacity test needs 1 to {PEERS_MAX} other measurers, not {0}")]
    PeerCount(usize),
    /// Two members have the same index.
    #[error("two members of the capacity test have the index {0}; each needs its own")]
    SameIndex(u16),
    /// Two members have the same address.
    #[error("two members of the capacity test have the address {0}; each needs its own")]
    SameAddress(SocketAddr),
    /// No connections, or too many.
    #[error("a capacity test has 1 to {SOCKETS_MAX} connections to each measurer, not {0}")]
    Sockets(u16),
    /// Too short or too long.
    #[error("a capacity test takes 1 to {SECONDS_MAX} seconds, not {0}")]
    Seconds(u32),
    /// Too far ahead.
    #[error("a capacity test starts within {} seconds, not after {}", DELAY_MAX.as_secs(), .0.as_secs())]
    Delay(Duration),
    /// The rate is zero.
    #[error("the rate of a capacity test is zero; give the rate of the measurer's link")]
    NoRate,
}

/// The reason why a test has no report. Lost peers are in the report.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// The test's parameters are invalid.
    #[error(transparent)]
    Test(#[from] TestError),
    /// No keys, or no port to listen on.
    #[error("this measurer cannot take part in a capacity test: {0}")]
    Member(#[from] MemberError),
    /// A pump cannot be started, or has failed.
    #[error("a pump of the capacity test failed: {0}")]
    Pump(#[from] ThreadError),
    /// There are no random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(rand::rngs::SysError),
    /// The caller cancelled it.
    #[error("the capacity test was cancelled")]
    Cancelled,
}

impl CapacityTest {
    /// Checks all parameters.
    ///
    /// # Errors
    /// [`TestError`]: the coordinator is to blame.
    pub fn check(&self) -> Result<(), TestError> {
        if self.peers.is_empty() || self.peers.len() > PEERS_MAX {
            return Err(TestError::PeerCount(self.peers.len()));
        }
        if self.sockets == 0 || self.sockets > SOCKETS_MAX {
            return Err(TestError::Sockets(self.sockets));
        }
        if self.seconds == 0 || self.seconds > SECONDS_MAX {
            return Err(TestError::Seconds(self.seconds));
        }
        if self.rate == Rate::ZERO {
            return Err(TestError::NoRate);
        }
        for (place, peer) in self.peers.iter().enumerate() {
            let before = &self.peers[..place];
            if peer.index == self.index || before.iter().any(|other| other.index == peer.index) {
                return Err(TestError::SameIndex(peer.index));
            }
            let canonical =
                |peer: &CapacityPeer| (peer.address.ip().to_canonical(), peer.address.port());
            if before.iter().any(|other| canonical(other) == canonical(peer)) {
                return Err(TestError::SameAddress(peer.address));
            }
        }
        Ok(())
    }

    /// The number of connections to and from all peers.
    #[must_use]
    pub fn sockets_total(&self) -> u32 {
        let peers = u32::try_from(self.peers.len()).unwrap_or(u32::MAX);
        peers.saturating_mul(2 * u32::from(self.sockets))
    }

    /// Takes part, until the end or until `cancel` is set. There is a pump for each of `listeners`, at most
    /// [`PORTS_MAX`]. `ports` are those of each peer, in the order of the peers; a peer without ports is absent. The load
    /// starts after `delay`, which is the same for all members and at most a minute; until then connections are opened.
    ///
    /// # Errors
    /// [`CapacityError`]: this measurer, or the coordinator that ordered the test, is to blame.
    pub fn run(
        &self,
        site: &Site,
        listeners: Vec<TcpListener>,
        ports: &[Vec<u16>],
        delay: Duration,
        cancel: &AtomicBool,
    ) -> Result<CapacityReport, CapacityError> {
        self.check()?;
        if delay > DELAY_MAX {
            return Err(TestError::Delay(delay).into());
        }
        let start = site.clock().now() + delay;
        let pumps = listeners.len().clamp(1, PORTS_MAX);
        let (sender, reports) = channel();
        let mut threads = Vec::new();
        for (number, listener) in listeners.into_iter().take(PORTS_MAX).enumerate() {
            let dial_from = listener.local_addr().ok().map(|address| address.ip());
            let exchange = Exchange::new(self.share(number, pumps, ports, start));
            let options = DriverOptions {
                coalesce: COALESCE,
                dial_from: dial_from.filter(|address| !address.is_unspecified()),
                ..DriverOptions::default()
            };
            let (clock, tls) = (site.clock(), site.tls().clone());
            let driver = Driver::new(exchange, clock, tls, vec![listener], options);
            let driver = Box::new(driver.map_err(ThreadError::from)?);
            let reporter = Reporter(Some(sender.clone()));
            let name = format!("capacity-{}-{number}", self.index);
            threads.push(NodeThread::start(name, driver, reporter)?);
        }
        drop(sender);
        let mut merged: Option<(Vec<Counts>, u64)> = None;
        let mut received = 0;
        while received < pumps {
            match reports.recv_timeout(CANCEL_LATENCY) {
                Ok((counts, strangers)) => {
                    received += 1;
                    match &mut merged {
                        None => merged = Some((counts, strangers)),
                        Some((sums, all)) => {
                            *all += strangers;
                            sums.iter_mut().zip(counts).for_each(|(sum, more)| sum.add(more));
                        }
                    }
                }
                Err(_) if cancel.load(Ordering::Relaxed) => return Err(CapacityError::Cancelled),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // A pump that failed has sent no report.
        threads.into_iter().try_for_each(NodeThread::join)?;
        let (counts, stranger_connections) = merged.unwrap_or_default();
        let pairs = self.peers.iter().zip(counts);
        let peers = pairs.map(|(peer, counts)| PeerReport {
            peer: *peer,
            lost: Lost::judge(&counts),
            seconds: counts.seconds,
            // Else a stolen coordinator's key would find out by it which ports are open on other hosts.
            send_error: counts.problem.filter(|_| counts.is_proven),
        });
        Ok(CapacityReport { index: self.index, peers: peers.collect(), stranger_connections })
    }

    /// One pump's share of the connections and the rate.
    fn share(
        &self,
        number: usize,
        pumps: usize,
        ports: &[Vec<u16>],
        start: Instant,
    ) -> ExchangeConfig {
        let route = |(peer, ports): (&CapacityPeer, &Vec<u16>)| {
            let from: IpAddr = peer.address.ip().to_canonical();
            let ours = (0..usize::from(self.sockets)).skip(number).step_by(pumps);
            let to = ours.filter_map(|socket| {
                let port = ports.get(socket % ports.len().max(1))?;
                Some(SocketAddr::new(peer.address.ip(), *port))
            });
            Route { index: peer.index, from, to: to.collect() }
        };
        let (number, pumps) = (u32::try_from(number), u32::try_from(pumps));
        ExchangeConfig {
            token: self.token,
            index: self.index,
            routes: self.peers.iter().zip(ports).map(route).collect(),
            accepted_max: self.peers.len() * usize::from(self.sockets),
            start,
            seconds: self.seconds,
            rate: share_of(self.rate, number.unwrap_or(0), pumps.unwrap_or(1)),
        }
    }
}

/// The ports on which a measurer listens, for the other members.
#[must_use]
pub fn ports(listeners: &[TcpListener]) -> Vec<u16> {
    listeners.iter().filter_map(|listener| Some(listener.local_addr().ok()?.port())).collect()
}

/// Sends a pump's counts when its exchange is over.
struct Reporter(Option<Sender<(Vec<Counts>, u64)>>);

impl Observer<Exchange> for Reporter {
    fn before_turn(&mut self, drive: &mut dyn Drive<Exchange>) -> Option<Instant> {
        if drive.node().is_over()
            && let Some(sender) = self.0.take()
        {
            // The receiver is gone if the test was cancelled.
            let _ = sender.send(drive.node().report());
        }
        None
    }

    fn handle_failure(&mut self, _: &ThreadError) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests;
