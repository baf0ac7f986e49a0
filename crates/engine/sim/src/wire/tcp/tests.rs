use super::*;
use alloc::collections::BinaryHeap;
use alloc::vec;
use core::cmp::Reverse;
use proptest::prelude::*;

const LATENCY: Duration = Duration::from_millis(10);
const RECEIVE_BUFFER_BYTES: u64 = 1 << 20;

/// Scheduled events: arriving chunks, arriving acknowledgements, expired RTOs.
enum Step {
    Chunk(Chunk),
    Ack(Ack),
    Overdue(u64),
}

/// One direction over a path that loses the chunks for which `loses` returns true. Returns the time of the last arrival, the bytes and the sender.
fn transfer(bytes: &[u8], mut loses: impl FnMut() -> bool) -> (Instant, Vec<u8>, Sender) {
    let mut sender = Sender::new(RECEIVE_BUFFER_BYTES);
    let mut receiver = Receiver::default();
    let (mut got, mut now, mut planned) = (vec![], Instant::ORIGIN, 0u64);
    let (mut times, mut steps) = (BinaryHeap::new(), BTreeMap::new());
    sender.write(bytes);
    loop {
        let mut plan = |at: Instant, step: Step| {
            planned += 1;
            times.push(Reverse((at, planned)));
            steps.insert(planned, step);
        };
        while let Some(chunk) = sender.next_chunk(now) {
            if loses() {
                let number = chunk.number();
                plan(sender.lose(now, chunk), Step::Overdue(number));
            } else {
                plan(now + LATENCY, Step::Chunk(chunk));
            }
        }
        if got.len() == bytes.len() && sender.buffered_bytes() == 0 {
            return (now, got, sender);
        }
        let Reverse((at, number)) = times.pop().expect("data is outstanding");
        now = at;
        match steps.remove(&number).expect("planned") {
            Step::Chunk(chunk) => {
                let head = chunk.head();
                receiver.receive(chunk, |bytes| got.extend(bytes));
                let window_end = receiver.next() + RECEIVE_BUFFER_BYTES;
                times.push(Reverse((now + LATENCY, number)));
                steps.insert(number, Step::Ack(receiver.ack(head, window_end)));
            }
            Step::Ack(ack) => sender.handle_ack(now, ack),
            Step::Overdue(number) => sender.handle_overdue(number),
        }
    }
}

proptest! {
    #[test]
    fn all_data_arrives_in_order_despite_any_losses(
        len in 0usize..400_000, losses in prop::collection::vec(prop::bool::weighted(0.2), 1..400),
    ) {
        let bytes: Vec<u8> = (0..len).map(|place| (place % 251).to_le_bytes()[0]).collect();
        // All others arrive: otherwise it might never end.
        let mut losses = losses.into_iter();
        let (_, got, sender) = transfer(&bytes, || losses.next().unwrap_or(false));
        prop_assert!(got == bytes);
        prop_assert_eq!(sender.in_flight, 0);
        prop_assert_eq!(sender.unsent_bytes(), 0);
    }
}

#[test]
fn the_window_doubles_each_round_trip_until_the_first_loss() {
    // 10, 20, 40 … segments: a million bytes take seven round trips of 20 ms.
    let (took, _, sender) = transfer(&vec![0; 1_000_000], || false);
    assert_eq!(took, Instant::from_millis(7 * 20));
    let window = sender.state().cwnd_segments;
    assert!((400..1300).contains(&window), "{window}");
    assert_eq!(sender.state().rtt_us, 20_000);
}

#[test]
fn losses_within_one_window_halve_it_once() {
    let mut sender = Sender::new(RECEIVE_BUFFER_BYTES);
    sender.write(&[0; 100_000]);
    let mut chunks = VecDeque::new();
    while let Some(chunk) = sender.next_chunk(Instant::ORIGIN) {
        chunks.push_back(chunk);
    }
    for _ in 0..2 {
        let overdue_at =
            sender.lose(Instant::ORIGIN, chunks.pop_front().expect("a window of them"));
        assert_eq!(overdue_at, Instant::from_millis(200));
    }
    let receiver = Receiver::default();
    let now = Instant::from_millis(20);
    for chunk in chunks.iter().take(2) {
        // Two chunks lost, one still counted: no space in half the window.
        assert!(sender.again.is_empty() || sender.next_chunk(now).is_none());
        sender.handle_ack(now, receiver.ack(chunk.head(), RECEIVE_BUFFER_BYTES));
        assert_eq!(sender.state().cwnd_segments, 5);
    }
    // Retransmissions go first.
    let again = sender.next_chunk(now).expect("there is room");
    assert_eq!((again.start, again.sent_at), (0, None));
}

#[test]
fn the_socket_state_shows_unsent_and_unacknowledged_data() {
    let mut sender = Sender::new(RECEIVE_BUFFER_BYTES);
    sender.write(&[0; 100_000]);
    while sender.next_chunk(Instant::ORIGIN).is_some() {}
    let state = sender.state();
    assert_eq!(
        (state.cwnd_segments, state.unacked_segments, state.notsent_bytes),
        (10, 10, 100_000 - 14_480)
    );
}
