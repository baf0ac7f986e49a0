//! Nothing of a network is left after its owner has ended in any way.
//!
//! Each test starts itself again as the owner, which then ends abruptly.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use lab::{Network, NetworkSpec, Progress};
use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Variables for the second run: the network's folder, the step to report, and whether to panic then.
const DIR: &str = "FLASHFLOW_LAB_TEST_DIR";
const STEP: &str = "FLASHFLOW_LAB_TEST_STEP";
const PANIC: &str = "FLASHFLOW_LAB_TEST_PANIC";

/// In the second run, this is the owner, and does not return.
#[expect(clippy::print_stdout, reason = "the first run waits for it")]
fn run_as_owner_if_requested() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let dir = PathBuf::from(dir);
    let step_wanted = std::env::var(STEP).expect("set with the folder");
    let panics = std::env::var_os(PANIC).is_some();
    let mut progress = |step: Progress| {
        let name = match step {
            Progress::MakingKeys => "keys",
            Progress::WaitingForConsensus { .. } => "started",
            _ => return,
        };
        if name != step_wanted {
            return;
        }
        if panics {
            // The parent has no other way to know that this step was reached.
            std::fs::write(dir.with_extension("seen"), lab::processes(&dir).len().to_string())
                .expect("written");
            panic!("on purpose");
        }
        println!("reached");
    };
    let spec = NetworkSpec { dir: Some(dir.clone()), ..NetworkSpec::default() };
    let _network = Network::start(&spec, &mut progress);
    // Waits until the parent kills this process: nothing is ever sent.
    let (_sender, receiver) = mpsc::channel::<()>();
    let _never = receiver.recv_timeout(PATIENCE);
    panic!("the owner was not killed");
}

/// Starts an owner of a network in `dir`: the test that runs, again.
fn start_owner(dir: &Path, step: &str) -> Command {
    let thread = std::thread::current();
    let test = thread.name().expect("the test's");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(DIR, dir)
        .env(STEP, step)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Waits until the owner has reached its step.
fn reached(owner: &mut Child) {
    use std::io::{BufRead, BufReader};
    let output = BufReader::new(owner.stdout.take().expect("piped"));
    let mut lines = output.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("reached")), "the owner did not reach the step");
}

/// Waits until nothing is left of the network in `dir`.
fn assert_nothing_left(dir: &Path) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while dir.exists() || !lab::processes(dir).is_empty() {
        assert!(waited < PATIENCE, "left: {:?} {:?}", lab::processes(dir), dir.exists());
        // Nothing is sent: this only waits.
        let _timeout = receiver.recv_timeout(step);
        waited += step;
    }
}

/// A path for a network's folder, and the parent folder to clean up in the end.
fn network_folder() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a folder");
    let dir = parent.path().canonicalize().expect("exists").join("net");
    (parent, dir)
}

fn owner_ends_by(signal: Signal, step: &str, tors: usize) {
    run_as_owner_if_requested();
    let (_parent, dir) = network_folder();
    let mut owner = start_owner(&dir, step).spawn().expect("started");
    reached(&mut owner);
    assert!(lab::processes(&dir).len() >= tors);
    let pid = Pid::from_child(&owner);
    kill_process(pid, signal).expect("sent");
    assert!(!owner.wait().expect("reaped").success());
    assert_nothing_left(&dir);
}

#[test]
fn nothing_is_left_after_kill_9() {
    owner_ends_by(Signal::KILL, "started", 3);
}

#[test]
fn nothing_is_left_after_kill_9_while_keys_are_made() {
    owner_ends_by(Signal::KILL, "keys", 0);
}

#[test]
fn nothing_is_left_after_ctrl_c_at_the_terminal() {
    run_as_owner_if_requested();
    // A terminal's Ctrl-C goes to the whole group of the owner, as here.
    let (_parent, dir) = network_folder();
    let mut owner = start_owner(&dir, "started").process_group(0).spawn().expect("started");
    reached(&mut owner);
    assert_eq!(lab::processes(&dir).len(), 3);
    rustix::process::kill_process_group(Pid::from_child(&owner), Signal::INT).expect("sent");
    assert!(!owner.wait().expect("reaped").success());
    assert_nothing_left(&dir);
}

#[test]
fn nothing_is_left_after_a_panic() {
    run_as_owner_if_requested();
    let (_parent, dir) = network_folder();
    let output = start_owner(&dir, "started").env(PANIC, "1").output().expect("run");
    assert!(!output.status.success());
    // Dropping the network has waited for its end. The end of the output shows that no tor holds the pipe open.
    assert_eq!(std::fs::read_to_string(dir.with_extension("seen")).expect("seen"), "3");
    assert!(!dir.exists());
    assert!(lab::processes(&dir).is_empty());
}
