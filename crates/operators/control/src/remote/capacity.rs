//! A capacity test among remote measurers.

use super::connect::{ConnectError, Route};
use super::{RemoteError, RemoteMeasurer, Remotes};
use crate::capacity::{ANSWER_MAX_BYTES, CapacityOrder, CapacityStart, check_ports};
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
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use tokio::task::JoinSet;

/// The maximum delay until a cancellation is noticed.
const CANCEL_LATENCY: Duration = Duration::from_millis(50);
/// Time from the first packet to a measurer's ports.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// Longest time that a report may take after the end of the test.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// A capacity test of a whole team.
#[derive(Clone, Copy, Debug)]
pub struct CapacityPlan {
    /// The number of connections from each member to each other, 1 to 160.
    pub sockets: u16,
    /// Length of the load, 1 to 600 seconds; the paper's is 60 (§4.2).
    pub seconds: u32,
    /// From the start to the load, a minute at most: time for all handshakes.
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
    /// Runs a capacity test: all members of `team` load each other, in both directions at once (§4.2).
    /// Waits for the reports, which are in the order of the team.
    ///
    /// Each member has a maximum rate; if `None`, that of its own configuration. A measurer that cannot be reached or
    /// refuses takes no part; the others report it as lost. `rng` draws the test's token.
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
        let peers = (0..)
            .zip(team)
            .map(|(index, (measurer, _))| CapacityPeer { index, address: measurer.at });
        let peers: Vec<CapacityPeer> = peers.collect();
        let own = self.key.public();
        let mut calls = Vec::new();
        for (index, (measurer, rate)) in (0..).zip(team) {
            let tls = Arc::new(tls::client_config(&self.key, measurer.key)?);
            let order = CapacityOrder {
                token,
                index,
                peers: peers.iter().filter(|peer| peer.index != index).copied().collect(),
                sockets: plan.sockets,
                seconds: plan.seconds,
                rate: *rate,
            };
            calls.push((Route { at: measurer.at, pinned: measurer.key, own, tls }, order));
        }
        let (sender, results) = channel();
        // If it is dropped early, it ends the calls, and with them the tests.
        let work = self.handle.spawn(run(calls, plan, sender));
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
        let none =
            |result: Option<CapacityResult>| result.unwrap_or(Err(CapacityTestError::Cancelled));
        Ok(found.into_iter().map(none).collect())
    }
}

/// A measurer that takes part.
struct Listening {
    connection: Connection<FromMeasurer, FromCoordinator>,
    at: SocketAddr,
    order: CapacityOrder,
    ports: Vec<u16>,
    latency: Duration,
}

/// Calls all measurers. The test starts when all listen, or are known to take no part.
async fn run(
    calls: Vec<(Route, CapacityOrder)>,
    plan: CapacityPlan,
    results: Sender<(u16, CapacityResult)>,
) {
    let mut calling = JoinSet::new();
    for (route, order) in calls {
        calling.spawn(async move { (order.index, call(route, order).await) });
    }
    let mut team = Vec::new();
    for (index, called) in calling.join_all().await {
        match called {
            Ok(listening) => team.push(listening),
            // The caller may have given up.
            Err(error) => _ = results.send((index, Err(error))),
        }
    }
    let ports: BTreeMap<u16, Vec<u16>> =
        team.iter().map(|member| (member.order.index, member.ports.clone())).collect();
    let mut tests = JoinSet::new();
    for listening in team {
        let of_peer = |peer: &CapacityPeer| ports.get(&peer.index).cloned().unwrap_or_default();
        let ports = listening.order.peers.iter().map(of_peer).collect();
        let results = results.clone();
        tests.spawn(async move {
            let index = listening.order.index;
            let _ = results.send((index, take_part(listening, ports, plan).await));
        });
    }
    tests.join_all().await;
}

/// Orders a measurer to take part.
async fn call(route: Route, order: CapacityOrder) -> Result<Listening, CapacityTestError> {
    let at = route.at;
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, route.stream()).await;
    let (stream, latency) = connected.unwrap_or(Err(ConnectError::TimedOut { at }))?;
    let limits = Limits { message_max_bytes: ANSWER_MAX_BYTES, queued_max: 2 };
    let mut connection = Connection::<FromMeasurer, FromCoordinator>::over(stream, limits);
    // The queue has room, and the answer shows whether the order arrived.
    let _ = connection.outgoing.try_send(FromCoordinator::Capacity(order.clone()));
    match answer(&mut connection, at, CONNECT_TIMEOUT).await? {
        FromMeasurer::CapacityListening { ports } => {
            let checked = check_ports(&ports);
            checked.map_err(|problem| CapacityTestError::Nonsense { at, problem })?;
            Ok(Listening { connection, at, order, ports, latency })
        }
        _ => {
            let reason = "its answer to the order is not a list of ports".to_owned();
            Err(CapacityTestError::NoReport { at, reason })
        }
    }
}

/// Starts a measurer's test, and waits for its report.
async fn take_part(
    listening: Listening,
    ports: Vec<Vec<u16>>,
    plan: CapacityPlan,
) -> CapacityResult {
    let Listening { mut connection, at, order, latency, .. } = listening;
    // The delay counts from the arrival of the message.
    let delay = plan.start_delay.saturating_sub(latency);
    let start = FromCoordinator::CapacityStart(CapacityStart { ports, delay });
    let _ = connection.outgoing.try_send(start);
    let length = Duration::from_secs(u64::from(plan.seconds));
    let longest = plan.start_delay + length + REPORT_TIMEOUT;
    match answer(&mut connection, at, longest).await? {
        FromMeasurer::Capacity(answer) => answer
            .report(order.index, plan.seconds, &order.peers)
            .map_err(|problem| CapacityTestError::Nonsense { at, problem }),
        _ => {
            let reason = "its answer is not a report".to_owned();
            Err(CapacityTestError::NoReport { at, reason })
        }
    }
}

/// The measurer's next message, unless it ends the connection.
async fn answer(
    connection: &mut Connection<FromMeasurer, FromCoordinator>,
    at: SocketAddr,
    longest: Duration,
) -> Result<FromMeasurer, CapacityTestError> {
    let reason = match tokio::time::timeout(longest, connection.incoming.next()).await {
        Ok(Ok(Some(FromMeasurer::End(end)))) => plain(&end.reason),
        Ok(Ok(Some(message))) => return Ok(message),
        Ok(Ok(None)) => "it closed the connection".to_owned(),
        Ok(Err(lost)) => plain(&lost.0),
        Err(_) => "it takes too long".to_owned(),
    };
    Err(CapacityTestError::NoReport { at, reason })
}
