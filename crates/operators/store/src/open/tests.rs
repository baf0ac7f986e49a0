use super::*;
use crate::testing::{NOW, Scratch, closed, relay};
use crate::{Entry, RelayQuery};
use std::io::{Seek as _, SeekFrom, Write as _};

fn fill(store: &mut Store) {
    let entries: Vec<Entry> = (0..200)
        .map(|number| Entry::Finished(Box::new(closed(relay(number), NOW, 1, 5_000_000))))
        .collect();
    store.write(&entries).expect("room");
}

#[test]
fn a_store_has_one_writer_and_concurrent_readers() {
    let scratch = Scratch::new();
    let missing = Reader::open(&scratch.store).map(|_| ()).expect_err("none yet");
    assert!(matches!(missing, StoreError::Missing { .. }), "{missing}");
    let mut store = Store::open(&scratch.store).expect("new");
    let second = Store::open(&scratch.store).map(|_| ()).expect_err("taken");
    assert!(matches!(second, StoreError::Locked { .. }), "{second}");
    let reader = Reader::open(&scratch.store).expect("there");
    let before = reader.version().expect("read");
    fill(&mut store);
    assert_ne!(reader.version().expect("read"), before, "it notices");
    let query = RelayQuery { most: 1, ..RelayQuery::default() };
    assert_eq!(reader.relays(&query).expect("read").found, 200);
    drop(store);
    Store::open(&scratch.store).expect("free again");
}

/// The modes of the files of a store that is open.
fn modes(scratch: &Scratch) -> [u32; 4] {
    ["store.db", "store.db-wal", "store.db-shm", "store.db.lock"]
        .map(|name| fs::metadata(scratch.path(name)).expect(name).permissions().mode() & 0o777)
}

#[test]
fn only_the_owner_can_read_a_store() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    fill(&mut store);
    assert_eq!(modes(&scratch), [0o600; 4]);
}

#[test]
fn the_group_of_a_set_group_id_folder_reads_the_store_and_cannot_hold_its_lock() {
    let scratch = Scratch::new();
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    };
    set(scratch.folder.path(), 0o2755);
    // Files of an earlier version.
    drop(Store::open(&scratch.store).expect("new"));
    set(&scratch.store, 0o600);
    set(&scratch.path("store.db.lock"), 0o644);
    let mut store = Store::open(&scratch.store).expect("there");
    fill(&mut store);
    assert_eq!(modes(&scratch), [0o640, 0o640, 0o640, 0o600]);
}

#[test]
fn a_closed_store_is_one_file_unless_it_has_readers() {
    let scratch = Scratch::new();
    let log_files = || ["store.db-wal", "store.db-shm"].map(|name| scratch.path(name).exists());
    // Bytes 18 and 19 of the file say whether it needs a write-ahead log: 2, or 1 if not (SQLite's file format, §1.3.3).
    let log = || fs::read(&scratch.store).expect("there")[18..20].to_vec();
    let mut store = Store::open(&scratch.store).expect("new");
    fill(&mut store);
    assert_eq!((log_files(), log()), ([true; 2], vec![2, 2]));
    drop(store);
    assert_eq!((log_files(), log()), ([false; 2], vec![1, 1]));
    let reader = Reader::open(&scratch.store).expect("there");
    let mut store = Store::open(&scratch.store).expect("free");
    fill(&mut store);
    // The reader now has the log open.
    let query = RelayQuery { most: 1, ..RelayQuery::default() };
    assert_eq!(reader.relays(&query).expect("read").found, 200);
    drop(store);
    assert_eq!((log_files(), log()), ([true; 2], vec![2, 2]));
    assert_eq!(reader.relays(&query).expect("read").found, 200);
}

/// A copy of the files of a store that is in use, without the index.
fn copied_in_use() -> Scratch {
    let (original, copy) = (Scratch::new(), Scratch::new());
    let mut store = Store::open(&original.store).expect("new");
    fill(&mut store);
    for name in ["store.db", "store.db-wal"] {
        fs::copy(original.path(name), copy.path(name)).expect("room");
    }
    drop(store);
    copy
}

#[test]
fn a_copy_without_its_index_is_read_where_the_index_can_be_made() {
    let copy = copied_in_use();
    let reader = Reader::open(&copy.store).expect("a folder that is ours");
    let query = RelayQuery { most: 1, ..RelayQuery::default() };
    assert_eq!(reader.relays(&query).expect("read").found, 200);
}

/// The error of a user who can neither write the folder nor, with these modes, read more than others can.
fn error_of_a_stranger(scratch: &Scratch, folder_mode: u32, file_mode: u32) -> String {
    let set = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    };
    set(&scratch.store, file_mode);
    set(&scratch.path("store.db-wal"), 0o644);
    set(scratch.folder.path(), folder_mode);
    let path = scratch.store.clone();
    let open = move || {
        // Root ignores modes. These identities are of this thread only.
        if rustix::process::getuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        }
        Reader::open(&path).map(drop).expect_err("refused").to_string()
    };
    let error = std::thread::spawn(open).join().expect("no panic");
    set(scratch.folder.path(), 0o755);
    error
}

#[test]
fn a_copy_without_its_index_in_a_read_only_folder_is_refused_with_the_remedy() {
    let error = error_of_a_stranger(&copied_in_use(), 0o555, 0o644);
    for words in ["store.db-shm", "read-only", "flashflow store backup"] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_store_that_others_may_not_read_is_refused_with_the_reason() {
    let file_mode = if rustix::process::getuid().is_root() { 0o600 } else { 0 };
    let error = error_of_a_stranger(&copied_in_use(), 0o555, file_mode);
    assert!(error.contains("cannot open") && error.contains("Permission denied"), "{error}");
}

#[test]
fn a_reader_cannot_write() {
    let scratch = Scratch::new();
    drop(Store::open(&scratch.store).expect("new"));
    let reader = Reader::open(&scratch.store).expect("there");
    reader.db.execute("DELETE FROM relay", []).expect_err("read-only");
}

#[test]
fn damage_is_detected_at_the_start_and_nothing_is_written() {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.store).expect("new");
    fill(&mut store);
    drop(store);
    let sound = fs::read(&scratch.store).expect("closed: all is in the one file");
    let pages = sound.len() / 4096;
    let mut noticed = 0;
    for page in (1..pages).step_by(5) {
        let mut file = File::options().write(true).open(&scratch.store).expect("ours");
        file.seek(SeekFrom::Start(page as u64 * 4096)).expect("inside");
        file.write_all(&[0xa5; 4096]).expect("room");
        drop(file);
        let opened = Store::open(&scratch.store).map(|_| ());
        if let Err(error) = opened {
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
            noticed += 1;
        }
        fs::write(&scratch.store, &sound).expect("room");
    }
    // All pages except overflow pages of blobs, which may hold any bytes.
    assert!(noticed > pages / 5 / 4, "{noticed} of {pages} pages");
    Store::open(&scratch.store).expect("sound again");
}

#[test]
fn other_files_and_later_schema_versions_are_refused_and_unchanged() {
    let scratch = Scratch::new();
    fs::write(&scratch.store, "version=1.9.0\nnot a database".repeat(100)).expect("room");
    let error = Store::open(&scratch.store).map(|_| ()).expect_err("text");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    fs::remove_file(&scratch.store).expect("ours");
    let other = Connection::open(&scratch.store).expect("new");
    other.execute_batch("CREATE TABLE bookmarks (url TEXT)").expect("room");
    let error = Store::open(&scratch.store).map(|_| ()).expect_err("another's");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    drop(other);
    fs::remove_file(&scratch.store).expect("ours");
    drop(Store::open(&scratch.store).expect("new"));
    let later = Connection::open(&scratch.store).expect("ours");
    later.pragma_update(None, "user_version", 99).expect("room");
    drop(later);
    for error in [
        Store::open(&scratch.store).map(|_| ()).expect_err("later"),
        Reader::open(&scratch.store).map(|_| ()).expect_err("later"),
    ] {
        assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error}");
    }
}

#[test]
fn a_commit_waits_for_the_disk() {
    let scratch = Scratch::new();
    let store = Store::open(&scratch.store).expect("new");
    let pragma = |name: &str| -> String {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        format!("{:?}", store.db.pragma_query_value(None, name, read).expect(name))
    };
    assert_eq!(
        (pragma("journal_mode"), pragma("synchronous")),
        ("Text(\"wal\")".into(), "Integer(2)".into())
    );
}
