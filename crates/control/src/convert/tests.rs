use super::*;
use crate::messages::FromCoordinator;
use crate::testing::order;
use proptest::option;
use proptest::prelude::*;
use prost::Message as _;

fn round_order() -> impl Strategy<Value = RoundOrder> {
    let address = (any::<IpAddr>(), 1..=u16::MAX).prop_map(SocketAddr::from);
    let ids = (any::<[u8; 20]>(), option::of(any::<[u8; 32]>()));
    let way_back = prop_oneof![
        any::<bool>().prop_map(|it| RoundWayBack::Transit { always_authenticate: it }),
        any::<[u8; 32]>().prop_map(|nonce| RoundWayBack::Echo { nonce: Nonce(nonce) }),
    ];
    let defences = (50u32.., option::of(any::<u32>()), any::<u32>(), 1u32.., option::of(1u32..))
        .prop_map(|(queue_limit_cells, max_connections, burst, per_s, max_client_circuits)| {
            let per_s = NonZeroU32::new(per_s).unwrap();
            let connect = Pace { burst, per_s };
            Defences { queue_limit_cells, max_connections, connect, max_client_circuits }
        });
    let numbers = (1u32..=10_000, 1u64.., 1u32..=600, 1u32.., 1u32..=1000);
    let hour_ns = 3_600_000_000_000u64;
    let held_back = option::of(0u32..=600);
    let times = (option::of(0u64..60_000_000_000), 1..=hour_ns, 1..=hour_ns, held_back);
    (address, ids, way_back, defences, numbers, times).prop_map(
        |(
            address,
            (rsa, ed25519),
            way_back,
            defences,
            (sockets, rate, seconds, one_in, sharing),
            times,
        )| {
            let ids = RelayIds { rsa: RsaId(rsa), ed25519: ed25519.map(Ed25519Id) };
            RoundOrder {
                target: Target { address, ids },
                way_back,
                defences,
                sockets,
                rate: Rate::from_bit_per_s(rate),
                seconds,
                held_back_s: times.3,
                check_one_in: NonZeroU32::new(one_in).unwrap(),
                rtt: times.0.map(Duration::from_nanos),
                sharing,
                setup_timeout: Duration::from_nanos(times.1),
                stall_timeout: Duration::from_nanos(times.2),
            }
        },
    )
}

/// One that may be told.
fn account() -> impl Strategy<Value = Account> {
    let hour_ns = 3_600_000_000_000_u64;
    let single = 0..=hour_ns;
    let rtts = (option::of(single.clone()), option::of(single.clone()));
    let summed = prop::array::uniform7(0..=100_000 * hour_ns);
    let silence = (single.clone(), option::of(single.clone()));
    let rest = (rtts, silence, any::<[u64; 7]>());
    (1..=100_000_u32, single.clone(), single, summed, rest).prop_map(
        |(sockets, elapsed, busiest, summed, (rtts, silence, counts))| {
            let [elapsed, busiest] = [elapsed, busiest].map(Duration::from_nanos);
            let [pump_time, socket_time, busy, peer_window, send_buffer, app_limited, throttled] =
                summed.map(Duration::from_nanos);
            Account {
                elapsed,
                pump_time,
                socket_time,
                sockets,
                busy,
                peer_window,
                send_buffer,
                app_limited,
                sent_bytes: counts[0],
                retransmitted_bytes: counts[1],
                unsent_bytes: counts[2],
                unacked_bytes: counts[3],
                outstanding_bytes: counts[4],
                least_rtt: rtts.0.map(Duration::from_nanos),
                mean_rtt: rtts.1.map(Duration::from_nanos),
                received_segments: counts[5],
                out_of_order_packets: counts[6],
                silent: Duration::from_nanos(silence.0),
                answered_after: silence.1.map(Duration::from_nanos),
                throttled,
                busiest,
            }
        },
    )
}

fn report() -> impl Strategy<Value = MemberReport> {
    let second = (any::<u32>(), any::<u64>(), any::<u64>(), option::of(account()));
    let second = second.prop_map(|(index, bytes, checked_cells, account)| {
        MemberReport::Second(Second { index, bytes, checked_cells }, account.map(Box::new))
    });
    let load = (any::<[u64; 8]>()).prop_map(|[a, b, c, d, e, f, g, h]| {
        let [cpu, waited, wall, busiest] = [a, b, c, h].map(Duration::from_nanos);
        let (sent_bytes, sent_records, received_bytes, received_records) = (d, e, f, g);
        let traffic = Traffic { sent_bytes, sent_records, received_bytes, received_records };
        MemberReport::Load(WorkerLoad { cpu, waited, busiest, wall, traffic })
    });
    let failed = (0..KINDS.len(), "[ -~]{0,300}")
        .prop_map(|(place, detail)| MemberReport::Failed { kind: KINDS[place], detail });
    let ready = any::<u32>().prop_map(|sockets| MemberReport::Ready { sockets });
    prop_oneof![ready, second, load, failed]
}

proptest! {
    #[test]
    fn an_order_survives_the_way(order in round_order(), measurement: u64) {
        let prepare = Some(Instruction::Prepare(Prepare::from(&order)));
        let bytes = FromCoordinator { measurement, order: prepare }.encode_to_vec();
        prop_assert!(bytes.len() < messages::MESSAGE_MAX_BYTES);
        let read = FromCoordinator::decode(&bytes[..]).unwrap();
        prop_assert_eq!(read.measurement, measurement);
        let Some(Instruction::Prepare(prepare)) = read.order else { panic!("another order") };
        prop_assert_eq!(RoundOrder::try_from(prepare), Ok(order));
    }

    #[test]
    fn a_report_survives_the_way(report in report(), measurement: u64) {
        let bytes = report_message(measurement, report.clone()).encode_to_vec();
        prop_assert!(bytes.len() < messages::MESSAGE_MAX_BYTES);
        let read = FromMeasurer::decode(&bytes[..]).unwrap();
        prop_assert_eq!(read.measurement, measurement);
        prop_assert_eq!(told(read), Ok(Told::Report(report)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = crate::fuzzing::from_coordinator(&bytes);
        let _ = crate::fuzzing::from_measurer(&bytes);
    }

    #[test]
    fn an_order_with_a_byte_changed_is_one_that_can_be_obeyed_or_none(
        order in round_order(), at: prop::sample::Index, to: u8,
    ) {
        let prepare = Some(Instruction::Prepare(Prepare::from(&order)));
        let mut bytes = FromCoordinator { measurement: 1, order: prepare }.encode_to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = crate::fuzzing::from_coordinator(&bytes);
    }
}

#[test]
fn a_bad_field_is_named_with_what_it_may_be() {
    type Spoil = fn(&mut Prepare);
    let cases: [(Spoil, &str); 12] = [
        (|it| it.address = vec![1, 2, 3], "address has 3 bytes instead of 16"),
        (|it| it.port = 0, "port is 0, but must lie in 1 to 65535"),
        (|it| it.port = 65_536, "port is 65536, but must lie in 1 to 65535"),
        (|it| it.rsa_id.clear(), "RSA identity has 0 bytes instead of 20"),
        (|it| it.ed25519_id = Some(vec![0; 33]), "Ed25519 identity has 33 bytes instead of 32"),
        (|it| it.way_back = None, "way_back is absent"),
        (
            |it| it.way_back = Some(WayBack::Echo(Echo { nonce: vec![0] })),
            "nonce has 1 bytes instead of 32",
        ),
        (|it| it.sockets = 10_001, "sockets is 10001, but must lie in 1 to 10000"),
        (|it| it.rate_bit_per_s = 0, "rate is 0"),
        (|it| it.seconds = 601, "seconds is 601"),
        (|it| it.check_one_in = 0, "is zero"),
        (|it| it.setup_timeout_ns = u64::MAX, "but must lie in 1ns to 3600s"),
    ];
    for (spoil, reason) in cases {
        let mut message = Prepare::from(&order());
        spoil(&mut message);
        let error = RoundOrder::try_from(message).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}

#[test]
fn a_measurer_cannot_tell_of_times_that_cannot_be() {
    type Spoil = fn(&mut messages::Account);
    let cases: [(Spoil, &str); 4] = [
        (|it| it.sockets = u32::MAX, "sockets is 4294967295, but must lie in 0 to 100000"),
        (|it| it.elapsed_ns = u64::MAX, "elapsed time is"),
        (|it| it.busy_ns = u64::MAX, "busy time is"),
        (|it| it.mean_rtt_ns = Some(u64::MAX), "mean round trip is"),
    ];
    let good = messages::Account::from(&Account { sockets: 1, ..Account::default() });
    let told_with = |account| {
        let second = messages::Second { index: 0, bytes: 1, checked_cells: 0, account };
        told(FromMeasurer { measurement: 1, word: Some(Word::Second(second)) })
    };
    assert!(
        told_with(Some(good)).is_ok() && told_with(None).is_ok(),
        "the second is of a measurer of before"
    );
    for (spoil, reason) in cases {
        let mut message = good;
        spoil(&mut message);
        let error = told_with(Some(message)).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}

#[test]
fn the_number_of_a_failure_means_what_it_has_always_meant() {
    // A measurer of before says so of each silence: it is no evidence against the relay.
    assert_eq!(kind_of(3), FailureKind::Silent);
    assert_eq!((kind_number(FailureKind::Stalled), kind_of(7)), (7, FailureKind::Stalled));
    assert_eq!((kind_of(0), kind_of(9)), (FailureKind::Broken, FailureKind::Broken));
}

#[test]
fn text_from_elsewhere_cannot_break_a_log() {
    assert_eq!(plain("a\nb\u{1b}[31m"), "a b [31m");
    assert_eq!(plain(&"é".repeat(5000)).chars().count(), TEXT_MAX_CHARS);
}
