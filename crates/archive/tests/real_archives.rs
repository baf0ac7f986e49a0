//! Queries over real data, if there is any in `../shared/data`.

use archive::dataset::Dataset;
use archive::engine::{Engine, Limits, View, numbers};
use archive::errors::{self, ErrorsOptions, WarmUp};
use archive::import::{ImportOptions, ImportReport, Observer, import};
use archive::percentile;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// A file or folder of real data; without it, the test is skipped.
macro_rules! real {
    ($name:expr) => {{
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join($name);
        if !path.exists() {
            skip::this_test!("there is no {}", path.display());
        }
        path
    }};
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Observer for Problems {
    fn progress(&mut self, _: u64, _: u64, _: u64) {}

    fn problem(&mut self, message: String) {
        self.0.push(message);
    }
}

fn imported(sources: &[PathBuf], folder: &Path) -> (Dataset, ImportReport, Vec<String>) {
    let dataset = Dataset::create(folder).unwrap();
    let mut problems = Problems::default();
    let report =
        import(&dataset, sources, ImportOptions::default(), &AtomicBool::new(false), &mut problems)
            .unwrap();
    (dataset, report, problems.0)
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn engine(dataset: Dataset) -> Engine {
    Engine::open(dataset, Limits::default()).unwrap()
}

fn one(engine: &Engine, sql: &str) -> f64 {
    numbers(&engine.query(&format!("SELECT CAST(({sql}) AS DOUBLE) AS x")).unwrap(), "x")[0]
        .unwrap()
}

fn assert_near(found: f64, wanted: f64, by: f64) {
    assert!((found - wanted).abs() <= by, "{found} is not {wanted}");
}

/// Ten million rows: half a minute without optimisation.
#[test]
fn onionoos_history_gives_back_its_totals_and_first_errors() {
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
    // The complete snapshots end on 2025-11-12. Figures of an independent script: see the README of the data.
    let mut view = View::of("onionoo");
    view.periods.truncate(3);
    let options = ErrorsOptions {
        view,
        warm_up: WarmUp::Own,
        from_unix_s: None,
        until_unix_s: Some(1_762_992_000),
    };
    let found = errors::compute(&engine, &options).unwrap();
    for (period, relay, network) in [(0, 0.007, 0.009), (1, 0.044, 0.061), (2, 0.101, 0.154)] {
        let period = &found.periods[period];
        let mut errors: Vec<f64> =
            period.network.iter().filter_map(|it| it.capacity_error).collect();
        errors.sort_by(f64::total_cmp);
        assert_near(percentile(&errors, 0.5).unwrap(), network, 0.0006);
        assert_near(percentile(&period.capacity_errors, 0.5).unwrap(), relay, 0.0006);
    }
}
