//! Claims about small Tor networks that hold in virtual time and on real sockets.
//!
//! Claims are ranges that also hold on a busy machine. If packets were too late for a claim about time, the test prints that and claims
//! nothing. docs/simulation.md has the figures of a quiet machine, from `flashflow-lab sim truth`.

#![expect(clippy::print_stdout, reason = "the results are printed, for the table of real sockets")]

use experiments::truth::{
    LIMIT, NARROW, Queueing, RealSockets, Simulated, World, downloads, measurement, queueing,
};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use std::sync::atomic::AtomicBool;

const SEED: u64 = 1;

/// Never set.
static NEVER: AtomicBool = AtomicBool::new(false);

/// How much worse than expected the results of a busy machine may be.
#[derive(Clone, Copy, Debug)]
struct Slack {
    /// Times are no longer than expected by more than this factor.
    time: f64,
    /// Rates are no less than this share of the expected ones.
    rate: f64,
    /// First bytes with KIST take no more than this share of their time with Vanilla.
    kist: f64,
}

/// Runs each claim in both worlds.
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
    download_times_match_path_latency_and_stream_windows
    small_downloads_overtake_bulk_cells_and_are_faster_with_kist
    an_estimate_matches_the_relays_limit
}

/// The error if this process has no permission to create network namespaces.
fn no_networks() -> Option<String> {
    use lab::wan::{Wan, WanError, WanPath, WanSpec};
    match Wan::start(&WanSpec::pair(WanPath::default())) {
        Err(WanError::Namespace(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Some(error.to_string())
        }
        // Other errors fail the test.
        _ => None,
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Whether packets were too late for a claim about times of this length. Prints it if so.
fn is_inconclusive(late: Duration, time_s: f64) -> bool {
    let is_so = late.as_secs_f64() > time_s / 4.0;
    if is_so {
        println!(
            "inconclusive: packets were up to {late:?} late, because this machine is too busy"
        );
    }
    is_so
}

fn download_times_match_path_latency_and_stream_windows(world: &dyn World, slack: Slack) {
    let small = downloads(world, 51_200, SEED, &NEVER).expect("a result");
    let large = downloads(world, 1 << 20, SEED, &NEVER).expect("a result");
    println!("{}: 50 KiB {small:?}\n1 MiB {large:?}", world.name());
    for seen in [&small, &large] {
        assert_eq!(seen.last_byte_s.len(), seen.requested as usize, "not all completed");
        let min_s = seen.first_byte_min.as_secs_f64();
        assert!(
            seen.first_byte_s.iter().all(|time_s| *time_s >= min_s),
            "faster than the path's latency: {seen:?}"
        );
        let first_s = median(&seen.first_byte_s);
        let is_soon = first_s < 1.3 * slack.time * min_s;
        assert!(is_soon || is_inconclusive(seen.late, min_s), "{first_s} s, minimum {min_s}");
    }
    // 1 MiB is four stream windows and part of a fifth: the exit waits four times for SENDMEs.
    let windows_s = 4.0 * large.window_round_trip.as_secs_f64();
    let each = large.first_byte_s.iter().zip(&large.last_byte_s);
    let taken_s: Vec<f64> = each.map(|(first, last)| last - first).collect();
    assert!(
        taken_s.iter().all(|time_s| *time_s >= windows_s),
        "faster than its windows: {taken_s:?}, {windows_s}"
    );
    let is_soon = median(&taken_s) < 4.0 * slack.time * windows_s;
    assert!(is_soon || is_inconclusive(large.late, windows_s), "{taken_s:?}, {windows_s}");
    assert!(median(&small.last_byte_s) < median(&large.last_byte_s));
}

fn small_downloads_overtake_bulk_cells_and_are_faster_with_kist(world: &dyn World, slack: Slack) {
    let run = |scheduler| queueing(world, scheduler, SEED, &NEVER).expect("a result");
    let vanilla = run(SchedulerConfig::vanilla());
    let kist = run(SchedulerConfig::kist(Duration::from_millis(10)));
    println!("{}: Vanilla {vanilla:?}\nKIST {kist:?}", world.name());
    let first_s = |seen: &Queueing| median(&seen.first_byte_s);
    for seen in [&vanilla, &kist] {
        // A tenth is overhead of cells, TLS and TCP.
        let used = seen.bulk_mbit_per_s / NARROW.as_mbit_per_s();
        assert!((0.75 * slack.rate..0.97).contains(&used), "{used}: {seen:?}");
        assert!(seen.first_byte_s.len() > 10, "{seen:?}");
        assert_eq!(seen.failed, 0, "{seen:?}");
    }
    // CONNECTED and the first data both pass the queue, and still take less time than one bulk cell.
    let is_soon = first_s(&kist) < kist.wait_s;
    assert!(is_soon || is_inconclusive(kist.late, kist.wait_s), "{kist:?}");
    // Data that does not wait in the kernel waits in the relay, where small downloads overtake it. Vanilla fills the kernel's buffers,
    // KIST leaves one congestion window there. By Little's law, since other load may slow one of the two runs.
    let queued = |seen: &Queueing| seen.wait_s * seen.bulk_mbit_per_s;
    assert!(queued(&kist) > 0.9 * queued(&vanilla), "KIST {kist:?}\nVanilla {vanilla:?}");
    let is_sooner = first_s(&kist) < slack.kist * first_s(&vanilla);
    let late = kist.late.max(vanilla.late);
    assert!(
        is_sooner || is_inconclusive(late, first_s(&vanilla)),
        "KIST {kist:?}\nVanilla {vanilla:?}"
    );
}

fn an_estimate_matches_the_relays_limit(world: &dyn World, slack: Slack) {
    let measured = measurement(world, SEED, &NEVER).expect("a result");
    println!("{}: {measured:?}", world.name());
    let estimate = measured.estimate.unwrap_or_else(|| panic!("{measured:?}"));
    let share = estimate.as_mbit_per_s() / LIMIT.as_mbit_per_s();
    // ε₂ of the paper is a bound in any case.
    assert!(share < 1.05, "{share}: {measured:?}");
    if let Some(doubt) = &measured.doubt {
        println!("inconclusive: {doubt}");
        assert!(slack.time > 1.0, "virtual time has no other load: {doubt}");
        return;
    }
    assert!(share > 0.85 * slack.rate, "{share}: {measured:?}");
}
