//! Keys of relays and authorities, created by tor's own programs.

use super::Plan;
use crate::error::{Error, read};
use crate::network::Relay;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The paths of tor's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `tor`.
    pub tor: PathBuf,
    /// `tor-gencert`.
    pub gencert: PathBuf,
}

impl Default for Programs {
    /// Those in the search path.
    fn default() -> Self {
        Self { tor: "tor".into(), gencert: "tor-gencert".into() }
    }
}

/// The public part of a relay's keys.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) fingerprint: String,
    /// An authority's.
    pub(super) v3_identity: Option<String>,
}

pub(super) fn make(
    relays: &[Relay],
    hosts: &Path,
    programs: &Programs,
) -> Result<Vec<Keys>, Error> {
    relays.iter().map(|relay| make_one(relay, &hosts.join(&relay.site.name), programs)).collect()
}

fn make_one(relay: &Relay, folder: &Path, programs: &Programs) -> Result<Keys, Error> {
    let keys = folder.join("keys");
    fs::create_dir_all(&keys).map_err(|source| Error::Write { path: keys.clone(), source })?;
    // tor requires a configuration file; its content is written later.
    super::put(&folder.join("torrc"), "")?;
    let mut list = Command::new(&programs.tor);
    list.args(["--defaults-torrc", "torrc", "-f", "torrc", "--DataDirectory", "."]);
    list.args(["--Nickname", &relay.site.name, "--ORPort", "1", "--SocksPort", "0"]);
    list.args(["--ExitRelay", "0", "--Log", "err", "--list-fingerprint"]);
    run(list, folder)?;
    let path = folder.join("fingerprint");
    let text = read(&path)?;
    let digest = text.split_whitespace().nth(1).filter(|digest| digest.len() == 40);
    let fingerprint = digest.ok_or_else(|| Error::malformed(&path, "no fingerprint"))?.to_owned();
    // It records when tor ran here: long after the year 2000, in which Shadow begins.
    let state = folder.join("state");
    match fs::remove_file(&state) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::Write { path: state, source });
        }
        _ => {}
    }
    let v3_identity = Plan::is_authority(relay).then(|| certify(&keys, programs)).transpose()?;
    Ok(Keys { fingerprint, v3_identity })
}

fn certify(keys: &Path, programs: &Programs) -> Result<String, Error> {
    let mut gencert = Command::new(&programs.gencert);
    gencert.args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12"]);
    gencert.args(["-i", "authority_identity_key", "-s", "authority_signing_key"]);
    gencert.args(["-c", "authority_certificate"]);
    run(gencert, keys)?;
    let path = keys.join("authority_certificate");
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("fingerprint "));
    Ok(line.ok_or_else(|| Error::malformed(&path, "no line `fingerprint`"))?.to_owned())
}

/// Runs a program there, with a passphrase if it asks for one: keys of a simulation protect nothing.
fn run(mut command: Command, folder: &Path) -> Result<(), Error> {
    let program = PathBuf::from(command.get_program());
    let failed = |source| Error::Read { path: program.clone(), source };
    let pipes = command.current_dir(folder).env("HOME", ".").stdin(Stdio::piped());
    let mut child = pipes.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not ask may have exited already.
        let _unread = stdin.write_all(b"simulation\n");
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).trim().to_owned();
    let problem = format!("{} has failed ({}): {printed}", program.display(), output.status);
    Err(Error::Impossible(problem))
}
