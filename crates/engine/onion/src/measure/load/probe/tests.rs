use super::*;

const fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// Makes a probe if it is due, over a connection with this number.
fn attempt(
    knocks: &mut ReachabilityProbe,
    at_ms: u64,
    since_ms: u64,
    number: u32,
) -> Option<ConnId> {
    assert_eq!(knocks.next_at(ms(since_ms)), ms(at_ms), "it is due");
    knocks.attempt(ms(at_ms), ms(since_ms), || Some(ConnId(number)))
}

fn answered_after_ms(knocks: &ReachabilityProbe, since_ms: u64) -> Option<u64> {
    let after = knocks.answered_after(ms(since_ms))?;
    Some(u64::try_from(after.as_millis()).expect("short"))
}

#[test]
fn the_host_is_probed_after_half_a_second_and_then_each_second() {
    let mut knocks = ReachabilityProbe::default();
    for (number, at_ms) in (0..).zip([1500, 2500, 3500]) {
        assert_eq!(attempt(&mut knocks, at_ms, 1000, number), None);
        assert_eq!(knocks.next.take(), Some(ConnId(number)));
        knocks.conclude(ms(at_ms + 20), ConnId(number), true);
        assert_eq!(answered_after_ms(&knocks, 1000), Some(520));
    }
}

#[test]
fn missing_answers_invalidate_earlier_ones_and_a_late_answer_starts_anew() {
    let mut knocks = ReachabilityProbe::default();
    attempt(&mut knocks, 1500, 1000, 0);
    knocks.conclude(ms(1520), ConnId(0), true);
    attempt(&mut knocks, 2500, 1000, 1);
    // Nothing new is dialled meanwhile, since the kernel retransmits the SYN.
    knocks.next = None;
    attempt(&mut knocks, 3500, 1000, 2);
    assert_eq!(answered_after_ms(&knocks, 1000), Some(520), "its first packet may be lost");
    attempt(&mut knocks, 4500, 1000, 3);
    assert_eq!((knocks.next, answered_after_ms(&knocks, 1000)), (None, None));
    knocks.conclude(ms(4700), ConnId(1), true);
    assert_eq!(answered_after_ms(&knocks, 1000), Some(3700));
    attempt(&mut knocks, 5500, 1000, 4);
    knocks.conclude(ms(5500), ConnId(4), false);
    assert_eq!(answered_after_ms(&knocks, 1000), None, "no route");
}

#[test]
fn one_lost_packet_is_not_a_missing_answer() {
    let mut knocks = ReachabilityProbe::default();
    attempt(&mut knocks, 500, 0, 0);
    knocks.conclude(ms(600), ConnId(0), true);
    for (number, at_ms) in [(1, 1500), (2, 3500)] {
        attempt(&mut knocks, at_ms, 0, number);
        attempt(&mut knocks, at_ms + 1000, 0, 9);
        knocks.conclude(ms(at_ms + 1100), ConnId(number), true);
        assert_eq!(answered_after_ms(&knocks, 0), Some(600));
    }
}

#[test]
fn probes_of_an_earlier_silence_do_not_count_for_the_next() {
    let mut knocks = ReachabilityProbe::default();
    attempt(&mut knocks, 1500, 1000, 0);
    knocks.conclude(ms(1520), ConnId(0), true);
    assert_eq!(answered_after_ms(&knocks, 2000), None);
    attempt(&mut knocks, 2500, 1000, 1);
    // A cell has returned at 3 s, and none since; the second probe was still open.
    assert_eq!(attempt(&mut knocks, 3500, 3000, 2), Some(ConnId(1)), "to be closed");
    knocks.conclude(ms(3510), ConnId(1), true);
    assert_eq!(answered_after_ms(&knocks, 3000), None);
    knocks.conclude(ms(3520), ConnId(2), true);
    assert_eq!(answered_after_ms(&knocks, 3000), Some(520));
}

#[test]
fn no_probe_is_sent_without_cells_in_flight() {
    let mut knocks = ReachabilityProbe::default();
    assert_eq!(knocks.attempt(ms(500), ms(0), || None), None);
    assert_eq!((knocks.next, answered_after_ms(&knocks, 0)), (None, None));
    attempt(&mut knocks, 1500, 0, 0);
    assert_eq!(knocks.next, Some(ConnId(0)));
}
