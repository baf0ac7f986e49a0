use super::*;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A socket with this multiple of the counters of one that has just begun.
fn socket(times: u32) -> TcpAccount {
    TcpAccount {
        busy: ms(100) * times,
        rwnd_limited: ms(30) * times,
        sndbuf_limited: ms(10) * times,
        sent_bytes: 1000 * u64::from(times),
        retransmitted_bytes: 7 * u64::from(times),
        received_segments: 50 * times,
        out_of_order_packets: times,
        is_app_limited: times.is_multiple_of(2),
        unsent_bytes: 11,
        unacked_bytes: 13,
        rtt: Some(ms(20)),
        min_rtt: Some(ms(u64::from(times))),
    }
}

fn look(at_ms: u64, out: &[(u32, u32)], back: &[(u32, u32)]) -> Look {
    let sockets = |them: &[(u32, u32)]| {
        them.iter().map(|(conn, times)| (ConnId(*conn), socket(*times))).collect()
    };
    Look {
        at: Instant::from_millis(at_ms),
        out: sockets(out),
        held_back: BTreeSet::new(),
        back: sockets(back),
        outstanding_bytes: 514 * at_ms,
        throttled: ms(at_ms / 4),
        silent: ms(at_ms / 8),
        answered_after: Some(ms(at_ms / 16)),
        busy: ms(at_ms / 2),
    }
}

#[test]
fn an_account_is_what_was_added_between_two_looks() {
    let before = look(1000, &[(0, 1), (1, 2)], &[(7, 1)]);
    let now = look(3000, &[(0, 4), (1, 3)], &[(7, 3)]);
    let expected = Account {
        elapsed: ms(2000),
        pump_time: ms(2000),
        socket_time: ms(4000),
        sockets: 2,
        busy: ms(400),
        rwnd_limited: ms(120),
        sndbuf_limited: ms(40),
        app_limited: ms(2000), // that of four times, though not that of three
        sent_bytes: 4000,
        retransmitted_bytes: 28,
        silent: ms(375),
        answered_after: Some(ms(187)),
        unsent_bytes: 22,
        unacked_bytes: 26,
        outstanding_bytes: 514 * 3000,
        min_rtt: Some(ms(3)),
        mean_rtt: Some(ms(20)),
        received_segments: 100,
        out_of_order_packets: 2,
        throttled: ms(500),
        busiest: ms(1000),
    };
    assert_eq!(now.since(&before), Some(expected));
}

#[test]
fn sockets_that_come_and_go_make_no_nonsense() {
    let before = look(1000, &[(0, 5), (1, 9)], &[(7, 9), (8, 1)]);
    let now = look(2000, &[(0, 6), (2, 3)], &[(8, 2), (9, 1)]);
    let account = now.since(&before).expect("there are sockets");
    // One more of the first, all three of the new one, nothing of the one that is gone.
    assert_eq!((account.sockets, account.busy, account.sent_bytes), (2, ms(400), 4000));
    assert_eq!((account.received_segments, account.out_of_order_packets), (100, 2));
    // A kernel that counts backwards is none, and still no reason to panic.
    let account = before.since(&look(0, &[(0, 6), (1, 9)], &[])).expect("time has passed");
    assert_eq!((account.busy, account.sent_bytes), (Duration::ZERO, 0));
}

#[test]
fn sockets_that_are_held_back_do_not_count_until_they_send() {
    let mut looks = [(1000, 1), (2000, 2), (3000, 4)]
        .map(|(at, times)| look(at, &[(0, times), (1, times)], &[]));
    looks[0].held_back.insert(ConnId(1));
    looks[1].held_back.insert(ConnId(1));
    let [before, then, now] = &looks;
    let account = then.since(before).expect("one of two");
    assert_eq!((account.sockets, account.socket_time, account.sent_bytes), (1, ms(1000), 1000));
    let account = now.since(then).expect("both");
    assert_eq!((account.sockets, account.socket_time, account.sent_bytes), (2, ms(2000), 4000));
    looks[1].held_back.insert(ConnId(0));
    let account = looks[1].since(&looks[0]).expect("nobody sends, and that is said");
    assert_eq!((account.sockets, account.socket_time, account.mean_rtt), (0, ms(0), None));
}

#[test]
fn without_time_or_sockets_there_is_no_account() {
    let before = look(1000, &[(0, 1)], &[]);
    assert_eq!(look(1000, &[(0, 2)], &[]).since(&before), None);
    assert_eq!(look(2000, &[], &[(0, 2)]).since(&before), None, "it is not told of what is sent");
}

#[test]
fn what_the_relay_has_in_a_silence_is_what_its_kernel_has_acknowledged() {
    let seen = look(5000, &[(0, 1), (1, 2)], &[]).at_silence();
    assert_eq!((seen.unsent_bytes, seen.unacked_bytes), (22, 26));
    assert_eq!((seen.silent, seen.answered_after), (ms(625), Some(ms(312))));
    assert_eq!(seen.taken_bytes(), 514 * 5000 - 48);
}

#[test]
fn counters_of_32_bits_may_run_over() {
    let mut before = look(1000, &[(0, 1)], &[(0, 1)]);
    before.back.entry(ConnId(0)).or_default().received_segments = u32::MAX - 9;
    let account = look(2000, &[(0, 2)], &[(0, 1)]).since(&before).expect("there is one");
    assert_eq!(account.received_segments, 60);
}
