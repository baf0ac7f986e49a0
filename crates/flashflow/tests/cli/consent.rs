//! `flashflow measure`: relays on public addresses must have opted in.

use crate::common::{Scratch, wait_for};
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// Five relays of the live network in 2020, all on public addresses.
fn public_relays() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../netdoc/tests/data/consensus-ns");
    fs::read_to_string(path).expect("part of netdoc")
}

#[test]
fn relays_on_public_addresses_are_refused_with_the_way_to_opt_in() {
    let scratch = Scratch::new();
    fs::write(scratch.path("live"), public_relays()).expect("written");
    let ended = scratch.run(&["measure", "Relay5000", "--consensus", "live"]);
    ended.assert_refused(&["148.251.75.247", "has not opted in", "--opt-in"]);
    assert!(!ended.error.contains("team:"), "consent comes first: {}", ended.error);
    let fingerprint = "0123456789ABCDEF0123456789ABCDEF01234567";
    let ended = scratch.run(&["measure", fingerprint, "--address", "198.51.100.7:443"]);
    ended.assert_refused(&["198.51.100.7", "--opt-in"]);
}

#[test]
fn who_has_not_opted_in_gets_no_packet() {
    let scratch = Scratch::new();
    // 0.0.0.0 is not local by our rules, but leads to this very machine.
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a port");
    listener.set_nonblocking(true).expect("set");
    let port = listener.local_addr().expect("an address").port();
    let live = public_relays().replace("148.251.75.247 4080", &format!("0.0.0.0 {port}"));
    fs::write(scratch.path("consensus"), live).expect("written");
    let measure = ["measure", "Relay5000", "--consensus", "consensus", "--sockets", "1"];

    let ended = scratch.run(&measure);
    ended.assert_refused(&["0.0.0.0", "--opt-in"]);
    let error = listener.accept().expect_err("nobody called");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);

    // Whoever is on the list is called: only the list made the difference.
    let consensus = netdoc::consensus::Consensus::parse(public_relays().as_bytes()).expect("sound");
    let relay = consensus.by_nickname("Relay5000").expect("there").fingerprint;
    fs::write(scratch.path("list"), format!("# agreed\n{relay}\n")).expect("written");
    let mut running = scratch.start(&[&measure[..], &["--opt-in", "list"]].concat());
    let (mut stream, _) = wait_for("a connection", || listener.accept().ok());
    stream.write_all(b"this is no TLS\r\n").expect("written");
    running.wait_for_error("its team", |line| line.contains("team:"));
    drop((stream, listener));
    let ended = running.end();
    ended.assert_code(1);
}

#[test]
fn an_opt_in_list_with_a_bad_line_is_refused_with_its_place() {
    let scratch = Scratch::new();
    fs::write(scratch.path("live"), public_relays()).expect("written");
    fs::write(scratch.path("list"), "# mine\nnot-a-fingerprint\n").expect("written");
    let measure = ["measure", "Relay5000", "--consensus", "live", "--opt-in"];
    let ended = scratch.run(&[&measure[..], &["list"]].concat());
    ended.assert_refused(&["line 2", "list", "40 hex digits"]);
    let ended = scratch.run(&[&measure[..], &["absent"]].concat());
    ended.assert_refused(&["absent"]);
}
