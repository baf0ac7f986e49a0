//! However the owner of a network ends, nothing of it is left.
//!
//! Each test starts itself again as the owner, which then ends abruptly.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use lab::{Network, NetworkSpec, Progress};
use rustix::process::{Pid, Signal, kill_process};

/// Far more than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Instructions for the second run: the network's folder, and what to do at which step.
const DIR: &str = "FLASHFLOW_LAB_TEST_DIR";
const STEP: &str = "FLASHFLOW_LAB_TEST_STEP";
const PANIC: &str = "FLASHFLOW_LAB_TEST_PANIC";

/// In the second run, this is the owner, and does not return.
#[expect(clippy::print_stdout, reason = "the first run waits for it")]
fn be_owner_if_told() {
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
    // Until the parent kills this process: nothing is ever sent.
    let (_sender, receiver) = mpsc::channel::<()>();
    let _never = receiver.recv_timeout(PATIENCE);
    panic!("nobody has ended the owner");
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
    assert!(lines.any(|line| line.contains("reached")), "the owner did not get far enough");
}

/// Waits until nothing is left of the network in `dir`.
fn assert_nothing_left(dir: &Path) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let step = Duration::from_millis(50);
    let mut waited = Duration::ZERO;
    while dir.exists() || !lab::processes(dir).is_empty() {
        assert!(waited < PATIENCE, "left: {:?} {:?}", lab::processes(dir), dir.exists());
        // Nobody sends anything: this only waits.
        let _timeout = receiver.recv_timeout(step);
        waited += step;
    }
}

/// A folder's name for a network, and the folder to clean up in the end.
fn place() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a folder");
    let dir = parent.path().canonicalize().expect("exists").join("net");
    (parent, dir)
}

fn owner_ends_by(signal: Signal, step: &str, tors: usize) {
    be_owner_if_told();
    let (_parent, dir) = place();
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
    be_owner_if_told();
    // A terminal's Ctrl-C goes to the whole group of the owner, as here.
    let (_parent, dir) = place();
    let mut owner = start_owner(&dir, "started").process_group(0).spawn().expect("started");
    reached(&mut owner);
    assert_eq!(lab::processes(&dir).len(), 3);
    rustix::process::kill_process_group(Pid::from_child(&owner), Signal::INT).expect("sent");
    assert!(!owner.wait().expect("reaped").success());
    assert_nothing_left(&dir);
}

#[test]
fn nothing_is_left_after_a_panic() {
    be_owner_if_told();
    let (_parent, dir) = place();
    let output = start_owner(&dir, "started").env(PANIC, "1").output().expect("run");
    assert!(!output.status.success());
    // The drop has waited, so all is gone already, and the output's end has shown that no tor
    // holds our pipe.
    assert_eq!(std::fs::read_to_string(dir.with_extension("seen")).expect("seen"), "3");
    assert!(!dir.exists());
    assert!(lab::processes(&dir).is_empty());
}
