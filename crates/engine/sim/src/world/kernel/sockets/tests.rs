use crate::world::config::Egress;
use crate::world::kernel::pair::Pair;
use crate::world::message::Purpose;
use onion::Rate;

/// Writes until the socket is full, and waits for space. Returns the number of cells.
fn fill(pair: &mut Pair) -> usize {
    let mut written = 0;
    loop {
        let room = pair.kernels[0].room_cells(pair.socket);
        if room == 0 {
            break;
        }
        pair.write(room.min(31));
        written += room.min(31);
    }
    pair.kernels[0].socket_mut(pair.socket).wants_room = true;
    written
}

/// Cells that have not arrived.
fn waiting_bytes(pair: &Pair) -> f64 {
    let written = pair.kernels[0].socket(pair.socket).tx.written();
    written as f64 - f64::from(pair.cells) * 514.0
}

#[test]
fn a_blocked_writer_is_woken_when_a_third_of_the_buffer_is_free() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    // Until slow start has ended and the buffer has its full size.
    for _ in 0..100 {
        fill(&mut pair);
        pair.pass(50_000_000);
    }
    fill(&mut pair);
    for _ in 0..10 {
        let told = pair.rooms;
        let mut steps = 0;
        while pair.rooms == told {
            assert_eq!(pair.kernels[0].room_cells(pair.socket), 0, "there was no event");
            pair.pass(1_000_000);
            steps += 1;
            assert!(steps < 10_000, "no socket is ever woken");
        }
        let written = fill(&mut pair) as f64 * 514.0;
        // A third of all waiting data, plus or minus one piece.
        let share = written / waiting_bytes(&pair);
        assert!((0.2..0.5).contains(&share), "{share} of the waiting bytes");
    }
}

#[test]
fn larger_segment_memory_keeps_more_data_in_the_kernel() {
    let waits = |segment_memory_bytes| {
        let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
        pair.kernels[0].segment_memory_bytes = segment_memory_bytes;
        for _ in 0..100 {
            fill(&mut pair);
            pair.pass(50_000_000);
        }
        waiting_bytes(&pair)
    };
    let (less, more) = (waits(2304), waits(4352));
    assert!(more > 1.5 * less, "{less} and {more} bytes");
}

#[test]
fn a_writer_blocked_before_the_connection_is_woken_when_it_opens() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    let early = pair.kernels[0].dial(1, Purpose::Link, 1);
    assert_eq!(pair.kernels[0].room_cells(early), 0);
    pair.kernels[0].socket_mut(early).wants_room = true;
    pair.pass(1_000_000_000);
    assert!(pair.kernels[0].room_cells(early) > 100);
}

#[test]
fn retransmission_timeouts_use_the_current_rtt() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    let silent_after_ms = |pair: &Pair| {
        let kernel = &pair.kernels[0];
        (kernel.next_at() - kernel.now) / 1_000_000
    };
    pair.write(1);
    pair.pass(1_000_000);
    assert!((990..1_000).contains(&silent_after_ms(&pair)), "no RTT is known");
    pair.write(1);
    // The first is acknowledged by now, the second not yet, and nothing more is sent.
    pair.pass(20_800_000);
    assert!((210..240).contains(&silent_after_ms(&pair)), "200 ms more than a round trip");
}

#[test]
fn a_low_water_mark_keeps_a_piece_unsent_and_the_line_busy() {
    let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
    pair.kernels[0].set_egress(Egress { has_notsent_lowat: true, ..Egress::default() });
    let mut most_unsent = 0;
    // Whenever it is woken, as a process would be.
    for _ in 0..4000 {
        fill(&mut pair);
        most_unsent = most_unsent.max(pair.kernels[0].socket(pair.socket).tx.unsent());
        pair.pass(1_000_000);
    }
    assert!((50_000..=45 * 1448).contains(&most_unsent), "{most_unsent} bytes");
    // Four seconds at 8 Mbit/s are 7,782 cells, less headers and slow start.
    assert!(pair.cells > 7_000, "{} cells", pair.cells);
}

#[test]
fn a_quiet_socket_waits_behind_a_busy_one_only_in_a_device_queue() {
    let waits_ms = |device_queue_bytes| {
        let mut pair = Pair::new(Rate::from_mbit_per_s(8.0), 0.0);
        pair.kernels[0].set_egress(Egress { device_queue_bytes, ..Egress::default() });
        let quiet = pair.kernels[0].dial(1, Purpose::Link, 1);
        for _ in 0..40 {
            fill(&mut pair);
            pair.pass(50_000_000);
        }
        let asked = pair.kernels[0].now;
        pair.kernels[0].notify(quiet, [0; 4].into());
        pair.pass(3_000_000_000);
        let (.., arrived) = pair.received.last().expect("it arrives");
        (arrived - asked) / 1_000_000
    };
    let (fair, queued) = (waits_ms(0), waits_ms(1_514_000));
    // The receiver's queue is full in both cases.
    assert!(fair < 150 && queued > fair + 50, "{fair} and {queued} ms");
}
