//! Queries over a dataset with damaged files.

use archive::ArchiveError;
use archive::dataset::Dataset;
use archive::engine::{Engine, Limits};
use archive::printed;
use archive::rows::{Relays, Status};
use archive::synth::{SynthOptions, synthesize};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

const LIMITS: Limits = Limits { threads: 2, memory_mib: 64 };

fn made(folder: &Path, relays: u32) -> Dataset {
    let dataset = Dataset::create(folder).unwrap();
    let options = SynthOptions { relays, hours: 1500, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    dataset
}

/// Sums over all columns of the dataset, and its rows as read without the engine.
fn result(folder: &Path) -> Result<String, ArchiveError> {
    let dataset = Dataset::open(folder)?;
    let engine = Engine::open(dataset.clone(), LIMITS)?;
    let batches = engine.query(
        "SELECT COUNT(*), SUM(valid_after_unix_s), SUM(weight_kb_per_s), COUNT(DISTINCT relay), MIN(origin), MAX(flags), \
         SUM(CAST(is_guard AS INT)), (SELECT SUM(advertised_byte_per_s) + SUM(published_unix_s) FROM descriptors) FROM statuses",
    )?;
    let rows: Vec<Status> = dataset.read_all(&mut Relays::default())?;
    Ok(format!("{} {rows:?}", printed::csv(&batches)?))
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path(), 6);
    let right = result(folder.path()).unwrap();
    let mut files: Vec<PathBuf> = vec![folder.path().join("manifest.jsonl")];
    for table in ["statuses", "descriptors"] {
        files.extend(dataset.parts(table).unwrap().into_iter().map(|part| part.1));
    }
    let mut detected = 0;
    for flip in 0..200_usize {
        let path = &files[flip % files.len()];
        let whole = fs::read(path).unwrap();
        // Spread over the file; every third one in its footer.
        let place = (flip * 0x9E37_79B9) % whole.len();
        let place =
            if flip % 3 == 0 { whole.len() - 1 - place % 4096.min(whole.len()) } else { place };
        let mut damaged = whole.clone();
        damaged[place] ^= 1 << (flip % 8);
        fs::write(path, damaged).unwrap();
        match result(folder.path()) {
            Ok(found) => assert!(found == right, "bit {flip} of {}", path.display()),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("manifest") || text.contains("remove the file"), "{text}");
                detected += 1;
            }
        }
        fs::write(path, whole).unwrap();
    }
    // All but those in the manifest.
    assert!(detected >= 200 - 200_usize.div_ceil(files.len()), "{detected} detected");
    assert_eq!(result(folder.path()).unwrap(), right);
}

#[test]
fn a_damaged_or_missing_file_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path(), 30);
    let parts = dataset.parts("statuses").unwrap();
    let assert_named = |path: &Path, remedy: &str| {
        let text = Engine::open(dataset.clone(), LIMITS).err().unwrap().to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains(remedy), "{text}");
    };
    let page = &parts[1].1;
    let mut bytes = fs::read(page).unwrap();
    let middle = bytes.len() / 2;
    bytes[4..middle].fill(0xA5);
    fs::write(page, &bytes).unwrap();
    assert_named(page, "remove the file");
    fs::remove_file(page).unwrap();
    assert_named(page, "--again");
    // The remedy.
    made(folder.path(), 30);
    assert!(Engine::open(dataset.clone(), LIMITS).is_ok());
}

#[test]
fn a_query_during_which_a_file_changes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = made(folder.path(), 6);
    let engine = Engine::open(dataset.clone(), LIMITS).unwrap();
    let count = "SELECT COUNT(*) FROM statuses";
    assert!(engine.query(count).is_ok());
    let options = SynthOptions { relays: 7, hours: 10, seed: 2, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let error = engine.query(count).unwrap_err().to_string();
    assert!(error.contains("repeat the command"), "{error}");
}
