use super::*;

const BEGIN: u64 = 1_700_000_000;

#[test]
fn five_daily_sums_are_kept() {
    let mut history = History::default();
    for second in 0..INTERVAL_S {
        history.note_second(BEGIN + second, 10, 20);
    }
    assert_eq!(history.lines(1_000), "");
    history.note_second(BEGIN + INTERVAL_S, u64::MAX / 100_000, 0);
    // 864,000 and 1,728,000, in whole KiB.
    let expected = "write-history 2023-11-15 22:13:20 (86400 s) 1727488\n\
                    read-history 2023-11-15 22:13:20 (86400 s) 863232\n";
    assert_eq!(history.lines(1_000), expected);
    assert!(history.lines(1).starts_with("write-history 2023-11-15 22:13:20 (86400 s) 86400\n"));
    for day in 2..=7 {
        history.note_second(BEGIN + day * INTERVAL_S, u64::MAX, 0);
        history.note_second(BEGIN + day * INTERVAL_S + 1, u64::MAX, 0);
    }
    let lines = history.lines(u64::MAX);
    assert!(
        lines.starts_with("write-history 2023-11-21 22:13:20 (86400 s) 0,0,0,0,0\n"),
        "{lines}"
    );
    assert_eq!(lines.matches(',').count(), 8);
}

#[test]
fn the_best_ten_seconds_of_the_lesser_direction_count() {
    let mut history = History::default();
    for second in 0..9 {
        history.note_second(BEGIN + second, 1_000, 600);
    }
    assert_eq!(history.observed_bytes_s(), 0);
    history.note_second(BEGIN + 9, 1_000, 600);
    assert_eq!(history.observed_bytes_s(), 600);
    history.note_second(BEGIN + 10, 1_000, 1_600);
    assert_eq!(history.observed_bytes_s(), 700);
    for second in 11..111 {
        history.note_second(BEGIN + second, 0, 0);
    }
    assert_eq!(history.observed_bytes_s(), 700);
}

#[test]
fn a_record_is_forgotten_after_five_days() {
    let mut history = History::default();
    for second in 0..10 {
        history.note_second(BEGIN + second, 500, 500);
    }
    let quiet_days = |history: &mut History, days: std::ops::Range<u64>| {
        for day in days {
            for second in 0..11 {
                history.note_second(BEGIN + day * INTERVAL_S + second, 1, 1);
            }
        }
    };
    quiet_days(&mut history, 1..6);
    assert_eq!(history.observed_bytes_s(), 500);
    // The window that spans midnight counts for the new day.
    quiet_days(&mut history, 6..7);
    assert_eq!(history.observed_bytes_s(), 450);
    quiet_days(&mut history, 7..8);
    assert_eq!(history.observed_bytes_s(), 1);
}

#[test]
fn history_continues_after_a_restart_with_nothing_in_between() {
    let mut history = History::default();
    for second in 0..20 {
        history.note_second(BEGIN + second, 2_048, 4_096);
    }
    let stored = serde_json::to_string(&history).expect("JSON");
    let mut later: History = serde_json::from_str(&stored).expect("the same");
    assert_eq!(later.observed_bytes_s(), 2_048);
    // Two days and an hour later.
    later.note_second(BEGIN + 2 * INTERVAL_S + 3_600, 9, 9);
    let expected = "write-history 2023-11-16 22:13:20 (86400 s) 81920,0\n\
                    read-history 2023-11-16 22:13:20 (86400 s) 40960,0\n";
    assert_eq!(later.lines(u64::MAX), expected);
    assert_eq!(later.observed_bytes_s(), 2_048);
    // A restart within the day counts nothing twice.
    let mut soon: History = serde_json::from_str(&stored).expect("the same");
    soon.note_second(BEGIN + INTERVAL_S, 1, 1);
    assert!(soon.lines(u64::MAX).ends_with(" 40960\n"), "{}", soon.lines(u64::MAX));
    // After weeks, or a wrong clock, the history starts anew.
    for now in [BEGIN + 30 * INTERVAL_S, BEGIN - 2 * INTERVAL_S] {
        let mut stale = history.clone();
        stale.note_second(now, 1, 1);
        assert_eq!((stale.observed_bytes_s(), stale.lines(u64::MAX)), (0, String::new()));
    }
    // If the clock was set back slightly, it continues.
    history.note_second(BEGIN - 60, 1, 1);
    assert_eq!(history.observed_bytes_s(), 2_048);
}

#[test]
fn a_clock_that_is_wrong_for_a_while_costs_no_history() {
    for by_s in [-40, -3, 3, 40].map(|days| days * 86_400) {
        let mut history = History::default();
        for second in 0..20 {
            history.note_second(BEGIN + second, 2_048, 4_096);
        }
        history.note_second(BEGIN + INTERVAL_S, 1, 1);
        let before = history.lines(u64::MAX);
        history.handle_jump(by_s);
        history.note_second((BEGIN + INTERVAL_S + 1).saturating_add_signed(by_s), 1, 1);
        assert_eq!(history.observed_bytes_s(), 2_048);
        history.handle_jump(-by_s);
        history.note_second(BEGIN + INTERVAL_S + 2, 1, 1);
        assert_eq!((history.observed_bytes_s(), history.lines(u64::MAX)), (2_048, before));
    }
}
