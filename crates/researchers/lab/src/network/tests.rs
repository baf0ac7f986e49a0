//! Tests of what the public interface cannot reach.

use std::net::{Ipv4Addr, TcpListener};

use super::*;

/// Ports of which one belongs to another program, as if taken between the reservation and tor's start.
fn taken(thief: &TcpListener) -> std::io::Result<Reserved> {
    Ok(Reserved::new(Ipv4Addr::LOCALHOST)?.with_taken(thief.local_addr()?))
}

#[test]
fn ports_taken_at_the_last_moment_are_replaced_by_others() {
    let thief = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut tries = 0;
    let mut ports = || {
        tries += 1;
        if tries == 1 { taken(&thief) } else { Reserved::new(Ipv4Addr::LOCALHOST) }
    };
    let mut retried = Vec::new();
    let mut progress = |step| {
        if let Progress::Retrying { nickname } = step {
            retried.push(nickname);
        }
    };
    let network = Network::start_with(&NetworkSpec::default(), &mut progress, &mut ports);
    let network = network.expect("up with other ports");
    // Other tests start tors, too, and may take a port of a later attempt.
    assert_eq!(retried.first().map(String::as_str), Some("auth0"));
    assert_eq!(tries, 1 + retried.len());
    network.stop().expect("stopped");
}

#[test]
fn ports_taken_every_time_are_reported_as_such() {
    let thief = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut ports = || taken(&thief);
    let error = Network::start_with(&NetworkSpec::default(), &mut |_| {}, &mut ports)
        .expect_err("no port")
        .to_string();
    assert!(error.starts_with("machine: a port chosen for `auth0` was in use"), "{error}");
    assert!(error.contains("5 times"), "{error}");
}
