//! An honest relay, whoever is around it.

use crate::echo_worlds::{ALONE_S, Play, Scenario};
use crate::stage::Stage;
use onion::router::RouterEvent;
use onion::{Duration, Rate};

crate::in_both_worlds! {
    an_honest_relay_is_measured
    clients_are_held_to_their_share_and_have_all_back_after
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn mbit(bytes: u64) -> f64 {
    Rate::from_byte_per_s(bytes).as_mbit_per_s()
}

fn an_honest_relay_is_measured<S: Stage>(stage: S) {
    let scenario = Scenario::default();
    let mut play = Play::begin(stage, &scenario);
    let report = play.measure();
    assert!(report.parts.iter().all(|part| part.ready == Some((2, 4))));
    let share = report.estimate_over(scenario.limit.unwrap());
    if S::IS_EXACT {
        assert!((0.9..1.05).contains(&share), "{share}");
    }
    play.pass(Duration::from_secs(1));
    assert!(play.told.contains(&RouterEvent::MeasurementOver(None)), "{:?}", play.told);
    assert_eq!(play.open_circuits(), 0);
}

fn clients_are_held_to_their_share_and_have_all_back_after<S: Stage>(stage: S) {
    let scenario = Scenario::with_clients(30.0);
    let mut play = Play::begin(stage, &scenario);
    let before = play.client_bytes(onion::Instant::ORIGIN, play.stage.now());
    let report = play.measure();
    let ended = play.stage.now();
    play.pass(Duration::from_secs(u64::from(ALONE_S) + 1));
    play.assert_clients_live();
    let summary = report.summary();
    let during = play.client_bytes(report.began, ended);
    let after = play.client_bytes(ended + Duration::from_secs(1), play.stage.now());
    println!("{before:?} {during:?} {after:?} {summary:?} {:?}", play.measured);
    if S::IS_EXACT {
        let share = report.estimate_over(scenario.limit.unwrap());
        assert!((0.9..1.05).contains(&share), "{share}");
    }
}
