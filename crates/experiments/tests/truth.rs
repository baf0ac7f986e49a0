//! Small Tor networks in virtual time and on real sockets, by the same bodies: what has to come out in both.
//!
//! Claims are ranges that hold on a busy machine. Where a claim is that something was in time, and the network itself was late, the test says so and claims nothing. What comes out on a
//! quiet machine, figure by figure, is for `flashflow-lab sim truth`, and is in docs/simulation.md.

#![expect(clippy::print_stdout, reason = "the results are printed, for the table of real sockets")]

use experiments::truth::{
    LIMIT, NARROW, Queueing, RealSockets, Simulated, World, downloads, measurement, queueing,
};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use std::sync::atomic::AtomicBool;

const SEED: u64 = 1;

/// Nobody asks to stop.
static NEVER: AtomicBool = AtomicBool::new(false);

/// How much worse than it should a busy machine may do.
#[derive(Clone, Copy, Debug)]
struct Slack {
    /// Times are no longer than expected by more than this factor.
    time: f64,
    /// Rates are no less than this share of the expected ones.
    rate: f64,
    /// First bytes with KIST take no more than this share of their time with Vanilla.
    kist: f64,
}

/// Plays each body in both worlds.
macro_rules! in_both_worlds {
    ($($claim:ident)*) => {
        mod in_virtual_time {
            use super::{Simulated, Slack};
            $(#[test] fn $claim() { super::$claim(&Simulated, Slack { time: 1.0, rate: 1.0, kist: 0.85 }); })*
        }
        mod on_real_sockets {
            use super::{RealSockets, Slack, no_networks};
            $(#[test] fn $claim() {
                if let Some(why) = no_networks() {
                    skip::this_test!("it needs network namespaces: {why}");
                }
                super::$claim(&RealSockets, Slack { time: 4.0, rate: 0.5, kist: 0.95 });
            })*
        }
    };
}

in_both_worlds! {
    downloads_through_three_relays_take_what_way_and_windows_take
    small_downloads_pass_what_waits_in_a_relay_and_sooner_with_kist
    flashflow_estimates_what_a_limited_relay_carries
}

/// Why this machine makes no networks of its own, if it is for want of permission.
fn no_networks() -> Option<String> {
    use lab::wan::{Wan, WanError, WanPath, WanSpec};
    match Wan::start(&WanSpec::pair(WanPath::default())) {
        Err(WanError::Namespace(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(error.to_string())
        }
        // What else fails, fails the test.
        _ => None,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Whether packets were so late that nothing can be said of times of this length; says so.
fn is_inconclusive(late: Duration, time_s: f64) -> bool {
    let is_so = late.as_secs_f64() > time_s / 4.0;
    if is_so {
        println!("inconclusive: packets were up to {late:?} late, by a machine that is too busy");
    }
    is_so
}

fn downloads_through_three_relays_take_what_way_and_windows_take(world: &dyn World, slack: Slack) {
    let small = downloads(world, 51_200, SEED, &NEVER).expect("it can be played");
    let large = downloads(world, 1 << 20, SEED, &NEVER).expect("it can be played");
    println!("{}: 50 KiB {small:?}\n1 MiB {large:?}", world.name());
    for seen in [&small, &large] {
        assert_eq!(seen.last_byte_s.len(), seen.asked as usize, "not all completed");
        let least_s = seen.first_byte_least.as_secs_f64();
        assert!(seen.first_byte_s.iter().all(|it| *it >= least_s), "sooner than light: {seen:?}");
        let first_s = median(&seen.first_byte_s);
        let is_soon = first_s < 1.3 * slack.time * least_s;
        assert!(is_soon || is_inconclusive(seen.late, least_s), "{first_s} s, {least_s} at least");
    }
    // 1 MiB are four windows of a stream and a piece of a fifth: the exit waits four times for word of what has come.
    let windows_s = 4.0 * large.window_round_trip.as_secs_f64();
    let each = large.first_byte_s.iter().zip(&large.last_byte_s);
    let taken_s: Vec<f64> = each.map(|(first, last)| last - first).collect();
    assert!(taken_s.iter().all(|it| *it >= windows_s), "no windows: {taken_s:?}, {windows_s}");
    let is_soon = median(&taken_s) < 4.0 * slack.time * windows_s;
    assert!(is_soon || is_inconclusive(large.late, windows_s), "{taken_s:?}, {windows_s}");
    assert!(median(&small.last_byte_s) < median(&large.last_byte_s));
}

fn small_downloads_pass_what_waits_in_a_relay_and_sooner_with_kist(
    world: &dyn World,
    slack: Slack,
) {
    let play = |scheduler| queueing(world, scheduler, SEED, &NEVER).expect("it can be played");
    let vanilla = play(SchedulerConfig::vanilla());
    let kist = play(SchedulerConfig::kist(Duration::from_millis(10)));
    println!("{}: Vanilla {vanilla:?}\nKIST {kist:?}", world.name());
    let first_s = |seen: &Queueing| median(&seen.first_byte_s);
    for seen in [&vanilla, &kist] {
        // Cells, TLS and TCP take a tenth of it.
        let used = seen.bulk_mbit_per_s / NARROW.as_mbit_per_s();
        assert!((0.75 * slack.rate..0.97).contains(&used), "{used}: {seen:?}");
        assert!(seen.first_byte_s.len() > 10, "{seen:?}");
        assert_eq!(seen.failed, 0, "{seen:?}");
    }
    // Two times through the queue, for CONNECTED and for the answer, and yet sooner than a cell of bulk once.
    let is_soon = first_s(&kist) < kist.wait_s;
    assert!(is_soon || is_inconclusive(kist.late, kist.wait_s), "{kist:?}");
    // What does not wait in the kernel waits in the relay, where small downloads pass it: Vanilla fills what the kernel has room for, KIST lets one window wait there.
    // By Little's law, since a machine that is busy with others may hold up one of the two.
    let waits = |seen: &Queueing| seen.wait_s * seen.bulk_mbit_per_s;
    assert!(waits(&kist) > 0.9 * waits(&vanilla), "KIST {kist:?}\nVanilla {vanilla:?}");
    let is_sooner = first_s(&kist) < slack.kist * first_s(&vanilla);
    let late = kist.late.max(vanilla.late);
    assert!(
        is_sooner || is_inconclusive(late, first_s(&vanilla)),
        "KIST {kist:?}\nVanilla {vanilla:?}"
    );
}

fn flashflow_estimates_what_a_limited_relay_carries(world: &dyn World, slack: Slack) {
    let measured = measurement(world, SEED, &NEVER).expect("it can be played");
    println!("{}: {measured:?}", world.name());
    let estimate = measured.estimate.unwrap_or_else(|| panic!("{measured:?}"));
    let share = estimate.as_mbit_per_s() / LIMIT.as_mbit_per_s();
    // ε₂ of the paper. Whatever else happens, no more may come out.
    assert!(share < 1.05, "{share}: {measured:?}");
    if let Some(doubt) = &measured.doubt {
        println!("inconclusive: {doubt}");
        assert!(slack.time > 1.0, "there is nobody else in virtual time: {doubt}");
        return;
    }
    assert!(share > 0.85 * slack.rate, "{share}: {measured:?}");
}
