use super::super::LoopbackTest;
use super::*;
use coordinator::{MemberTraffic, team_capacities};
use std::net::Ipv4Addr;

/// Enough time for a busy machine.
const START_DELAY: Duration = Duration::from_secs(4);

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn test(index: u16, sockets: &[CapacitySocket], seconds: u32) -> CapacityTest {
    let peers = (0..).zip(sockets).filter(|(other, _)| *other != index);
    CapacityTest {
        listen: sockets[usize::from(index)].local_addr(),
        index,
        peers: peers
            .map(|(index, socket)| CapacityPeer { index, address: socket.local_addr() })
            .collect(),
        token: Token::from_bytes([3; 32]),
        seconds,
        start_delay: START_DELAY,
        rate: Rate::from_mbit_per_s(40.0),
        allowed: BTreeSet::new(),
    }
}

fn sockets(count: usize) -> Vec<CapacitySocket> {
    (0..count).map(|_| CapacitySocket::bind(ANY).expect("a free port")).collect()
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
        assert_eq!(report.stranger_packets, 0);
        for peer in &report.peers {
            assert_eq!(peer.seconds.len(), SECONDS as usize);
            assert!(peer.seconds.iter().any(|it| it.sent_bytes > 0));
            assert!(peer.seconds.iter().any(|it| it.received_bytes > 0));
            assert_eq!(peer.send_error, None);
        }
    }
    let traffic: Vec<MemberTraffic> = reports.iter().map(CapacityReport::traffic).collect();
    for found in team_capacities(SECONDS, &traffic) {
        assert!(found.missing.is_empty());
        assert!(found.capacity.is_some_and(|it| it > Rate::ZERO && it.as_mbit_per_s() < 50.0));
    }
}

#[test]
fn an_absent_peer_is_named_and_packets_of_strangers_are_counted() {
    let sockets = sockets(2);
    let test = test(0, &sockets, 1);
    let stranger = std::net::UdpSocket::bind(ANY).expect("a free port");
    for len in [0, 1, 54, 1372, 3000] {
        stranger.send_to(&vec![1; len], test.listen).expect("sent");
    }
    let report = test.run_on(&sockets[0], &AtomicBool::new(false)).expect("a report");
    let lost: Vec<_> = report.lost().map(|(peer, why)| (peer.peer, why.to_string())).collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0].0, test.peers[0]);
    assert!(lost[0].1.contains("is its UDP port open"), "{}", lost[0].1);
    assert_eq!(report.stranger_packets, 5);
}

#[test]
fn a_cancelled_test_gives_no_report() {
    let sockets = sockets(2);
    let result = test(0, &sockets, 600).run_on(&sockets[0], &AtomicBool::new(true));
    assert!(matches!(result, Err(CapacityError::Cancelled)), "{result:?}");
}

#[test]
fn a_public_member_must_be_allowed() {
    let sockets = sockets(2);
    let mut test = test(0, &sockets, 1);
    let public = IpAddr::from([198, 51, 100, 7]);
    test.peers[0].address.set_ip(public);
    let refused = test.run_on(&sockets[0], &AtomicBool::new(false)).expect_err("refused");
    assert!(refused.to_string().contains("198.51.100.7 of member 1 is public"), "{refused}");
    test.allowed.insert(public);
    assert!(test.check_consent().is_ok());
}

#[test]
fn a_foreign_listen_address_is_reported_clearly() {
    let sockets = sockets(2);
    let listen = SocketAddr::from(([198, 51, 100, 7], 9));
    let test = CapacityTest { listen, ..test(0, &sockets, 1) };
    let error = test.run(&AtomicBool::new(false)).expect_err("not our address").to_string();
    assert!(error.contains("198.51.100.7:9") && error.contains("an address of this machine"));
}
