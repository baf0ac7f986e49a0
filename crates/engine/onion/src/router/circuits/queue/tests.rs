use super::*;
use crate::cell::CELL_LEN;
use crate::flow::hop::FixedHopWindow;
use alloc::collections::VecDeque;
use proptest::prelude::*;

const NOW: Instant = Instant::ORIGIN;

/// The capacity of a queue, in cells.
fn slots<T>(queue: &CellQueue<T>) -> usize {
    queue.ring.as_ref().map_or(0, |ring| ring.slots.capacity())
}

#[test]
fn an_idle_queue_is_small() {
    assert_eq!(size_of::<CellQueue<[u8; CELL_LEN]>>(), 56);
}

#[test]
fn an_idle_queue_that_is_watched_is_reported() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    queue.watch(10);
    queue.rest();
    queue.rest();
    assert!(queue.has_become_short());
    queue.rest();
    assert!(queue.is_at_rest());
}

#[test]
fn a_full_window_blocks_the_queue_until_feedback() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    assert_eq!(queue.room_cells(NOW), usize::MAX);
    queue.set_window(Some(Box::new(FixedHopWindow::new(3))));
    (0..5).for_each(|_| _ = queue.push(NOW));
    assert_eq!(queue.pop_into(NOW, &mut [[0; CELL_LEN]; 2]), 2);
    assert_eq!(queue.room_cells(NOW), 1);
    queue.pop_into(NOW, &mut [[0; CELL_LEN]; 1]);
    queue.block();
    assert!(matches!(queue.enqueued(), Enqueued::Blocked));
    assert_eq!(queue.handle_feedback(NOW, 4), Err(Excess), "it received three");
    assert_eq!(queue.handle_feedback(NOW, 2), Ok(true));
    assert_eq!(queue.handle_feedback(NOW, 1), Ok(false));
    assert_eq!((queue.room_cells(NOW), queue.len()), (3, 2), "never more than its size");
}

#[test]
fn the_last_pushed_cell_can_be_removed() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    (1..=9).for_each(|number| queue.push(NOW)[0] = number);
    assert_eq!(queue.unpush()[0], 9);
    let mut out = [[0; CELL_LEN]; 9];
    assert_eq!(queue.pop_into(NOW, &mut out), 8);
    assert_eq!(out.map(|cell| cell[0]), [1, 2, 3, 4, 5, 6, 7, 8, 0]);
}

#[test]
fn unused_capacity_is_released() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    let mut out = [[0; CELL_LEN]; 64];
    for count in [64, 1] {
        for _ in 0..20_000 {
            (0..count).for_each(|_| queue.push(NOW)[0] = 1);
            assert_eq!(queue.pop_into(NOW, &mut out), count);
        }
        assert!(slots(&queue) <= count.max(ROOM_MIN), "{} slots", slots(&queue));
    }
}

#[test]
fn a_long_queue_has_little_spare_capacity() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    for count in 1..=2_500 {
        queue.push(NOW)[0] = 1;
        let room = slots(&queue);
        assert!(room <= (count * 2).clamp(ROOM_MIN, DOUBLED_MAX.max(count / 4 * 5 + 5)), "{room}");
    }
}

#[test]
fn a_short_queue_is_reported_once() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    (0..20).for_each(|_| _ = queue.push(NOW));
    assert!(!queue.has_become_short());
    queue.watch(10);
    queue.pop_into(NOW, &mut [[0; CELL_LEN]; 9]);
    assert!(!queue.has_become_short());
    queue.pop_into(NOW, &mut [[0; CELL_LEN]; 1]);
    assert!(queue.has_become_short() && !queue.has_become_short());
}

#[test]
fn an_idle_queue_takes_no_memory() {
    let mut queue = CellQueue::<[u8; CELL_LEN]>::default();
    queue.push(NOW)[0] = 1;
    queue.rest();
    assert_eq!(queue.len(), 1);
    queue.pop_into(NOW, &mut [[0; CELL_LEN]; 9]);
    queue.rest();
    queue.rest();
    assert!(queue.is_at_rest());
}

proptest! {
    #[test]
    fn a_cell_queue_is_a_fifo_queue(
        steps in prop::collection::vec((0usize..40, 0usize..45, any::<bool>()), 0..3000),
    ) {
        let (mut queue, mut model) = (CellQueue::<[u8; CELL_LEN]>::default(), VecDeque::new());
        let mut next = 0u64;
        for (pushes, pops, rests) in steps {
            if rests {
                queue.rest();
            }
            for _ in 0..pushes {
                queue.push(NOW)[..8].copy_from_slice(&next.to_be_bytes());
                model.push_back(next);
                next += 1;
            }
            let mut out = [[0; CELL_LEN]; 45];
            let count = queue.pop_into(NOW, &mut out[..pops]);
            prop_assert_eq!(count, pops.min(model.len()));
            for cell in &out[..count] {
                let mut number = [0; 8];
                number.copy_from_slice(&cell[..8]);
                prop_assert_eq!(Some(u64::from_be_bytes(number)), model.pop_front());
            }
            prop_assert_eq!(queue.len(), model.len());
        }
    }
}
