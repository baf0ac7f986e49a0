use crate::world::message::What;
use crate::world::tcp::{Control, Flight, Payload, Receiver, Sender};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

/// Sends so much over a path of 50 ms each way; flights whose numbers are in the list get lost. Returns how long it took, and what came.
fn carry(control: Control, bytes: u64, lost: &[usize]) -> (u64, u64) {
    const WAY_NS: u64 = 50_000_000;
    let (mut sender, mut receiver) = (Sender::new(control, 1 << 20), Receiver::new(1 << 20));
    sender.write(bytes);
    let mut now = 0;
    let mut sent = 0;
    let mut forth: VecDeque<(u64, Flight)> = VecDeque::new();
    let mut back: VecDeque<(u64, What)> = VecDeque::new();
    let mut got: Vec<u64> = Vec::new();
    for _ in 0..1_000_000 {
        while let Some(flight) = sender.take_flight(now, 1) {
            if lost.contains(&sent) {
                if !flight.is_again {
                    receiver.lose(flight.start, Payload::Bytes(flight.bytes));
                }
            } else {
                forth.push_back((now + WAY_NS, flight));
            }
            sent += 1;
        }
        if sender.is_done() {
            break;
        }
        let times = [forth.front().map(|it| it.0), back.front().map(|it| it.0)];
        let next = times.into_iter().flatten().min().unwrap_or(u64::MAX).min(sender.silent_at);
        assert!(next < u64::MAX, "it hangs");
        now = now.max(next);
        if forth.front().is_some_and(|it| it.0 <= now) {
            let Some((_, flight)) = forth.pop_front() else { continue };
            let Flight { number, start, bytes, is_again, .. } = flight;
            let payload = if is_again { receiver.find(start) } else { Some(Payload::Bytes(bytes)) };
            if let Some(payload) = payload {
                receiver.receive(start, payload, |payload| got.push(payload.bytes()));
            }
            receiver.read = receiver.received();
            back.push_back((now + WAY_NS, receiver.ack(number)));
        } else if back.front().is_some_and(|it| it.0 <= now) {
            if let Some((_, What::Ack { number, next, window_end })) = back.pop_front() {
                sender.handle_ack(now, number, next, window_end);
            }
        } else {
            sender.handle_silence();
        }
    }
    assert!(sender.is_done(), "it does not come to an end");
    (now, got.iter().sum())
}

proptest! {
    #[test]
    fn whatever_gets_lost_comes_in_the_end(
        bytes in 1u64..3_000_000, lost in prop::collection::vec(0usize..300, 0..60), reno: bool,
    ) {
        let control = if reno { Control::Reno } else { Control::Cubic };
        let (_, got) = carry(control, bytes, &lost);
        prop_assert_eq!(got, bytes);
    }
}

#[test]
fn slow_start_doubles_what_is_under_way_in_each_round() {
    // 10 segments, then 20, 40, 80: 150 segments are there after four rounds of which the last is half.
    let (took, _) = carry(Control::Cubic, 150 * 1448, &[]);
    assert_eq!(took, 400_000_000);
    let (more, _) = carry(Control::Cubic, 151 * 1448, &[]);
    assert_eq!(more, 500_000_000);
}

#[test]
fn shadows_tcp_begins_with_two_segments_and_knows_no_rest() {
    // 2 segments, then 4, 8, 16: 30 segments after four rounds.
    assert_eq!(carry(Control::Shadow, 30 * 1448, &[]).0, 400_000_000);
    assert_eq!(carry(Control::Shadow, 31 * 1448, &[]).0, 500_000_000);
    let after_a_pause = |control: Control| {
        let mut sender = Sender::new(control, 1 << 20);
        let mut now = 0;
        // Three segments at a time: what Linux' window grows to is bounded by what is used of it.
        for _ in 0..100 {
            sender.write(3 * 1448);
            while let Some(flight) = sender.take_flight(now, 1) {
                let next = flight.start + u64::from(flight.bytes);
                sender.handle_ack(now + 50_000_000, flight.number, next, 1 << 30);
            }
            now += 100_000_000;
        }
        let before = sender.state().cwnd_segments;
        sender.write(1448);
        let _flight = sender.take_flight(now + 60_000_000_000, 1);
        (before, sender.state().cwnd_segments)
    };
    assert_eq!(after_a_pause(Control::Reno), (10, 10));
    assert_eq!(after_a_pause(Control::Shadow), (302, 302));
}

#[test]
fn a_loss_costs_reno_more_than_cubic() {
    let times = [Control::Cubic, Control::Reno].map(|it| carry(it, 20_000_000, &[60, 200]).0);
    let clean = carry(Control::Cubic, 20_000_000, &[]).0;
    assert!(clean < times[0] && times[0] < times[1], "{clean} {times:?}");
}
