//! Schedules and simulated speed tests of real networks, if there are data in `../shared/data`.

use archive::dataset::Dataset;
use archive::schedule::{self, ScheduleOptions};
use archive::speedtest::simulated::{self, SimulationOptions};
use archive::speedtest::{self, Effect};
use archive::times;
use onion::Rate;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

fn imported(source: PathBuf, folder: &Path) -> Dataset {
    let (dataset, _, problems) = crate::common::imported(&[source], folder);
    assert_eq!(problems, [""; 0]);
    dataset
}

#[test]
fn the_staged_network_of_may_2024_takes_seven_hours_and_no_slot_is_wasted() {
    let folder = tempfile::tempdir().unwrap();
    let source = real!("staging-2024-05/relayinfo_staging_2024-05-01--2024-05-31.json.xz");
    let dataset = imported(source, folder.path());
    let options = ScheduleOptions::default();
    let networks = schedule::staged(&dataset, &options).unwrap();
    let [[all, half]] = &networks[..] else { panic!("one span was imported") };
    for (network, relays, slots) in [(all, 8665, 831), (half, 7203, 755)] {
        assert_eq!((network.relays, network.slots, network.lower_bound_relays), (relays, slots, 0));
        // The total demand of the relays, divided by the capacity of the team.
        let bound = network.capacity_gbit_per_s * options.excess_factor / 3.0;
        let wasted = f64::from(network.slots) - bound;
        assert!((0.0..1.0).contains(&wasted), "{network:?}: {bound}");
    }
}

#[test]
fn three_relays_are_new_in_the_median_consensus_of_january_2019_and_measured_in_the_first_slot() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = imported(real!("membership-2019-01"), folder.path());
    let options = ScheduleOptions {
        from_unix_s: times::parse("2019-01-02").unwrap(),
        new_relay: Some(Rate::from_mbit_per_s(51.0)),
        ..ScheduleOptions::default()
    };
    let series =
        schedule::series(&dataset, &options, &AtomicBool::new(false), &mut |_, _| ()).unwrap();
    assert_eq!((series.days.len(), series.arrivals.len()), (30, 720));
    let lines = schedule::lines(&series);
    let of = |name: &str| lines.iter().find(|line| line.quantity == name).unwrap().here;
    assert_eq!(of("new relays of a view"), [0.0, 3.0, 62.0]);
    let [least, median, most] = of("seconds until all new ones are measured");
    assert_eq!((least, median), (0.0, 30.0));
    assert!(most <= 780.0, "{most}");
    let daemon = of("seconds until all new ones are measured, daemon's plan");
    assert!(daemon[2] <= 3630.0, "{daemon:?}");
}

#[test]
fn a_simulated_speed_test_reproduces_the_authors_test() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = imported(real!("speedtest-2019"), folder.path());
    let authors = speedtest::of_authors(&dataset).unwrap().effect();
    let capacities = simulated::capacities_of(&dataset).unwrap();
    // Their 4,889 measurements of 20 s, one after the other, take 27 of their 51 hours; time-outs take the rest.
    let options = SimulationOptions { test_hours: 27, ..SimulationOptions::default() };
    let model = simulated::simulate(&capacities, &options).effect();
    let near = |what: &str, value: fn(&Effect) -> f64, by: f64| {
        let (model, authors) = (value(&model), value(&authors));
        assert!((model - authors).abs() <= by, "{what}: {model} is not {authors}");
    };
    let rise = |result: &Effect| {
        result.median_gbit_per_s[1].unwrap() / result.median_gbit_per_s[0].unwrap()
    };
    near("rise", rise, 0.1);
    near("weight error after", |result| result.weight_error_after.unwrap(), 0.03);
    near(
        "weight error of the larger capacity",
        |result| result.weight_error_of_larger.unwrap(),
        0.03,
    );
    near("hours until half of the rise", |result| result.half_way_hours.unwrap().0, 6.0);
    near("hours until half of the fall", |result| result.half_way_hours.unwrap().1, 6.0);
}
