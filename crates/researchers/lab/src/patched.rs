//! C tor with `patches/tor-0.4.9`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whether this tor has the patch.
#[must_use]
pub fn is_patched(tor: &Path) -> bool {
    let options = Command::new(tor).arg("--list-torrc-options").output();
    options.is_ok_and(|listed| {
        listed.stdout.split(|byte| *byte == b'\n').any(|line| line == b"FlashFlow")
    })
}

/// A patched tor: the program `FLASHFLOW_TOR` if it is one, or else what `make tor` has built in this repository.
#[must_use]
pub fn patched_tor() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    // Make resolves a relative folder from there.
    let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let given = env::var_os("FLASHFLOW_TOR").map(PathBuf::from);
    let all = given.into_iter().chain([target.join("patched-tor/bin/tor")]);
    all.into_iter().find(|tor| is_patched(tor))
}
