//! Capacity tests among daemons.

use super::world::*;
use crate::frames::{Connection, Limits};
use crate::messages::{End, FromCoordinator, FromMeasurer};
use crate::{CapacityOrder, CapacityPlan, CapacityStart, CapacityTestError};
use coordinator::team_capacities;
use measurer::capacity::{CapacityPeer, Lost, Token};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

const PLAN: CapacityPlan =
    CapacityPlan { sockets: 6, seconds: 3, start_delay: Duration::from_secs(4) };
const RATE: Rate = Rate::from_bit_per_s(20_000_000);

fn test(
    number: u8,
    at: &[SocketAddr],
    plan: CapacityPlan,
    rate: Rate,
) -> Vec<crate::CapacityResult> {
    let remotes = remotes(number);
    let measurer = |at| remotes.measurer(at, public(MEASURER)).expect("a good key");
    let team: Vec<_> = at.iter().map(|at| (measurer(*at), Some(rate))).collect();
    let mut rng = StdRng::seed_from_u64(1);
    let cancel = AtomicBool::new(false);
    remotes.test_capacities(&team, plan, &mut rng, &cancel).expect("a good key")
}

#[test]
fn daemons_measure_each_others_capacities() {
    let daemons = [Daemon::start(), Daemon::start(), Daemon::start()];
    let at = daemons.each_ref().map(Daemon::address);
    let reports = test(COORDINATOR, &at, PLAN, RATE);
    let reports: Vec<_> = reports.into_iter().map(|report| report.expect("a report")).collect();
    let traffic: Vec<_> = reports.iter().map(|report| report.traffic()).collect();
    for found in team_capacities(PLAN.seconds, &traffic) {
        assert!(found.missing.is_empty(), "{reports:?}");
        assert!(found.capacity.is_some_and(|capacity| capacity > Rate::ZERO));
    }
    assert!(daemons.iter().all(Daemon::is_quiet), "members get no commands");
}

#[test]
fn an_absent_daemon_is_named_by_all_others() {
    let daemons = [Daemon::start(), Daemon::start()];
    // No process listens on this port, and none gets it as a free port.
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let at = [daemons[0].address(), nowhere, daemons[1].address()];
    let reports = test(COORDINATOR, &at, PLAN, RATE);
    assert!(matches!(reports[1], Err(CapacityTestError::Connect(_))), "{:?}", reports[1]);
    for place in [0, 2] {
        let report = reports[place].as_ref().expect("a report");
        let lost: Vec<_> = report.lost().map(|(peer, why)| (peer.peer.index, why)).collect();
        assert_eq!(lost, [(1, Lost::NeverProved)]);
    }
}

#[test]
fn impossible_and_forbidden_orders_are_refused_with_the_reason() {
    let daemons = [Daemon::start(), Daemon::start()];
    let at = daemons.each_ref().map(Daemon::address);
    let refused = |number, plan, rate| match &test(number, &at, plan, rate)[0] {
        Err(error) => error.to_string(),
        Ok(report) => panic!("{report:?}"),
    };
    let much = Rate::from_mbit_per_s(2000.0);
    assert!(refused(COORDINATOR, PLAN, much).contains("too much"));
    let long = CapacityPlan { seconds: 601, ..PLAN };
    assert!(refused(COORDINATOR, long, RATE).contains("1 to 600 seconds"));
    let public = SocketAddr::from(([198, 51, 100, 7], 9));
    let text = run(async { refusal(&mut order_test(at[0], public, RATE).await).await });
    assert!(text.contains("198.51.100.7 of member 1 is public"), "{text}");
    assert!(refused(STRANGER, PLAN, RATE).contains("key of another team"));
}

#[test]
fn concurrent_tests_share_the_capacity_and_return_it() {
    let daemon = Daemon::start();
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let rate = Rate::from_mbit_per_s(600.0);
    run(async {
        let mut first = order_test(daemon.address(), peer, rate).await;
        assert!(matches!(next(&mut first).await, FromMeasurer::CapacityListening { .. }));
        let mut second = order_test(daemon.address(), peer, rate).await;
        assert!(refusal(&mut second).await.contains("busy: 600.00 Mbit/s of 1000.00 Mbit/s"));
        first.close().await;
        // The daemon notices the end of the connection a moment later.
        loop {
            let mut third = order_test(daemon.address(), peer, rate).await;
            match next(&mut third).await {
                FromMeasurer::CapacityListening { .. } => break,
                other => assert!(matches!(other, FromMeasurer::End(_)), "{other:?}"),
            }
        }
    });
}

#[test]
fn a_test_without_ports_of_all_peers_does_not_start() {
    let daemon = Daemon::start();
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let text = run(async {
        let mut connection = order_test(daemon.address(), peer, RATE).await;
        assert!(matches!(next(&mut connection).await, FromMeasurer::CapacityListening { .. }));
        let start = CapacityStart { ports: Vec::new(), delay: Duration::ZERO };
        let start = FromCoordinator::CapacityStart(start);
        connection.outgoing.send(start).await.expect("a connection");
        refusal(&mut connection).await
    });
    assert!(text.contains("the ports of 0 peers instead of 1"), "{text}");
}

type ToDaemon = Connection<FromMeasurer, FromCoordinator>;

/// A connection over which the daemon was ordered to test its capacity with a peer.
async fn order_test(daemon: SocketAddr, peer: SocketAddr, rate: Rate) -> ToDaemon {
    let (stream, _) = route(COORDINATOR, daemon).stream().await.expect("a connection");
    let limits = Limits { message_max_bytes: 1000, queued_max: 1 };
    let connection = ToDaemon::over(stream, limits);
    let order = CapacityOrder {
        token: Token::from_bytes([1; 32]),
        index: 0,
        peers: vec![CapacityPeer { index: 1, address: peer }],
        sockets: 1,
        seconds: 1,
        rate: Some(rate),
    };
    connection.outgoing.send(FromCoordinator::Capacity(order)).await.expect("a connection");
    connection
}

async fn next(connection: &mut ToDaemon) -> FromMeasurer {
    connection.incoming.next().await.expect("a connection").expect("a message")
}

async fn refusal(connection: &mut ToDaemon) -> String {
    match next(connection).await {
        FromMeasurer::End(End { reason, .. }) => reason,
        other => panic!("{other:?} instead of a refusal"),
    }
}
