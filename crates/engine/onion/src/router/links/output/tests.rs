use super::*;
use crate::cell_model::Tor;
use crate::router::links::Link;

fn conns() -> (Outputs, Conns<Tor>, ConnId) {
    let outputs = Outputs::new(&SchedulerConfig::default(), Instant::ORIGIN);
    let mut conns = Conns::default();
    let link = Link::accepted(Instant::ORIGIN, outputs.begin(), None, None);
    let id = conns.add_link(link);
    (outputs, conns, id)
}

fn destroy() -> Control {
    Control { circ_id: CircId::new(1), command: Command::DESTROY, body: [1].into() }
}

/// A peer that reads just fast enough that the queue never runs empty.
#[test]
fn a_queue_that_is_never_empty_releases_sent_cells() {
    let (mut outputs, mut conns, id) = conns();
    for sent in 0..10_000 {
        assert!(outputs.control(&mut conns, id, destroy()));
        if sent >= 2 {
            assert_eq!(outputs.poll_control(&mut conns, id), Some(destroy()));
        }
        let output = conns.output_mut(id).expect("open");
        assert!(output.control.capacity() <= 16, "{} cells", output.control.capacity());
    }
}

#[test]
fn the_output_to_a_peer_that_never_reads_is_bounded() {
    let (mut outputs, mut conns, id) = conns();
    let mut cells = 0;
    while outputs.control(&mut conns, id, destroy()) {
        cells += 1;
    }
    assert_eq!(cells, CONTROL_MAX / CELL_LEN + 1);
    let output = conns.output_mut(id).expect("open");
    assert!(output.control_bytes <= CONTROL_MAX + CELL_LEN, "{} bytes", output.control_bytes);
    assert_eq!(outputs.held_controls(), cells);
    while outputs.poll_control(&mut conns, id).is_some() {}
    let output = conns.output_mut(id).expect("open");
    assert_eq!((output.control_bytes, output.control.capacity()), (0, 0));
    assert_eq!(outputs.held_controls(), 0);
}

/// It creates and destroys circuits, whose numbers are reused, and does not read any reports.
#[test]
fn an_unread_link_queues_one_destroy_for_each_circuit() {
    let (_, mut conns, id) = conns();
    let output = conns.output_mut(id).expect("open");
    for number in 0..100_000 {
        output.note_unreported(QueueId::forward(CircuitIndex(number % 50)));
    }
    assert!(output.unreported.capacity() <= 256, "{} places", output.unreported.capacity());
    let reported: alloc::collections::BTreeSet<_> = output.unreported.iter().collect();
    assert_eq!(reported.len(), 50, "none is forgotten");
}
