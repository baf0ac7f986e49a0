//! Decoding of received messages, for the fuzz targets.

use crate::check;
use crate::frames::decode;
use crate::messages::{FromCoordinator, FromMeasurer};
use crate::refusal::RefusalCode;
use coordinator::Account;
use measurer::member::{FailureKind, MemberReport, Nonce, RoundMode, RoundOrder, Target};
use measurer::{Defences, Load};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::Second;
use onion::{Duration, Rate};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

/// Decodes a message of a coordinator, and plans for it if it is an order. Returns whether it is one.
///
/// # Panics
/// If there is no valid plan for an order that passed the checks.
#[must_use]
pub fn from_coordinator(bytes: &[u8]) -> bool {
    let Ok(FromCoordinator::Prepare { order, .. }) = decode(bytes) else { return false };
    if check::order(&order).is_err() {
        return false;
    }
    let rtt = order.rtt.unwrap_or(Duration::ZERO);
    let load = Load::plan(&order, rtt);
    assert!((1..=order.sockets).contains(&load.sockets), "{} sockets", load.sockets);
    assert!(load.circuits_per_socket > 0 && load.pace.burst > 0);
    assert!(order.defences.window_cap_cells() < order.defences.queue_limit_cells);
    true
}

/// Decodes a message of a measurer. Returns whether it is a valid report.
#[must_use]
pub fn from_measurer(bytes: &[u8]) -> bool {
    let Ok(message) = decode::<FromMeasurer>(bytes) else { return false };
    check::report_in(message).is_ok_and(|report| report.is_some())
}

/// A message with its name.
pub type Sample = (&'static str, Vec<u8>);

/// Valid messages of a coordinator and of a measurer, with which a fuzzer begins.
///
/// # Panics
/// Never: they can be encoded.
#[must_use]
pub fn samples() -> (Vec<Sample>, Vec<Sample>) {
    let ids = RelayIds { rsa: RsaId([7; 20]), ed25519: Some(Ed25519Id([8; 32])) };
    let transit = RoundOrder {
        target: Target { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9001)), ids },
        mode: RoundMode::Transit { always_authenticate: true },
        defences: Defences::default(),
        sockets: 160,
        rate: Rate::from_mbit_per_s(1000.0),
        seconds: 30,
        held_back_s: Some(15),
        few_circuits_s: 3,
        check_one_in: NonZeroU32::MIN,
        rtt: Some(Duration::from_millis(20)),
        sharing: 2,
        setup_timeout: Duration::from_millis(22_500),
        stall_timeout: Duration::from_secs(5),
    };
    let mode = RoundMode::Echo { nonce: Nonce([9; 32]) };
    let echo = RoundOrder { mode, rtt: None, held_back_s: None, ..transit };
    let (round, delay) = (3, Duration::from_millis(50));
    let account = Account {
        elapsed: Duration::from_secs(1),
        pump_time: Duration::from_secs(1),
        socket_time: Duration::from_secs(8),
        sockets: 8,
        busy: Duration::from_millis(7900),
        rwnd_limited: Duration::from_secs(5),
        sent_bytes: 530_000,
        min_rtt: Some(Duration::from_millis(20)),
        mean_rtt: Some(Duration::from_millis(24)),
        received_segments: 370,
        silent: Duration::from_secs(2),
        answered_after: Some(Duration::from_millis(520)),
        ..Account::default()
    };
    let second = Second { index: 1, bytes: 514_000, checked_cells: 8 };
    let second = MemberReport::Second(second, Some(Box::new(account)));
    let detail = "wrong content".to_owned();
    let failed = MemberReport::Failed { kind: FailureKind::WrongContent, detail };
    let (code, reason) = (RefusalCode::Busy, "busy".to_owned());
    let ordered = [
        ("transit", FromCoordinator::Prepare { round, order: transit }),
        ("echo", FromCoordinator::Prepare { round, order: echo }),
        ("start", FromCoordinator::Start { round, delay }),
    ];
    let reported = [
        ("second", FromMeasurer::Report { round, report: second }),
        ("failed", FromMeasurer::Report { round, report: failed }),
        ("refused", FromMeasurer::Refused { round, code, reason }),
    ];
    (
        ordered.map(|(name, message)| (name, json(&message))).into(),
        reported.map(|(name, message)| (name, json(&message))).into(),
    )
}

fn json(message: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain data")
}
