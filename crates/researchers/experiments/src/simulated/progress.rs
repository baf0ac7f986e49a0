//! The progress of a batch, with an estimate of the remaining time.

use super::RunKey;
use link::Clock;
use onion::Duration;

/// The progress of a batch.
pub(super) struct Progress {
    clock: Clock,
    /// Runs that have no result yet.
    pub(super) remaining: usize,
    total: usize,
    /// Runs that this process has completed.
    completed: u32,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self { clock: Clock::start(), remaining: total, total, completed: 0 }
    }

    /// Notes a run whose result exists already.
    pub(super) fn skip(&mut self, is_in_shard: bool) {
        self.remaining -= usize::from(is_in_shard);
    }

    /// Notes a run that has completed now.
    pub(super) fn complete(&mut self) {
        self.remaining -= 1;
        self.completed += 1;
    }

    /// The message that is printed before a run.
    pub(super) fn next(&self, key: &RunKey) -> String {
        let number = self.total - self.remaining + 1;
        let mut text = format!("run {number} of {}: {}", self.total, key.name());
        if self.completed > 0 {
            let elapsed = self.clock.now() - onion::Instant::ORIGIN;
            let remaining = u32::try_from(self.remaining).unwrap_or(u32::MAX);
            let to_go = elapsed / self.completed * remaining;
            text.push_str(&format!("; {remaining} to go, about {}", time_text(to_go)));
        }
        text
    }
}

fn time_text(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => {
            format!("{:.1} h", f64::from(u32::try_from(seconds).unwrap_or(u32::MAX)) / 3600.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_runs_do_not_count_for_the_remaining_time() {
        let key = RunKey { variant: "kist".to_owned(), load_percent: 100, seed: 3 };
        let mut progress = Progress::new(4);
        progress.skip(true);
        assert_eq!(progress.next(&key), "run 2 of 4: kist, load 100 %, seed 3");
        progress.complete();
        let text = progress.next(&key);
        assert!(text.starts_with("run 3 of 4") && text.ends_with("2 to go, about 0 s"), "{text}");
    }
}
