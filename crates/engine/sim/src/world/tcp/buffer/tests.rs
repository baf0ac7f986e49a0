use super::*;
use crate::world::tcp::Control;
use proptest::prelude::*;

const DEBIAN: u32 = SEGMENT_MEMORY_BYTES;
const SMALLER: u32 = 2304;

/// A sender with this window in segments, round-trip time, and unacknowledged data.
fn sender(cwnd: u64, round_trip_us: u64, sent: u64, unsent: u64) -> Sender {
    let mut sender = Sender::new(Control::Cubic, u64::MAX);
    sender.write(sent + unsent);
    (sender.cwnd, sender.next, sender.in_flight) = (cwnd * MSS, sent, sent);
    sender.round_trip_ns = round_trip_us * 1000;
    sender
}

/// Writes as much as fits.
fn fill(sender: &mut Sender) {
    while sender.room() > 0 {
        sender.write(sender.room());
    }
}

#[test]
fn segment_memory_matches_linux() {
    // Linux 6.18, `ss -tmi` of one sender: window, round-trip time, segments in flight, unsent bytes, and `w`
    // of `skmem`, which is memory.
    let shown = [
        (10, 101_106, 10, 31_856, 51_328),
        (47, 242_070, 47, 111_496, 206_176),
        (69, 102_395, 69, 198_376, 335_728),
        (254, 149_991, 254, 2_363_136, 2_908_976),
        (280, 166_257, 280, 1_977_968, 2_534_000),
        (443, 135_987, 443, 1_253_968, 2_021_064),
    ];
    for (cwnd, round_trip_us, segments, unsent, memory) in shown {
        let reckoned = sender(cwnd, round_trip_us, segments * MSS, unsent).memory();
        let difference = reckoned.abs_diff(memory) as f64 / memory as f64;
        assert!(difference < 0.025, "{reckoned} for {memory}");
        // If much waits, at most a tenth of it is overhead.
        assert!(difference < (memory - segments * MSS - unsent) as f64 / memory as f64);
    }
}

#[test]
fn the_initial_buffer_holds_ten_segments() {
    for (reckoned, first) in [(DEBIAN, 87_040), (SMALLER, 46_080)] {
        let mut sender = sender(10, 0, 0, 0);
        sender.widen(reckoned);
        assert_eq!(sender.buffer, first);
        sender.cwnd = 2 * MSS;
        sender.widen(reckoned);
        assert_eq!(sender.buffer, first);
    }
}

#[test]
fn the_buffer_grows_with_the_window_up_to_a_limit_and_never_shrinks() {
    let mut sender = sender(60, 100_000, 0, 0);
    sender.widen(DEBIAN);
    assert_eq!(sender.buffer, 60 * 8704);
    // More is in flight than a window that was just reduced allows.
    (sender.cwnd, sender.in_flight) = (80 * MSS, 90 * MSS);
    sender.widen(DEBIAN);
    assert_eq!(sender.buffer, 60 * 8704);
    sender.in_flight = 70 * MSS;
    sender.widen(DEBIAN);
    assert_eq!(sender.buffer, 80 * 8704);
    sender.handle_rto();
    sender.widen(DEBIAN);
    assert_eq!((sender.cwnd, sender.buffer), (2 * MSS, 80 * 8704));
    sender.cwnd = 10_000 * MSS;
    sender.widen(DEBIAN);
    assert_eq!(sender.buffer, 4 << 20);
}

#[test]
fn a_saturated_kernel_buffers_several_windows() {
    for (reckoned, least, most) in [(DEBIAN, 5.0, 7.0), (SMALLER, 2.6, 3.8)] {
        for cwnd in [60, 200, 480] {
            let mut sender = sender(cwnd, 100_000, 0, 0);
            sender.widen(reckoned);
            sender.next = cwnd * MSS;
            sender.write(sender.next);
            fill(&mut sender);
            let windows = sender.written as f64 / sender.cwnd as f64;
            assert!((least..most).contains(&windows), "{reckoned}, {cwnd}: {windows} windows");
        }
    }
}

#[test]
fn a_blocked_writer_is_woken_when_a_third_is_free() {
    let mut sender = sender(60, 100_000, 0, 0);
    sender.widen(DEBIAN);
    sender.next = 60 * MSS;
    sender.write(sender.next);
    fill(&mut sender);
    let (written, mut free) = (sender.written, 0);
    while !sender.is_writable() {
        sender.acked += MSS;
        sender.next += MSS;
        free = u64::from(sender.buffer).saturating_sub(sender.memory());
    }
    assert!(sender.acked < written / 2);
    let share = free as f64 / f64::from(sender.buffer);
    assert!((1.0 / 3.0..0.34).contains(&share), "{share}");
}

proptest! {
    #[test]
    fn a_write_exceeds_the_buffer_by_at_most_one_piece(
        cwnd in 2u64..2000, round_trip_us in 0u64..1_000_000,
        steps in prop::collection::vec((1u64..200_000, 0u64..200_000), 1..40),
    ) {
        let mut sender = sender(cwnd, round_trip_us, 0, 0);
        sender.widen(DEBIAN);
        let buffer = u64::from(sender.buffer);
        for (wanted, passes) in steps {
            let room = sender.room();
            // It refuses only if memory is full, and accepts at least the free space.
            prop_assert!(room > 0 || sender.memory() >= buffer);
            let free = buffer.saturating_sub(sender.memory());
            prop_assert!((free..free + PIECE).contains(&room) || sender.memory() >= buffer, "{} of {}", room, free);
            sender.write(wanted.min(room));
            prop_assert!(sender.written - sender.acked <= buffer + PIECE);
            if wanted >= room {
                prop_assert!(!sender.is_writable() && sender.room() == 0);
            }
            // Some is acknowledged, and some of that is filled again.
            sender.next = (sender.next + passes).min(sender.written);
            sender.acked = (sender.acked + passes / 2).min(sender.next);
        }
    }
}
