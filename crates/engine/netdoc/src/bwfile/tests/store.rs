use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_written_under_its_date_with_a_symlink_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let written = sample().write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    assert_eq!(names(dir.path()), ["20260101-000000.v3bw", LATEST]);
    assert_eq!(fs::read_link(&written.latest).unwrap().to_str(), Some("20260101-000000.v3bw"));
    assert_eq!(fs::read_to_string(&written.latest).unwrap(), text(&sample()));
    let mode = fs::symlink_metadata(&written.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644, "tor runs as another user");
}

#[test]
fn a_newer_file_replaces_the_symlink_target_and_keeps_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = sample();
    file.write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    file.header.file_created = Some(NOW + 3600);
    let written = file.write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    let expected = ["20260101-000000.v3bw", "20260101-010000.v3bw", LATEST];
    assert_eq!(names(dir.path()), expected);
    assert_eq!(fs::read_link(written.latest).unwrap().to_str(), Some(expected[1]));
}

#[test]
fn links_planted_at_either_name_are_replaced_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, dir.path().join(LATEST)).unwrap();
    symlink(&victim, dir.path().join("20260101-000000.v3bw")).unwrap();
    let written = sample().write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    assert!(fs::symlink_metadata(&written.path).unwrap().is_file());
    assert_eq!(fs::read_to_string(written.latest).unwrap(), text(&sample()));
}

#[test]
fn a_second_writer_is_kept_out() {
    let dir = tempfile::tempdir().unwrap();
    let other = File::open(dir.path()).unwrap();
    other.lock().unwrap();
    let error = sample().write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains(dir.path().to_str().unwrap()));
    assert!(names(dir.path()).is_empty());
    other.unlock().unwrap();
    sample().write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
}

#[test]
fn the_error_names_an_unwritable_directory_and_the_remedy() {
    // Root may write to any directory, so the test uses paths that even root cannot write to.
    let file = tempfile::NamedTempFile::new().unwrap();
    let missing = file.path().with_extension("missing");
    for dir in [missing.as_path(), file.path(), "/proc/self".as_ref()] {
        let error = sample().write_atomically(dir, NodeIdStyle::Dollar).unwrap_err().to_string();
        assert!(error.contains(dir.to_str().unwrap()), "{error}");
        assert!(error.contains("check that the directory exists"), "{error}");
    }
}

#[test]
fn a_failed_write_keeps_the_previous_file_and_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    sample().write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    let mut next = sample();
    next.header.file_created = Some(NOW + 3600);
    let blocked = dir.path().join("20260101-010000.v3bw");
    fs::create_dir(&blocked).unwrap();
    assert!(next.write_atomically(dir.path(), NodeIdStyle::Dollar).is_err());
    next.relays[0].bw_kb_s = 0;
    assert!(next.write_atomically(dir.path(), NodeIdStyle::Dollar).is_err());
    fs::remove_dir(&blocked).unwrap();
    assert_eq!(names(dir.path()), ["20260101-000000.v3bw", LATEST]);
    assert_eq!(fs::read_to_string(dir.path().join(LATEST)).unwrap(), text(&sample()));
}

#[test]
fn only_old_bandwidth_files_except_the_latest_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = sample();
    for hour in [1, 2, 3, 0] {
        file.header.file_created = Some(NOW + 3600 * hour);
        file.write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    }
    fs::write(dir.path().join("notes.v3bw"), "").unwrap();
    let removed = remove_old(dir.path(), 1).unwrap();
    assert_eq!(removed.len(), 2);
    let left = ["20260101-000000.v3bw", "20260101-030000.v3bw", LATEST, "notes.v3bw"];
    assert_eq!(names(dir.path()), left);
    assert!(remove_old(dir.path(), 10).unwrap().is_empty());
}

#[test]
fn the_last_file_of_each_earlier_day_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut file = sample();
    // Two days and a half, a file every six hours.
    for six_hours in 0..10 {
        file.header.file_created = Some(NOW + 6 * 3600 * six_hours);
        file.write_atomically(dir.path(), NodeIdStyle::Dollar).unwrap();
    }
    assert_eq!(remove_superseded(dir.path(), 3).unwrap().len(), 6);
    let left = [
        "20260101-180000.v3bw",
        "20260102-180000.v3bw",
        "20260103-000000.v3bw",
        "20260103-060000.v3bw",
        LATEST,
    ];
    assert_eq!(names(dir.path()), left);
    assert!(remove_superseded(dir.path(), 3).unwrap().is_empty());
}
