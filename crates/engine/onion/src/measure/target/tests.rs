use super::*;
use crate::cell::CELL_LEN;
use crate::identity::{Ed25519Id, RsaId};
use crate::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, SentBack};
use crate::rate::Rate;
use alloc::vec::Vec;
use proptest::prelude::*;

const COORDINATOR: [u8; 32] = [1; 32];
const MEASURER: [u8; 32] = [2; 32];
const OTHER: [u8; 32] = [6; 32];
const SESSION: [u8; 32] = [3; 32];
const UNIX: u64 = 1_800_000_000;
const LINK: ConnId = ConnId(0);
const NONE: Rate = Rate::from_bit_per_s(0);

const fn ids() -> RelayIds {
    RelayIds { rsa: RsaId([4; 20]), ed25519: Some(Ed25519Id([5; 32])) }
}

fn order(nonce: u8) -> Order {
    Order {
        coordinator: CoordinatorKey::of_seed(&COORDINATOR),
        target: ids(),
        measurers: Vec::from([MeasurerKey::of_seed(&MEASURER)]),
        seconds: 3,
        client_share: ClientShare::DEFAULT,
        sockets: 2,
        expires_unix_s: UNIX + 60,
        nonce: Nonce([nonce; 32]),
    }
}

fn target() -> Target {
    let params = TargetParams {
        is_allowed: true,
        coordinators: Vec::from([CoordinatorKey::of_seed(&COORDINATOR)]),
        ..TargetParams::default()
    };
    Target::new(params, ids())
}

fn at_ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn give(target: &mut Target, now: Instant, order: &Order) -> Result<Nonce, ErrorCode> {
    let passed_s = (now - Instant::ORIGIN).as_secs();
    let unix = UNIX + passed_s;
    let order = Order { expires_unix_s: order.expires_unix_s + passed_s, ..order.clone() };
    let signed = order.sign(&COORDINATOR, &SESSION);
    let accepted = target.handle_order(now, unix, LINK, &SESSION, &signed);
    accepted.map(|accepted| accepted.nonce).map_err(|refusal| refusal.code)
}

fn prove(target: &mut Target, conn: u32, seed: &[u8; 32], nonce: u8) -> Result<(), ErrorCode> {
    let proof = Proof::sign(seed, Nonce([nonce; 32]), &ids(), &SESSION);
    target.handle_proof(ConnId(conn), &SESSION, &proof).map_err(|refusal| refusal.code)
}

#[test]
fn each_invalid_order_is_refused_with_its_code() {
    let mut target = target();
    let wrong = [
        (
            Order { target: RelayIds { rsa: RsaId([9; 20]), ..ids() }, ..order(1) },
            ErrorCode::WRONG_TARGET,
        ),
        (
            Order { target: RelayIds { ed25519: None, ..ids() }, ..order(1) },
            ErrorCode::WRONG_TARGET,
        ),
        (Order { expires_unix_s: UNIX - 1, ..order(1) }, ErrorCode::EXPIRED),
        (Order { expires_unix_s: UNIX + 86_400, ..order(1) }, ErrorCode::TOO_FAR_AHEAD),
        (Order { seconds: 46, ..order(1) }, ErrorCode::TOO_LONG),
        (Order { seconds: 0, ..order(1) }, ErrorCode::BAD_PARAMETERS),
        (Order { sockets: 0, ..order(1) }, ErrorCode::BAD_PARAMETERS),
        (Order { measurers: Vec::new(), ..order(1) }, ErrorCode::BAD_PARAMETERS),
    ];
    for (order, code) in wrong {
        assert_eq!(give(&mut target, at_ms(0), &order), Err(code), "{order:?}");
    }
    // None of them counts: the right one is accepted, once.
    assert_eq!(give(&mut target, at_ms(0), &order(1)), Ok(Nonce([1; 32])));
    assert_eq!(give(&mut target, at_ms(1), &order(2)), Err(ErrorCode::BUSY));
    assert_eq!(give(&mut target, at_ms(1), &order(1)), Err(ErrorCode::REPLAYED));
}

#[test]
fn an_order_needs_a_listed_coordinators_signature_on_this_session() {
    let mut target = target();
    let stranger = order(1).sign(&[9; 32], &SESSION);
    let refusal = target.handle_order(at_ms(0), UNIX, LINK, &SESSION, &stranger);
    assert_eq!(refusal.clone().map_err(|r| r.code), Err(ErrorCode::UNKNOWN_COORDINATOR));
    let elsewhere = order(1).sign(&COORDINATOR, &[9; 32]);
    assert_eq!(target.handle_order(at_ms(0), UNIX, LINK, &SESSION, &elsewhere), refusal);
    let of_both = order(1).sign(&[9; 32], &[9; 32]);
    assert_eq!(target.handle_order(at_ms(0), UNIX, LINK, &SESSION, &of_both), refusal);
    let forbidden = TargetParams { is_allowed: false, ..target.params().clone() };
    target.set_params(forbidden);
    assert_eq!(give(&mut target, at_ms(0), &order(1)), Err(ErrorCode::NOT_ALLOWED));
}

#[test]
fn a_coordinator_cannot_exceed_its_quota_in_any_period() {
    let mut target = target();
    let hour = 3_600_000;
    for (nonce, hours) in [(1, 0), (2, 10)] {
        assert_eq!(give(&mut target, at_ms(hours * hour), &order(nonce)), Ok(Nonce([nonce; 32])));
        target.handle_closed(LINK);
    }
    assert_eq!(give(&mut target, at_ms(20 * hour), &order(3)), Err(ErrorCode::QUOTA_EXCEEDED));
    // The first is a period ago, the second is not.
    assert!(give(&mut target, at_ms(24 * hour), &order(4)).is_ok());
    target.handle_closed(LINK);
    assert_eq!(give(&mut target, at_ms(33 * hour), &order(5)), Err(ErrorCode::QUOTA_EXCEEDED));
}

#[test]
fn measurements_before_a_restart_count_towards_the_quota() {
    let mut target = target();
    let coordinator = CoordinatorKey::of_seed(&COORDINATOR);
    let hour_s = 3600;
    for (nonce, hours_ago) in [(1, 23), (2, 1)] {
        let unix_time_s = UNIX - hours_ago * hour_s;
        target.remember(Accepted { unix_time_s, coordinator, nonce: Nonce([nonce; 32]) });
    }
    // A clock that was a day ahead must not lock out a coordinator.
    target.remember(Accepted {
        unix_time_s: UNIX + 24 * hour_s,
        coordinator,
        nonce: Nonce([9; 32]),
    });
    assert_eq!(give(&mut target, at_ms(0), &order(2)), Err(ErrorCode::REPLAYED));
    assert_eq!(give(&mut target, at_ms(0), &order(3)), Err(ErrorCode::QUOTA_EXCEEDED));
    assert!(give(&mut target, at_ms(hour_s * 1000), &order(4)).is_ok());
}

#[test]
fn measurers_prove_themselves_up_to_the_number_of_sockets() {
    let mut target = target();
    assert_eq!(prove(&mut target, 1, &MEASURER, 1), Err(ErrorCode::NO_SUCH_MEASUREMENT));
    give(&mut target, at_ms(0), &order(1)).expect("accepted");
    assert_eq!(prove(&mut target, 1, &[9; 32], 1), Err(ErrorCode::UNKNOWN_MEASURER));
    assert_eq!(prove(&mut target, 1, &MEASURER, 2), Err(ErrorCode::NO_SUCH_MEASUREMENT));
    let proof = Proof::sign(&MEASURER, Nonce([1; 32]), &ids(), &[9; 32]);
    let refused = target.handle_proof(ConnId(1), &SESSION, &proof);
    assert_eq!(refused.map_err(|r| r.code), Err(ErrorCode::BAD_SIGNATURE));
    assert_eq!(prove(&mut target, 1, &MEASURER, 1), Ok(()));
    assert_eq!(prove(&mut target, 2, &MEASURER, 1), Ok(()));
    assert_eq!(prove(&mut target, 3, &MEASURER, 1), Err(ErrorCode::TOO_MANY_SOCKETS));
    // A closed link makes space.
    target.handle_closed(ConnId(2));
    assert_eq!(prove(&mut target, 3, &MEASURER, 1), Ok(()));
}

#[test]
fn seconds_are_reported_from_the_first_cell_until_the_last_second() {
    let mut target = target();
    let both = [MEASURER, OTHER].map(|seed| MeasurerKey::of_seed(&seed));
    let order = Order { measurers: Vec::from(both), ..order(1) };
    give(&mut target, at_ms(0), &order).expect("accepted");
    prove(&mut target, 1, &MEASURER, 1).expect("proven");
    prove(&mut target, 2, &OTHER, 1).expect("proven");
    target.handle_client_received(999); // before it begins
    assert!(!target.is_measuring());
    target.handle_measurement_cell(at_ms(500));
    assert!(target.is_measuring());
    target.handle_client_received(514);
    target.handle_client_sent(1028);
    target.handle_measured(ConnId(1), 5140);
    target.handle_measured(ConnId(2), 514);
    target.handle_timeout(at_ms(1499));
    assert_eq!(target.poll_event(), None);
    target.handle_timeout(at_ms(1500));
    let second = ClientSecond { second: 0, received_bytes: 514, sent_bytes: 1028 };
    let sent_back = Vec::from([
        SentBack { measurer: MeasurerKey::of_seed(&MEASURER), bytes: 5140 },
        SentBack { measurer: MeasurerKey::of_seed(&OTHER), bytes: 514 },
    ]);
    let ended = at_ms(1500);
    let measured_bytes = 5654;
    let report = TargetEvent::Report { conn: LINK, second, ended, measured_bytes, sent_back };
    assert_eq!(target.poll_event(), Some(report));
    target.handle_timeout(at_ms(3500)); // late: both seconds that are left
    for second in [1, 2] {
        let Some(TargetEvent::Report { second: found, .. }) = target.poll_event() else {
            panic!("a report");
        };
        assert_eq!(found, ClientSecond { second, ..ClientSecond::default() });
    }
    let measurers = BTreeSet::from([ConnId(1), ConnId(2)]);
    let over = TargetEvent::Over { coordinator: Some(LINK), measurers, refusal: None };
    assert_eq!(target.poll_event(), Some(over));
    assert_eq!((target.poll_event(), target.poll_timeout()), (None, None));
}

#[test]
fn three_seconds_without_cells_end_a_measurement() {
    let mut target = target();
    give(&mut target, at_ms(0), &Order { seconds: 30, ..order(1) }).expect("accepted");
    prove(&mut target, 1, &MEASURER, 1).expect("proven");
    target.handle_measurement_cell(at_ms(0));
    // Two empty seconds are a path that stalls for a while.
    for second in 1..=7 {
        if second % 3 == 1 {
            target.handle_measured(ConnId(1), 514);
        }
        target.handle_timeout(at_ms(second * 1000));
        assert!(target.is_measuring(), "after {second} s");
    }
    target.handle_timeout(at_ms(9_999));
    assert!(target.is_measuring());
    target.handle_timeout(at_ms(10_000));
    assert!(!target.is_measuring());
    let last = core::iter::from_fn(|| target.poll_event()).last();
    let Some(TargetEvent::Over { refusal: Some(refusal), coordinator, .. }) = last else {
        panic!("not over: {last:?}");
    };
    assert_eq!((refusal.code, coordinator), (ErrorCode::NO_TRAFFIC, Some(LINK)));
}

#[test]
fn a_violation_a_lost_coordinator_or_a_timeout_ends_it() {
    let started = || {
        let mut target = target();
        give(&mut target, at_ms(0), &order(1)).expect("accepted");
        prove(&mut target, 1, &MEASURER, 1).expect("proven");
        target
    };
    let code = |mut target: Target| match target.poll_event() {
        Some(TargetEvent::Over { refusal: Some(refusal), .. }) => refusal.code,
        other => panic!("not over: {other:?}"),
    };
    let mut violated = started();
    violated.handle_violation(ConnId(7), String::from("another link")); // has no part in it
    assert_eq!(violated.poll_event(), None);
    violated.handle_violation(ConnId(1), String::from("CREATE2"));
    assert_eq!(code(violated), ErrorCode::VIOLATION);
    let mut abandoned = started();
    abandoned.handle_closed(LINK);
    assert_eq!(code(abandoned), ErrorCode::CALLED_OFF);
    let mut slow = started();
    assert_eq!(slow.poll_timeout(), Some(at_ms(45_000)));
    slow.handle_timeout(at_ms(45_000));
    assert_eq!(code(slow), ErrorCode::TIMED_OUT);
}

/// The client traffic of a relay with this usual client traffic, in ten seconds of a measurement with an order
/// of this share and this measurement traffic.
fn clients_get(usual_mbit: f64, permille: u16, measured_mbit: f64) -> f64 {
    let mut target = target();
    let usual = Rate::from_mbit_per_s(usual_mbit);
    target.note_clients(at_ms(1_000));
    target.handle_client_sent(usual.bytes_in(Duration::from_secs(10)));
    target.note_clients(at_ms(11_000));
    let client_share = ClientShare::from_permille(permille).expect("under one");
    let order = Order { client_share, seconds: 30, ..order(1) };
    give(&mut target, at_ms(12_000), &order).expect("accepted");
    prove(&mut target, 1, &MEASURER, 1).expect("proven");
    target.handle_measurement_cell(at_ms(12_000));
    let mut sent = 0;
    for millis in 12_000..22_000 {
        target.handle_measured(
            ConnId(1),
            Rate::from_mbit_per_s(measured_mbit).bytes_in(Duration::from_millis(1)),
        );
        let granted = target.clients_may_send(at_ms(millis));
        target.handle_client_sent(granted);
        // Traffic during a measurement is not the usual traffic.
        target.note_clients(at_ms(millis));
        sent += granted;
    }
    Rate::from_bytes_over(sent, Duration::from_secs(10)).as_mbit_per_s()
}

#[test]
fn an_order_leaves_clients_at_least_a_quarter_of_their_usual_traffic() {
    // r of the order; what is left of 800 Mbit/s.
    for (permille, measured, least, most) in [
        (0, 0.0, 195.0, 215.0),
        (250, 0.001, 195.0, 215.0),
        (0, 600.0, 195.0, 215.0),
        (100, 4_500.0, 490.0, 515.0),
    ] {
        let got = clients_get(800.0, permille, measured);
        assert!((least..most).contains(&got), "r = {permille}, {measured} measured: {got}");
    }
    // For clients with next to no usual traffic: proposal 316's minimum.
    let got = clients_get(0.5, 0, 100.0);
    assert!((3.2..3.7).contains(&got), "{got}");
}

proptest! {
    /// Greedy clients during a steady measurement get what the ratio allows.
    #[test]
    fn greedy_clients_get_exactly_their_share(
        mbit in 20u64..5000, permille in 10u16..500, look_us in 100u64..9000,
    ) {
        let share = ClientShare::from_permille(permille).expect("under one");
        let rate = Rate::from_bit_per_s(mbit * 1_000_000);
        let mut limit = ClientLimit::new(share, NONE, Instant::ORIGIN);
        let (mut measured, mut sent) = (0, 0);
        for step in 1..=(2_000_000 / look_us) {
            let now = Instant::from_nanos(step * look_us * 1000);
            let bytes = rate.bytes_in(now - Instant::ORIGIN) - measured;
            limit.handle_measured(bytes);
            measured += bytes;
            let granted = limit.available_bytes(now);
            let cells = granted / CELL_LEN as u64 * CELL_LEN as u64;
            limit.handle_client_sent(cells);
            sent += cells;
        }
        let allowed = share.allowance(measured);
        let round = share.allowance(rate.bytes_in(Duration::from_millis(20))) + 3 * CELL_LEN as u64;
        prop_assert!(sent <= allowed + allowed / 50 + round, "{sent} of {allowed}");
        prop_assert!(sent + allowed / 50 + 2 * round >= allowed, "{sent} of {allowed}");
    }

    /// Clients that were idle for a while have accumulated four rounds, and no more.
    #[test]
    fn idle_clients_accumulate_at_most_four_rounds(mbit in 20u64..5000, idle_ms in 100u64..5000) {
        let rate = Rate::from_bit_per_s(mbit * 1_000_000);
        let mut limit = ClientLimit::new(ClientShare::DEFAULT, NONE, Instant::ORIGIN);
        limit.handle_measured(rate.bytes_in(Duration::from_millis(idle_ms)));
        let credit = limit.available_bytes(at_ms(idle_ms));
        let round = ClientShare::DEFAULT.allowance(rate.bytes_in(Duration::from_millis(10)));
        prop_assert!(credit <= 4 * round + 4 * CELL_LEN as u64, "{credit}, a round has {round}");
        prop_assert!(credit > 0);
    }

    #[test]
    fn clients_of_a_slow_relay_are_not_starved(looks in 100u64..2000) {
        let mut limit = ClientLimit::new(ClientShare::DEFAULT, NONE, Instant::ORIGIN);
        let mut sent = 0;
        for look in 1..=looks {
            let granted = limit.available_bytes(at_ms(look));
            limit.handle_client_sent(granted);
            sent += granted;
        }
        let least = ClientShare::DEFAULT.allowance(Rate::from_mbit_per_s(10.0).bytes_in(at_ms(looks - 20) - Instant::ORIGIN));
        prop_assert!(sent >= least, "{sent} under {least}");
    }
}
