//! The user-space memory of idle connections. The only test of its program, since it reads all of its
//! memory.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use common::{Puppet, configs, driver, listener, run};
use link::{Clock, Driver, DriverOptions};
use onion::node::{ConnId, Security};
use std::fs;

/// The memory of this process according to the kernel, in KiB.
fn resident_kib() -> usize {
    let text = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it counts");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Opens `count` connections from one driver to another, sends 100 kB over each both ways, and returns
/// the memory of an idle end, in KiB.
fn kib_per_end(count: u32, security: Security) -> f64 {
    let (listener, address) = listener();
    let options = DriverOptions { max_conns: usize::MAX, ..DriverOptions::default() };
    let mut dialler = driver(Puppet::default(), vec![], options);
    let listeners = if security == Security::Tls { vec![listener] } else { vec![] };
    let mut acceptor =
        Driver::new(Puppet::default(), Clock::start(), configs(), listeners, options)
            .expect("a driver");
    let before = resident_kib();
    for conn in 0..count {
        let conn = dialler.node_mut().dial(conn, address, security);
        run(&mut dialler, |node| {
            let _ = acceptor.turn(acceptor.now());
            node.connected.last() == Some(&conn)
        });
    }
    run(&mut acceptor, |node| {
        let _ = dialler.turn(dialler.now());
        node.accepted == count
    });
    let content = vec![5; 100_000];
    for conn in 0..count {
        dialler.node_mut().send(ConnId(conn), &content);
        let accepted = ConnId(1_000_001 + conn);
        acceptor.node_mut().send(accepted, &content);
        run(&mut dialler, |node| {
            let _ = acceptor.turn(acceptor.now());
            let is_here = node.received(ConnId(conn)).len() == content.len();
            is_here && acceptor.node().received(accepted).len() == content.len()
        });
        for (node, conn) in [(dialler.node_mut(), ConnId(conn)), (acceptor.node_mut(), accepted)] {
            node.outgoing.remove(&conn);
            node.received.remove(&conn);
        }
    }
    let kib = resident_kib().saturating_sub(before);
    f64::from(u32::try_from(kib).expect("not that much")) / f64::from(2 * count)
}

#[test]
fn idle_links_hold_no_buffers() {
    let kib = kib_per_end(400, Security::Tls);
    println!("{kib:.1} KiB for each end of an idle link");
    // 128 KiB and more, if each had its own buffers.
    assert!(kib < 16.0, "{kib} KiB");
}
