//! A running network, and waiting for its consensuses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::children::{self, Children};
use crate::clock::Deadline;
use crate::consensus;
use crate::control::{Control, ControlError};
use crate::error::LabError;
use crate::keeper::Keeper;
use crate::launch;
use crate::node::{Node, Role};
use crate::ports::Reserved;
use crate::process;
use crate::progress::Progress;
use crate::spec::{AUTHORITIES, NetworkSpec, Programs};
use crate::state;
use crate::torrc::BANDWIDTH_FILE;

/// Attempts with other ports before the error is reported.
const ATTEMPTS: u32 = 5;
/// Maximum wait for an event before the state is polled: events may be missed while a connection is being
/// established, and processes may die silently.
const STEP: Duration = Duration::from_millis(500);

/// The interval of reloads that make a node without a consensus retry at once.
const RELOAD_PAUSE: Duration = Duration::from_secs(15);

/// The flags that a C tor client requires of its guards.
const GUARD_FLAGS: [&str; 6] = ["Fast", "Guard", "Running", "Stable", "V2Dir", "Valid"];

/// A private network of C tor on the loopback interface.
///
/// Dropping it ends its processes and removes its folder. A separate keeper process does the same if this
/// process ends without dropping it, by a panic, Ctrl-C or `kill -9`.
#[derive(Debug)]
pub struct Network {
    dir: PathBuf,
    tor: PathBuf,
    keep: bool,
    detached: bool,
    /// The authorities first.
    nodes: Vec<Node>,
    // Dropped in this order: the processes end, then the keeper removes the folder.
    children: Children,
    keeper: Keeper,
}

impl Network {
    /// Starts a network, and returns once there is a consensus that lists all nodes as running and all of them
    /// have it, with all descriptors. This takes about ten seconds.
    ///
    /// # Errors
    /// [`LabError`] if tor is missing, the specification is invalid, a tor exits, or time runs out. Nothing is
    /// left behind then, except the folder with [`NetworkSpec::keep`].
    pub fn start(spec: &NetworkSpec, progress: &mut dyn FnMut(Progress)) -> Result<Self, LabError> {
        Self::start_with(spec, progress, &mut || Reserved::new(spec.address))
    }

    /// Starts a network with another source of ports, for tests.
    fn start_with(
        spec: &NetworkSpec,
        progress: &mut dyn FnMut(Progress),
        ports: &mut dyn FnMut() -> std::io::Result<Reserved>,
    ) -> Result<Self, LabError> {
        let deadline = Deadline::after(spec.patience);
        spec.check()?;
        let programs = Programs::find(spec)?;
        let dir = launch::make_folder(spec.dir.as_deref())?;
        let keeper = Keeper::start(&dir, spec.keep)?;
        launch::write_shared_files(&dir)?;
        progress(Progress::MakingKeys);
        let keys = launch::prepare(&dir, spec, &programs)?;
        let mut attempts = 0;
        let (nodes, children) = loop {
            attempts += 1;
            progress(Progress::Starting { nodes: keys.len() + spec.relays.len() });
            let reserved = ports().map_err(|error| {
                LabError::io("listen on", Path::new(&spec.address.to_string()))(error)
            })?;
            match launch::launch(&dir, spec, &programs, &keys, reserved, deadline) {
                Ok(launched) => break launched,
                Err(LabError::PortInUse { nickname, log, .. }) => {
                    if attempts == ATTEMPTS {
                        return Err(LabError::PortInUse { nickname, attempts, log });
                    }
                    progress(Progress::Retrying { nickname });
                }
                Err(other) => return Err(other),
            }
        };
        let (keep, detached) = (spec.keep, spec.detached);
        let tor = programs.tor;
        let network = Self { dir, tor, keep, detached, nodes, children, keeper };
        state::write(&network.dir, detached, &network.nodes)?;
        network.wait_until_up(progress, deadline)?;
        progress(Progress::Ready { after: deadline.elapsed() });
        Ok(network)
    }

    /// The network's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of its tor.
    pub(crate) fn tor(&self) -> &Path {
        &self.tor
    }

    /// Authorities and relays.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The three authorities. They are relays as well.
    #[must_use]
    pub fn authorities(&self) -> &[Node] {
        self.nodes.get(..AUTHORITIES.len()).unwrap_or_default()
    }

    /// The addresses of the authorities' directories: relays that are not among [`relays`](Self::relays) join
    /// the network by publishing their descriptors there, and are listed after the next vote.
    #[must_use]
    pub fn directory_addrs(&self) -> Vec<SocketAddr> {
        self.authorities().iter().filter_map(Node::dir_addr).collect()
    }

    /// The relays, in the order of the specification.
    #[must_use]
    pub fn relays(&self) -> &[Node] {
        self.nodes.get(AUTHORITIES.len()..).unwrap_or_default()
    }

    /// The node with that nickname.
    #[must_use]
    pub fn node(&self, nickname: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.nickname == nickname)
    }

    /// The bandwidth file that the authorities vote with, if [`NetworkSpec::bandwidth_file`] was set. Its folder
    /// exists; the caller places the file there atomically, usually as a symbolic link. Tor reads it before each
    /// vote.
    #[must_use]
    pub fn bandwidth_file_path(&self) -> PathBuf {
        self.dir.join(BANDWIDTH_FILE)
    }

    /// The current consensus (of the flavour `ns`), if there is one already.
    ///
    /// # Errors
    /// [`LabError::Control`] if the first authority does not answer.
    pub fn consensus(&self) -> Result<Option<String>, LabError> {
        let authority = self.first_authority()?;
        current(authority, &mut authority.control()?)
    }

    /// Waits for a consensus whose `valid-after` is after the given Unix time (in seconds), if one is given,
    /// and that `accept` accepts; returns its text. There is a consensus in each voting interval.
    ///
    /// # Errors
    /// [`LabError::Timeout`] if there is none within `patience`, [`LabError::TorDied`] if the queried authority
    /// exits, [`LabError::Control`] if it does not answer.
    pub fn wait_for_consensus(
        &self,
        after_unix: Option<u64>,
        accept: &mut dyn FnMut(&str) -> bool,
        patience: Duration,
    ) -> Result<String, LabError> {
        self.wait_by(after_unix, accept, Deadline::after(patience))
    }

    /// Waits for a consensus that gives the Running flag to all of these relays, given by their RSA
    /// fingerprints, whether they belong to the network or joined it; returns its text.
    ///
    /// # Errors
    /// As [`wait_for_consensus`](Self::wait_for_consensus).
    pub fn wait_until_running(
        &self,
        relays: &[[u8; 20]],
        patience: Duration,
    ) -> Result<String, LabError> {
        let mut all_run = |text: &str| consensus::running(text, relays.iter()) == relays.len();
        self.wait_for_consensus(None, &mut all_run, patience)
    }

    /// Waits until every node has a consensus in which these relays, given by their RSA fingerprints, have all
    /// flags that clients require of guards.
    ///
    /// Wait for this before C tor clients use relays that have joined the network: a client uses no guard without
    /// these flags, and may keep an earlier consensus for minutes; an exit refuses streams of circuits from an
    /// unknown relay.
    ///
    /// Returns the `valid-after` of the oldest of these consensuses, in Unix seconds. Relays outside of the
    /// network may still use the previous one: for relays of this project there is
    /// [`OwnRelay::wait_until_it_uses`](crate::OwnRelay::wait_until_it_uses).
    ///
    /// # Errors
    /// [`LabError`] if a tor exits or does not answer, or time runs out.
    pub fn wait_until_known(
        &self,
        relays: &[[u8; 20]],
        patience: Duration,
    ) -> Result<u64, LabError> {
        let deadline = Deadline::after(patience);
        let mut valid_after_unix_s = u64::MAX;
        for node in &self.nodes {
            let mut control = node.control()?;
            listen(node, &mut control)?;
            for rsa in relays {
                let key = format!("ns/id/{}", hex::encode_upper(rsa));
                loop {
                    let status = get_if_any(node, &mut control, &key)?.unwrap_or_default();
                    if consensus::has_flags(&status, &GUARD_FLAGS) {
                        break;
                    }
                    if deadline.passed() {
                        let what = format!("`{}` to know {key} as a guard", node.nickname);
                        return Err(launch::timeout(what, deadline, Some(node)));
                    }
                    wait_for_news(node, &control, deadline)?;
                }
            }
            // Not the authorities' latest consensus, which other nodes may not have yet.
            let since = get_if_any(node, &mut control, "consensus/valid-after")?;
            let since = since.and_then(|text| consensus::unix_time(&text));
            let Some(since) = since else {
                let what =
                    format!("`{}` to report the `valid-after` of its consensus", node.nickname);
                return Err(launch::timeout(what, deadline, Some(node)));
            };
            valid_after_unix_s = valid_after_unix_s.min(since);
        }
        Ok(valid_after_unix_s)
    }

    /// Whether a consensus gives the Running flag to all nodes.
    #[must_use]
    pub fn lists_all_running(&self, consensus: &str) -> bool {
        self.running(consensus) == self.nodes.len()
    }

    /// Ends the network. Dropping does the same, but cannot report a failure.
    ///
    /// # Errors
    /// [`LabError::CannotStop`] if processes or the folder are left.
    pub fn stop(self) -> Result<(), LabError> {
        let (dir, keep) = (self.dir.clone(), self.keep);
        drop(self);
        let pids = process::processes(&dir);
        if pids.is_empty() && (keep || !dir.exists()) {
            return Ok(());
        }
        Err(LabError::CannotStop { pids, dir })
    }

    /// Lets the network outlive this process, and returns its folder, by which [`status`] and [`down`] find it.
    ///
    /// [`status`]: crate::status
    /// [`down`]: crate::down
    ///
    /// # Errors
    /// [`LabError::Spec`] if the network was not started with [`NetworkSpec::detached`]; it is ended then.
    pub fn detach(self) -> Result<PathBuf, LabError> {
        if !self.detached {
            return Err(LabError::Spec(
                "only a network started with `detached` can be detached: \
                 the processes of other networks end with their owner"
                    .to_owned(),
            ));
        }
        self.keeper.release()?;
        self.children.release();
        Ok(self.dir)
    }

    fn running(&self, consensus: &str) -> usize {
        consensus::running(consensus, self.nodes.iter().map(|node| &node.rsa))
    }

    fn first_authority(&self) -> Result<&Node, LabError> {
        let alive = self.authorities().iter().find(|node| node.is_alive());
        alive.or_else(|| self.nodes.first()).ok_or_else(|| {
            LabError::Spec("the network has no authority (an internal error)".to_owned())
        })
    }

    fn wait_by(
        &self,
        after_unix: Option<u64>,
        accept: &mut dyn FnMut(&str) -> bool,
        deadline: Deadline,
    ) -> Result<String, LabError> {
        let authority = self.first_authority()?;
        let mut control = authority.control()?;
        listen(authority, &mut control)?;
        loop {
            if let Some(text) = current(authority, &mut control)? {
                let new_enough = after_unix.is_none_or(|after| {
                    consensus::valid_after(&text).is_some_and(|valid_after| valid_after > after)
                });
                if new_enough && accept(&text) {
                    return Ok(text);
                }
            }
            if deadline.passed() {
                let what = "a consensus that meets the condition".to_owned();
                return Err(launch::timeout(what, deadline, Some(authority)));
            }
            wait_for_news(authority, &control, deadline)?;
        }
    }

    fn wait_until_up(
        &self,
        progress: &mut dyn FnMut(Progress),
        deadline: Deadline,
    ) -> Result<(), LabError> {
        let nodes = self.nodes.len();
        progress(Progress::WaitingForConsensus { running: 0, nodes });
        let mut best = 0;
        let mut complete = |text: &str| {
            let running = self.running(text);
            if running > best {
                best = running;
                progress(Progress::WaitingForConsensus { running, nodes });
            }
            running == nodes
        };
        self.wait_by(None, &mut complete, deadline)?;
        for (ready, node) in self.nodes.iter().enumerate() {
            progress(Progress::WaitingForRelays { ready, nodes });
            let mut control = node.control()?;
            listen(node, &mut control)?;
            let mut reloads_at = Duration::ZERO;
            while !has_directory(node, &mut control, nodes)? {
                // The node has requested a consensus too early, and backs off. A reload resets its failure
                // counters, so it retries at once.
                if deadline.elapsed() >= reloads_at {
                    let reloaded = control.request("SIGNAL RELOAD");
                    reloaded.map_err(LabError::control(&node.nickname))?;
                    reloads_at = deadline.elapsed() + RELOAD_PAUSE;
                }
                if deadline.passed() {
                    let what =
                        format!("the consensus and descriptors to reach `{}`", node.nickname);
                    return Err(launch::timeout(what, deadline, Some(node)));
                }
                wait_for_news(node, &control, deadline)?;
            }
        }
        Ok(())
    }
}

/// Subscribes to the events that indicate progress.
fn listen(node: &Node, control: &mut Control) -> Result<(), LabError> {
    control.set_events(&["NEWCONSENSUS", "NEWDESC"]).map_err(LabError::control(&node.nickname))
}

/// Waits for the next event, but not for long; fails if the process has died.
fn wait_for_news(node: &Node, control: &Control, deadline: Deadline) -> Result<(), LabError> {
    let _nothing_new = control.events().recv_timeout(deadline.step(STEP));
    if node.is_alive() {
        return Ok(());
    }
    Err(match children::died(&node.nickname, node.pid, &node.dir) {
        // At this stage there is no other attempt.
        LabError::PortInUse { nickname, log, .. } => {
            LabError::TorDied { nickname, status: "a port was in use".to_owned(), log }
        }
        other => other,
    })
}

/// The consensus that an authority has, if any.
fn current(node: &Node, control: &mut Control) -> Result<Option<String>, LabError> {
    debug_assert_eq!(node.role, Role::Authority);
    get_if_any(node, control, "dir/status-vote/current/consensus")
}

/// A value that may not exist yet.
fn get_if_any(node: &Node, control: &mut Control, key: &str) -> Result<Option<String>, LabError> {
    match control.get_info(key) {
        Ok(text) => Ok(Some(text).filter(|text| !text.is_empty())),
        Err(ControlError::Refused { .. }) => Ok(None),
        Err(_) if !node.is_alive() => Err(children::died(&node.nickname, node.pid, &node.dir)),
        Err(error) => Err(LabError::control(&node.nickname)(error)),
    }
}

/// Whether a node has a consensus and the microdescriptors of all `nodes`.
fn has_directory(node: &Node, control: &mut Control, nodes: usize) -> Result<bool, LabError> {
    if get_if_any(node, control, "consensus/valid-after")?.is_none() {
        return Ok(false);
    }
    let descriptors = get_if_any(node, control, "md/all")?.unwrap_or_default();
    // Microdescriptors of one relay may differ between votes, so there may be more.
    Ok(descriptors.lines().filter(|&line| line == "onion-key").count() >= nodes)
}

#[cfg(test)]
mod tests;
