//! A capacity test among remote measurers.

use super::connect::{ConnectError, Route};
use super::{RemoteError, RemoteMeasurer, Remotes};
use crate::capacity::{ANSWER_MAX_BYTES, CapacityOrder};
use crate::check::plain;
use crate::frames::{Connection, Limits};
use crate::messages::{FromCoordinator, FromMeasurer};
use crate::tls;
use measurer::capacity::{CapacityPeer, CapacityReport, Token};
use onion::{Duration, Rate};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

/// The maximum delay until a cancellation is noticed.
const CANCEL_LATENCY: Duration = Duration::from_millis(50);
/// Time from the first packet to the end of the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time that a report may take after the end of the test.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A capacity test of a whole team.
#[derive(Clone, Copy, Debug)]
pub struct CapacityPlan {
    /// Length of the flood, 1 to 600 seconds; the paper's is 60 (§4.2).
    pub seconds: u32,
    /// From the order to the flood, a minute at most: some round trips and a second are enough.
    pub start_delay: Duration,
}

/// The reason why a measurer gave no report.
#[derive(Debug, thiserror::Error)]
pub enum CapacityTestError {
    /// There is no connection to it.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It refuses, or has failed.
    #[error("the measurer at {at} gave no report: {reason}")]
    NoReport {
        /// Its address.
        at: SocketAddr,
        /// Its answer, or the error.
        reason: String,
    },
    /// The report is invalid.
    #[error("the report of the measurer at {at} is invalid: {problem}")]
    Nonsense {
        /// Its address.
        at: SocketAddr,
        /// The error.
        problem: String,
    },
    /// The caller cancelled the test.
    #[error("the capacity test was cancelled")]
    Cancelled,
}

/// A measurer's report, or the reason why there is none.
pub type CapacityResult = Result<CapacityReport, CapacityTestError>;

impl Remotes {
    /// Runs a capacity test: all members of `team` exchange UDP with each other, in both directions at once (§4.2).
    /// Waits for the reports, which are in the order of the team.
    ///
    /// Each member has a maximum rate; if `None`, that of its own configuration. UDP goes to the addresses and ports of
    /// the measurers' control planes. A measurer that cannot be reached takes no part; the others report it as lost. `rng`
    /// draws the test's token.
    ///
    /// # Errors
    /// If the TLS library rejects our key.
    pub fn test_capacities(
        &self,
        team: &[(RemoteMeasurer, Option<Rate>)],
        plan: CapacityPlan,
        rng: &mut impl rand::Rng,
        cancel: &AtomicBool,
    ) -> Result<Vec<CapacityResult>, RemoteError> {
        let token = Token::generate(rng);
        let peers = (0..).zip(team).map(|(index, (it, _))| CapacityPeer { index, address: it.at });
        let peers: Arc<[CapacityPeer]> = peers.collect();
        let mut routes = Vec::new();
        for (measurer, rate) in team {
            let tls = Arc::new(tls::client_config(&self.key, measurer.key)?);
            let own = self.key.public();
            routes.push((Route { at: measurer.at, pinned: measurer.key, own, tls }, *rate));
        }
        let (sender, results) = channel();
        let work = self.handle.spawn(async move {
            // If it is dropped early, it ends the calls, and with them the tests.
            let mut calls = JoinSet::new();
            for (index, target) in connect_all(routes).await {
                let peers = Arc::clone(&peers);
                calls.spawn(async move { (index, call(index, target, token, &peers, plan).await) });
            }
            while let Some(Ok(result)) = calls.join_next().await {
                // The caller may have given up.
                let _ = sender.send(result);
            }
        });
        let mut found: Vec<Option<CapacityResult>> = team.iter().map(|_| None).collect();
        loop {
            match results.recv_timeout(CANCEL_LATENCY) {
                Ok((index, result)) => {
                    if let Some(place) = found.get_mut(usize::from(index)) {
                        *place = Some(result);
                    }
                }
                Err(RecvTimeoutError::Timeout) if !cancel.load(Ordering::Relaxed) => {}
                Err(_) => break,
            }
        }
        work.abort();
        let none = |it: Option<CapacityResult>| it.unwrap_or(Err(CapacityTestError::Cancelled));
        Ok(found.into_iter().map(none).collect())
    }
}

struct Target {
    at: SocketAddr,
    connected: Result<(TlsStream<TcpStream>, Duration), ConnectError>,
    /// The measurer's maximum rate.
    rate: Option<Rate>,
}

/// The test starts when all are connected, or known to be unreachable.
async fn connect_all(routes: Vec<(Route, Option<Rate>)>) -> BTreeMap<u16, Target> {
    let mut connecting = JoinSet::new();
    for (index, (route, rate)) in (0..).zip(routes) {
        connecting.spawn(async move {
            let at = route.at;
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, route.stream()).await;
            let connected = connected.unwrap_or(Err(ConnectError::TimedOut { at }));
            (index, Target { at, connected, rate })
        });
    }
    connecting.join_all().await.into_iter().collect()
}

async fn call(
    index: u16,
    target: Target,
    token: Token,
    team: &[CapacityPeer],
    plan: CapacityPlan,
) -> CapacityResult {
    let (at, rate) = (target.at, target.rate);
    let (stream, latency) = target.connected?;
    let limits = Limits { message_max_bytes: ANSWER_MAX_BYTES, queued_max: 1 };
    let mut connection = Connection::<FromMeasurer, FromCoordinator>::over(stream, limits);
    // The delay counts from the arrival of the order.
    let delay = plan.start_delay.saturating_sub(latency);
    let order = CapacityOrder::new(token, index, team, plan.seconds, delay, rate);
    let length = Duration::from_secs(u64::from(plan.seconds));
    let longest = plan.start_delay + length + REPORT_TIMEOUT;
    // The queue has room, and the answer shows whether the order arrived.
    let _ = connection.outgoing.try_send(FromCoordinator::Capacity(order));
    let answer = tokio::time::timeout(longest, connection.incoming.next()).await;
    let reason = match answer {
        Ok(Ok(Some(FromMeasurer::Capacity(answer)))) => Ok(answer),
        Ok(Ok(Some(FromMeasurer::End(end)))) => Err(plain(&end.reason)),
        Ok(Ok(Some(_))) => Err("its answer is not a report".to_owned()),
        Ok(Ok(None)) => Err("it closed the connection".to_owned()),
        Ok(Err(lost)) => Err(plain(&lost.0)),
        Err(_) => Err("it takes too long".to_owned()),
    };
    let answer = reason.map_err(|reason| CapacityTestError::NoReport { at, reason })?;
    let peers: Vec<_> = team.iter().filter(|it| it.index != index).copied().collect();
    answer
        .report(index, plan.seconds, &peers)
        .map_err(|problem| CapacityTestError::Nonsense { at, problem })
}
