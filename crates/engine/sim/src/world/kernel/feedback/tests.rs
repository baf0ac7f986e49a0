use crate::world::kernel::pair::Pair;
use crate::world::message::Purpose;
use alloc::vec;
use alloc::vec::Vec;
use onion::Rate;
use onion::cell_model::{Cell, HeaderOnlyCell};
use proptest::prelude::*;

#[test]
fn without_a_queue_feedback_takes_latency_and_transmission_time() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    let sent_at = pair.kernels[0].now;
    pair.notify(0);
    pair.pass(100_000_000);
    let [(0, _, received_at)] = &pair.received[..] else { panic!("{:?}", pair.received) };
    // 4 + 7 + 22 + 66 bytes at one byte per microsecond, up and down.
    assert_eq!(received_at - sent_at, 10_000_000 + 2 * 99_000);
}

#[test]
fn feedback_arrives_after_data_written_earlier() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    let sent_at = pair.kernels[0].now;
    pair.write(400);
    pair.notify(400);
    pair.write(400);
    pair.pass(10_000_000_000);
    let [(cells, _, received_at)] = &pair.received[..] else { panic!("{:?}", pair.received) };
    // With the rest of the last one's flight.
    assert!((400..431).contains(cells) && pair.cells == 800, "{cells} of {}", pair.cells);
    // 514 bytes each at one byte per microsecond, with an initial window of 28 of them.
    assert!(received_at - sent_at > 400 * 514_000, "{}", received_at - sent_at);
}

#[test]
fn feedback_is_scheduled_among_the_sockets_of_a_host() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    let others = [1, 2, 3].map(|conn| pair.kernels[0].dial(1, Purpose::Link, conn));
    pair.pass(1_000_000_000);
    for other in others {
        let mut cells: Vec<_> = (0..5).map(|_| HeaderOnlyCell::EMPTY).collect();
        pair.kernels[0].write_cells(other, &mut cells);
        pair.kernels[0].send(other);
    }
    let sent_at = pair.kernels[0].now;
    pair.notify(0);
    pair.pass(1_000_000_000);
    let [(cells, _, received_at)] = &pair.received[..] else { panic!("{:?}", pair.received) };
    // A flight of each, with 154 header bytes around its five cells, at one byte per microsecond.
    assert_eq!(*cells, 15);
    assert!(received_at - sent_at > 10_000_000 + 3 * 2_724_000, "{}", received_at - sent_at);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn feedback_arrives_in_order_after_earlier_data_despite_losses(
        steps in prop::collection::vec((0usize..60, 0u8..3, 0u64..20), 1..60),
        loss in prop::sample::select(vec![0.0, 0.02, 0.2]),
    ) {
        let mut pair = Pair::new(Rate::from_mbit_per_s(20.0), loss);
        let mut written = 0;
        let mut sent: Vec<u32> = Vec::new();
        for (cells, words, ms) in steps {
            pair.write(cells);
            written += cells;
            for _ in 0..words {
                pair.notify(written);
                sent.push(u32::try_from(written).expect("few"));
            }
            pair.pass(ms * 1_000_000);
        }
        pair.pass(600_000_000_000);
        prop_assert_eq!(pair.cells as usize, written);
        let written_before = |body: &[u8]| u32::from_be_bytes(body.try_into().expect("four bytes"));
        let received: Vec<u32> = pair.received.iter().map(|(_, body, _)| written_before(body)).collect();
        prop_assert_eq!(&received, &sent);
        for ((cells, ..), written_before) in pair.received.iter().zip(&sent) {
            prop_assert!(cells >= written_before);
        }
    }
}
