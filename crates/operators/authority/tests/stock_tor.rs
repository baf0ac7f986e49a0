//! A team measures C tor on loopback: the results, and compliance with tor's limits.
//!
//! Each test has its own network, and checks several claims with it.

#![expect(clippy::print_stderr, reason = "a long test prints its progress")]

mod defences;

use crate::common::{
    Claims, Observed, Options, Stranger, Team, exclusive, failure, ids, measure, measure_or_cancel,
    network, now, observe, options, own_connections_to, request, team, threads_and_files,
};
use authority::one_relay::Request;
use coordinator::{Blame, Estimate, Inconclusive, Params, Progress};
use lab::{Network, NetworkSpec, Node, RelaySpec};
use onion::identity::Ed25519Id;
use onion::{Duration, Rate};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::Ordering;

fn limited(nickname: &str, mbit: f64) -> RelaySpec {
    RelaySpec::new(nickname).limited_to(Rate::from_mbit_per_s(mbit))
}

/// The relay with this nickname.
fn relay<'n>(network: &'n Network, nickname: &str) -> &'n Node {
    network.node(nickname).expect("a relay of the network")
}

/// One measurer with a short timeout, for relays that cannot be measured.
fn impatient_team() -> Team {
    let base = options(2);
    let params = Params { sockets: 2, setup_timeout: Duration::from_secs(4), ..base.params };
    team(Options { measurers: 1, params, ..base })
}

/// Asserts that an estimate is conclusive and agrees with the relay's own reports, whose seconds differ slightly and
/// are late on a busy machine. Otherwise the estimate itself must name the machine as the cause: if the machine is
/// suspended for half a second, the relay is unsteady or a measurer's processor busy. The estimate is then at most the
/// mean of its seconds, and the relay's report their median.
fn assert_close(seen: &Observed) {
    let outcome = seen.result.outcome.estimate().expect("an estimate");
    assert!(outcome.inconclusive.is_none() || is_machines(outcome), "{outcome}");
    let (estimate, reported) = seen.estimate_and_report();
    let ratio = estimate / reported;
    let least = least(outcome);
    assert!((least..=1.10).contains(&ratio), "{ratio:.3} of the relay's report: {outcome}");
}

/// Whether the estimate names the machine as the cause.
fn is_machines(estimate: &Estimate) -> bool {
    match &estimate.inconclusive {
        Some(
            Inconclusive::Unsteady { .. }
            | Inconclusive::Scattered { .. }
            | Inconclusive::Contended { .. },
        ) => true,
        Some(other) => other.to_string().contains("processor"),
        None => false,
    }
}

/// The minimum ratio of an estimate to the relay's report.
fn least(estimate: &Estimate) -> f64 {
    if is_machines(estimate) { 0.7 } else { 0.85 }
}

#[test]
fn c_tor_is_measured_correctly_and_failures_give_no_estimate() {
    let _turn = exclusive();
    let mut spec = NetworkSpec::new(vec![
        limited("limited", 20.0),
        limited("named", 20.0),
        limited("victim", 20.0),
        limited("frozen", 20.0),
        limited("patient", 20.0),
        RelaySpec::new("free"),
        RelaySpec {
            extra_torrc: vec!["ExtendAllowPrivateAddresses 0".to_owned()],
            ..RelaySpec::new("strict")
        },
    ]);
    spec.relays[1].extra_torrc.push("Log [handshake]debug file handshake-log".to_owned());
    let network = network(&spec);
    let mut claims = Claims::default();

    let small_team = team(options(6));
    claims.claim(
        "the estimate of a limited relay is conclusive and agrees with its own report",
        || {
            let node = relay(&network, "limited");
            let seen = observe(&small_team, &request(node, 25.0), node, &mut |_| {});
            assert_close(&seen);
            let outcome = seen.result.outcome.estimate().expect("just seen");
            assert!(outcome.checked_cells > 0);
            assert!((6..=6 * outcome.rounds as usize).contains(&seen.series.len()));
        },
    );
    claims.claim(
        "links of clients are anonymous, and links that authenticate are a relay's",
        || {
            links_authenticate_if_requested(relay(&network, "named"));
        },
    );
    claims.claim(
        "an unmodified relay that gets an order is reported as unable to participate",
        || {
            let request = request(relay(&network, "limited"), 25.0).by_echo([7; 32]);
            let text = failure(&measure(&impatient_team(), &request, &mut |_| {}));
            assert!(text.contains("does not speak FlashFlow"), "{text}");
        },
    );
    claims.claim("the measured bytes of an unlimited relay agree with its own count", || {
        unlimited(relay(&network, "free"));
    });
    claims.claim("a tor that is killed during a round gives a failure of the relay", || {
        let node = relay(&network, "victim");
        let result = measure(&small_team, &request(node, 25.0), &mut |progress| {
            if let Progress::Second { index: 2, .. } = progress {
                node.kill();
            }
        });
        let text = failure(&result);
        assert_eq!(result.outcome.blame(), Some(Blame::Relay), "{text}");
        assert!(text.contains("closed the connection"), "{text}");
    });
    claims.claim("a tor that is stopped during a round gives the failure: stalled", || {
        let node = relay(&network, "frozen");
        let pid = Pid::from_raw(i32::try_from(node.pid()).expect("small")).expect("not zero");
        let base = options(10);
        let params = Params { report_grace: Duration::from_secs(3), ..base.params };
        let team = team(Options { measurers: 1, params, ..base });
        let result = measure(&team, &request(node, 25.0), &mut |progress| {
            if let Progress::Second { .. } = progress {
                kill_process(pid, Signal::STOP).expect("stopped");
            }
        });
        kill_process(pid, Signal::CONT).expect("a running process");
        let text = failure(&result);
        assert_eq!(result.outcome.blame(), Some(Blame::Relay), "{text}");
        assert!(text.contains("the relay stalled"), "{text}");
    });
    claims.claim("a relay with another identity than expected is refused", || {
        wrong_identities(&network);
    });
    claims.claim(
        "a host that is not a relay gives a clear failure within the timeout for set-up",
        no_relay,
    );
    claims.claim("a relay that may not extend to private addresses gives its reason", || {
        let node = relay(&network, "strict");
        let result = measure(&impatient_team(), &request(node, 25.0), &mut |_| {});
        let text = failure(&result);
        assert_eq!(result.outcome.blame(), Some(Blame::Relay), "{text}");
        assert!(text.contains("circuit closed by the relay: "), "{text}");
        assert!(text.contains("(reason 1)"), "{text}");
    });
    drop(small_team);
    claims.claim(
        "a cancelled measurement ends promptly and leaves no thread and no socket",
        || {
            cancelled(relay(&network, "patient"));
        },
    );
    network.stop().expect("no process left");
    claims.conclude();
}

/// The number of links whose other end has authenticated as a relay, by this relay's log.
fn authenticated(node: &Node) -> usize {
    let text = std::fs::read_to_string(node.dir().join("handshake-log")).expect("a log");
    let proofs = text.lines().filter(|line| line.contains("Got an AUTHENTICATE cell"));
    proofs.filter(|line| line.contains("Looks good")).count()
}

fn links_authenticate_if_requested(node: &Node) {
    // The network's other relays also authenticate, if they connect during the test.
    let nodes = 10;
    let before = authenticated(node);
    let anonymous = team(options(3));
    let seen = observe(&anonymous, &request(node, 25.0), node, &mut |_| {});
    seen.estimate_and_report();
    let links = authenticated(node) - before;
    eprintln!("  {before} links authenticated before, {links} then");
    drop(anonymous);

    let before = before + links;
    let base = options(6);
    let named = team(Options { always_authenticate: true, ..base });
    let seen = observe(&named, &request(node, 25.0), node, &mut |_| {});
    let named_links = authenticated(node) - before;
    eprintln!("  {named_links} of {} links authenticated", seen.sockets);
    assert_close(&seen);
    let sockets = seen.sockets as usize;
    assert!((sockets..sockets + nodes).contains(&named_links));
    assert!(links < sockets, "{links} of {sockets} anonymous links authenticated");
}

fn unlimited(node: &Node) {
    // One round, so that the relay's report has nothing of an earlier one.
    let base = options(6);
    let team = team(Options { params: Params { max_rounds: 1, ..base.params }, ..base });
    // Totals, not events: on a busy machine, events are late and cover more or less than a second.
    let before = written_bytes(node);
    let seen = observe(&team, &request(node, 1400.0), node, &mut |_| {});
    let written = (written_bytes(node) - before) as f64;
    let (estimate, reported) = seen.estimate_and_report();
    let measured: f64 = seen.series.iter().map(|rate| rate.as_byte_per_s() as f64).sum();
    let share = measured / written;
    eprintln!(
        "  {:.1} % of the bytes written by the relay were measured; its processor was busy {:.0} % of the time",
        share * 100.0,
        seen.cpu.as_secs_f64() / 6.0 * 100.0
    );
    let outcome = seen.result.outcome.estimate().expect("just seen");
    assert!(estimate >= least(outcome) * reported, "{estimate} of {reported}: {outcome}");
    // The rest is overhead, and the data in flight when the measurement ended.
    assert!((0.8..=1.0).contains(&share), "measured {share:.3} of the bytes written by the relay");
}

/// All bytes that a relay has written so far.
fn written_bytes(node: &Node) -> u64 {
    let mut control = node.control().expect("a control port");
    let text = control.get_info("traffic/written").expect("a number");
    text.trim().parse().expect("a number")
}

fn wrong_identities(network: &Network) {
    let (node, other) = (relay(network, "limited"), relay(network, "named"));
    let team = impatient_team();
    let right = request(node, 25.0);
    let mut wrong_ed25519 = right.clone();
    wrong_ed25519.router.ids.ed25519 = Some(Ed25519Id(other.ed25519()));
    let mut wrong_rsa = right.clone();
    wrong_rsa.router.ids.rsa = ids(other).rsa;
    for wrong in [wrong_ed25519, wrong_rsa] {
        let result = measure(&team, &wrong, &mut |_| {});
        let text = failure(&result);
        assert!(text.contains("wrong relay: expected"), "{text}");
        assert_eq!(result.outcome.blame(), Some(Blame::Relay), "{text}");
    }
    // With the right identity it is measured.
    let result = measure(&self::team(options(2)), &right, &mut |_| {});
    assert!(result.outcome.estimate().is_some(), "{}", result.outcome);
}

fn no_relay() {
    let team = impatient_team();
    let failure_at = |address: SocketAddr| {
        let started = now();
        let target = onion::measure::load::Target {
            address,
            ids: onion::identity::RelayIds { rsa: onion::identity::RsaId([7; 20]), ed25519: None },
        };
        let request = Request::new(target, Rate::from_mbit_per_s(25.0));
        let result = measure(&team, &request, &mut |_| {});
        let text = failure(&result);
        assert_eq!(result.outcome.blame(), Some(Blame::Relay), "{text}");
        assert!(started.elapsed() < Duration::from_secs(20), "{text}");
        eprintln!("  {text} ({:.1} s)", started.elapsed().as_secs_f64());
        text
    };
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let unused = free.local_addr().expect("an address");
    drop(free);
    let text = failure_at(unused);
    assert!(text.contains("refused"), "{text}");

    let garbage = Stranger::new(|stream| {
        let _gone = stream.write_all(b"220 mail.example ESMTP, and no TLS at all\r\n");
    });
    let text = failure_at(garbage.address);
    assert!(text.contains("TLS"), "{text}");

    let silent = Stranger::new(|_| {});
    let text = failure_at(silent.address);
    assert!(text.contains("timed out") || text.contains("no answer"), "{text}");
}

fn cancelled(node: &Node) {
    let before = threads_and_files();
    let team = team(options(60));
    let (mut sockets, mut cancelled_at) = (0, None);
    let result = measure_or_cancel(&team, &request(node, 25.0), &mut |progress, cancel| {
        if let Progress::Preparing { sockets: planned, .. } = progress {
            sockets = planned;
        }
        if let Progress::Second { .. } = progress
            && cancelled_at.is_none()
        {
            assert_eq!(own_connections_to(node.or_addr()), sockets as usize);
            cancel.store(true, Ordering::Relaxed);
            cancelled_at = Some(now());
        }
    });
    let took = cancelled_at.expect("the round started").elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(result.is_none(), "cancelled");
    assert_eq!(own_connections_to(node.or_addr()), 0);
    drop(team);
    let (threads, files) = threads_and_files();
    assert!(threads <= before.0 && files <= before.1, "{threads}, {files}; before {before:?}");
}
