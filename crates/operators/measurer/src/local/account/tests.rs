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

fn sample(at_ms: u64, out: &[(u32, u32)], back: &[(u32, u32)]) -> Sample {
    let sockets = |them: &[(u32, u32)]| {
        them.iter().map(|(conn, times)| (ConnId(*conn), socket(*times))).collect()
    };
    Sample {
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
fn an_account_has_the_differences_between_two_samples() {
    let before = sample(1000, &[(0, 1), (1, 2)], &[(7, 1)]);
    let now = sample(3000, &[(0, 4), (1, 3)], &[(7, 3)]);
    let expected = Account {
        elapsed: ms(2000),
        pump_time: ms(2000),
        socket_time: ms(4000),
        sockets: 2,
        busy: ms(400),
        rwnd_limited: ms(120),
        sndbuf_limited: ms(40),
        app_limited: ms(2000), // app-limited in the last sample only
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
fn opened_and_closed_sockets_are_accounted_correctly() {
    let before = sample(1000, &[(0, 5), (1, 9)], &[(7, 9), (8, 1)]);
    let now = sample(2000, &[(0, 6), (2, 3)], &[(8, 2), (9, 1)]);
    let account = now.since(&before).expect("there are sockets");
    // One unit of the first socket, three of the new one, none of the closed one.
    assert_eq!((account.sockets, account.busy, account.sent_bytes), (2, ms(400), 4000));
    assert_eq!((account.received_segments, account.out_of_order_packets), (100, 2));
    // Decreasing counters, which no kernel has, do not cause a panic.
    let account = before.since(&sample(0, &[(0, 6), (1, 9)], &[])).expect("time has passed");
    assert_eq!((account.busy, account.sent_bytes), (Duration::ZERO, 0));
}

#[test]
fn held_back_sockets_do_not_count_until_they_send() {
    let mut samples = [(1000, 1), (2000, 2), (3000, 4)]
        .map(|(at, times)| sample(at, &[(0, times), (1, times)], &[]));
    samples[0].held_back.insert(ConnId(1));
    samples[1].held_back.insert(ConnId(1));
    let [before, then, now] = &samples;
    let account = then.since(before).expect("one of two");
    assert_eq!((account.sockets, account.socket_time, account.sent_bytes), (1, ms(1000), 1000));
    let account = now.since(then).expect("both");
    assert_eq!((account.sockets, account.socket_time, account.sent_bytes), (2, ms(2000), 4000));
    samples[1].held_back.insert(ConnId(0));
    let account = samples[1].since(&samples[0]).expect("an account without sockets that send");
    assert_eq!((account.sockets, account.socket_time, account.mean_rtt), (0, ms(0), None));
}

#[test]
fn without_time_or_sockets_there_is_no_account() {
    let before = sample(1000, &[(0, 1)], &[]);
    assert_eq!(sample(1000, &[(0, 2)], &[]).since(&before), None);
    assert_eq!(
        sample(2000, &[], &[(0, 2)]).since(&before),
        None,
        "there are no sockets to the relay"
    );
}

#[test]
fn in_a_silence_the_relay_has_the_acknowledged_data() {
    let seen = sample(5000, &[(0, 1), (1, 2)], &[]).at_silence();
    assert_eq!((seen.unsent_bytes, seen.unacked_bytes), (22, 26));
    assert_eq!((seen.silent, seen.answered_after), (ms(625), Some(ms(312))));
    assert_eq!(seen.taken_bytes(), 514 * 5000 - 48);
}

#[test]
fn counters_of_32_bits_may_wrap() {
    let mut before = sample(1000, &[(0, 1)], &[(0, 1)]);
    before.back.entry(ConnId(0)).or_default().received_segments = u32::MAX - 9;
    let account = sample(2000, &[(0, 2)], &[(0, 1)]).since(&before).expect("there is one");
    assert_eq!(account.received_segments, 60);
}
