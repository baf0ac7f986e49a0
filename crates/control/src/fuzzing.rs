//! What comes in over a session, for the fuzz targets.

use crate::convert::told;
use crate::messages::{
    Account, Echo, Failed, FromCoordinator, FromMeasurer, Instruction, Prepare, Refused, Second,
    Start, Transit, WayBack, Word,
};
use measurer::Load;
use measurer::member::RoundOrder;
use onion::Duration;
use prost::Message as _;

/// Whatever a coordinator sends is an order that can be obeyed, or none. Says whether it is one.
///
/// # Panics
/// If an order that was accepted is not what the message said, or cannot be planned for.
#[must_use]
pub fn from_coordinator(bytes: &[u8]) -> bool {
    let Ok(message) = FromCoordinator::decode(bytes) else { return false };
    let Some(Instruction::Prepare(prepare)) = message.order else { return false };
    let Ok(order) = RoundOrder::try_from(prepare) else { return false };
    assert_eq!(RoundOrder::try_from(Prepare::from(&order)), Ok(order), "it says what it said");
    let rtt = order.rtt.unwrap_or(Duration::ZERO);
    let load = Load::plan(&order, rtt);
    assert!((1..=order.sockets).contains(&load.sockets), "{} sockets", load.sockets);
    assert!(load.circuits_per_socket > 0 && load.pace.burst > 0);
    assert!(order.defences.window_cap_cells() < order.defences.queue_limit_cells);
    true
}

/// Whatever a measurer sends is a word that is understood, or none. Says whether it is one.
#[must_use]
pub fn from_measurer(bytes: &[u8]) -> bool {
    FromMeasurer::decode(bytes).is_ok_and(|message| told(message).is_ok())
}

/// A message with its name.
pub type Sample = (&'static str, Vec<u8>);

/// Good messages of a coordinator and of a measurer: what a fuzzer begins with.
#[must_use]
pub fn samples() -> (Vec<Sample>, Vec<Sample>) {
    let order = |order| FromCoordinator { measurement: 3, order: Some(order) }.encode_to_vec();
    let transit = Prepare {
        address: vec![127, 0, 0, 1],
        port: 9001,
        rsa_id: vec![7; 20],
        ed25519_id: Some(vec![8; 32]),
        way_back: Some(WayBack::Transit(Transit { always_authenticate: true })),
        defences: Some(measurer::Defences::default().into()),
        sockets: 160,
        rate_bit_per_s: 1_000_000_000,
        seconds: 30,
        check_one_in: 125,
        rtt_ns: Some(20_000_000),
        sharing: 2,
        setup_timeout_ns: 22_500_000_000,
        stall_timeout_ns: 5_000_000_000,
        held_back_s: Some(15),
    };
    let way_back = Some(WayBack::Echo(Echo { nonce: vec![9; 32] }));
    let echo = Prepare {
        address: vec![0xfd; 16],
        way_back,
        rtt_ns: None,
        held_back_s: None,
        ..transit.clone()
    };
    let from_coordinator = vec![
        ("transit", order(Instruction::Prepare(transit))),
        ("echo", order(Instruction::Prepare(echo))),
        ("start", order(Instruction::Start(Start { delay_ns: 50_000_000 }))),
    ];
    let word = |word| FromMeasurer { measurement: 3, word: Some(word) }.encode_to_vec();
    let account = Account {
        elapsed_ns: 1_000_000_000,
        pump_time_ns: 1_000_000_000,
        socket_time_ns: 8_000_000_000,
        sockets: 8,
        busy_ns: 7_900_000_000,
        peer_window_ns: 5_000_000_000,
        sent_bytes: 530_000,
        least_rtt_ns: Some(20_000_000),
        mean_rtt_ns: Some(24_000_000),
        received_segments: 370,
        silent_ns: 2_000_000_000,
        answered_after_ns: Some(520_000_000),
        ..Account::default()
    };
    let second = Second { index: 1, bytes: 514_000, checked_cells: 8, account: Some(account) };
    let failed = Failed { kind: 4, detail: "wrong content".to_owned() };
    let refused = Refused { code: 2, reason: "busy".to_owned() };
    let from_measurer = vec![
        ("second", word(Word::Second(second))),
        ("failed", word(Word::Failed(failed))),
        ("refused", word(Word::Refused(refused))),
    ];
    (from_coordinator, from_measurer)
}
