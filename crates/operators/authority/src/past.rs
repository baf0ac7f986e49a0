//! Imports earlier bandwidth files into a new store.

use documents::{estimate_in, identities};
use netdoc::bwfile::{self, BandwidthFile};
use std::fs;
use std::path::Path;
use store::Entry;

/// All estimates in all files of a folder, except those later than this time. Without a folder or a readable file, the
/// history is empty.
pub(super) fn imports(folder: &Path, now_unix_s: u64) -> Vec<Entry> {
    let mut imports = Vec::new();
    let files = match bwfile::stored(folder) {
        Ok(files) => files,
        Err(_) if !folder.exists() => return imports,
        Err(error) => {
            tracing::warn!("all relays count as new: {error}");
            return imports;
        }
    };
    for path in files {
        let read = fs::read(&path).map_err(|error| error.to_string());
        let parsed =
            read.and_then(|text| BandwidthFile::parse(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(parsed) => {
                let lines = parsed.file.relays.iter();
                let all = lines.filter_map(|line| Some((line, estimate_in(line)?)));
                // An estimate of the future is due to a wrong clock. It would take precedence over all later measurements.
                let (past, future): (Vec<_>, Vec<_>) =
                    all.partition(|(_, estimate)| estimate.measured_unix_s <= now_unix_s);
                imports.extend(past.into_iter().map(|(line, estimate)| {
                    let nickname = line.nick.map(|nick| nick.to_string()).unwrap_or_default();
                    Entry::Imported(identities(line), nickname, estimate)
                }));
                if !future.is_empty() {
                    let (path, count) = (path.display(), future.len());
                    tracing::warn!(
                        "{path}: {count} estimates are of the future and do not count; check the clock"
                    );
                }
            }
            Err(problem) => {
                tracing::warn!("{}: {problem}; its estimates do not count", path.display());
            }
        }
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;
    use coordinator::{GuessSource, History, HistoryPolicy, Priority};
    use netdoc::bwfile::{Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
    use onion::Rate;
    use onion::identity::RsaId;
    use store::Store;

    const NOW: u64 = 1_800_000_000;
    const DAY: u64 = 24 * 3600;

    fn entry(number: u8, outcome: Outcome) -> Estimate {
        Estimate {
            fingerprint: RsaId([number; 20]),
            ed25519: None,
            nickname: "some".parse().expect("a nickname"),
            outcome,
            extra: vec![],
        }
    }

    fn measured(number: u8, mbyte_s: u64, at: u64) -> Estimate {
        let outcome = Outcome::Measured {
            capacity_bytes_s: mbyte_s * 1_000_000,
            measured_at: at,
            descriptor_avg_bytes_s: None,
        };
        entry(number, outcome)
    }

    fn failed(number: u8, at: u64) -> Estimate {
        entry(number, Outcome::Failed { reason: "down".to_owned(), tried_at: Some(at) })
    }

    fn write(folder: &Path, estimates: &[Estimate], at: u64) {
        let counts = Eligibility { eligible: 1, in_consensus: 1 };
        let file = BandwidthFile::generate(estimates, counts, &Settings::new("0", at, at));
        let file = file.expect("a result");
        file.write_atomically(folder, NodeIdStyle::default()).expect("space");
    }

    /// The content of a new store.
    fn history(folder: &Path) -> History {
        let place = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(&place.path().join("store.db")).expect("new");
        store.write(&imports(folder, NOW)).expect("room");
        store.history().expect("read")
    }

    #[test]
    fn a_failed_period_does_not_make_a_relay_new() {
        let folder = tempfile::tempdir().expect("a folder");
        let days_ago = |days: u64| NOW - days * DAY;
        write(
            folder.path(),
            &[measured(1, 5, days_ago(20)), measured(2, 9, days_ago(20))],
            days_ago(20),
        );
        write(folder.path(), &[failed(1, days_ago(2)), measured(2, 8, days_ago(2))], days_ago(2));
        // Excluded completely.
        write(folder.path(), &[measured(2, 7, days_ago(1))], days_ago(1));
        fs::write(folder.path().join("20260101-000000.v3bw"), "cut").expect("space");
        let history = history(folder.path());
        let guess = |number: u8| {
            history.expectations(HistoryPolicy::default(), NOW).first_guess(RsaId([number; 20]))
        };
        assert_eq!(
            (guess(1).capacity, guess(1).priority()),
            (Rate::from_byte_per_s(5_000_000), Priority::Known)
        );
        assert_eq!(guess(2).capacity, Rate::from_byte_per_s(7_000_000), "the newest");
        // All estimates are of the last month, one for each relay: the 75th percentile of 5 and 7 is 7.
        assert_eq!(
            (guess(3).capacity, guess(3).source),
            (Rate::from_byte_per_s(7_000_000), GuessSource::Distribution)
        );
    }

    #[test]
    fn an_estimate_of_the_future_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), &[measured(1, 5, NOW - DAY), measured(2, 6, NOW - DAY)], NOW - DAY);
        write(folder.path(), &[measured(1, 9, NOW + DAY), measured(2, 8, NOW)], NOW + DAY);
        let history = history(folder.path());
        let last = |number: u8| history.last(RsaId([number; 20])).map(|estimate| estimate.capacity);
        assert_eq!(last(1), Some(Rate::from_byte_per_s(5_000_000)));
        assert_eq!(last(2), Some(Rate::from_byte_per_s(8_000_000)));
    }

    #[test]
    fn without_a_folder_there_are_no_imports() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(history(&folder.path().join("none")), History::default());
        assert_eq!(history(folder.path()), History::default());
    }
}
