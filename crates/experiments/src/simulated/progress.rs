//! How far the runs of a batch are, and how long the others will take.

use super::Point;
use link::Clock;
use onion::Duration;

/// How far a batch is.
pub(super) struct Progress {
    clock: Clock,
    /// Runs that are not over.
    pub(super) left: usize,
    of: usize,
    played: u32,
}

impl Progress {
    pub(super) fn new(of: usize) -> Self {
        Self { clock: Clock::start(), left: of, of, played: 0 }
    }

    pub(super) fn was_there(&mut self, is_ours: bool) {
        self.left -= usize::from(is_ours);
    }

    pub(super) fn is_over(&mut self) {
        self.left -= 1;
        self.played += 1;
    }

    /// What is printed before a run.
    pub(super) fn next(&self, point: &Point) -> String {
        let number = self.of - self.left + 1;
        let mut text = format!("run {number} of {}: {}", self.of, point.name());
        if self.played > 0 {
            let so_far = self.clock.now() - onion::Instant::ORIGIN;
            let left = u32::try_from(self.left).unwrap_or(u32::MAX);
            let to_go = so_far / self.played * left;
            text.push_str(&format!("; {} to go, about {}", self.left, in_words(to_go)));
        }
        text
    }
}

fn in_words(time: Duration) -> String {
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
    fn what_is_to_go_is_reckoned_by_runs_that_were_played_and_not_by_those_that_were_there() {
        let point = Point { variant: "kist".to_owned(), load_percent: 100, seed: 3 };
        let mut progress = Progress::new(4);
        progress.was_there(true);
        assert_eq!(progress.next(&point), "run 2 of 4: kist, load 100 %, seed 3");
        progress.is_over();
        let told = progress.next(&point);
        assert!(told.starts_with("run 3 of 4") && told.ends_with("2 to go, about 0 s"), "{told}");
    }
}
