//! Queries over a dataset with damaged files.

use archive::ArchiveError;
use archive::dataset::Dataset;
use archive::engine::{Engine, Limits};
use archive::synth::{SynthOptions, synthesize};
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

#[test]
fn a_damaged_file_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let options = SynthOptions { relays: 30, hours: 2000, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let months = dataset.months("statuses").unwrap();
    let limits = Limits { threads: 2, memory_mib: 64 };
    let damage = |path: &Path, places: std::ops::Range<usize>| {
        let mut bytes = fs::read(path).unwrap();
        bytes[places].fill(0xA5);
        fs::write(path, bytes).unwrap();
    };
    let assert_named = |error: ArchiveError, path: &Path| {
        let text = error.to_string();
        assert!(
            text.contains(path.to_str().unwrap()) && text.contains("remove the file"),
            "{text}"
        );
    };
    // A page in the middle, and then a footer.
    let page = &months[1].1;
    let len = usize::try_from(fs::metadata(page).unwrap().len()).unwrap();
    damage(page, 4..len / 2);
    let engine = Engine::open(dataset.clone(), limits);
    let error = engine.and_then(|it| {
        it.query("SELECT SUM(valid_after_unix_s), SUM(weight_kb_per_s) FROM statuses")
    });
    assert_named(error.unwrap_err(), page);
    let footer = &months[2].1;
    let len = usize::try_from(fs::metadata(footer).unwrap().len()).unwrap();
    damage(footer, len - 8..len);
    assert_named(Engine::open(dataset, limits).err().unwrap(), footer);
}
