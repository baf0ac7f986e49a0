use crate::world::message::MailContent;
use crate::world::tcp::{Control, Flight, Payload, Receiver, Sender};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

/// Sends `bytes` over a path of 50 ms in each direction; flights whose numbers are in `lost` are lost. Returns how
/// long it took, and what arrived.
fn transfer(control: Control, bytes: u64, lost: &[usize]) -> (u64, u64) {
    const LATENCY_NS: u64 = 50_000_000;
    let (mut sender, mut receiver) = (Sender::new(control, 1 << 20), Receiver::new(1 << 20));
    sender.write(bytes);
    let mut now = 0;
    let mut sent = 0;
    let mut forward: VecDeque<(u64, Flight)> = VecDeque::new();
    let mut backward: VecDeque<(u64, MailContent)> = VecDeque::new();
    let mut got: Vec<u64> = Vec::new();
    for _ in 0..1_000_000 {
        while let Some(flight) = sender.take_flight(now, 1) {
            if lost.contains(&sent) {
                if !flight.is_retransmit {
                    receiver.lose(flight.start, Payload::Bytes(flight.bytes));
                }
            } else {
                forward.push_back((now + LATENCY_NS, flight));
            }
            sent += 1;
        }
        if sender.is_done() {
            break;
        }
        let times = [forward.front().map(|front| front.0), backward.front().map(|front| front.0)];
        let next = times.into_iter().flatten().min().unwrap_or(u64::MAX).min(sender.rto_at);
        assert!(next < u64::MAX, "it hangs");
        now = now.max(next);
        if forward.front().is_some_and(|front| front.0 <= now) {
            let Some((_, flight)) = forward.pop_front() else { continue };
            let Flight { number, start, bytes, is_retransmit, .. } = flight;
            let payload =
                if is_retransmit { receiver.find(start) } else { Some(Payload::Bytes(bytes)) };
            if let Some(payload) = payload {
                receiver.receive(start, payload, |payload| got.push(payload.bytes()));
            }
            receiver.read = receiver.received();
            backward.push_back((now + LATENCY_NS, receiver.ack(number)));
        } else if backward.front().is_some_and(|front| front.0 <= now) {
            if let Some((_, MailContent::Ack { number, next, window_end })) = backward.pop_front() {
                sender.handle_ack(now, number, next, window_end);
            }
        } else {
            sender.handle_rto();
        }
    }
    assert!(sender.is_done(), "the transfer does not end");
    (now, got.iter().sum())
}

proptest! {
    #[test]
    fn all_lost_data_is_eventually_delivered(
        bytes in 1u64..3_000_000, lost in prop::collection::vec(0usize..300, 0..60), which in 0usize..3,
    ) {
        let control = [Control::Reno, Control::Cubic, Control::Shadow][which];
        let (_, got) = transfer(control, bytes, &lost);
        prop_assert_eq!(got, bytes);
    }
}

#[test]
fn slow_start_doubles_the_data_in_flight_each_round() {
    // 10 segments, then 20, 40, 80: 150 segments arrive in four rounds, the last half full.
    let (took, _) = transfer(Control::Cubic, 150 * 1448, &[]);
    assert_eq!(took, 400_000_000);
    let (more, _) = transfer(Control::Cubic, 151 * 1448, &[]);
    assert_eq!(more, 500_000_000);
}

#[test]
fn shadows_tcp_starts_with_two_segments_and_ignores_idle_times() {
    // 2 segments, then 4, 8, 16: 30 segments after four rounds.
    assert_eq!(transfer(Control::Shadow, 30 * 1448, &[]).0, 400_000_000);
    assert_eq!(transfer(Control::Shadow, 31 * 1448, &[]).0, 500_000_000);
    let after_a_pause = |control: Control| {
        let mut sender = Sender::new(control, 1 << 20);
        let mut now = 0;
        // Three segments at a time: Linux grows the window only if the sender uses it.
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
    let times =
        [Control::Cubic, Control::Reno].map(|control| transfer(control, 20_000_000, &[60, 200]).0);
    let clean = transfer(Control::Cubic, 20_000_000, &[]).0;
    assert!(clean < times[0] && times[0] < times[1], "{clean} {times:?}");
}

/// Sends everything that may be sent.
fn send_all(sender: &mut Sender, now: u64) -> Vec<Flight> {
    core::iter::from_fn(|| sender.take_flight(now, 1)).collect()
}

/// Writes a segment, and sends it.
fn one(sender: &mut Sender, now: u64) -> Flight {
    sender.write(1448);
    sender.take_flight(now, 1).expect("the window has room")
}

/// A sender with this number of acknowledged segments.
fn after_segments(control: Control, count: u64) -> Sender {
    let mut sender = Sender::new(control, 1 << 30);
    for now in 0..count {
        let Flight { number, start, bytes, .. } = one(&mut sender, now);
        sender.handle_ack(now, number, start + u64::from(bytes), 1 << 30);
    }
    sender
}

#[test]
fn shadows_rto_doubles_for_the_lifetime_of_the_connection() {
    let mut sender = Sender::new(Control::Shadow, 1 << 30);
    sender.write(1 << 20);
    let (mut now, mut timeouts_s) = (0, Vec::new());
    // This number of consecutive losses, after which everything arrives.
    for timeouts in [0, 1, 1, 3, 0] {
        for _ in 0..timeouts {
            send_all(&mut sender, now);
            timeouts_s.push((sender.rto_at - now) / 1_000_000_000);
            now = sender.rto_at;
            sender.handle_rto();
        }
        let flights = send_all(&mut sender, now);
        timeouts_s.push((sender.rto_at - now) / 1_000_000_000);
        now += 50_000_000;
        for Flight { number, start, bytes, .. } in flights {
            sender.handle_ack(now, number, start + u64::from(bytes), 1 << 30);
        }
    }
    assert_eq!(timeouts_s, [1, 1, 2, 2, 4, 4, 8, 16, 32, 1]);
}

#[test]
fn shadows_tcp_detects_a_loss_late_and_a_lost_retransmission_never() {
    // The acknowledgements of seven segments of which the first is lost, until it is retransmitted.
    let noticed_after = |control: Control| {
        let mut sender = after_segments(control, 8);
        let flights: Vec<Flight> = (0..7).map(|_| one(&mut sender, 10)).collect();
        let mut later = flights[1..].iter();
        let mut ack_next = |sender: &mut Sender| {
            let number = later.next().map_or(0, |flight| flight.number);
            sender.handle_ack(20, number, flights[0].start, 1 << 30);
            sender.take_flight(30, 1)
        };
        let after = (1..).find(|_| ack_next(&mut sender).is_some());
        let rto_at = sender.rto_at;
        // It is lost again. Earlier segments arrive, and one later one.
        for flight in &flights[1..] {
            sender.handle_ack(40, flight.number, flights[0].start, 1 << 30);
        }
        let after_it = one(&mut sender, 50);
        sender.handle_ack(60, after_it.number, flights[0].start, 1 << 30);
        let is_noticed = sender.take_flight(70, 1).is_some();
        // Duplicate acknowledgements do not postpone the RTO there.
        assert_eq!(sender.rto_at == rto_at, control == Control::Shadow);
        if !is_noticed {
            let at = sender.rto_at;
            sender.handle_rto();
            assert!(sender.take_flight(at, 1).is_some_and(|flight| flight.is_retransmit));
        }
        (after, is_noticed)
    };
    assert_eq!(noticed_after(Control::Reno), (Some(1), true));
    assert_eq!(noticed_after(Control::Shadow), (Some(3), false));
}

#[test]
fn shadow_repairs_one_loss_each_round_trip_and_linux_all_at_once() {
    // Of ten segments the first and the third are lost. Which ones are retransmitted after each
    // acknowledgement.
    let repaired = |control: Control| {
        let mut sender = after_segments(control, 20);
        let flights: Vec<Flight> = (0..10).map(|_| one(&mut sender, 50)).collect();
        let mut repaired = Vec::new();
        let mut ack = |sender: &mut Sender, place: usize, number: u32, acked: u64| {
            sender.handle_ack(100, number, acked, 1 << 30);
            let retransmits = send_all(sender, 100);
            let place_of =
                |flight: &Flight| flights.iter().position(|old| old.start == flight.start);
            repaired.extend(
                retransmits
                    .iter()
                    .map(|retransmit| (place, place_of(retransmit).expect("one of them"))),
            );
            retransmits.first().map(|retransmit| retransmit.number)
        };
        // Earlier segments arrive before retransmissions.
        let mut retransmits = None;
        for place in [1, 3, 4, 5, 6, 7, 8, 9] {
            let first = ack(&mut sender, place, flights[place].number, flights[0].start);
            retransmits = retransmits.or(first);
        }
        ack(&mut sender, 0, retransmits.expect("sent again"), flights[2].start);
        for place in 10..13 {
            let Flight { number, .. } = one(&mut sender, 70);
            ack(&mut sender, place, number, flights[2].start);
        }
        repaired
    };
    // With the next acknowledgement, as soon as the window has space. (That is never acknowledged.)
    assert_eq!(repaired(Control::Cubic)[..2], [(1, 0), (4, 2)]);
    assert_eq!(repaired(Control::Shadow), [(4, 0), (12, 2)]);
}

#[test]
fn retransmissions_after_a_timeout_double_each_round() {
    for control in [Control::Cubic, Control::Reno, Control::Shadow] {
        let mut sender = Sender::new(control, 1 << 30);
        sender.write(1 << 20);
        let mut now = 0;
        let segments = |flights: &[Flight]| {
            flights.iter().map(|flight| flight.bytes).sum::<u32>().div_ceil(1448)
        };
        let mut pass_round = |sender: &mut Sender, comes: bool| {
            let flights = send_all(sender, now);
            now += 100_000_000;
            for Flight { number, start, bytes, .. } in flights.iter().filter(|_| comes) {
                sender.handle_ack(now, *number, start + u64::from(*bytes), 1 << 30);
            }
            segments(&flights)
        };
        while pass_round(&mut sender, true) < 64 {}
        assert!(pass_round(&mut sender, false) > 100, "all of them get lost");
        sender.handle_rto();
        // Flights are retransmitted as they were: of up to eleven segments, or the last of them half beyond the
        // window.
        let rounds = [(); 5].map(|()| pass_round(&mut sender, true));
        assert!(rounds[0] <= 13, "{control:?}: {rounds:?}");
        assert!(rounds[4] >= 4 * rounds[0], "{control:?}: {rounds:?}");
    }
}

#[test]
fn shadows_window_starts_at_the_first_missing_byte_and_grows_during_recovery() {
    // Of thirty packets the first and one after ten others are lost.
    let mut sender = after_segments(Control::Shadow, 28);
    sender.write(1 << 20);
    let segments =
        |flights: &[Flight]| flights.iter().map(|flight| flight.bytes).sum::<u32>() / 1448;
    let flights = send_all(&mut sender, 100);
    assert_eq!(segments(&flights), 30);
    let hole =
        flights.iter().find(|flight| flight.start > flights[0].start + 10 * 1448).expect("one");
    let mut sent = Vec::new();
    for flight in flights[1..].iter().filter(|flight| flight.number != hole.number) {
        sender.handle_ack(200, flight.number, flights[0].start, 1 << 30);
        sent.extend(send_all(&mut sender, 200));
    }
    // Half of thirty are allowed, plus the number that have arrived.
    let (retransmits, new): (Vec<Flight>, Vec<Flight>) =
        sent.iter().copied().partition(|flight| flight.is_retransmit);
    assert_eq!(retransmits.len(), 1);
    assert!((8..=13).contains(&segments(&new)), "{new:?}");
    // The first hole is repaired. From the second on, more than half of the window is in flight: nothing may be
    // sent.
    sender.handle_ack(300, retransmits[0].number, hole.start, 1 << 30);
    assert_eq!(send_all(&mut sender, 300).len(), 0);
}

#[test]
fn after_a_timeout_shadow_retransmits_the_first_missing_byte_first() {
    let mut sender = after_segments(Control::Shadow, 28);
    sender.write(1 << 20);
    let flights = send_all(&mut sender, 100);
    for flight in &flights[1..4] {
        sender.handle_ack(200, flight.number, flights[0].start, 1 << 30);
    }
    let retransmits = send_all(&mut sender, 200);
    assert!(
        retransmits[0].is_retransmit && retransmits[0].start == flights[0].start,
        "{retransmits:?}"
    );
    sender.handle_rto();
    assert_eq!(send_all(&mut sender, 5_000_000_000)[0].start, flights[0].start);
}

#[test]
fn after_a_timeout_shadows_window_is_limited_to_its_threshold() {
    let mut sender = after_segments(Control::Shadow, 8);
    let flights: Vec<Flight> = (0..8).map(|_| one(&mut sender, 10)).collect();
    sender.handle_rto();
    assert_eq!(sender.state().cwnd_segments, 10);
    let retransmits = send_all(&mut sender, 2_000_000_000);
    sender.handle_ack(2_100_000_000, retransmits[0].number, flights[1].start, 1 << 30);
    // Half of ten, and one.
    assert_eq!(sender.state().cwnd_segments, 7, "six and a part");
}

#[test]
fn late_data_after_a_timeout_counts_as_a_loss_for_shadow() {
    let mut sender = after_segments(Control::Shadow, 28);
    let flights: Vec<Flight> = (0..20).map(|_| one(&mut sender, 10)).collect();
    sender.handle_rto();
    let retransmits = send_all(&mut sender, 2_000_000_000);
    // Of what is not sent again yet, since only ten packets are.
    for flight in &flights[12..15] {
        sender.handle_ack(2_010_000_000, flight.number, flights[0].start, 1 << 30);
    }
    // Half of ten and one, and three.
    assert_eq!(sender.state().cwnd_segments, 9);
    sender.handle_ack(2_100_000_000, retransmits[0].number, flights[1].start, 1 << 30);
    assert_eq!(sender.state().cwnd_segments, 7, "six and a part");
}

/// Segments that waited behind a gap do not enter the window at once.
#[test]
fn shadows_window_grows_by_a_packet_for_each_window_above_its_threshold() {
    let mut sender = Sender::new(Control::Shadow, 1 << 30);
    let mut now = 0;
    sender.write(1 << 20);
    let segments = |sender: &Sender| u64::from(sender.state().cwnd_segments);
    // Sixty segments are in flight, of which the first is lost twice.
    while segments(&sender) < 60 {
        now += 100_000_000;
        let flights = send_all(&mut sender, now);
        for Flight { number, start, bytes, .. } in flights {
            sender.handle_ack(now + 50_000_000, number, start + u64::from(bytes), 1 << 30);
        }
    }
    let before = segments(&sender);
    let flights = send_all(&mut sender, now + 100_000_000);
    for flight in &flights[1..] {
        sender.handle_ack(now + 150_000_000, flight.number, flights[0].start, 1 << 30);
    }
    let retransmits = send_all(&mut sender, now + 150_000_000);
    assert_eq!(retransmits[0].start, flights[0].start);
    // Half, and a packet for each segment that has arrived since.
    let recovering = segments(&sender);
    assert!((before..2 * before).contains(&recovering), "{before} and {recovering}");
    sender.handle_rto();
    assert_eq!(segments(&sender), 10);
    let retransmits = send_all(&mut sender, now + 2_000_000_000)[0];
    assert_eq!(retransmits.start, flights[0].start);
    let last = flights[flights.len() - 1];
    let end = last.start + u64::from(last.bytes);
    sender.handle_ack(now + 2_100_000_000, retransmits.number, end, 1 << 30);
    // Half of what it was, and a packet for each window that arrived at once.
    let (half, after) = (recovering / 2, segments(&sender));
    assert!((half..half + 8).contains(&after), "{recovering} and {after}");
}
