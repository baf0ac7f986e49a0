//! Networks that outlive the process that started them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::children::{KILLED, ORDERLY};
use crate::clock::{self, Deadline};
use crate::consensus;
use crate::error::LabError;
use crate::launch;
use crate::node::{Node, Role};
use crate::process;
use crate::torrc::BANDWIDTH_FILE;

/// Name of the state file in a network's folder.
const STATE: &str = "lab.json";
/// Version of the state file's format.
const VERSION: u32 = 1;

/// The content of the state file.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    flashflow_lab: u32,
    /// In Unix seconds.
    started: u64,
    detached: bool,
    nodes: Vec<Node>,
}

/// A network, as found by its folder.
#[derive(Clone, Debug)]
pub struct Status {
    /// The network's folder.
    pub dir: PathBuf,
    /// When it was started, in Unix seconds.
    pub started_unix: u64,
    /// Whether it outlives the process that started it.
    pub detached: bool,
    /// Authorities and relays, dead or alive: see [`Node::is_alive`].
    pub nodes: Vec<Node>,
    /// `valid-after` of the current consensus, in Unix seconds; `None` if no authority has one.
    pub valid_after_unix: Option<u64>,
}

impl Status {
    /// The bandwidth file that the authorities vote by, if they are so configured.
    #[must_use]
    pub fn bandwidth_file_path(&self) -> PathBuf {
        self.dir.join(BANDWIDTH_FILE)
    }

    /// The addresses of the authorities' directories, and the fingerprints of the identity keys whose
    /// signatures count.
    #[must_use]
    pub fn authorities(&self) -> (Vec<SocketAddr>, Vec<[u8; 20]>) {
        let all = self.nodes.iter().filter(|node| node.role() == Role::Authority);
        all.filter_map(|node| node.dir_addr.zip(node.v3_identity)).unzip()
    }

    /// Whether all processes run.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.nodes.iter().all(Node::is_alive)
    }
}

/// Writes the state file.
pub(crate) fn write(dir: &Path, detached: bool, nodes: &[Node]) -> Result<(), LabError> {
    let started = clock::unix_now();
    let state = State { flashflow_lab: VERSION, started, detached, nodes: nodes.to_vec() };
    let path = dir.join(STATE);
    let text = serde_json::to_string_pretty(&state)
        .map_err(|error| LabError::io("write", &path)(error.into()))?;
    launch::write(&path, &text)
}

/// Reads the state file of a network's folder.
fn read(dir: &Path) -> Result<(PathBuf, State), LabError> {
    let not_a_lab = |reason: String| LabError::NotALab { dir: dir.to_owned(), reason };
    let full = dir.canonicalize().map_err(|error| not_a_lab(error.to_string()))?;
    let text = fs::read_to_string(full.join(STATE))
        .map_err(|error| not_a_lab(format!("cannot read its `{STATE}`: {error}")))?;
    let state: State = serde_json::from_str(&text)
        .map_err(|error| not_a_lab(format!("its `{STATE}` is invalid: {error}")))?;
    if state.flashflow_lab != VERSION {
        return Err(not_a_lab(format!(
            "its `{STATE}` has format {}, not format {VERSION}",
            state.flashflow_lab
        )));
    }
    // Guards against a copied state file: its folder, not the original one, would be removed.
    if state.nodes.is_empty() || state.nodes.iter().any(|node| node.network_dir() != full) {
        return Err(not_a_lab(format!("its `{STATE}` belongs to another folder")));
    }
    Ok((full, state))
}

/// Inspects the network in a folder.
///
/// # Errors
/// [`LabError::NotALab`] if there is none. Dead processes are not an error.
pub fn status(dir: &Path) -> Result<Status, LabError> {
    let (dir, State { started, detached, nodes, .. }) = read(dir)?;
    let mut alive = nodes.iter().filter(|node| node.role == Role::Authority && node.is_alive());
    let valid_after_unix = alive.find_map(|authority| {
        let text = authority.control().ok()?.get_info("dir/status-vote/current/consensus").ok()?;
        consensus::valid_after(&text)
    });
    Ok(Status { dir, started_unix: started, detached, nodes, valid_after_unix })
}

/// Ends the network in a folder, and removes the folder. A network whose processes have died is removed as
/// well.
///
/// # Errors
/// [`LabError::NotALab`] if there is none, [`LabError::CannotStop`] if processes do not end,
/// [`LabError::Io`] if the folder cannot be removed.
pub fn down(dir: &Path) -> Result<(), LabError> {
    let (dir, _state) = read(dir)?;
    // The system's process list is more reliable than the state file.
    for (kill, patience) in [(Signal::TERM, ORDERLY), (Signal::KILL, KILLED)] {
        let deadline = Deadline::after(patience);
        let pids = process::processes(&dir);
        for &pid in &pids {
            process::signal(pid, kill);
        }
        for pid in pids {
            process::wait_for_exit(pid, deadline.left());
        }
    }
    let pids = process::processes(&dir);
    if !pids.is_empty() {
        return Err(LabError::CannotStop { pids, dir });
    }
    // The keeper of a network that was not detached may be removing the folder concurrently.
    match fs::remove_dir_all(&dir) {
        Err(error) if dir.exists() => Err(LabError::io("remove the folder", &dir)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_a_network_are_not_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let refusal = |text: Option<&str>| {
            if let Some(text) = text {
                fs::write(dir.path().join(STATE), text).expect("written");
            }
            let error = down(dir.path()).expect_err("no network");
            assert!(matches!(error, LabError::NotALab { .. }));
            assert!(matches!(status(dir.path()), Err(LabError::NotALab { .. })));
            assert!(dir.path().exists());
            error.to_string()
        };
        assert!(refusal(None).contains("cannot read its `lab.json`"));
        assert!(refusal(Some("{}")).contains("is invalid"));
        let state = |version, nodes: &str| {
            format!(
                "{{\"flashflow_lab\":{version},\"started\":1,\"detached\":true,\"nodes\":{nodes}}}"
            )
        };
        assert!(refusal(Some(&state(2, "[]"))).contains("format 2"));
        assert!(refusal(Some(&state(1, "[]"))).contains("another folder"));
        let absent = dir.path().join("absent");
        assert!(matches!(down(&absent), Err(LabError::NotALab { .. })));
    }
}
