use super::*;
use crate::cell::relay::MAX_DATA_LEN;
use crate::time::Duration;
use alloc::vec::Vec;
use proptest::prelude::*;

const CELL: usize = MAX_DATA_LEN;

fn rated() -> StreamFlow {
    StreamFlow::Rated(XonXoff::new(XonXoffParams::default()))
}

fn signals(flow: &mut StreamFlow) -> Vec<StreamSignal> {
    core::iter::from_fn(|| flow.poll_signal()).collect()
}

#[test]
fn a_full_buffer_sends_one_xoff_and_an_empty_one_sends_xon() {
    let (mut flow, mut now) = (rated(), Instant::ORIGIN);
    let mut buffered = 0;
    // A burst may be that large: the edge gets time to absorb it.
    for _ in 0..600 {
        buffered += CELL;
        flow.handle_delivered(now, buffered).expect("no window");
    }
    assert_eq!(signals(&mut flow), []);
    now += Duration::from_millis(6);
    for _ in 0..10 {
        buffered += CELL;
        flow.handle_delivered(now, buffered).expect("no window");
    }
    assert_eq!(signals(&mut flow), [StreamSignal::Xoff]);
    // The edge takes a cell per millisecond: nearly half a megabyte per second.
    while buffered > 0 {
        now += Duration::from_millis(1);
        buffered -= CELL;
        assert_eq!(signals(&mut flow), []);
        flow.handle_drained(now, CELL, buffered);
    }
    let [StreamSignal::Xon(xon)] = signals(&mut flow)[..] else { panic!("no XON") };
    assert!((480..=500).contains(&xon.advised_kbyte_per_s), "{xon:?}");
}

#[test]
fn an_edge_that_drains_immediately_never_sends_xoff() {
    let (mut flow, mut now) = (rated(), Instant::ORIGIN);
    for _ in 0..5000 {
        flow.handle_delivered(now, CELL).expect("no window");
        flow.handle_drained(now, CELL, 0);
        now += Duration::from_micros(10);
    }
    assert_eq!(signals(&mut flow), []);
}

#[test]
fn a_changed_rate_sends_another_xon() {
    let (mut flow, mut now) = (rated(), Instant::ORIGIN);
    let mut sent = Vec::new();
    // Always much data in the buffer, after it was once too much.
    flow.handle_delivered(now, 600 * CELL).expect("no window");
    now += Duration::from_millis(6);
    flow.handle_delivered(now, 600 * CELL).expect("no window");
    for round in 0..6000 {
        now += Duration::from_millis(if round < 2000 { 1 } else { 4 });
        let buffered = if round == 1000 { 0 } else { 40 * CELL };
        flow.handle_drained(now, CELL, buffered);
        sent.extend(signals(&mut flow));
    }
    let rates: Vec<u32> = sent
        .iter()
        .filter_map(|signal| match signal {
            StreamSignal::Xon(xon) => Some(xon.advised_kbyte_per_s),
            _ => None,
        })
        .collect();
    assert_eq!(sent[0], StreamSignal::Xoff);
    assert!((490..=500).contains(&rates[0]), "{rates:?}");
    assert!((120..=166).contains(rates.last().expect("sent")), "{rates:?}");
    assert!(rates.len() <= 4, "{rates:?}");
}

#[test]
fn xoff_stops_reading_and_xon_sets_its_rate() {
    let (mut flow, mut now) = (rated(), Instant::ORIGIN);
    assert_eq!(flow.room_bytes(now), u64::MAX);
    flow.handle_xoff().expect("first");
    assert_eq!((flow.room_bytes(now), flow.has_room_at(1)), (0, None));
    assert_eq!(flow.handle_xoff(), Err(FlowError::RepeatedXoff));
    flow.handle_xon(now, Xon { advised_kbyte_per_s: 100 }).expect("rated");
    let mut read = 0;
    while now < Instant::from_millis(10_000) {
        let room = flow.room_bytes(now).min(CELL as u64);
        if room == 0 {
            now = flow.has_room_at(CELL as u64).expect("only the rate forbids it");
        } else {
            flow.handle_packaged(room);
            read += room;
        }
    }
    // Ten seconds, and the second that the bucket holds.
    assert!((1_090_000..=1_110_000).contains(&read), "{read}");
    flow.handle_xon(now, Xon { advised_kbyte_per_s: 0 }).expect("rated");
    assert_eq!(flow.room_bytes(now), u64::MAX);
}

#[test]
fn messages_of_the_other_kind_are_rejected() {
    let mut windowed = StreamFlow::Windowed(StreamWindow::default());
    assert_eq!(windowed.handle_xoff(), Err(FlowError::WrongKind));
    let xon = Xon { advised_kbyte_per_s: 0 };
    assert_eq!(windowed.handle_xon(Instant::ORIGIN, xon), Err(FlowError::WrongKind));
    assert_eq!(rated().handle_sendme(), Err(FlowError::WrongKind));
    assert_eq!(windowed.handle_sendme(), Err(FlowError::UnexpectedSendme));
}

proptest! {
    #[test]
    fn the_window_is_respected_and_sendmes_match_received_cells(
        steps in prop::collection::vec((1usize..600, any::<bool>()), 1..60),
    ) {
        let (mut sender, mut receiver) = (StreamWindow::default(), StreamWindow::default());
        let (mut sent, mut acknowledged, mut buffered) = (0, 0, 0);
        for (cells, drains) in steps {
            for _ in 0..cells.min(sender.room_cells() as usize) {
                sender.handle_packaged();
                sent += 1;
                buffered += CELL;
                prop_assert_eq!(receiver.handle_delivered(buffered), Ok(()));
            }
            if drains {
                buffered = 0;
                receiver.handle_drained(0);
            }
            while let Some(signal) = receiver.poll_signal() {
                prop_assert_eq!(signal, StreamSignal::Sendme);
                acknowledged += 50;
                prop_assert_eq!(sender.handle_sendme(), Ok(()));
            }
            prop_assert!(acknowledged <= sent && sent - acknowledged <= 500);
            prop_assert_eq!(u64::from(sender.room_cells()), 500 - (sent - acknowledged));
            prop_assert!(!drains || sent - acknowledged < 50);
            if sender.room_cells() == 0 {
                prop_assert_eq!(receiver.handle_delivered(buffered), Err(FlowError::WindowExceeded));
            }
        }
    }

    #[test]
    fn xoff_and_xon_always_alternate(
        steps in prop::collection::vec((0usize..400, 0usize..400, 0u64..20_000), 1..300),
    ) {
        let (mut flow, mut now) = (rated(), Instant::ORIGIN);
        let (mut buffered, mut is_stopped) = (0, false);
        for (come, drain, micros) in steps {
            now += Duration::from_micros(micros);
            let mut sent = Vec::new();
            for _ in 0..if is_stopped { 0 } else { come } {
                buffered += CELL;
                flow.handle_delivered(now, buffered).expect("no window");
                sent.extend(signals(&mut flow));
            }
            let drained = buffered.min(drain * CELL);
            buffered -= drained;
            flow.handle_drained(now, drained, buffered);
            sent.extend(signals(&mut flow));
            for signal in sent {
                match signal {
                    StreamSignal::Xoff => {
                        prop_assert!(!is_stopped);
                        is_stopped = true;
                    }
                    StreamSignal::Xon(_) => is_stopped = false,
                    StreamSignal::Sendme => prop_assert!(false, "no windows here"),
                }
            }
            // No sender stays stopped with an empty buffer.
            prop_assert!(!is_stopped || buffered > 0);
        }
    }
}
