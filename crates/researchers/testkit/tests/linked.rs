//! Both ends of a Conflux set, with a network that delivers cells of different legs in any order, cuts links,
//! and forges cells.

use onion::Duration;
use onion::tunnel::conflux::schedulers;
use proptest::prelude::*;
use testkit::linked::{LegEnd, LinkedPair, LinkedParams};

fn params() -> impl Strategy<Value = LinkedParams> {
    any::<[u8; 2]>().prop_map(LinkedParams::from_bytes)
}

/// Bytes that select events: more than in a fuzzer's initial inputs.
fn script() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In any order of cells and cuts, an application receives a prefix of the sent data, and all of it unless
    /// the set is lost. The buffers of both ends stay within their limits. No state is left at the end.
    #[test]
    fn cells_of_several_legs_in_any_order_make_up_the_stream_or_the_set_is_closed(
        params in params(), script in script(),
    ) {
        let mut linked = LinkedPair::new(&params);
        linked.run_script(&script, false, LinkedPair::check);
        linked.conclude();
    }

    /// With forged cells, accounts and limits hold, and no state is left at the end.
    #[test]
    fn an_end_that_forges_messages_exceeds_no_limit_and_leaves_no_state(params in params(), script in script()) {
        let mut linked = LinkedPair::new(&params);
        linked.run_script(&script, true, LinkedPair::check);
        linked.conclude();
    }
}

/// Found by random runs: the set is open, another leg is pending, and the only linked one is cut. A stream that
/// begins then must not hang.
#[test]
fn an_open_set_ends_with_its_last_linked_leg() {
    let params = LinkedParams { legs: 1, ..LinkedParams::from_bytes([0, 0]) };
    let mut linked = LinkedPair::new(&params);
    linked.finish();
    assert!(linked.is_built() && linked.links() == 1, "{linked:?}");
    linked.add_leg();
    linked.cut(0, LegEnd::Client);
    linked.begin(1000, 1000);
    linked.conclude();
    assert!(linked.loss().is_some());
}

/// Found by fuzzing: the exit has lost all legs and forgotten the set when the LINK of another leg arrives. The
/// exit counts from zero, so the client would mistake its next messages for duplicates.
#[test]
fn a_set_that_the_exit_has_forgotten_is_lost() {
    let mut linked = LinkedPair::new(&LinkedParams { legs: 1, ..LinkedParams::from_bytes([0, 0]) });
    linked.begin(1000, 1000);
    linked.finish();
    assert_eq!(linked.transfers(), (1, 1));
    linked.add_leg();
    assert_eq!(linked.deliver(1, LegEnd::Exit, 1), 1, "CREATE2");
    assert_eq!(linked.deliver(1, LegEnd::Client, 1), 1, "CREATED2");
    linked.cut(0, LegEnd::Exit);
    assert_eq!(linked.deliver(1, LegEnd::Exit, 1), 1, "LINK");
    linked.begin(1000, 1000);
    linked.conclude();
    assert!(linked.loss().is_some());
}

/// Shows that random runs can reach interesting states.
#[test]
fn a_run_has_legs_that_carry_data_and_one_that_is_lost() {
    let mut linked =
        LinkedPair::new(&LinkedParams { legs: 3, ..LinkedParams::from_bytes([1 << 2 | 2, 9]) });
    linked.finish();
    assert!(linked.is_built(), "{linked:?}");
    linked.begin(400_000, 300_000);
    for round in 0..40 {
        for link in 0..3 {
            linked.deliver(link, LegEnd::Exit, 5 + round % 7);
            linked.deliver(link, LegEnd::Client, 3 + link);
            linked.feed(0, 10_000);
        }
        linked.check();
    }
    let legs = linked.legs();
    assert!(legs.iter().all(|leg| leg.received > 10 && leg.sent > 10), "{legs:?}");
    linked.cut(1, LegEnd::Exit);
    linked.finish();
    assert_eq!(linked.transfers(), (1, 1), "{:?}", linked.loss());
    assert_eq!(linked.legs().len(), 2);
    assert!(linked.exit.totals().conflux_resent > 0);
    assert!(linked.early_peak_cells() > 0);
    linked.conclude();
}

/// Three linked legs with retransmission and a small reordering buffer, all of which have carried data.
fn with_three_active_legs() -> LinkedPair {
    let scheduler = &schedulers::LowRtt;
    let params =
        LinkedParams { early_max_cells: 256, scheduler, ..LinkedParams::from_bytes([2, 9]) };
    let mut linked = LinkedPair::new(&params);
    linked.finish();
    linked.begin(4_000_000, 0);
    for _ in 0..4 {
        // More than the window of one leg.
        run_on(&mut linked, &[0, 1, 2], 100_000);
    }
    let legs = linked.legs();
    assert!(legs.len() == 3 && legs.iter().all(|leg| leg.received > 10), "{legs:?}");
    linked
}

/// The destination sends some data, and all cells in flight on these legs are delivered.
fn run_on(linked: &mut LinkedPair, legs: &[usize], bytes: u64) {
    linked.feed(0, bytes);
    for leg in legs {
        linked.deliver(*leg, LegEnd::Exit, 1000);
        linked.deliver(*leg, LegEnd::Client, 1000);
    }
    linked.check();
    assert_eq!(linked.loss(), None);
}

/// The exit's preferred leg after [`with_three_active_legs`]: others get what does not fit into its window.
const PREFERRED: usize = 1;

/// A guard's host fails. Only the client notices, and reports it to the exit.
#[test]
fn the_client_informs_the_exit_of_a_lost_leg() {
    let mut linked = with_three_active_legs();
    linked.cut(PREFERRED, LegEnd::Client);
    for _ in 0..200 {
        run_on(&mut linked, &[0, 2], 15_000);
    }
    assert_eq!(linked.transfers(), (1, 0), "data is missing");
    let fed = linked.legs().iter().map(|leg| leg.received).sum::<u64>();
    assert!(fed > 400, "only {fed} messages received");
    linked.finish();
    assert_eq!((linked.transfers(), linked.loss()), ((1, 1), None));
    linked.conclude();
}

/// A guard stalls: no link breaks, and neither end is notified.
#[test]
fn a_leg_that_is_silent_while_others_carry_data_is_closed_before_the_buffer_overflows() {
    let mut linked = with_three_active_legs();
    for _ in 0..200 {
        run_on(&mut linked, &[0, 2], 15_000);
    }
    let legs = linked.legs();
    let peak = linked.early_peak_cells();
    assert!(
        legs.len() == 2 && legs.iter().all(|leg| leg.leg != 1),
        "{peak} messages buffered: {legs:?}"
    );
    assert!((128..256).contains(&peak), "{peak} messages buffered");
    assert!(linked.exit.totals().conflux_resent > 0);
    linked.finish();
    assert_eq!((linked.transfers(), linked.loss()), ((1, 1), None));
    linked.conclude();
}

/// A set of three legs with retransmission, each of which has carried data of this transfer; then the preferred
/// one stalls.
fn with_a_silent_leg(download_bytes: u64, upload_bytes: u64) -> LinkedPair {
    let params = LinkedParams {
        scheduler: &schedulers::LowRtt,
        held_bytes_max: 64 << 20,
        ..LinkedParams::from_bytes([2, 9])
    };
    let mut linked = LinkedPair::new(&params);
    linked.finish();
    linked.begin(download_bytes, upload_bytes);
    for _ in 0..3 {
        run_on(&mut linked, &[0, 1, 2], 60_000);
    }
    assert_eq!(linked.transfers(), (1, 0), "data is missing");
    linked
}

/// Continues with the other legs, `time` per round, until the transfer completes.
fn continue_without_it(linked: &mut LinkedPair, time: Duration) {
    for _ in 0..2000 {
        run_on(linked, &[0, 2], 60_000);
        linked.advance(time);
        if linked.transfers() == (1, 1) {
            return;
        }
    }
    panic!("the transfer is incomplete: {:?}", linked.legs());
}

/// A guard stalls while a client uploads: the exit, which waits for the leg, notifies the client before too
/// much is buffered.
#[test]
fn a_leg_that_is_silent_during_an_upload_is_abandoned_at_the_exits_request() {
    let mut linked = with_a_silent_leg(0, 20_000_000);
    continue_without_it(&mut linked, Duration::ZERO);
    assert_eq!((linked.legs().len(), linked.loss()), (2, None));
    linked.finish();
    linked.conclude();
}

/// If too little is buffered to detect it, a timeout does, whichever end has sent and whichever detects it.
#[test]
fn a_silent_leg_is_abandoned_after_a_timeout_even_if_little_data_is_buffered() {
    for (download_bytes, upload_bytes) in [(0, 700_000), (700_000, 0), (0, 1_500_000), (400_000, 0)]
    {
        let mut linked = with_a_silent_leg(download_bytes, upload_bytes);
        continue_without_it(&mut linked, Duration::from_secs(1));
        let legs = linked.legs();
        assert_eq!((legs.len(), linked.loss()), (2, None), "{legs:?}");
        linked.finish();
        linked.conclude();
    }
}

/// Idleness is not a stall: legs are kept if all are idle, or no data is missing.
#[test]
fn no_leg_is_abandoned_while_all_are_idle_or_no_data_is_missing() {
    let mut linked = with_a_silent_leg(0, 1_500_000);
    linked.advance(Duration::from_secs(60));
    assert_eq!((linked.legs().len(), linked.loss()), (3, None), "all legs are idle");
    linked.finish();
    assert_eq!(linked.transfers(), (1, 1));
    linked.advance(Duration::from_secs(60));
    assert_eq!((linked.legs().len(), linked.loss()), (3, None), "no data is missing");
    linked.conclude();
}

/// The first leg is lost before the others are linked. It has carried no data, so none is missing.
#[test]
fn a_leg_that_is_lost_before_the_others_are_linked_causes_no_gap() {
    let mut linked =
        LinkedPair::new(&LinkedParams { legs: 3, ..LinkedParams::from_bytes([1 << 2 | 2, 9]) });
    for leg in 0..3 {
        linked.deliver(leg, LegEnd::Exit, 1);
        linked.deliver(leg, LegEnd::Client, 1);
        linked.deliver(leg, LegEnd::Exit, 1);
    }
    linked.deliver(0, LegEnd::Client, 1);
    assert_eq!((linked.legs().len(), linked.is_built()), (1, false), "one LINKED received");
    linked.cut(0, LegEnd::Client);
    assert_eq!(linked.loss(), None);
    linked.begin(100_000, 5_000);
    for _ in 0..60 {
        run_on(&mut linked, &[1, 2], 2_000);
    }
    assert_eq!((linked.legs().len(), linked.is_built()), (2, true));
    assert_eq!(linked.transfers(), (1, 1), "over the other legs");
    linked.conclude();
}
