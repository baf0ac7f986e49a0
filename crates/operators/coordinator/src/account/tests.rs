use super::*;
use proptest::prelude::*;

fn times() -> impl Strategy<Value = Duration> {
    prop_oneof![0..10_000_000_u64, Just(u64::MAX), any::<u64>(),].prop_map(Duration::from_micros)
}

fn accounts() -> impl Strategy<Value = Account> {
    let times = proptest::array::uniform9(times());
    let counts = proptest::array::uniform7(prop_oneof![0..1_000_000_u64, any::<u64>()]);
    let rtts = (proptest::option::of(0..5_000_000_u64), proptest::option::of(0..5_000_000_u64));
    let silence = (self::times(), proptest::option::of(0..5_000_000_u64));
    let rest = (any::<u32>(), silence);
    (times, counts, rtts, rest).prop_map(|(times, counts, (least, mean), rest)| {
        let (sockets, (silent, answered_after)) = rest;
        let [
            elapsed,
            pump_time,
            socket_time,
            busy,
            rwnd_limited,
            sndbuf_limited,
            app_limited,
            throttled,
            busiest,
        ] = times;
        let [
            sent_bytes,
            retransmitted_bytes,
            received_segments,
            out_of_order_packets,
            unsent_bytes,
            unacked_bytes,
            outstanding_bytes,
        ] = counts;
        Account {
            elapsed,
            pump_time,
            socket_time,
            sockets,
            busy,
            rwnd_limited,
            sndbuf_limited,
            app_limited,
            sent_bytes,
            retransmitted_bytes,
            unsent_bytes,
            unacked_bytes,
            outstanding_bytes,
            min_rtt: least.map(Duration::from_micros),
            mean_rtt: mean.map(Duration::from_micros),
            received_segments,
            out_of_order_packets,
            silent,
            answered_after: answered_after.map(Duration::from_micros),
            throttled,
            busiest,
        }
    })
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// One second of a pump with this number of sockets, each busy all the time.
fn of_second(sockets: u32) -> Account {
    Account {
        elapsed: ms(1000),
        pump_time: ms(1000),
        socket_time: ms(1000) * sockets,
        sockets,
        busy: ms(1000) * sockets,
        ..Account::default()
    }
}

#[test]
fn shares_refer_to_the_time_of_the_sockets() {
    let account = Account {
        rwnd_limited: ms(2400),
        sndbuf_limited: ms(400),
        app_limited: ms(1000),
        sent_bytes: 990,
        retransmitted_bytes: 10,
        received_segments: 200,
        out_of_order_packets: 1,
        throttled: ms(100),
        busiest: ms(700),
        ..of_second(4)
    };
    assert_eq!(account.congestion(), ms(1200));
    let shares = [
        account.rwnd_limited_share(),
        account.sndbuf_limited_share(),
        account.congestion_share(),
        account.app_limited_share(),
        account.retransmitted_share(),
        account.out_of_order_share(),
        account.throttled_share(),
        account.busiest_share(),
    ];
    let expected = [0.6, 0.1, 0.3, 0.25, 0.01, 0.005, 0.1, 0.7];
    for (share, expected) in shares.into_iter().zip(expected) {
        assert!((share - expected).abs() < 1e-12, "{shares:?}");
    }
}

/// The sum over all pumps of a measurer starts from zero.
#[test]
fn the_silence_of_several_pumps_is_the_shortest_and_an_empty_account_does_not_end_it() {
    let silent = |seconds| Account {
        elapsed: Duration::from_secs(1),
        silent: Duration::from_secs(seconds),
        ..Account::default()
    };
    let all = Account::default().combined(&silent(4)).combined(&silent(3));
    assert_eq!(all.silent, Duration::from_secs(3));
    assert_eq!(silent(4).combined(&Account::default()).silent, Duration::from_secs(4));
}

#[test]
fn combined_pumps_have_more_sockets_and_no_more_time() {
    let few = Account { rwnd_limited: ms(1000), mean_rtt: Some(ms(10)), ..of_second(1) };
    let many = Account {
        min_rtt: Some(ms(7)),
        mean_rtt: Some(ms(50)),
        busiest: ms(300),
        throttled: ms(500),
        ..of_second(3)
    };
    let both = few.combined(&many);
    assert_eq!((both.sockets, both.elapsed, both.busiest), (4, ms(1000), ms(300)));
    assert_eq!((both.min_rtt, both.mean_rtt), (Some(ms(7)), Some(ms(40))));
    assert!((both.rwnd_limited_share() - 0.25).abs() < 1e-12);
    assert!(
        (both.throttled_share() - 0.25).abs() < 1e-12,
        "one of two pumps, for half of the time"
    );
    let after = both.followed_by(&both);
    assert_eq!((after.sockets, after.elapsed, after.busiest), (4, ms(2000), ms(600)));
    assert!((after.rwnd_limited_share() - 0.25).abs() < 1e-12);
    assert!((after.busiest_share() - 0.3).abs() < 1e-12);
}

#[test]
fn data_in_flight_adds_up_over_sockets_and_not_over_time() {
    let one =
        Account { unsent_bytes: 10, unacked_bytes: 400, outstanding_bytes: 900, ..of_second(1) };
    let other = Account { outstanding_bytes: 300, elapsed: ms(500), ..of_second(2) };
    let both = one.combined(&other);
    let under_way = |account: &Account| {
        (account.unsent_bytes, account.unacked_bytes, account.outstanding_bytes)
    };
    assert_eq!((under_way(&both), both.taken_bytes()), ((10, 400, 1200), 790));
    assert_eq!(Account { unsent_bytes: 1300, ..both }.taken_bytes(), 0, "TLS adds bytes");
    assert_eq!(under_way(&one.followed_by(&other)), (6, 266, 700));
    assert_eq!(under_way(&both.followed_by(&both)), under_way(&both));
}

#[test]
fn a_round_trip_that_was_never_observed_is_none_and_not_zero() {
    let nothing = Account::default();
    assert_eq!((nothing.combined(&nothing).min_rtt, nothing.mean_rtt), (None, None));
    let shares = [nothing.retransmitted_share(), nothing.throttled_share()];
    assert_eq!(shares, [0.0; 2]);
    let seen = Account { mean_rtt: Some(ms(3)), min_rtt: Some(ms(2)), ..nothing };
    for both in [seen.combined(&nothing), nothing.combined(&seen)] {
        assert_eq!((both.mean_rtt, both.min_rtt), (Some(ms(3)), Some(ms(2))));
    }
}

#[test]
fn json_names_have_units() {
    let account = Account { min_rtt: Some(ms(20)), ..of_second(2) };
    let json = serde_json::to_value(account).expect("is data");
    assert_eq!((&json["busy_us"], &json["min_rtt_us"]), (&2_000_000.into(), &20_000.into()));
    assert!(json["mean_rtt_us"].is_null());
}

proptest! {
    #[test]
    fn no_account_makes_it_panic(one in accounts(), two in accounts()) {
        for account in [one, one.combined(&two), one.followed_by(&two)] {
            prop_assert!(account.congestion() <= account.busy);
            prop_assert!(account.taken_bytes() <= account.outstanding_bytes);
            for share in [
                account.congestion_share(),
                account.retransmitted_share(),
                account.out_of_order_share(),
                account.throttled_share(),
                account.busiest_share(),
            ] {
                prop_assert!(share.is_finite() && share >= 0.0);
            }
        }
    }

    #[test]
    fn a_mean_lies_between(one in accounts(), two in accounts()) {
        let both = one.combined(&two).mean_rtt;
        let rtts = [one.mean_rtt, two.mean_rtt];
        let (least, most) = (rtts.iter().flatten().min(), rtts.iter().flatten().max());
        prop_assert!(both.as_ref() >= least && both.as_ref() <= most, "{both:?} of {rtts:?}");
    }

    #[test]
    fn combining_accounts_is_commutative(one in accounts(), two in accounts()) {
        let (there, back) = (one.combined(&two), two.combined(&one));
        let apart = there.mean_rtt.unwrap_or_default().abs_diff(back.mean_rtt.unwrap_or_default());
        prop_assert!(apart <= Duration::from_nanos(1), "{there:?} {back:?}");
        prop_assert_eq!(Account { mean_rtt: None, ..there }, Account { mean_rtt: None, ..back });
    }

    #[test]
    fn it_survives_json(account in accounts()) {
        let json = serde_json::to_string(&account).expect("is data");
        prop_assert_eq!(serde_json::from_str::<Account>(&json).expect("was data"), account);
    }
}

#[test]
fn the_main_cause_determines_where_most_cells_waited() {
    let second = Duration::from_secs(1);
    let busy =
        Account { elapsed: second, pump_time: second, socket_time: second, ..Account::default() };
    let (most, little) = (Duration::from_millis(960), Duration::from_millis(100));
    let under_way =
        Account { outstanding_bytes: 1000, unsent_bytes: 200, unacked_bytes: 400, ..busy };
    assert_eq!(under_way.waited(), Waited::Path, "the relay has 400 of 1000");
    assert_eq!(Account { unacked_bytes: 300, ..under_way }.waited(), Waited::Relay);
    assert_eq!(Account { rwnd_limited: most, ..under_way }.waited(), Waited::Relay);
    assert_eq!(Account { rwnd_limited: little, ..under_way }.waited(), Waited::Path);
    assert_eq!(Account { throttled: most, ..under_way }.waited(), Waited::AssignedRate);
    assert_eq!(Account { throttled: most, busiest: most, ..under_way }.waited(), Waited::Processor);
}
