//! Programs whose calendar clock a test sets, by libfaketime. Their monotonic clock is right.

use crate::Scratch;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian's package `faketime` has it.
const LIBRARIES: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];

/// The calendar clock of some programs.
pub struct FakeClock {
    library: &'static str,
    offset: PathBuf,
}

impl FakeClock {
    /// A clock that is right; `None` without libfaketime. `name` is that of a file in the folder.
    #[must_use]
    pub fn new(scratch: &Scratch, name: &str) -> Option<Self> {
        let library = LIBRARIES.into_iter().find(|library| Path::new(library).exists())?;
        let clock = Self { library, offset: scratch.path(name) };
        clock.set(0);
        Some(clock)
    }

    /// Sets it, this number of seconds from the right time. Programs see that within a second.
    pub fn set(&self, offset_s: i64) {
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{offset_s:+}\n")).expect("written");
        fs::rename(new, &self.offset).expect("renamed");
    }

    /// The program that has the command in `arguments`, with this clock.
    pub fn command<S: AsRef<OsStr>>(&self, scratch: &Scratch, arguments: &[S]) -> Command {
        let mut command = scratch.command(arguments);
        command
            .env("LD_PRELOAD", self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_CACHE_DURATION", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
        command
    }
}
