//! Both ends of a set of linked circuits, and somebody between who lets cells of its legs arrive in any order, cuts links, and lies.

use proptest::prelude::*;
use sim::linked::{LegEnd, Linked, LinkedPlan};

fn plan() -> impl Strategy<Value = LinkedPlan> {
    any::<[u8; 2]>().prop_map(LinkedPlan::of_bytes)
}

/// What happens, as bytes; longer than what a fuzzer begins with.
fn script() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever arrives when, and whichever links are cut: a program gets what the other has sent, from the beginning on, and all of
    /// it unless the set is lost. No more waits than may, at either end, and at the end nothing is left.
    #[test]
    fn cells_of_several_legs_in_any_order_are_the_stream_or_the_set_is_closed(
        plan in plan(), script in script(),
    ) {
        let mut linked = Linked::new(&plan);
        linked.play(&script, false, Linked::check);
        linked.conclude();
    }

    /// Whatever an end says: accounts and bounds hold, nothing hangs, and nothing is left.
    #[test]
    fn an_end_that_lies_fills_no_memory_and_leaves_nothing(plan in plan(), script in script()) {
        let mut linked = Linked::new(&plan);
        linked.play(&script, true, Linked::check);
        linked.conclude();
    }
}

/// The plays above are worth nothing if nothing happens in them.
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
