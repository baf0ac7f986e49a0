use super::*;
use onion::Rate;
use proptest::prelude::*;

fn limited_to(byte_per_s: u64, queue: Queue) -> Bottleneck {
    Bottleneck { rate: Rate::from_byte_per_s(byte_per_s), queue }
}

#[test]
fn packets_leave_one_after_another_at_the_rate() {
    let bottleneck = limited_to(1_000_000, Queue::Bytes(10_000));
    let mut state = BottleneckState::new();
    let now = Instant::from_millis(5);
    let leaves = [1, 2, 3].map(|_| state.pass(Some(bottleneck), 1000, now).expect("room"));
    assert_eq!(leaves, [6, 7, 8].map(Instant::from_millis));
    // Unused capacity is not carried over.
    let later = state.pass(Some(bottleneck), 1000, Instant::from_millis(20));
    assert_eq!(later, Some(Instant::from_millis(21)));
}

#[test]
fn a_packet_is_dropped_if_the_queue_is_full_but_never_if_it_is_empty() {
    for queue in [Queue::Bytes(2500), Queue::Time(Duration::from_micros(2500))] {
        let bottleneck = limited_to(1_000_000, queue);
        let mut state = BottleneckState::new();
        let passed =
            [1, 2, 3].map(|_| state.pass(Some(bottleneck), 1000, Instant::ORIGIN).is_some());
        assert_eq!(passed, [true, true, false]);
        // A smaller one still fits, and dropped packets take no time.
        assert_eq!(
            state.pass(Some(bottleneck), 500, Instant::ORIGIN),
            Some(Instant::from_nanos(2_500_000))
        );
        assert!(state.pass(Some(bottleneck), 9000, Instant::from_nanos(2_499_999)).is_none());
        assert!(state.pass(Some(bottleneck), 9000, Instant::from_nanos(2_500_000)).is_some());
    }
}

proptest! {
    #[test]
    fn a_busy_bottleneck_sends_at_exactly_its_rate(
        packets in prop::collection::vec((1_usize..2000, 0_u64..200_000), 1..200),
        byte_per_s in 1_000_u64..2_000_000_000,
        room_bytes in 0_u64..100_000,
    ) {
        let bottleneck = limited_to(byte_per_s, Queue::Bytes(room_bytes));
        let mut state = BottleneckState::new();
        let mut now = Instant::ORIGIN;
        let mut last = Instant::ORIGIN;
        // The bytes of the current busy period, and its start.
        let (mut busy_bytes, mut busy_since) = (0_u128, Instant::ORIGIN);
        for (len, pause_ns) in packets {
            now += Duration::from_nanos(pause_ns);
            if last <= now {
                (busy_bytes, busy_since) = (0, now);
            }
            let Some(leaves) = state.pass(Some(bottleneck), len, now) else {
                prop_assert!(last > now, "a packet was dropped by an empty queue");
                continue;
            };
            busy_bytes += len as u128;
            let exact_ns = busy_bytes * 1_000_000_000 / u128::from(byte_per_s);
            let took_ns = (leaves - busy_since).as_nanos();
            // Exact to the nanosecond, regardless of the number of packets.
            prop_assert_eq!(took_ns, exact_ns);
            prop_assert!(leaves >= last);
            last = leaves;
        }
    }
}
