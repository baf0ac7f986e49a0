use super::*;

#[test]
fn a_slot_is_free_once_its_last_copy_has_ended() {
    let mut pool = Pool::new(2, 4);
    let first = pool.peek().expect("room");
    pool.slot_mut(first).copy_from_slice(b"abcd");
    pool.take();
    pool.keep(first, 2);
    let second = pool.peek().expect("room");
    assert_ne!(second, first);
    pool.slot_mut(second).copy_from_slice(b"efgh");
    pool.take();
    pool.keep(second, 1);
    assert_eq!(pool.peek(), None);
    assert_eq!((pool.packet(first, 3), pool.packet(second, 4)), (&b"abc"[..], &b"efgh"[..]));
    pool.end_copy(first);
    assert_eq!(pool.peek(), None);
    pool.end_copy(first);
    assert_eq!(pool.peek(), Some(first));
}

#[test]
fn a_slot_whose_packet_is_lost_is_free_at_once() {
    let mut pool = Pool::new(1, 4);
    let slot = pool.peek().expect("room");
    pool.take();
    assert_eq!(pool.peek(), None);
    pool.keep(slot, 0);
    assert_eq!(pool.peek(), Some(slot));
}
