//! Queries over real data, if there is any in `../shared/data`.

use crate::common::imported;
use crate::{assert_near, folder};
use archive::dataset::Dataset;
use archive::engine::{Engine, Limits, View, numbers};
use archive::errors::{self, ErrorsOptions, WarmUp};
use archive::percentile;

fn engine(dataset: Dataset) -> Engine {
    Engine::open(dataset, Limits::default()).unwrap()
}

fn one(engine: &Engine, sql: &str) -> f64 {
    let found = engine.query(&format!("SELECT CAST(({sql}) AS DOUBLE) AS x")).unwrap();
    numbers(&found, "x").unwrap()[0].unwrap()
}

/// Ten million rows: half a minute without optimisation.
#[test]
fn onionoos_history_has_known_totals_and_errors() {
    let folder = folder();
    let (dataset, _, problems) = imported(&[real!("onionoo-2025-2026")], folder.path());
    assert_eq!(problems, [""; 0]);
    let engine = engine(dataset);
    assert_near(one(&engine, "SELECT COUNT(*) FROM statuses"), 10_156_272.0, 0.0);
    for (time, relays, advertised, weights) in [
        (1_747_173_600_i64, 8456.0, 118_782_086_929.0, f64::from(74_307_390 + 27_387_900)),
        (0, 8274.0, 140_668_659_999.0, f64::from(101_644_060 + 25_656_690)),
    ] {
        let time = match time {
            0 => "SELECT MAX(valid_after_unix_s) FROM statuses".to_owned(),
            time => time.to_string(),
        };
        assert_near(
            one(
                &engine,
                &format!("SELECT COUNT(*) FROM statuses WHERE valid_after_unix_s = ({time})"),
            ),
            relays,
            0.0,
        );
        let sum = format!(
            "SELECT SUM(advertised_byte_per_s) FROM descriptors WHERE published_unix_s = ({time})"
        );
        assert_near(one(&engine, &sum), advertised, 0.0);
        let sum = format!(
            "SELECT SUM(weight_kb_per_s) FROM statuses WHERE valid_after_unix_s = ({time})"
        );
        assert_near(one(&engine, &sum), weights, 0.0);
    }
    // Results of an independent script (see the README of the data): for a year over all snapshots, for shorter periods until
    // 2025-11-12, the end of the complete snapshots.
    let paper = View::new("onionoo").periods;
    for (periods, until_unix_s, expected) in [
        (&paper[..3], Some(1_762_992_000), &[(0.007, 0.009), (0.044, 0.061), (0.101, 0.154)][..]),
        (&paper[3..], None, &[(0.244, 0.336)][..]),
    ] {
        let view = View { periods: periods.to_vec(), ..View::new("onionoo") };
        let options = ErrorsOptions { view, warm_up: WarmUp::Own, from_unix_s: None, until_unix_s };
        let found = errors::compute(&engine, &options).unwrap();
        assert_eq!((found.rows, found.relays), (10_156_272, 32_565));
        for (period, (relay, network)) in found.periods.iter().zip(expected) {
            let mut errors: Vec<f64> =
                period.network.iter().filter_map(|hour| hour.capacity_error).collect();
            errors.sort_by(f64::total_cmp);
            assert_near(percentile(&errors, 0.5).unwrap(), *network, 0.0006);
            assert_near(percentile(&period.capacity_errors, 0.5).unwrap(), *relay, 0.0006);
        }
    }
}
