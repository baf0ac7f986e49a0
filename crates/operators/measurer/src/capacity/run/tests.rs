use super::super::LoopbackTest;
use super::*;
use coordinator::{MemberTraffic, team_capacities};
use std::net::Ipv4Addr;
use std::thread;

/// Enough time for a busy machine.
const START_DELAY: Duration = Duration::from_secs(4);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn test(seconds: u32) -> CapacityTest {
    CapacityTest {
        index: 0,
        peers: vec![CapacityPeer { index: 1, address: SocketAddr::new(HERE, 1) }],
        token: Token::from_bytes([3; 32]),
        sockets: 6,
        seconds,
        rate: Rate::from_mbit_per_s(40.0),
    }
}

#[test]
fn three_measurers_on_loopback_find_their_capacities() {
    const SECONDS: u32 = 3;
    let test = LoopbackTest {
        measurers: 3,
        seconds: SECONDS,
        start_delay: START_DELAY,
        rate: Rate::from_mbit_per_s(40.0),
    };
    let reports = test.run(&AtomicBool::new(false)).expect("reports");
    for (index, report) in (0..).zip(&reports) {
        assert_eq!(report.index, index);
        assert_eq!(report.lost().count(), 0, "{report:?}");
        assert_eq!(report.stranger_connections, 0);
        for peer in &report.peers {
            assert_eq!(peer.seconds.len(), SECONDS as usize);
            assert!(peer.seconds.iter().any(|second| second.sent_bytes > 0));
            assert!(peer.seconds.iter().any(|second| second.received_bytes > 0));
            assert_eq!(peer.send_error, None);
        }
    }
    let traffic: Vec<MemberTraffic> = reports.iter().map(CapacityReport::traffic).collect();
    for found in team_capacities(SECONDS, &traffic) {
        assert!(found.missing.is_empty());
        assert!(
            found.capacity.is_some_and(|rate| rate > Rate::ZERO && rate.as_mbit_per_s() < 50.0)
        );
    }
}

#[test]
fn several_pumps_share_connections_and_rate() {
    let (site, cancel) = (Site::new().expect("keys"), AtomicBool::new(false));
    let [ours, theirs] = [3, 2].map(|pumps| site.listen(HERE, pumps).expect("free ports"));
    let (our_ports, their_ports) = (ports(&ours), ports(&theirs));
    assert_eq!((our_ports.len(), their_ports.len()), (3, 2));
    let one = test(2);
    let other = CapacityTest {
        index: 1,
        peers: vec![CapacityPeer { index: 0, ..one.peers[0] }],
        ..one.clone()
    };
    let shares = (0..3).map(|number| one.share(number, 3, &[vec![7, 8]], Instant::ORIGIN));
    let of_route: Vec<_> = shares.map(|share| (share.rate, share.routes[0].to.len())).collect();
    assert!(of_route.iter().all(|(_, sockets)| *sockets == 2), "{of_route:?}");
    assert_eq!(of_route.iter().map(|(rate, _)| *rate).sum::<Rate>(), one.rate);
    let reports = thread::scope(|scope| {
        let other = scope.spawn(|| other.run(&site, theirs, &[our_ports], START_DELAY, &cancel));
        let one = one.run(&site, ours, &[their_ports], START_DELAY, &cancel);
        [one, other.join().expect("no panic")]
    });
    for report in reports {
        let report = report.expect("a report");
        assert_eq!((report.lost().count(), report.stranger_connections), (0, 0), "{report:?}");
        let bytes = report.peers[0].seconds.iter().map(|second| second.sent_bytes);
        let most = 40_000_000 / 8 + 300_000;
        assert!(
            bytes.clone().all(|bytes| bytes > 0 && bytes < most),
            "{:?}",
            bytes.collect::<Vec<_>>()
        );
    }
}

#[test]
fn an_absent_peer_is_named() {
    let site = Site::new().expect("keys");
    // One without ports, and one that does not listen on its port.
    for ports in [vec![], vec![1]] {
        let listeners = site.listen(HERE, 1).expect("a free port");
        let report =
            test(1).run(&site, listeners, &[ports], Duration::ZERO, &AtomicBool::new(false));
        let report = report.expect("a report");
        let lost: Vec<_> = report.lost().map(|(peer, why)| (peer.peer.index, why)).collect();
        assert_eq!(lost, [(1, Lost::NeverProved)]);
        assert!(lost[0].1.to_string().contains("landing_ports"));
    }
}

#[test]
fn a_cancelled_test_gives_no_report() {
    let site = Site::new().expect("keys");
    let listeners = site.listen(HERE, 1).expect("a free port");
    let cancel = AtomicBool::new(true);
    let result = test(600).run(&site, listeners, &[vec![]], Duration::from_secs(60), &cancel);
    assert!(matches!(result, Err(CapacityError::Cancelled)), "{result:?}");
}

#[test]
fn a_delay_of_more_than_a_minute_and_a_foreign_address_are_errors() {
    let site = Site::new().expect("keys");
    let delay = Duration::from_secs(61);
    let result = test(1).run(&site, Vec::new(), &[vec![]], delay, &AtomicBool::new(false));
    assert!(matches!(result, Err(CapacityError::Test(TestError::Delay(_)))), "{result:?}");
    let error = site.listen([198, 51, 100, 7].into(), 1).expect_err("not our address").to_string();
    assert!(error.contains("198.51.100.7") && error.contains("an address of this machine"));
}
