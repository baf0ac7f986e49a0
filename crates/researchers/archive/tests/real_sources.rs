//! Imports of real data, if there is any in `../shared/data`, compared with known values.

use crate::common::{Problems, imported};
use crate::{assert_near, folder};
use archive::dataset::Dataset;
use archive::import::{ImportOptions, import};
use archive::rows::{Descriptor, Relays, Status, Variation};
use archive::{percentile, speedtest, staging, times};
use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

/// All views and published bandwidths.
fn rows(dataset: &Dataset) -> (Vec<Status>, Vec<Descriptor>) {
    let mut relays = Relays::default();
    (dataset.read_all(&mut relays).unwrap(), dataset.read_all(&mut relays).unwrap())
}

fn month_of(status: &Status) -> String {
    times::month(i64::from(status.valid_after_unix_s))
}

#[test]
fn the_authors_speed_test_has_the_papers_numbers() {
    let folder = folder();
    let (dataset, _, problems) = imported(&[real!("speedtest-2019")], folder.path());
    assert_eq!(problems, [""; 0]);
    let test = speedtest::of_authors(&dataset).unwrap();
    let effect = test.effect();
    assert_eq!((test.measured_relays, effect.relays, test.changes.len()), (4867, 4837, 7263));
    assert_near(effect.measured_before_gbit_per_s, 359.95, 0.005);
    assert_near(effect.measured_after_gbit_per_s, 550.12, 0.005);
    assert_near(effect.all_before_gbit_per_s, 414.32, 0.005);
    assert_near(effect.all_after_gbit_per_s, 605.64, 0.005);
    assert_near(effect.change_90th_mbit_per_s, 140.46, 0.005);
    assert_near(effect.weight_error_before.unwrap(), 0.1405, 0.00005);
    assert_near(effect.weight_error_after.unwrap(), 0.2320, 0.00005);
    assert_near(effect.weight_error_of_larger.unwrap(), 0.2906, 0.00005);
    for (found, wanted) in effect.median_gbit_per_s.into_iter().zip([382.12, 572.38, 396.62]) {
        assert_near(found.unwrap(), wanted, 0.05);
    }
    let rows: Vec<Variation> = dataset.read_all(&mut Relays::default()).unwrap();
    let mut rsds: Vec<f64> = rows.iter().map(|row| row.advertised_rsd_week).collect();
    rsds.sort_by(f64::total_cmp);
    assert_eq!(rsds.len(), 22_051);
    for (share, wanted) in
        [(0.10, 0.0052), (0.25, 0.0458), (0.50, 0.1471), (0.75, 0.3539), (0.90, 0.6568)]
    {
        assert_near(percentile(&rsds, share).unwrap(), wanted, 0.00005);
    }
}

#[test]
fn the_staged_network_of_may_2024_has_known_errors() {
    let folder = folder();
    let source = real!("staging-2024-05/relayinfo_staging_2024-05-01--2024-05-31.json.xz");
    let (dataset, report, problems) = imported(&[source], folder.path());
    assert_eq!((problems.len(), report.imported[0].documents["staged network"]), (0, 1));
    let [all, half] = staging::errors(&dataset).unwrap();
    assert_eq!((all.relays, half.relays), (8665, 7203));
    assert_near(all.capacity_gbit_per_s, 877.7, 0.05);
    assert_near(half.capacity_gbit_per_s, 797.2, 0.05);
    assert_near(all.largest_mbit_per_s, 895.6, 0.05);
    assert_near(all.percentile_75_mbit_per_s, 133.8, 0.05);
    assert_near(all.weight_error.unwrap(), 0.1703, 0.00005);
    assert_near(half.weight_error.unwrap(), 0.1483, 0.00005);
    assert_near(all.underweighted_share, 0.676, 0.0005);
    assert_near(half.underweighted_share, 0.655, 0.0005);
}

#[test]
fn collector_archives_of_all_ages_are_imported_once() {
    let folder = folder();
    let source = real!("archives-sample");
    let (dataset, report, problems) = imported(std::slice::from_ref(&source), folder.path());
    let entry = |name: &str| {
        let found = report.imported.iter().find(|entry| entry.source.ends_with(name));
        found.unwrap_or_else(|| panic!("{name} is not imported")).clone()
    };
    let cropped = entry("collector/server-descriptors-2005-12-cropped.tar");
    assert_eq!((cropped.documents["server descriptor"], cropped.damaged), (5, 0));
    let cropped = entry("collector/consensuses-2018-06-cropped.tar");
    assert_eq!((cropped.documents["consensus"], cropped.damaged), (2, 0));
    let multiple = entry("documents/metrics_server_desc_multiple");
    assert_eq!(multiple.documents["server descriptor"], 2);
    assert_eq!(entry("documents/old_descriptor").documents["server descriptor"], 1);
    assert_eq!(entry("documents/cached-consensus-v2").skipped["network status of version 2"], 1);
    assert_eq!(entry("documents/metrics_vote").documents["network status vote"], 1);
    let bandwidths = entry("collector/bandwidths-2019-05-cropped.tar");
    assert_eq!(bandwidths.documents["bandwidth file"], 2, "{bandwidths:?}");
    assert!(entry("documents/descriptor_archive.tar").documents["server descriptor"] > 0);
    // Documents of other kinds are skipped. Sources that cannot be read are reported, and are not in the manifest.
    let other = entry("unparseable/cached-microdesc-consensus_with_carriage_returns");
    assert!(other.documents.is_empty() && !other.skipped.is_empty(), "{other:?}");
    let name = "documents/descriptor_archive.tar.bz2";
    assert!(!report.imported.iter().any(|imported| imported.source.ends_with(name)), "{report:?}");
    assert!(!report.is_complete() && report.unreadable > 0, "{report:?}");
    assert!(
        problems.iter().all(|problem| ["byte ", "bzip2", "further", "nothing is imported"]
            .iter()
            .any(|part| problem.contains(part))),
        "{problems:?}"
    );
    let before = rows(&dataset);
    assert_eq!(before.0.iter().filter(|status| month_of(status) == "2018-06").count(), 243);
    // Known sources are skipped, and add nothing if they are imported again.
    let (_, report, _) = imported(std::slice::from_ref(&source), folder.path());
    assert_eq!((report.imported.len(), report.new_rows), (0, 0));
    let again = ImportOptions { is_again: true, ..ImportOptions::default() };
    let report =
        import(&dataset, &[source], &again, &AtomicBool::new(false), &mut Problems::default())
            .unwrap();
    assert_eq!(report.new_rows, 0);
    assert_eq!(rows(&dataset), before);
}

#[test]
fn imported_consensuses_have_the_counts_that_grep_finds() {
    let folder = folder();
    let sources = [real!("consensus"), real!("descriptors")];
    let (dataset, report, problems) = imported(&sources, folder.path());
    assert_eq!(problems, [""; 0]);
    assert_eq!(report.imported.len(), 4);
    let (statuses, descriptors) = rows(&dataset);
    assert_eq!(statuses.iter().filter(|status| month_of(status) == "2020-02").count(), 6433 + 6463);
    let later: Vec<&Status> =
        statuses.iter().filter(|status| month_of(status) == "2022-11").collect();
    let weights = later.iter().map(|status| u64::from(status.weight_kb_per_s.unwrap()));
    assert_eq!(
        (later.len(), weights.clone().sum::<u64>(), weights.max()),
        (6088, 94_115_156, Some(190_000))
    );
    let count = |has: fn(&Status) -> bool| later.iter().filter(|status| has(status)).count();
    let flags = [
        count(|status| status.is_unmeasured),
        count(|status| status.is_guard),
        count(|status| status.is_exit),
        count(|status| status.is_bad_exit),
    ];
    assert_eq!(flags, [9, 3020, 1438, 11]);
    assert_eq!(descriptors.len(), 587);
}

#[test]
fn lists_of_january_2019_expand_to_the_known_relays() {
    let folder = folder();
    let (dataset, _, problems) = imported(&[real!("membership-2019-01")], folder.path());
    assert_eq!(problems, [""; 0]);
    let (statuses, _) = rows(&dataset);
    let at = |time: u32| statuses.iter().filter(|status| status.valid_after_unix_s == time).count();
    let times: BTreeSet<u32> = statuses.iter().map(|status| status.valid_after_unix_s).collect();
    let ends = times.first().zip(times.last()).unwrap();
    assert_eq!((times.len(), at(*ends.0), at(*ends.1)), (744, 6075, 6453));
    assert_eq!(statuses.iter().map(|status| status.relay).collect::<BTreeSet<_>>().len(), 9769);
}
