//! Slow receivers hold back their senders, and no memory fills.

use crate::common::network::{Net, World};
use onion::Duration;
use onion::cell::CELL_LEN;
use onion::client::{ClientEvent, Transfer};

crate::common::stage::in_both_worlds! {
    a_client_that_does_not_read_holds_the_sender_back
    a_destination_that_does_not_read_holds_the_client_back
    a_stream_that_is_not_read_does_not_stop_the_others
}

/// More bytes than all windows, buffers and queues of a path hold.
const MUCH: u64 = 6_000_000;

/// Maximum number of bytes that a relay or a client holds. XOFF is sent at 500 cells; the cells in flight are
/// added. They are a congestion window, which on real sockets depends on scheduling delays.
const fn queued_max<W: World>() -> usize {
    if W::IS_EXACT { 2_000 * CELL_LEN } else { 6_000 * CELL_LEN }
}

fn a_client_that_does_not_read_holds_the_sender_back<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        let stream = net.begin(circuit, Transfer::download(1, MUCH));
        net.client().pause(stream);
        net.until(|net| {
            net.client().figures(stream).is_some_and(|figures| figures.received_bytes > 400 * 490)
        });
        net.pass(Duration::from_millis(if W::IS_EXACT { 20_000 } else { 300 }));
        let figures = *net.client().figures(stream).expect("it is open");
        assert!(figures.held_bytes_max <= queued_max::<W>() as u64, "{figures:?}");
        for place in 0..3 {
            let queued = net.relay(place).queued_bytes();
            assert!(queued <= queued_max::<W>(), "relay {place} holds {queued}");
        }
        let now = net.stage.now();
        net.client().resume(now, stream);
        net.complete(stream);
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

fn a_destination_that_does_not_read_holds_the_client_back<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        net.server().pause();
        // The kernel's buffers hold some of it.
        let bytes = if W::IS_EXACT { MUCH } else { 3 * MUCH };
        let stream = net.begin(circuit, Transfer::upload(1, bytes));
        net.pass(Duration::from_millis(if W::IS_EXACT { 20_000 } else { 500 }));
        let figures = *net.client().figures(stream).expect("it is open");
        assert!(figures.sent_bytes < bytes, "{figures:?}");
        for place in 0..3 {
            let queued = net.relay(place).queued_bytes();
            assert!(queued <= queued_max::<W>(), "relay {place} holds {queued}");
        }
        net.server().resume();
        net.complete(stream);
        net.client().destroy(circuit);
    }
    net.assert_empty();
}

fn a_stream_that_is_not_read_does_not_stop_the_others<W: World>(world: W) {
    let mut net = Net::new(world);
    for has_congestion_control in [false, true] {
        let circuit = net.circuit(has_congestion_control);
        let stopped = net.begin(circuit, Transfer::download(1, MUCH));
        net.client().pause(stopped);
        net.until(|net| {
            net.client().figures(stopped).is_some_and(|figures| figures.received_bytes > 200_000)
        });
        let other = net.begin(circuit, Transfer::download(2, 1_000_000));
        net.complete(other);
        net.client().destroy(circuit);
        while let Some(event) = net.client().poll_event() {
            assert!(matches!(event, ClientEvent::Built { .. }), "{event:?}");
        }
    }
    net.assert_empty();
}
