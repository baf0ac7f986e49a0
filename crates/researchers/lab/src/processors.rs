//! CPU use during a run: by a process, by the whole machine, and by other virtual machines (steal time).

use onion::{Duration, Instant};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// CPU time that a process and the whole machine have used up to an instant.
#[derive(Clone, Debug)]
pub struct Reading {
    at: Instant,
    /// The times of the process, by thread.
    threads: BTreeMap<u32, ThreadTime>,
    machine: MachineTime,
}

/// The times of one thread, from `/proc/…/schedstat`.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTime {
    ran: Duration,
    /// Time in which the thread was runnable and waited for a processor.
    waited: Duration,
}

/// The times of all processors in ticks, from the first line of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default)]
struct MachineTime {
    idle: u64,
    stolen: u64,
    all: u64,
}

/// Shares of the time between two readings, from zero to one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// CPU time of the process, as a share of one core.
    pub used: f64,
    /// Time in which its busiest thread was runnable and waited for a processor.
    pub waited: f64,
    /// Time in which its busiest thread ran or was runnable.
    pub wanted: f64,
    /// CPU time of all processes, as a share of all cores.
    pub machine: f64,
    /// Steal time, as a share of all cores.
    pub stolen: f64,
}

impl Reading {
    /// Reads the times of a process. Values that cannot be read are zero.
    pub fn take(pid: u32, now: Instant) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let threads = threads(Path::new(&format!("/proc/{pid}/task")));
        Self { at: now, threads, machine: machine(&stat).unwrap_or_default() }
    }

    /// The load since `before`.
    pub fn since(&self, before: &Self) -> Load {
        let wall = (self.at - before.at).as_secs_f64();
        if wall <= 0.0 {
            return Load::default();
        }
        let mut load = Load::default();
        for (thread, now) in &self.threads {
            let then = before.threads.get(thread).copied().unwrap_or_default();
            let ran = now.ran.saturating_sub(then.ran).as_secs_f64() / wall;
            let waited = now.waited.saturating_sub(then.waited).as_secs_f64() / wall;
            load.used += ran;
            if ran + waited > load.wanted {
                (load.wanted, load.waited) = (ran + waited, waited);
            }
        }
        let ticks = |of: fn(&MachineTime) -> u64| of(&self.machine) - of(&before.machine);
        let all = ticks(|time| time.all).max(1);
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 ticks")]
        let share = |part: u64| part as f64 / all as f64;
        load.machine = 1.0 - share(ticks(|time| time.idle).min(all));
        load.stolen = share(ticks(|time| time.stolen));
        load
    }
}

fn threads(folder: &Path) -> BTreeMap<u32, ThreadTime> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let thread = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        Some((id, thread(&fs::read_to_string(entry.path().join("schedstat")).ok()?)?))
    };
    entries.filter_map(thread).collect()
}

/// Parses `schedstat`: nanoseconds on a processor, nanoseconds on a run queue, and the number of time slices.
fn thread(schedstat: &str) -> Option<ThreadTime> {
    let mut numbers = schedstat.split_ascii_whitespace().map(str::parse::<u64>);
    let mut time = || numbers.next()?.ok().map(Duration::from_nanos);
    Some(ThreadTime { ran: time()?, waited: time()? })
}

/// Parses the line `cpu`, in ticks: user, nice, system, idle, iowait, irq, softirq, steal, and guest times, which the
/// first two include.
fn machine(stat: &str) -> Option<MachineTime> {
    let ticks = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> =
        ticks.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(MachineTime { idle, stolen: *ticks.get(7)?, all: ticks.iter().take(8).sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Instant = Instant::from_nanos(1_000_000_000);

    fn reading(at: Instant, threads: &[(u32, &str)], stat: &str) -> Reading {
        let threads = threads.iter().map(|(id, text)| (*id, thread(text).unwrap())).collect();
        Reading { at, threads, machine: machine(stat).unwrap() }
    }

    #[test]
    fn load_covers_the_busiest_thread_and_the_whole_machine() {
        let before = reading(
            Instant::ORIGIN,
            &[(1, "100000000 0 7"), (2, "0 0 0")],
            "cpu  10 0 0 10 0 0 0 0 0 0\ncpu0 1",
        );
        let after = reading(
            SECOND,
            &[(1, "700000000 300000000 9"), (2, "200000000 100000000 4"), (3, "0 0 0")],
            "cpu  100 0 40 30 30 0 0 20 0 0",
        );
        let load = after.since(&before);
        let expected = [(load.used, 0.8), (load.waited, 0.3), (load.wanted, 0.9)];
        assert!(expected.iter().all(|(found, wanted)| (found - wanted).abs() < 1e-9), "{load:?}");
        let expected = [(load.machine, 0.75), (load.stolen, 0.1)];
        assert!(expected.iter().all(|(found, wanted)| (found - wanted).abs() < 1e-9), "{load:?}");
        assert_eq!(after.since(&after), Load::default(), "no time has passed");
    }

    #[test]
    fn invalid_text_is_not_parsed() {
        assert!(machine("").is_none() && machine("cpu 1 2 3").is_none());
        assert!(thread("").is_none() && thread("1").is_none() && thread("a b c").is_none());
    }

    #[test]
    fn this_process_can_be_read() {
        let reading = Reading::take(std::process::id(), SECOND);
        assert!(reading.threads.values().any(|thread| thread.ran > Duration::ZERO));
        assert!(reading.machine.all > reading.machine.idle);
        assert!(Reading::take(u32::MAX, SECOND).threads.is_empty());
    }
}
