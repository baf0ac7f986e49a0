//! The authorities' keys, created by tor's own programs.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use hex::FromHex;

use crate::error::LabError;
use crate::process::{self, DEFAULTS};
use crate::spec::{AUTHORITIES, Programs};

/// Generating an RSA key of 3072 bits takes two seconds of a processor. Tests create a dozen networks at once, with three such keys
/// each, and more than a minute has been seen.
const PATIENCE: Duration = Duration::from_secs(300);

/// The environment variable with a folder of v3 keys that networks share: for tests, whose networks last a minute each. Whoever needs a network
/// first fills it.
const SHARED: &str = "FLASHFLOW_LAB_KEYS";

const CERTIFICATE: &str = "authority_certificate";
/// What `tor-gencert` creates.
const FILES: [&str; 3] = ["authority_identity_key", "authority_signing_key", CERTIFICATE];

/// Fingerprints of an authority's keys. The keys are in the authority's folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthorityKeys {
    pub(crate) nickname: &'static str,
    /// The v3 identity key, which signs votes.
    pub(crate) v3_identity: [u8; 20],
    /// The RSA identity key, which it has as a relay.
    pub(crate) rsa: [u8; 20],
}

/// Creates the keys of all authorities concurrently. The authorities' folders must exist.
pub(crate) fn make(dir: &Path, programs: &Programs) -> Result<Vec<AuthorityKeys>, LabError> {
    thread::scope(|scope| {
        let makers: Vec<_> = AUTHORITIES
            .into_iter()
            .map(|nickname| scope.spawn(move || make_one(dir, programs, nickname)))
            .collect();
        let join = |maker: thread::ScopedJoinHandle<'_, _>| match maker.join() {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        makers.into_iter().map(join).collect()
    })
}

fn make_one(
    network: &Path,
    programs: &Programs,
    nickname: &'static str,
) -> Result<AuthorityKeys, LabError> {
    let dir = network.join(nickname);
    let keys = dir.join("keys");
    fs::create_dir_all(&keys).map_err(LabError::io("create the folder", &keys))?;
    certify(programs, &dir, &keys, nickname)?;
    let certificate = keys.join(CERTIFICATE);
    let text = read(&certificate)?;
    let v3_identity = text
        .lines()
        .find_map(|line| line.strip_prefix("fingerprint "))
        .and_then(|hex| <[u8; 20]>::from_hex(hex).ok())
        .ok_or_else(|| LabError::BadFile {
            path: certificate.clone(),
            expected: "a line `fingerprint`",
        })?;

    let defaults = network.join(DEFAULTS);
    let mut list = Command::new(&programs.tor);
    list.arg("--defaults-torrc")
        .arg(&defaults)
        .arg("-f")
        .arg(&defaults)
        .arg("--DataDirectory")
        .arg(&dir)
        .args(["--Nickname", nickname, "--ORPort", "1", "--SocksPort", "0", "--list-fingerprint"]);
    let path = dir.join("fingerprint");
    run(list, &dir, "tor --list-fingerprint", &path)?;
    let text = read(&path)?;
    let rsa = text
        .split_ascii_whitespace()
        .nth(1)
        .and_then(|hex| <[u8; 20]>::from_hex(hex).ok())
        .ok_or(LabError::BadFile { path, expected: "a nickname and a fingerprint" })?;
    Ok(AuthorityKeys { nickname, v3_identity, rsa })
}

/// Creates the v3 keys and the certificate of an authority, or copies those of an earlier network.
fn certify(programs: &Programs, dir: &Path, keys: &Path, nickname: &str) -> Result<(), LabError> {
    let earlier = env::var_os(SHARED).map(|folder| Path::new(&folder).join(nickname));
    if let Some(earlier) = earlier.as_ref().filter(|earlier| earlier.is_dir()) {
        return copy(earlier, keys);
    }
    let mut gencert = Command::new(&programs.gencert);
    gencert.args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12"]);
    for (option, file) in ["-i", "-s", "-c"].into_iter().zip(FILES) {
        gencert.arg(option).arg(keys.join(file));
    }
    run(gencert, dir, "tor-gencert", &keys.join(CERTIFICATE))?;
    let Some(earlier) = earlier else { return Ok(()) };
    // Others may do the same at this time: the first one counts.
    let folder = earlier.parent().unwrap_or(&earlier);
    fs::create_dir_all(folder).map_err(LabError::io("create the folder", folder))?;
    let own = tempfile::tempdir_in(folder).map_err(LabError::io("create a folder in", folder))?;
    copy(keys, own.path())?;
    if fs::rename(own.path(), &earlier).is_ok() {
        let _moved = own.keep();
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    for file in FILES {
        fs::copy(from.join(file), to.join(file))
            .map_err(LabError::io("copy to", &to.join(file)))?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(LabError::io("read", path))
}

/// Runs a program in an authority's folder until it exits, with a passphrase if it asks for one. It must create
/// the file `made`.
fn run(mut command: Command, dir: &Path, name: &str, made: &Path) -> Result<(), LabError> {
    let program = Path::new(command.get_program()).to_owned();
    let path = dir.join("keys-output");
    let output = File::create(&path).map_err(LabError::io("create", &path))?;
    let errors = output.try_clone().map_err(LabError::io("open", &path))?;
    let mut child = command
        .current_dir(dir)
        .env("HOME", dir)
        .stdin(Stdio::piped())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .map_err(LabError::io("start the program", &program))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not ask for it may have exited already. The keys protect nothing and live as long
        // as the network.
        let _unread = stdin.write_all(b"private network\n");
    }
    let status = process::wait_for_end(&mut child, PATIENCE);
    let is_done = status.is_some_and(|status| status.success());
    if is_done && made.is_file() {
        return Ok(());
    }
    let status = match status {
        None => format!("still running after {} s", PATIENCE.as_secs()),
        Some(_) if is_done => {
            let (program, made) = (program.display(), made.display());
            format!(
                "it exited successfully, but did not write {made}: is `{program}` another program?"
            )
        }
        Some(status) => status.to_string(),
    };
    let _gone_already = child.kill();
    let _reaped_already = child.wait();
    let output = fs::read(&path).unwrap_or_default();
    let output = String::from_utf8_lossy(&output).trim().to_owned();
    Err(LabError::Keys { program: name.to_owned(), status, output })
}
