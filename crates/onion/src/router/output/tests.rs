use super::*;

fn outputs() -> (Outputs, ConnId) {
    let mut outputs = Outputs::new(&SchedulerConfig::default(), Instant::ORIGIN);
    outputs.open(ConnId(0));
    (outputs, ConnId(0))
}

/// A peer that reads just fast enough never lets the queue run empty.
#[test]
fn a_queue_that_never_runs_empty_does_not_keep_what_it_has_sent() {
    let (mut outputs, id) = outputs();
    let mut out = [0; CELL_LEN];
    for _ in 0..10_000 {
        assert!(outputs.control(id, CircId::new(1), Command::DESTROY, &[1]));
        let output = outputs.get_mut(id).expect("open");
        if output.control.len() - output.control_start > 2 * CELL_LEN {
            assert_eq!(output.take_control(&mut out), CELL_LEN);
        }
        assert!(output.control.len() <= 16 * CELL_LEN, "{} bytes", output.control.len());
    }
}

#[test]
fn a_peer_that_reads_nothing_gets_no_more_than_so_much() {
    let (mut outputs, id) = outputs();
    while outputs.control(id, CircId::new(1), Command::DESTROY, &[1]) {}
    let output = outputs.get_mut(id).expect("open");
    assert!(output.control.len() <= CONTROL_MAX + CELL_LEN, "{} bytes", output.control.len());
}
