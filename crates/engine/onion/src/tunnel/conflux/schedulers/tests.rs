use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A leg with this round-trip time, window and cells in flight, past slow start.
fn leg(rtt_ms: u64, window_cells: u32, in_flight_cells: u32) -> LegState {
    let rtt = (rtt_ms > 0).then(|| Duration::from_millis(rtt_ms));
    LegState { rtt, last_rtt: rtt, window_cells, in_flight_cells, ..LegState::default() }
}

/// The choices of all schedulers, in the order of [`ALL`].
fn all(legs: &[LegState]) -> Vec<Option<usize>> {
    ALL.iter().map(|scheduler| scheduler.choose(legs)).collect()
}

#[test]
fn the_fastest_leg_is_chosen_while_it_has_room() {
    let legs = [leg(80, 100, 0), leg(20, 100, 99), leg(50, 100, 0)];
    assert_eq!(all(&legs), [Some(1); 5]);
}

#[test]
fn schedulers_differ_if_the_fastest_leg_is_full() {
    let legs = [leg(80, 100, 0), leg(20, 100, 100), leg(50, 100, 0)];
    // BLEST: in 2.5 times its round-trip time the first leg carries more than the third has space for.
    assert_eq!(all(&legs), [None, Some(2), Some(2), Some(2), None]);
    // CWNDRTT: of the rest of the slow leg's window, less than a cell arrives in time.
    let legs = [leg(20, 100, 100), leg(50, 100, 98)];
    assert_eq!(all(&legs), [None, Some(1), None, Some(1), None]);
    // BLEST: a leg that is nearly as fast, with far more space.
    let legs = [leg(20, 100, 100), leg(21, 1000, 0)];
    assert_eq!(all(&legs), [None, Some(1), Some(1), Some(1), Some(1)]);
}

#[test]
fn a_leg_in_slow_start_may_be_filled() {
    let filled = LegState { is_in_slow_start: true, ..leg(50, 100, 98) };
    assert_eq!(CwndRtt.choose(&[leg(20, 100, 100), filled]), Some(1));
}

#[test]
fn the_paper_uses_the_last_rtt_and_c_tor_the_average() {
    let quick_of_late = LegState { last_rtt: Some(Duration::from_millis(5)), ..leg(80, 100, 0) };
    let legs = [leg(20, 100, 0), quick_of_late];
    assert_eq!(LowRtt.choose(&legs), Some(0));
    assert_eq!(CurrentRtt.choose(&legs), Some(1));
}

#[test]
fn a_leg_without_an_rtt_is_not_chosen() {
    assert_eq!(all(&[leg(0, 100, 0), leg(90, 100, 0)]), [Some(1); 5]);
    assert_eq!(all(&[leg(0, 100, 0)]), [None; 5]);
    assert_eq!(all(&[]), [None; 5]);
}

#[test]
fn schedulers_are_found_by_name() {
    for scheduler in ALL {
        assert_eq!(by_name(scheduler.name()).map(|found| found.name()), Some(scheduler.name()));
    }
    assert!(by_name("none").is_none());
}

#[test]
fn client_preferences_select_the_scheduler_of_c_tor() {
    let names = DesiredUx::ALL.map(|action| for_desired_ux(action).name());
    assert_eq!(names, ["low-rtt", "min-rtt", "min-rtt", "low-rtt", "min-rtt"]);
}

proptest! {
    /// No scheduler chooses a full or blocked leg, and only MinRTT, CwndRTT and BLEST wait while a leg has
    /// space.
    #[test]
    fn a_chosen_leg_always_has_room(
        legs in prop::collection::vec((0u64..300, 0u32..400, 0u32..400, any::<bool>()), 0..9),
    ) {
        let legs: Vec<LegState> = legs
            .into_iter()
            .map(|(rtt, window, flying, is_blocked)| LegState { is_blocked, ..leg(rtt, window, flying) })
            .collect();
        let is_possible = legs.iter().any(|leg| leg.has_room() && leg.rtt.is_some());
        for scheduler in ALL {
            let chosen = scheduler.choose(&legs);
            if let Some(place) = chosen {
                prop_assert!(legs[place].has_room(), "{}", scheduler.name());
            }
            let is_greedy = ["low-rtt", "current-rtt"].contains(&scheduler.name());
            if is_greedy {
                prop_assert_eq!(chosen.is_some(), is_possible, "{}", scheduler.name());
            }
        }
    }
}
