use super::*;
use onion::Rate;
use proptest::prelude::*;

fn narrow(byte_per_s: u64, queue: Queue) -> Narrow {
    Narrow { rate: Rate::from_byte_per_s(byte_per_s), queue }
}

#[test]
fn packets_leave_one_after_another_at_the_rate() {
    let narrow = narrow(1_000_000, Queue::Bytes(10_000));
    let mut place = Bottleneck::new();
    let now = Instant::from_millis(5);
    let leaves = [1, 2, 3].map(|_| place.pass(narrow, 1000, now).expect("room"));
    assert_eq!(leaves, [6, 7, 8].map(Instant::from_millis));
    // Idle time is not made up for.
    let later = place.pass(narrow, 1000, Instant::from_millis(20));
    assert_eq!(later, Some(Instant::from_millis(21)));
}

#[test]
fn a_packet_that_finds_the_queue_too_full_is_dropped_and_one_that_finds_it_empty_is_not() {
    for queue in [Queue::Bytes(2500), Queue::Time(Duration::from_micros(2500))] {
        let narrow = narrow(1_000_000, queue);
        let mut place = Bottleneck::new();
        let passed = [1, 2, 3].map(|_| place.pass(narrow, 1000, Instant::ORIGIN).is_some());
        assert_eq!(passed, [true, true, false]);
        // A smaller one still fits, and dropped packets take no time.
        assert_eq!(place.pass(narrow, 500, Instant::ORIGIN), Some(Instant::from_nanos(2_500_000)));
        assert!(place.pass(narrow, 9000, Instant::from_nanos(2_499_999)).is_none());
        assert!(place.pass(narrow, 9000, Instant::from_nanos(2_500_000)).is_some());
    }
}

proptest! {
    #[test]
    fn no_more_than_the_rate_leaves_and_while_there_is_something_no_less(
        packets in prop::collection::vec((1_usize..2000, 0_u64..200_000), 1..200),
        byte_per_s in 1_000_u64..2_000_000_000,
        room_bytes in 0_u64..100_000,
    ) {
        let narrow = narrow(byte_per_s, Queue::Bytes(room_bytes));
        let mut place = Bottleneck::new();
        let mut now = Instant::ORIGIN;
        let mut last = Instant::ORIGIN;
        // Bytes since it was idle last, and when that was.
        let (mut busy_bytes, mut busy_since) = (0_u128, Instant::ORIGIN);
        for (len, pause_ns) in packets {
            now += Duration::from_nanos(pause_ns);
            if last <= now {
                (busy_bytes, busy_since) = (0, now);
            }
            let Some(leaves) = place.pass(narrow, len, now) else {
                prop_assert!(last > now, "it was empty");
                continue;
            };
            busy_bytes += len as u128;
            let exact_ns = busy_bytes * 1_000_000_000 / u128::from(byte_per_s);
            let took_ns = (leaves - busy_since).as_nanos();
            // Whole nanoseconds, however many packets.
            prop_assert_eq!(took_ns, exact_ns);
            prop_assert!(leaves >= last);
            last = leaves;
        }
    }
}
