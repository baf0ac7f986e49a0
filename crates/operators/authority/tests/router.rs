//! A team of several pumps measures the router of `onion` over real sockets, by echo and in transit.

use crate::common::{self, Options, Team};
use authority::one_relay::Request;
use coordinator::{Account, Blame, Failure, Mode, Outcome, Params, Progress};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, NodeThread, unix_time_s};
use onion::crypto::Keystream;
use onion::identity::{Ed25519Id, RelayIds};
use onion::measure::load::Target;
use onion::measure::protocol::{ClientSecond, CoordinatorKey};
use onion::measure::target::TargetParams;
use onion::router::{Behavior, Honest, RateLimit, Router, RouterConfig};
use onion::{Duration, Rate};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;

const COORDINATOR: [u8; 32] = [7; 32];

/// A relay on a separate thread, which ends when this is dropped.
struct Relay<C: Behavior + Send + 'static> {
    address: SocketAddr,
    ids: RelayIds,
    thread: Option<NodeThread<Router<StdRng, C>>>,
}

impl<C: Behavior + Send + 'static> Relay<C> {
    fn run(behavior: C, mbit: f64, params: TargetParams) -> Self {
        let issuer = IdentityIssuer::new([2; 32], unix_time_s());
        let mut issuer = issuer.expect("keys");
        let identity = Arc::new(issuer.identity().expect("an identity"));
        let ids = RelayIds { rsa: identity.rsa, ed25519: Some(identity.ed25519) };
        let rate = Rate::from_mbit_per_s(mbit);
        let config = RouterConfig {
            target: params,
            limit: Some(RateLimit { rate, burst_bytes: 16_384 }),
            ..RouterConfig::new(identity, unix_time_s())
        };
        let clock = Clock::start();
        let rng = StdRng::seed_from_u64(1);
        let router = Router::with_behavior(config, behavior, rng, clock.now());
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound");
        let tls = TlsConfigs::new(&issuer).expect("keys");
        let options = DriverOptions::default();
        let driver = Driver::new(router, clock, tls, vec![listener], options).expect("a driver");
        let thread = NodeThread::start("relay", Box::new(driver), ()).expect("a thread");
        Self { address, ids, thread: Some(thread) }
    }

    /// Ends the relay with all its connections.
    fn end(&mut self) {
        if let Some(ended) = self.thread.take().map(NodeThread::join) {
            assert!(ended.is_ok() || thread::panicking(), "{ended:?}");
        }
    }

    /// A request to measure it for the coordinator that it allows.
    fn request(&self, guess: f64) -> Request {
        let target = Target { address: self.address, ids: self.ids };
        Request::new(target, Rate::from_mbit_per_s(guess)).by_echo(COORDINATOR)
    }
}

impl<C: Behavior + Send + 'static> Drop for Relay<C> {
    fn drop(&mut self) {
        self.end();
    }
}

fn allowed() -> TargetParams {
    let coordinators = vec![CoordinatorKey::of_seed(&COORDINATOR)];
    TargetParams { is_allowed: true, coordinators, ..TargetParams::default() }
}

/// Two measurers of two pumps each, for short measurements.
fn team() -> Team {
    team_with_setup_timeout(Duration::from_secs(15))
}

fn team_with_setup_timeout(setup_timeout: Duration) -> Team {
    team_for(2, setup_timeout)
}

fn team_for(seconds: u32, setup_timeout: Duration) -> Team {
    let params = Params { seconds, setup_timeout, ..Params::default() };
    let (pumps, capacity) = (Some(2), Rate::from_mbit_per_s(60.0));
    common::team(Options { pumps, capacity, params, ..common::options(seconds) })
}

fn measure(team: &Team, request: &Request) -> Outcome {
    common::measure(team, request, &mut |_| {}).outcome
}

/// The failure, and its text.
#[track_caller]
fn failure(outcome: &Outcome) -> (&Failure, String) {
    match outcome {
        Outcome::Failed { reason, .. } => (reason, outcome.to_string()),
        Outcome::Measured(estimate) => panic!("unexpected estimate: {estimate}"),
    }
}

#[test]
fn a_participating_relay_is_measured_conclusively() {
    let relay = Relay::run(Honest, 20.0, allowed());
    let outcome = measure(&team(), &relay.request(30.0));
    let estimate = outcome.estimate().unwrap_or_else(|| panic!("{outcome}"));
    assert!(estimate.is_conclusive(), "{estimate}");
    assert!(estimate.capacity > Rate::ZERO);
    assert!(estimate.capacity < Rate::from_mbit_per_s(21.0), "{estimate}: more than it sends");
    assert!(estimate.checked_cells > 0);
    assert_eq!(estimate.seconds.len(), 2);
    // It reported no client traffic.
    assert!(estimate.seconds.iter().all(|second| second.client_reported == Some(0)));
}

#[test]
fn a_relay_is_measured_in_transit_without_its_participation() {
    let relay = Relay::run(Honest, 20.0, TargetParams::default());
    let request = Request { mode: Mode::Transit, ..relay.request(8.0) };
    let (team, mut rounds) = (team(), 0);
    let mut sockets = 0;
    let mut on_progress = |progress| {
        if let Progress::Preparing { sockets: planned, .. } = progress {
            sockets = planned;
            rounds += 1;
        }
    };
    let outcome = common::measure(&team, &request, &mut on_progress).outcome;
    let circuits = team.circuits();
    assert!(sockets >= 8 && circuits >= sockets, "{circuits} on {sockets}");
    let estimate = outcome.estimate().unwrap_or_else(|| panic!("{outcome}"));
    assert!(estimate.capacity > Rate::ZERO && estimate.checked_cells > 0);
    assert!(estimate.capacity < Rate::from_mbit_per_s(21.0), "{estimate}: more than it sends");
    assert_eq!(rounds, estimate.rounds);
    // An echo requires the relay's permission.
    let outcome = measure(&team, &relay.request(8.0));
    let (_, text) = failure(&outcome);
    assert!(text.contains("allows no measurements (error 1)"), "{text}");
}

/// The accounts of a relay's last round, measured in transit or as an echo, and the total returned bytes.
fn accounts(relay: &Relay<impl Behavior + Send + 'static>, mode: Mode) -> (Vec<Account>, u64) {
    let request = Request { mode, ..relay.request(30.0) };
    let result = common::measure(&team(), &request, &mut |_| {});
    assert!(result.outcome.estimate().is_some(), "{}", result.outcome);
    let round = result.record.rounds.last().expect("a round");
    let measurers = round.allocation.assignments.len();
    assert!(round.seconds.iter().all(|second| second.accounts.len() == measurers), "{round:?}");
    let returned =
        round.seconds.iter().flat_map(|second| second.returned_bytes.iter().flatten()).sum();
    (round.seconds.iter().flat_map(|second| second.accounts.clone()).flatten().collect(), returned)
}

#[test]
fn the_kernels_account_shows_where_cells_waited_in_each_second() {
    let relay = Relay::run(Honest, 20.0, allowed());
    for mode in [Mode::Transit, Mode::Echo] {
        let (accounts, returned) = accounts(&relay, mode);
        assert!(!accounts.is_empty());
        // The relay is busy: outstanding cells wait there, and not on the path.
        let sum = |count: fn(&Account) -> u64| accounts.iter().map(count).sum::<u64>();
        let (taken, outstanding) =
            (sum(Account::taken_bytes), sum(|account| account.outstanding_bytes));
        assert!(taken > outstanding / 2, "{taken} of {outstanding} bytes: {accounts:#?}");
        // Sent bytes have returned or are outstanding, plus some TLS.
        let sent = sum(|account| account.sent_bytes);
        assert!(sent < (returned + outstanding) / 10 * 11, "{sent} sent, {returned} back");
        for account in accounts {
            // The kernel's tick, twice for each socket.
            let slack = Duration::from_millis(20) * account.sockets;
            assert!(account.sockets > 0 && !account.elapsed.is_zero(), "{account:?}");
            assert!(account.busy <= account.socket_time + slack, "{account:?}");
            assert!(account.rwnd_limited + account.sndbuf_limited <= account.busy, "{account:?}");
            assert!(account.throttled <= account.pump_time, "{account:?}");
            assert!(account.sent_bytes > 0 && account.received_segments > 0, "{account:?}");
            assert!(account.min_rtt.is_some() && account.mean_rtt.is_some(), "{account:?}");
        }
    }
}

#[test]
fn each_round_is_a_separate_order_and_the_relay_counts_them() {
    let relay = Relay::run(Honest, 40.0, allowed());
    let team = team();
    // The guess is far too low, so there are all the rounds that the relay allows.
    let outcome = measure(&team, &relay.request(1.0));
    let estimate = outcome.estimate().unwrap_or_else(|| panic!("{outcome}"));
    assert_eq!((estimate.rounds, estimate.is_conclusive()), (2, false), "{estimate}");
    let outcome = measure(&team, &relay.request(40.0));
    let (reason, text) = failure(&outcome);
    assert!(matches!(reason, Failure::RelayNotNow { .. }), "{text}");
    assert!(text.contains("used up its measurements"), "{text}");
    assert_eq!(outcome.blame(), Some(Blame::Configuration));
}

#[test]
fn a_busy_relay_is_asked_again_until_the_other_measurement_ends() {
    let theirs = [9; 32];
    let coordinators = [COORDINATOR, theirs].map(|seed| CoordinatorKey::of_seed(&seed));
    let params = TargetParams { coordinators: coordinators.to_vec(), ..allowed() };
    let relay = Relay::run(Honest, 20.0, params);
    let other = Request { echo_rounds: 1, ..relay.request(30.0).by_echo(theirs) };
    let (sender, started) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut on_progress = |progress| {
                if let Progress::Started { .. } = progress {
                    sender.send(()).expect("a receiver");
                }
            };
            let outcome = common::measure(&team(), &other, &mut on_progress).outcome;
            assert!(outcome.estimate().is_some(), "{outcome}");
        });
        started.recv().expect("it starts");
        // The other measurement runs for two seconds; ours waits.
        let team = team_with_setup_timeout(Duration::from_secs(60));
        let outcome = measure(&team, &relay.request(30.0));
        assert!(outcome.estimate().is_some(), "{outcome}");
    });
}

#[test]
fn a_coordinator_that_is_not_allowed_gets_the_reason() {
    let relay = Relay::run(Honest, 20.0, allowed());
    let request = relay.request(20.0).by_echo([8; 32]);
    let (_, text) = failure(&measure(&team(), &request));
    assert!(text.contains("does not allow this coordinator (error 2)"), "{text}");
}

#[test]
fn an_order_without_an_ed25519_identity_names_the_proven_one() {
    let relay = Relay::run(Honest, 20.0, allowed());
    let mut request = relay.request(30.0);
    request.router.ids.ed25519 = None;
    let outcome = measure(&team(), &request);
    assert!(outcome.estimate().is_some(), "{outcome}");
    request.router.ids.ed25519 = Some(Ed25519Id([9; 32]));
    let (_, text) = failure(&measure(&team(), &request));
    assert!(text.contains("wrong relay"), "{text}");
}

/// Returns cells without decryption.
struct SkipsDecryption;

impl Behavior for SkipsDecryption {
    fn answer(&mut self, _: &mut impl Rng, _: &mut Keystream, _: &mut [u8; 509]) {}
}

#[test]
fn a_relay_that_skips_decryption_gets_no_estimate() {
    let relay = Relay::run(SkipsDecryption, 20.0, allowed());
    let outcome = measure(&team(), &relay.request(20.0));
    let (reason, text) = failure(&outcome);
    assert!(matches!(reason, Failure::ContentCheck { .. }), "{text}");
    assert_eq!(outcome.blame(), Some(Blame::Relay));
}

/// Reports unlimited client traffic.
struct InflatesClients;

impl Behavior for InflatesClients {
    fn report(&mut self, honest: ClientSecond, _: u64) -> ClientSecond {
        ClientSecond { received_bytes: u64::MAX, sent_bytes: u64::MAX, ..honest }
    }
}

#[test]
fn a_relay_that_inflates_its_client_traffic_gains_at_most_a_third() {
    let relay = Relay::run(InflatesClients, 20.0, allowed());
    let outcome = measure(&team(), &relay.request(30.0));
    let estimate = outcome.estimate().unwrap_or_else(|| panic!("{outcome}"));
    for second in &estimate.seconds {
        assert_eq!(second.client_reported, Some(u64::MAX));
        assert_eq!(second.client_counted, second.measured / 3);
    }
}

#[test]
fn a_relay_that_dies_during_a_round_gets_no_estimate() {
    let mut relay = Relay::run(Honest, 20.0, allowed());
    let request = relay.request(30.0);
    let mut on_progress = |progress: Progress| {
        if let Progress::Second { index: 0, .. } = progress {
            relay.end();
        }
    };
    // Long enough that it dies before the end, even if the report of the first second is late.
    let team = team_for(30, Duration::from_secs(15));
    let outcome = common::measure(&team, &request, &mut on_progress).outcome;
    let (_, text) = failure(&outcome);
    assert_eq!(outcome.blame(), Some(Blame::Relay), "{text}");
}

#[test]
fn a_measurement_that_is_cancelled_leaves_the_relay_free_for_the_next() {
    let relay = Relay::run(Honest, 20.0, allowed());
    let (team, cancel) = (team(), AtomicBool::new(false));
    let mut on_progress = |progress| {
        if let Progress::Started { .. } = progress {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let result = team.measure(&relay.request(30.0), &mut on_progress, &cancel);
    assert!(result.is_none(), "cancelled");
    let outcome = measure(&team, &relay.request(30.0));
    assert!(outcome.estimate().is_some(), "{outcome}");
}
