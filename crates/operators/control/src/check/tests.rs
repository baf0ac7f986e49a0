use super::*;
use crate::frames::{decode, encode};
use crate::messages::{FromCoordinator, MESSAGE_MAX_BYTES};
use crate::testing;
use link::Traffic;
use measurer::Defences;
use measurer::member::{Nonce, RoundMode, Target, WorkerLoad};
use onion::Rate;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::Second;
use onion::measure::load::Pace;
use proptest::option;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;

fn round_order() -> impl Strategy<Value = RoundOrder> {
    let address = (any::<IpAddr>(), 1..=u16::MAX).prop_map(SocketAddr::from);
    let ids = (any::<[u8; 20]>(), option::of(any::<[u8; 32]>()));
    let mode = prop_oneof![
        any::<bool>().prop_map(|always_authenticate| RoundMode::Transit { always_authenticate }),
        any::<[u8; 32]>().prop_map(|nonce| RoundMode::Echo { nonce: Nonce(nonce) }),
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
    (address, ids, mode, defences, numbers, times).prop_map(
        |(
            address,
            (rsa, ed25519),
            mode,
            defences,
            (sockets, rate, seconds, one_in, sharing),
            times,
        )| {
            let ids = RelayIds { rsa: RsaId(rsa), ed25519: ed25519.map(Ed25519Id) };
            RoundOrder {
                target: Target { address, ids },
                mode,
                defences,
                sockets,
                rate: Rate::from_bit_per_s(rate),
                seconds,
                held_back_s: times.3,
                few_circuits_s: times.3.unwrap_or(0),
                check_one_in: NonZeroU32::new(one_in).unwrap(),
                rtt: times.0.map(Duration::from_nanos),
                sharing,
                setup_timeout: Duration::from_nanos(times.1),
                stall_timeout: Duration::from_nanos(times.2),
            }
        },
    )
}

/// A valid account. Its times are whole microseconds, as the kernel reports them.
fn valid_account() -> impl Strategy<Value = Account> {
    let hour_us = 3_600_000_000_u64;
    let single = 0..=hour_us;
    let rtts = (option::of(single.clone()), option::of(single.clone()));
    let summed = prop::array::uniform7(0..=100_000 * hour_us);
    let silence = (single.clone(), option::of(single.clone()));
    let rest = (rtts, silence, any::<[u64; 7]>());
    (1..=100_000_u32, single.clone(), single, summed, rest).prop_map(
        |(sockets, elapsed, busiest, summed, (rtts, silence, counts))| {
            let [elapsed, busiest] = [elapsed, busiest].map(Duration::from_micros);
            let [
                pump_time,
                socket_time,
                busy,
                rwnd_limited,
                sndbuf_limited,
                app_limited,
                throttled,
            ] = summed.map(Duration::from_micros);
            Account {
                elapsed,
                pump_time,
                socket_time,
                sockets,
                busy,
                rwnd_limited,
                sndbuf_limited,
                app_limited,
                sent_bytes: counts[0],
                retransmitted_bytes: counts[1],
                unsent_bytes: counts[2],
                unacked_bytes: counts[3],
                outstanding_bytes: counts[4],
                min_rtt: rtts.0.map(Duration::from_micros),
                mean_rtt: rtts.1.map(Duration::from_micros),
                received_segments: counts[5],
                out_of_order_packets: counts[6],
                silent: Duration::from_micros(silence.0),
                answered_after: silence.1.map(Duration::from_micros),
                throttled,
                busiest,
            }
        },
    )
}

fn any_report() -> impl Strategy<Value = MemberReport> {
    let second = (any::<u32>(), any::<u64>(), any::<u64>(), option::of(valid_account()));
    let second = second.prop_map(|(index, bytes, checked_cells, account)| {
        MemberReport::Second(Second { index, bytes, checked_cells }, account.map(Box::new))
    });
    let load = (any::<[u64; 8]>()).prop_map(|[a, b, c, d, e, f, g, h]| {
        let [cpu, waited, wall, busiest] = [a, b, c, h].map(Duration::from_nanos);
        let (sent_bytes, sent_records, received_bytes, received_records) = (d, e, f, g);
        let traffic = Traffic { sent_bytes, sent_records, received_bytes, received_records };
        MemberReport::Load(WorkerLoad { cpu, waited, busiest, wall, traffic })
    });
    let failed = (prop::sample::select(KINDS), "[ -~]{0,300}")
        .prop_map(|(kind, detail)| MemberReport::Failed { kind, detail });
    let ready = any::<u32>().prop_map(|sockets| MemberReport::Ready { sockets });
    prop_oneof![ready, second, load, failed]
}

const KINDS: &[FailureKind] = &[
    FailureKind::Unreachable,
    FailureKind::Closed,
    FailureKind::Silent,
    FailureKind::WrongContent,
    FailureKind::Refused,
    FailureKind::Broken,
    FailureKind::Stalled,
    FailureKind::NothingReceived,
    FailureKind::NoRoom,
    FailureKind::BrokeProtocol,
];

/// The content of a message's frame, whose length is within the bound.
fn content(message: &impl serde::Serialize) -> Vec<u8> {
    let content = encode(message).expect("can be encoded").split_off(4);
    assert!(content.len() < MESSAGE_MAX_BYTES, "{} bytes", content.len());
    content
}

proptest! {
    #[test]
    fn an_order_is_received_as_it_was_sent(sent in round_order(), round: u64) {
        let bytes = content(&FromCoordinator::Prepare { round, order: sent });
        let received = decode::<FromCoordinator>(&bytes);
        prop_assert_eq!(received, Ok(FromCoordinator::Prepare { round, order: sent }));
        prop_assert_eq!(order(&sent), Ok(()));
    }

    #[test]
    fn identities_in_an_order_of_an_earlier_version_are_read(sent in round_order()) {
        let RelayIds { rsa, ed25519 } = sent.target.ids;
        let mut earlier = serde_json::to_value(sent).unwrap();
        let ids = serde_json::json!({"rsa": rsa.0, "ed25519": ed25519.map(|id| id.0)});
        earlier["target"]["ids"] = ids;
        prop_assert_eq!(serde_json::from_value::<RoundOrder>(earlier).unwrap(), sent);
    }

    #[test]
    fn a_report_is_received_as_it_was_sent(sent in any_report(), round: u64) {
        let message = FromMeasurer::Report { round, report: sent.clone() };
        let received = decode::<FromMeasurer>(&content(&message)).expect("can be decoded");
        prop_assert_eq!(report_in(received), Ok(Some((round, sent))));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = crate::fuzzing::from_coordinator(&bytes);
        let _ = crate::fuzzing::from_measurer(&bytes);
    }

    #[test]
    fn an_order_with_a_changed_byte_is_valid_or_refused(
        order in round_order(), at: prop::sample::Index, to: u8,
    ) {
        let mut bytes = content(&FromCoordinator::Prepare { round: 1, order });
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = crate::fuzzing::from_coordinator(&bytes);
    }
}

#[test]
fn a_field_that_is_out_of_range_is_named_with_its_range() {
    type Spoil = fn(&mut RoundOrder);
    let cases: [(Spoil, &str); 11] = [
        (|order| order.target.address.set_port(0), "port is 0, but must lie in 1 to 65535"),
        (|order| order.defences.queue_limit_cells = 49, "queue limit is 49, but must lie in 50 to"),
        (|order| order.sockets = 10_001, "sockets is 10001, but must lie in 1 to 10000"),
        (|order| order.rate = Rate::ZERO, "rate is 0"),
        (|order| order.seconds = 601, "seconds is 601"),
        (|order| order.held_back_s = Some(601), "held back is 601"),
        (|order| order.few_circuits_s = 601, "few circuits is 601"),
        (|order| order.rtt = Some(Duration::from_secs(61)), "round trip is 61s"),
        (|order| order.sharing = 0, "sharing is 0"),
        (|order| order.setup_timeout = Duration::MAX, "but must lie in 1ns to 3600s"),
        (|order| order.stall_timeout = Duration::ZERO, "stall timeout is 0ns"),
    ];
    for (spoil, reason) in cases {
        let mut spoiled = testing::order();
        spoil(&mut spoiled);
        let error = order(&spoiled).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}

#[test]
fn impossible_times_from_a_measurer_are_refused() {
    type Spoil = fn(&mut Account);
    let cases: [(Spoil, &str); 4] = [
        (
            |account| account.sockets = u32::MAX,
            "sockets is 4294967295, but must lie in 0 to 100000",
        ),
        (|account| account.elapsed = Duration::MAX, "elapsed time is"),
        (|account| account.busy = Duration::MAX, "busy time is"),
        (|account| account.mean_rtt = Some(Duration::MAX), "mean round trip is"),
    ];
    let reported = |account| {
        let second = Second { index: 0, bytes: 1, checked_cells: 0 };
        report(MemberReport::Second(second, account))
    };
    let good = Account { sockets: 1, ..Account::default() };
    assert!(reported(Some(Box::new(good))).is_ok() && reported(None).is_ok());
    for (spoil, reason) in cases {
        let mut spoiled = good;
        spoil(&mut spoiled);
        let error = reported(Some(Box::new(spoiled))).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error} instead of {reason}");
    }
}

#[test]
fn text_from_the_peer_cannot_break_a_log() {
    assert_eq!(plain("a\nb\u{1b}[31m"), "a b [31m");
    assert_eq!(plain(&"é".repeat(5000)).chars().count(), TEXT_MAX_CHARS);
}
