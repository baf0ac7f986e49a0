//! The measurements that a relay has accepted, on disk: a relay that starts again gives no coordinator its quota anew.

use files::Access;
use onion::measure::protocol::{CoordinatorKey, Nonce};
use onion::measure::target::Accepted;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// In the folder of the relay's keys: a quota is the identity's.
const NAME: &str = "accepted_measurements";

/// No file is longer.
const LEN_MAX: u64 = 1 << 20;

/// The measurements that have been accepted within the last period.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    period_s: u64,
    accepted: Vec<Accepted>,
}

impl Ledger {
    /// Reads what is there. Lines that nobody can read are left out, and told by their number.
    ///
    /// # Errors
    /// The system's answer where there is a file that cannot be read.
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

    /// Those that are known.
    pub(crate) fn accepted(&self) -> &[Accepted] {
        &self.accepted
    }

    /// Another was accepted: it is on disk when this returns.
    ///
    /// # Errors
    /// The system's answer where it could not be written.
    pub(crate) fn add(&mut self, one: Accepted) -> io::Result<()> {
        let since = one.unix_time_s.saturating_sub(self.period_s);
        self.accepted.retain(|it| it.unix_time_s > since);
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
    fn what_was_accepted_is_known_after_a_restart_until_its_period_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut ledger, _) = Ledger::open(folder.path(), 100).expect("none yet");
        for (unix_time_s, number) in [(1000, 1), (1050, 2), (1101, 3)] {
            ledger.add(accepted(unix_time_s, number)).expect("written");
        }
        let (ledger, unreadable) = Ledger::open(folder.path(), 100).expect("read");
        assert_eq!(ledger.accepted(), [accepted(1050, 2), accepted(1101, 3)]);
        assert_eq!(unreadable, 0);
    }

    #[test]
    fn lines_that_nobody_can_read_do_not_cost_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut ledger, _) = Ledger::open(folder.path(), 100).expect("none yet");
        ledger.add(accepted(1000, 1)).expect("written");
        let path = folder.path().join(NAME);
        let good = fs::read_to_string(&path).expect("there");
        fs::write(&path, format!("1000 torn\n{good}x y z\n")).expect("written");
        let (ledger, unreadable) = Ledger::open(folder.path(), 100).expect("read");
        assert_eq!((ledger.accepted(), unreadable), (&[accepted(1000, 1)][..], 2));
    }
}
