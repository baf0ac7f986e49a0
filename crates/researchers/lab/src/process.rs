//! Processes: starting, finding, awaiting and ending them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::clock::Deadline;

/// Name of the empty file that every tor of a network gets as `--defaults-torrc`.
///
/// It replaces the system's defaults and identifies the process: no other program has this file's absolute path
/// as an argument.
pub(crate) const DEFAULTS: &str = "defaults-torrc";

/// Name of a node's log.
pub(crate) const LOG: &str = "log";

/// The tor processes of the network in `dir`, by their arguments.
///
/// Returns nothing for a folder without a network. It needs only the system's process list, so it works after
/// the process that started the network is gone.
#[must_use]
pub fn processes(dir: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| is_ours(pid, dir))
        .collect()
}

/// Whether a process is a tor of the network in `dir`. A zombie is not: it has no arguments.
pub(crate) fn is_ours(pid: u32, dir: &Path) -> bool {
    let mark = dir.join(DEFAULTS);
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
        line.split(|&byte| byte == 0)
            .any(|argument| argument == mark.as_os_str().as_encoded_bytes())
    })
}

/// Sends a signal. A process that is gone already is not an error.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

/// Waits until a child has ended, and reaps it. `None` if it has not ended in time.
pub(crate) fn wait_for_end(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    wait_for_exit(child.id(), patience);
    child.try_wait().ok().flatten()
}

/// Waits until a process, child or not, has ended, and returns whether it has; returns at once if there is
/// none, or if the system does not permit the wait.
pub(crate) fn wait_for_exit(pid: u32, patience: Duration) -> bool {
    let deadline = Deadline::after(patience);
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return true };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(error) => return error == Errno::SRCH,
    };
    loop {
        if readable(&handle, deadline.left()) {
            return true;
        }
        if deadline.passed() {
            return false;
        }
    }
}

/// Whether a process handle becomes readable in time, that is whether its process ends.
fn readable(handle: &OwnedFd, timeout: Duration) -> bool {
    let mut watched = [PollFd::new(handle, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut watched, timeout.as_ref()) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // Impossible with a valid handle; ending the wait is better than spinning.
        Err(_) => true,
    }
}

/// Processor time that a process has used, in user and kernel mode.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_cpu_time(&text, rustix::param::clock_ticks_per_second())
}

/// Memory of a process that is in RAM, in bytes; `None` if it cannot be read.
#[must_use]
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// How often the threads of a process have gone to sleep, which is how often they were woken; `None` if that cannot be read. Threads that
/// have ended do not count.
#[must_use]
pub fn wake_ups(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |path: PathBuf| {
        let text = fs::read_to_string(path.join("status")).ok()?;
        let count = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        count.trim().parse::<u64>().ok()
    };
    Some(threads.flatten().filter_map(|thread| of_thread(thread.path())).sum())
}

fn parse_cpu_time(stat: &str, ticks_per_s: u64) -> Option<Duration> {
    // The program's name, in parentheses, may contain spaces and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let mut number = || fields.next()?.parse::<u64>().ok();
    let ticks = number()?.checked_add(number()?)?;
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_s.max(1));
    Some(Duration::from_nanos(u64::try_from(nanos).ok()?))
}

/// The last warnings and errors of a tor, as a sentence for an error message.
pub(crate) fn log_tail(dir: &Path) -> String {
    const LINES: usize = 8;
    // Output before the log is opened, such as a configuration error, goes to standard output.
    let printed = fs::read(dir.join("output")).unwrap_or_default();
    let logged = fs::read(dir.join(LOG)).unwrap_or_default();
    let text =
        format!("{}\n{}", String::from_utf8_lossy(&printed), String::from_utf8_lossy(&logged));
    let problems: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("[warn]") || line.contains("[err]"))
        .filter(|line| !line.contains("running Tor as root"))
        .collect();
    if problems.is_empty() {
        return "Its log contains no warning; set `keep` to keep the log.".to_owned();
    }
    let last = problems.get(problems.len().saturating_sub(LINES)..).unwrap_or_default();
    format!("The last warnings of its log:\n  {}", last.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    #[test]
    fn processor_time_is_parsed_for_any_program_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 25 0 0";
        assert_eq!(parse_cpu_time(stat, 100), Some(Duration::from_millis(1750)));
        assert_eq!(parse_cpu_time("12 (a) S 1 2", 100), None);
        assert_eq!(parse_cpu_time("", 100), None);
        assert!(cpu_time(std::process::id()).is_some());
    }

    #[test]
    fn a_child_is_awaited_and_reaped() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        assert!(wait_for_end(&mut child, Duration::from_millis(1)).is_none());
        assert!(wake_ups(child.id()).is_some());
        signal(child.id(), Signal::KILL);
        assert!(wait_for_end(&mut child, Duration::from_secs(20)).is_some());
    }

    #[test]
    fn a_process_is_identified_by_its_whole_argument() {
        let dir = tempfile::tempdir().expect("a folder");
        let found_with = |argument: &str| {
            // The process prints a line and waits for input. Before that line, the kernel may not have set up the new
            // arguments.
            let mut child = Command::new("sh")
                .args(["-c", "echo; read line", "test", argument])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("a shell");
            let mut byte = [0];
            child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("it runs");
            let found = processes(dir.path()) == [child.id()];
            child.kill().expect("killed");
            child.wait().expect("reaped");
            found
        };
        let mark = dir.path().join(DEFAULTS).to_str().expect("text").to_owned();
        assert!(found_with(&mark));
        assert!(!found_with(&format!("{mark}.old")));
        assert!(!found_with(&format!("less {mark}")));
        assert!(!found_with(dir.path().to_str().expect("text")));
    }
}
