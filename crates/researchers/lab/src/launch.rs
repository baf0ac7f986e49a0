//! Starts the processes of a network from its specification.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hex::FromHex;

use crate::children::{self, Children};
use crate::clock::Deadline;
use crate::control::{Control, ControlError};
use crate::error::LabError;
use crate::keys::{self, AuthorityKeys};
use crate::node::{Node, Role};
use crate::ports::Reserved;
use crate::process::{DEFAULTS, LOG, log_tail};
use crate::spec::{AUTHORITIES, NetworkSpec, Programs};
use crate::torrc::{AuthorityLine, BANDWIDTH_FILE, CONTROL_PORT, COOKIE, RESOLV_CONF, Torrc};

/// Creates the network's folder, readable by its owner only, and returns its absolute path.
pub(crate) fn make_folder(wanted: Option<&Path>) -> Result<PathBuf, LabError> {
    let dir = match wanted {
        None => {
            let parent = std::env::temp_dir();
            tempfile::Builder::new()
                .prefix("flashflow-lab-")
                .permissions(fs::Permissions::from_mode(0o700))
                .tempdir_in(&parent)
                .map_err(LabError::io("create a folder in", &parent))?
                .keep()
        }
        Some(dir) if dir.exists() => {
            // The folder is removed in the end, so it must not contain other files.
            let mut entries = fs::read_dir(dir).map_err(LabError::io("read the folder", dir))?;
            if entries.next().is_some() {
                return Err(LabError::Spec(format!(
                    "the folder `{}` is not empty: give one that is empty or does not exist",
                    dir.display()
                )));
            }
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
                .map_err(LabError::io("make private the folder", dir))?;
            dir.to_owned()
        }
        Some(dir) => {
            DirBuilder::new()
                .mode(0o700)
                .create(dir)
                .map_err(LabError::io("create the folder", dir))?;
            dir.to_owned()
        }
    };
    let dir = dir.canonicalize().map_err(LabError::io("find the full path of", &dir))?;
    if dir.to_str().is_none_or(|path| path.chars().any(char::is_control)) {
        let _left_empty = fs::remove_dir(&dir);
        let dir = dir.display();
        return Err(LabError::Spec(format!("tor cannot handle the name of the folder `{dir}`")));
    }
    Ok(dir)
}

/// Writes the files that all nodes share.
pub(crate) fn write_shared_files(dir: &Path) -> Result<(), LabError> {
    write(&dir.join(DEFAULTS), "")?;
    write(&dir.join(RESOLV_CONF), "nameserver 127.0.0.1\n")?;
    if let Some(bandwidth) = dir.join(BANDWIDTH_FILE).parent() {
        fs::create_dir_all(bandwidth).map_err(LabError::io("create the folder", bandwidth))?;
    }
    Ok(())
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), LabError> {
    fs::write(path, text).map_err(LabError::io("write", path))
}

/// A tor that has been started.
struct Started<'a> {
    nickname: &'a str,
    role: Role,
    dir: PathBuf,
    pid: u32,
    limit_bit_per_s: Option<u64>,
    authority: Option<&'a AuthorityLine>,
}

/// Creates the nodes' folders and the authorities' keys.
pub(crate) fn prepare(
    dir: &Path,
    spec: &NetworkSpec,
    programs: &Programs,
) -> Result<Vec<AuthorityKeys>, LabError> {
    let relays = spec.relays.iter().map(|relay| relay.nickname.as_str());
    for nickname in AUTHORITIES.into_iter().chain(relays) {
        let dir = dir.join(nickname);
        DirBuilder::new().mode(0o700).create(&dir).map_err(LabError::io("create", &dir))?;
    }
    keys::make(dir, programs)
}

/// Writes the configurations, starts all nodes, and waits until all control ports answer.
///
/// A [`LabError::PortInUse`] leaves no process behind; the caller tries again.
pub(crate) fn launch(
    dir: &Path,
    spec: &NetworkSpec,
    programs: &Programs,
    keys: &[AuthorityKeys],
    reserved: Reserved,
    deadline: Deadline,
) -> Result<(Vec<Node>, Children), LabError> {
    let authorities: Vec<_> = keys
        .iter()
        .zip(reserved.ports())
        .map(|(keys, &ports)| AuthorityLine { keys: *keys, ports })
        .collect();
    let owner = (!spec.detached).then(std::process::id);
    let torrc = Torrc { dir, spec, authorities: &authorities, owner };

    for authority in &authorities {
        write(&dir.join(authority.keys.nickname).join("torrc"), &torrc.authority(authority))?;
    }
    for relay in &spec.relays {
        let folder = dir.join(&relay.nickname);
        write(&folder.join("torrc"), &torrc.relay(relay))?;
        if !relay.state.is_empty() {
            write(&folder.join("state"), &(relay.state.join("\n") + "\n"))?;
        }
    }
    // As late as possible: other programs may take the ports before tor starts.
    drop(reserved);
    let mut children = Children::default();
    let mut started = Vec::new();
    let planned = authorities
        .iter()
        .map(|authority| (authority.keys.nickname, Some(authority), None, None))
        .chain(spec.relays.iter().map(|relay| {
            (relay.nickname.as_str(), None, relay.limit, relay.tor_binary.as_deref())
        }));
    for (nickname, authority, limit, tor) in planned {
        let dir = dir.join(nickname);
        remove_earlier_files(&dir)?;
        let pid = children.start(tor.unwrap_or(&programs.tor), &dir)?;
        let role = if authority.is_some() { Role::Authority } else { Role::Relay };
        let limit_bit_per_s = limit.map(onion::Rate::as_bit_per_s);
        started.push(Started { nickname, role, dir, pid, limit_bit_per_s, authority });
    }
    let nodes = started.into_iter().map(|node| node.ready(deadline)).collect::<Result<_, _>>()?;
    Ok((nodes, children))
}

/// Removes files of an earlier attempt, which would be mistaken for those of the tor about to start.
fn remove_earlier_files(dir: &Path) -> Result<(), LabError> {
    for name in [CONTROL_PORT, COOKIE, LOG] {
        let path = dir.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LabError::io("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Started<'_> {
    /// Waits until tor answers, and queries the values that it has chosen.
    fn ready(self, deadline: Deadline) -> Result<Node, LabError> {
        let Self { nickname, role, dir, pid, limit_bit_per_s, authority } = self;
        let control_addr = children::wait_for_control(nickname, pid, &dir, deadline)?;
        let (fingerprint, or_addr) = match query(control_addr, &dir) {
            // Tor opens its other ports after the control port, and may have exited because one was in use.
            Err(ControlError::Closed | ControlError::Connect { .. }) => {
                crate::process::wait_for_exit(
                    pid,
                    deadline.step(std::time::Duration::from_secs(5)),
                );
                return Err(children::died(nickname, pid, &dir));
            }
            other => other.map_err(LabError::control(nickname))?,
        };
        let unexpected = |what: &str, found: &str| LabError::Control {
            nickname: nickname.to_owned(),
            source: ControlError::Unexpected(format!("{what} {found:?}")),
        };
        let rsa = <[u8; 20]>::from_hex(&fingerprint)
            .map_err(|_| unexpected("fingerprint", &fingerprint))?;
        // Several listeners would be listed one after the other, each in quotes.
        let or_addr: SocketAddr = or_addr
            .split(' ')
            .next()
            .and_then(|address| address.trim_matches('"').parse().ok())
            .ok_or_else(|| unexpected("OR address", &or_addr))?;
        Ok(Node {
            role,
            nickname: nickname.to_owned(),
            rsa,
            ed25519: read_ed25519(&dir)?,
            v3_identity: authority.map(|authority| authority.keys.v3_identity),
            or_addr,
            dir_addr: authority.map(|authority| authority.ports.dir),
            control_addr,
            pid,
            limit_bit_per_s,
            dir,
        })
    }
}

/// Queries a tor for its RSA fingerprint and its OR listeners.
fn query(control: SocketAddr, dir: &Path) -> Result<(String, String), ControlError> {
    let mut control = Control::connect(control, &dir.join(COOKIE))?;
    Ok((control.get_info("fingerprint")?, control.get_info("net/listeners/or")?))
}

/// Reads the Ed25519 identity that tor has written into its folder.
fn read_ed25519(dir: &Path) -> Result<[u8; 32], LabError> {
    let path = dir.join("fingerprint-ed25519");
    let text = fs::read_to_string(&path).map_err(LabError::io("read", &path))?;
    let word = text.split_ascii_whitespace().nth(1).unwrap_or("").trim_end_matches('=');
    let bytes = STANDARD_NO_PAD.decode(word).ok();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or(LabError::BadFile { path, expected: "a nickname and an Ed25519 key" })
}

/// The error for a timeout; it quotes a node's log.
pub(crate) fn timeout(what: String, deadline: Deadline, node: Option<&Node>) -> LabError {
    let log = node.map_or_else(String::new, |node| log_tail(&node.dir));
    LabError::Timeout { what, after: deadline.elapsed(), log }
}
