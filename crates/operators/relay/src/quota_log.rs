//! Measurements that a relay has accepted, on disk: after a restart no coordinator gets a new
//! quota.

use files::Access;
use onion::measure::protocol::{CoordinatorKey, Nonce};
use onion::measure::target::Accepted;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// In the folder of the relay's keys, since a quota belongs to the identity.
const NAME: &str = "accepted_measurements";

/// The longest file, in bytes.
const LEN_MAX: u64 = 1 << 20;

/// The measurements accepted within the last period.
#[derive(Debug)]
pub(crate) struct QuotaLog {
    path: PathBuf,
    period_s: u64,
    accepted: Vec<Accepted>,
}

impl QuotaLog {
    /// Reads the file. Returns the number of unreadable lines, which are skipped.
    ///
    /// # Errors
    /// The I/O error if the file exists but cannot be read.
    pub(crate) fn open(folder: &Path, period_s: u64) -> io::Result<(Self, usize)> {
        let path = folder.join(NAME);
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => _ = file.take(LEN_MAX).read_to_string(&mut text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let lines: Vec<_> = text.lines().map(parse).collect();
        let accepted: Vec<_> = lines.iter().flatten().copied().collect();
        let unreadable = lines.len() - accepted.len();
        Ok((Self { path, period_s, accepted }, unreadable))
    }

    /// The measurements in the file.
    pub(crate) fn accepted(&self) -> &[Accepted] {
        &self.accepted
    }

    /// Adds a measurement and syncs the file to disk.
    ///
    /// # Errors
    /// The I/O error if it cannot be written.
    pub(crate) fn add(&mut self, one: Accepted) -> io::Result<()> {
        let since = one.unix_time_s.saturating_sub(self.period_s);
        // Those of the future are from a clock that was ahead.
        self.accepted
            .retain(|order| order.unix_time_s > since && order.unix_time_s <= one.unix_time_s);
        self.accepted.push(one);
        let mut text = String::new();
        for Accepted { unix_time_s, coordinator, nonce } in &self.accepted {
            let _ = writeln!(text, "{unix_time_s} {coordinator} {}", hex::encode(nonce.0));
        }
        files::replace(&self.path, text.as_bytes(), Access::Owner)
    }
}

fn parse(line: &str) -> Option<Accepted> {
    let mut words = line.split(' ');
    let unix_time_s = words.next()?.parse().ok()?;
    let mut key = || hex::decode(words.next()?).ok()?.try_into().ok();
    let (coordinator, nonce) = (CoordinatorKey(key()?), Nonce(key()?));
    words.next().is_none().then_some(Accepted { unix_time_s, coordinator, nonce })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn accepted(unix_time_s: u64, number: u8) -> Accepted {
        let (coordinator, nonce) = (CoordinatorKey([number; 32]), Nonce([number + 1; 32]));
        Accepted { unix_time_s, coordinator, nonce }
    }

    #[test]
    fn accepted_measurements_count_after_a_restart_until_their_period_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut quota_log, _) = QuotaLog::open(folder.path(), 100).expect("none yet");
        // The second one is from a clock that was ahead.
        for (unix_time_s, number) in [(1000, 1), (900_000, 4), (1050, 2), (1101, 3)] {
            quota_log.add(accepted(unix_time_s, number)).expect("written");
        }
        let (quota_log, unreadable) = QuotaLog::open(folder.path(), 100).expect("read");
        assert_eq!(quota_log.accepted(), [accepted(1050, 2), accepted(1101, 3)]);
        assert_eq!(unreadable, 0);
    }

    #[test]
    fn invalid_lines_are_skipped() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut quota_log, _) = QuotaLog::open(folder.path(), 100).expect("none yet");
        quota_log.add(accepted(1000, 1)).expect("written");
        let path = folder.path().join(NAME);
        let good = fs::read_to_string(&path).expect("there");
        fs::write(&path, format!("1000 torn\n{good}x y z\n")).expect("written");
        let (quota_log, unreadable) = QuotaLog::open(folder.path(), 100).expect("read");
        assert_eq!((quota_log.accepted(), unreadable), (&[accepted(1000, 1)][..], 2));
    }
}
