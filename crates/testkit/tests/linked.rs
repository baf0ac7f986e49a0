//! Both ends of a Conflux set, with a network that delivers cells of different legs in any order, cuts links,
//! and lies.

use onion::Duration;
use onion::tunnel::conflux::schedulers;
use proptest::prelude::*;
use testkit::linked::{LegEnd, Linked, LinkedPlan};

fn plan() -> impl Strategy<Value = LinkedPlan> {
    any::<[u8; 2]>().prop_map(LinkedPlan::of_bytes)
}

/// The length of the bytes that choose events; longer than a fuzzer's initial inputs.
fn script() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever arrives when, and whichever links are cut: an application receives what the other has sent,
    /// from the beginning on, and all of it unless the set is lost. The buffers stay within their limits at
    /// both ends, and at the end nothing is left.
    #[test]
    fn cells_of_several_legs_in_any_order_are_the_stream_or_the_set_is_closed(
        plan in plan(), script in script(),
    ) {
        let mut linked = Linked::new(&plan);
        linked.play(&script, false, Linked::check);
        linked.conclude();
    }

    /// Whatever an end sends: accounts and limits hold, nothing hangs, and nothing is left.
    #[test]
    fn an_end_that_lies_fills_no_memory_and_leaves_nothing(plan in plan(), script in script()) {
        let mut linked = Linked::new(&plan);
        linked.play(&script, true, Linked::check);
        linked.conclude();
    }
}

/// Found by random runs: the set is open, another leg is pending, and the only linked one is cut. A stream that
/// begins then must not hang.
#[test]
fn a_set_that_stands_ends_with_its_last_linked_leg() {
    let plan = LinkedPlan { legs: 1, ..LinkedPlan::of_bytes([0, 0]) };
    let mut linked = Linked::new(&plan);
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
    let mut linked = Linked::new(&LinkedPlan { legs: 1, ..LinkedPlan::of_bytes([0, 0]) });
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

/// The random runs above are useless if nothing happens in them.
#[test]
fn a_play_has_legs_that_carry_and_one_that_is_lost() {
    let mut linked = Linked::new(&LinkedPlan { legs: 3, ..LinkedPlan::of_bytes([1 << 2 | 2, 9]) });
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

/// Three legs that send again, and few messages that may wait; linked, and all have carried something.
fn with_three_legs_that_carry() -> Linked {
    let scheduler = &schedulers::LowRtt;
    let plan = LinkedPlan { early_max_cells: 256, scheduler, ..LinkedPlan::of_bytes([2, 9]) };
    let mut linked = Linked::new(&plan);
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

/// The destination sends a little, and all that is under way on these legs arrives.
fn run_on(linked: &mut Linked, legs: &[usize], bytes: u64) {
    linked.feed(0, bytes);
    for leg in legs {
        linked.deliver(*leg, LegEnd::Exit, 1000);
        linked.deliver(*leg, LegEnd::Client, 1000);
    }
    linked.check();
    assert_eq!(linked.loss(), None);
}

/// The leg that the exit likes best, once [`with_three_legs_that_carry`] is done: the others get what this has no room for.
const FAVOURITE: usize = 1;

/// A guard's host fails: the client knows it, and only the client can report it to the exit.
#[test]
fn the_exit_hears_from_the_client_that_a_leg_is_gone() {
    let mut linked = with_three_legs_that_carry();
    linked.cut(FAVOURITE, LegEnd::Client);
    for _ in 0..200 {
        run_on(&mut linked, &[0, 2], 15_000);
    }
    assert_eq!(linked.transfers(), (1, 0), "more is to come");
    let fed = linked.legs().iter().map(|leg| leg.received).sum::<u64>();
    assert!(fed > 400, "{fed} messages have arrived, too few for the test");
    linked.finish();
    assert_eq!((linked.transfers(), linked.loss()), ((1, 1), None));
    linked.conclude();
}

/// A guard stalls: no link breaks, and nobody is notified.
#[test]
fn a_leg_that_is_silent_while_others_carry_is_closed_before_too_much_waits() {
    let mut linked = with_three_legs_that_carry();
    for _ in 0..200 {
        run_on(&mut linked, &[0, 2], 15_000);
    }
    let legs = linked.legs();
    let peak = linked.early_peak_cells();
    assert!(
        legs.len() == 2 && legs.iter().all(|it| it.leg != 1),
        "{peak} have waited at most: {legs:?}"
    );
    assert!((128..256).contains(&peak), "{peak} have waited");
    assert!(linked.exit.totals().conflux_resent > 0);
    linked.finish();
    assert_eq!((linked.transfers(), linked.loss()), ((1, 1), None));
    linked.conclude();
}

/// A set of three legs with retransmission, each of which has carried data of this transfer; then the preferred
/// one stalls.
fn with_a_silent_leg(download_bytes: u64, upload_bytes: u64) -> Linked {
    let plan = LinkedPlan {
        scheduler: &schedulers::LowRtt,
        held_bytes_max: 64 << 20,
        ..LinkedPlan::of_bytes([2, 9])
    };
    let mut linked = Linked::new(&plan);
    linked.finish();
    linked.begin(download_bytes, upload_bytes);
    for _ in 0..3 {
        run_on(&mut linked, &[0, 1, 2], 60_000);
    }
    assert_eq!(linked.transfers(), (1, 0), "more is to come");
    linked
}

/// Lets the others continue, for this time each, until the transfer completes.
fn go_on_without_it(linked: &mut Linked, time: Duration) {
    for _ in 0..2000 {
        run_on(linked, &[0, 2], 60_000);
        linked.pass(time);
        if linked.transfers() == (1, 1) {
            return;
        }
    }
    panic!("it is not whole: {:?}", linked.legs());
}

/// A guard stalls while a client uploads: the exit, which waits for the leg, notifies the client before too
/// much is buffered.
#[test]
fn a_leg_that_is_silent_while_the_client_uploads_is_given_up_by_the_exits_word() {
    let mut linked = with_a_silent_leg(0, 20_000_000);
    go_on_without_it(&mut linked, Duration::ZERO);
    assert_eq!((linked.legs().len(), linked.loss()), (2, None));
    linked.finish();
    linked.conclude();
}

/// If too little is buffered to detect it, a timeout does, whichever end has sent and whichever detects it.
#[test]
fn a_silent_leg_is_given_up_in_time_though_little_waits_for_it() {
    for (download_bytes, upload_bytes) in [(0, 700_000), (700_000, 0), (0, 1_500_000), (400_000, 0)]
    {
        let mut linked = with_a_silent_leg(download_bytes, upload_bytes);
        go_on_without_it(&mut linked, Duration::from_secs(1));
        let legs = linked.legs();
        assert_eq!((legs.len(), linked.loss()), (2, None), "{legs:?}");
        linked.finish();
        linked.conclude();
    }
}

/// Waiting alone is not a stall: legs that are all idle are kept, and so are those without data to deliver.
#[test]
fn no_leg_is_given_up_where_all_are_still_or_none_is_waited_for() {
    let mut linked = with_a_silent_leg(0, 1_500_000);
    linked.pass(Duration::from_secs(60));
    assert_eq!((linked.legs().len(), linked.loss()), (3, None), "all are still");
    linked.finish();
    assert_eq!(linked.transfers(), (1, 1));
    linked.pass(Duration::from_secs(60));
    assert_eq!((linked.legs().len(), linked.loss()), (3, None), "nothing is to come");
    linked.conclude();
}

/// The first leg is lost while the others wait for their LINKED: it has carried nothing, and nothing is missed.
#[test]
fn a_leg_that_dies_before_the_others_are_linked_is_not_missed() {
    let mut linked = Linked::new(&LinkedPlan { legs: 3, ..LinkedPlan::of_bytes([1 << 2 | 2, 9]) });
    for leg in 0..3 {
        linked.deliver(leg, LegEnd::Exit, 1);
        linked.deliver(leg, LegEnd::Client, 1);
        linked.deliver(leg, LegEnd::Exit, 1);
    }
    linked.deliver(0, LegEnd::Client, 1);
    assert_eq!((linked.legs().len(), linked.is_built()), (1, false), "one LINKED has come");
    linked.cut(0, LegEnd::Client);
    assert_eq!(linked.loss(), None);
    linked.begin(100_000, 5_000);
    for _ in 0..60 {
        run_on(&mut linked, &[1, 2], 2_000);
    }
    assert_eq!((linked.legs().len(), linked.is_built()), (2, true));
    assert_eq!(linked.transfers(), (1, 1), "without the lost leg's link");
    linked.conclude();
}
