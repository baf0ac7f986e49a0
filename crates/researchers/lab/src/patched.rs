//! C tor with `patches/tor-0.4.9`.

use crate::error::LabError;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program at this path, which must be a patched tor.
///
/// # Errors
/// [`LabError::Spec`] if it is not one.
pub fn patched_tor_at(path: &Path) -> Result<PathBuf, LabError> {
    let problem = |text: &str| LabError::Spec(format!("{}: {text}", path.display()));
    let tor = path.canonicalize().map_err(|error| problem(&error.to_string()))?;
    let options = Command::new(&tor).arg("--list-torrc-options").output();
    let listed = options.map_err(|error| problem(&error.to_string()))?.stdout;
    match listed.split(|byte| *byte == b'\n').any(|line| line == b"FlashFlow") {
        true => Ok(tor),
        false => Err(problem("it has no option FlashFlow; `make tor` builds a tor that has it")),
    }
}

/// A patched tor: the program `FLASHFLOW_TOR` if it is one, or else what `make tor` has built in this repository.
#[must_use]
pub fn patched_tor() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    // Make resolves a relative folder from there.
    let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let given = env::var_os("FLASHFLOW_TOR").map(PathBuf::from);
    let all = given.into_iter().chain([target.join("patched-tor/bin/tor")]);
    all.into_iter().find_map(|tor| patched_tor_at(&tor).ok())
}
