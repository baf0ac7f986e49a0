use super::cache::Cache;
use super::manifest::{Manifest, Root};
use super::storage::Storage;
use super::*;
use crate::dataset::digests::FileLine;
use crate::dataset::{ChangeOptions, FileState, Location, MANIFEST};
use crate::rows::{Origin, Relays, Status};
use netdoc::RsaId;
use netdoc::consensus::Flags;
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::ffi::OsString;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn options() -> ChangeOptions<'static> {
    static STOP: AtomicBool = AtomicBool::new(false);
    ChangeOptions { cache: None, is_again: false, stop: &STOP }
}

fn remote(store: &Arc<InMemory>, cache: &Path) -> Remote {
    let name = RemoteName::new("bucket/some/prefix").unwrap();
    let store: Arc<dyn ObjectStore> = Arc::<InMemory>::clone(store);
    let storage = Storage::new(&name, String::new(), store).unwrap();
    Remote { storage, cache: Cache::create(cache, &name).unwrap() }
}

/// Adds one row, in November 2023.
fn add(dataset: &Dataset, relay: u8) -> Result<u64, ArchiveError> {
    let mut relays = Relays::default();
    let id = relays.id(RsaId([relay; 20]));
    let row = Status::new(id, 1_700_000_000, Origin::Tor, Flags::default());
    dataset.writer(&mut || true)?.unwrap().add(vec![row], &mut relays)
}

fn rows(remote: &Remote) -> usize {
    let dataset = remote.open(&mut |_| {}).unwrap();
    dataset.verify(1).unwrap();
    dataset.read_all::<Status>(&mut Relays::default()).unwrap().len()
}

/// The keys of objects in a folder.
fn keys(store: &InMemory, folder: &str) -> Vec<Key> {
    let prefix = Key::from(format!("some/prefix/{folder}"));
    block_on(store.list_with_delimiter(Some(&prefix)))
        .unwrap()
        .objects
        .into_iter()
        .map(|object| object.location)
        .collect()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn a_name_is_a_bucket_and_a_prefix() {
    let name = |text: &str| Location::new(text.into()).map(|location| location.to_string());
    for (text, shown) in [
        ("s3://bucket/a/b", "s3://bucket/a/b"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket"),
        ("tor.dataset", "tor.dataset"),
        ("s3:/bucket", "s3:/bucket"),
    ] {
        assert_eq!(name(text).unwrap(), shown);
    }
    for wrong in [
        "s3://",
        "s3://B/a",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "gs://bucket/a",
        "https://host/a",
    ] {
        assert!(name(wrong).is_err(), "{wrong}");
    }
    let key = RemoteName::new("bucket").unwrap().key("objects", "a");
    assert_eq!(key.as_ref(), "objects/a");
}

#[test]
fn each_dataset_of_each_server_has_a_folder_in_the_cache() {
    let name = |text| RemoteName::new(text).unwrap();
    let folders = [
        name("one/a").folder(""),
        name("one/b").folder(""),
        name("one/a").folder("http://127.0.0.1:1"),
    ];
    assert!(folders[0] != folders[1] && folders[0] != folders[2] && folders[0].starts_with("one-"));
    let cache = |xdg: Option<&str>, home: Option<&str>| {
        name::default_cache(xdg.map(OsString::from), home.map(OsString::from))
    };
    assert_eq!(cache(Some("/x"), Some("/home/a")).unwrap(), Path::new("/x/flashflow/datasets"));
    assert_eq!(
        cache(Some("relative"), Some("/home/a")).unwrap(),
        Path::new("/home/a/.cache/flashflow/datasets")
    );
    assert!(cache(None, None).is_none() && cache(None, Some("")).is_none());
}

#[test]
fn a_manifest_names_files_of_tables_only() {
    let line = |file: &str, sha256: &str| {
        format!("{{\"file\": \"{file}\", \"bytes\": 1, \"sha256\": \"{sha256}\"}}\n")
    };
    let digest = "0".repeat(64);
    let parsed = |file: &str, sha256: &str| Manifest::parse(line(file, sha256).into_bytes());
    assert!(parsed("statuses/month=2019-07/part.parquet", &digest).is_ok());
    for wrong in [
        "../statuses/month=2019-07/part.parquet",
        "/etc/month=2019-07/part.parquet",
        "statuses/month=../part.parquet",
        "statuses/month=2019-07/../part.parquet",
        "statuses/part.parquet",
        "others/month=2019-07/part.parquet",
        MANIFEST,
    ] {
        assert!(parsed(wrong, &digest).is_err(), "{wrong}");
    }
    assert!(parsed("statuses/month=2019-07/part.parquet", &"../".repeat(21)).is_err());
    assert!(parsed("statuses/month=2019-07/part.parquet", "").is_err());
}

#[test]
fn only_new_contents_are_transferred() {
    let text = |digits: &[char]| {
        let line = |(month, digit): (usize, &char)| {
            let sha256 = digit.to_string().repeat(64);
            format!(
                "{{\"file\":\"votes/day=2019-07-{month:02}/part.parquet\",\"bytes\":1,\"sha256\":\"{sha256}\"}}\n"
            )
        };
        digits.iter().enumerate().map(line).collect::<String>().into_bytes()
    };
    let before = Manifest::parse(text(&['a', 'b'])).unwrap();
    let after = Manifest::parse([text(&['a', 'b']), text(&['a', 'c', 'd'])].concat()).unwrap();
    let new: Vec<&str> =
        after.beyond(&before.digests()).iter().map(|file| &file.sha256[..1]).collect();
    assert_eq!(new, ["c", "d"]);
    assert!(after.continues(&before) && !before.continues(&after));
}

#[test]
fn a_root_of_another_version_or_a_damaged_one_is_refused() {
    let root = serde_json::to_string(&Root::new(&Manifest::default())).unwrap();
    assert!(Root::parse(root.as_bytes()).is_ok());
    let newer = root.replace("\"format\":1", "\"format\":2");
    assert!(Root::parse(newer.as_bytes()).unwrap_err().contains("update flashflow-archive"));
    for at in 0..root.len() {
        let mut bytes = root.clone().into_bytes();
        bytes[at] ^= 4;
        // Another digest is that of no object.
        let parsed = Root::parse(&bytes);
        assert!(
            parsed.is_err() || parsed.unwrap() != Root::parse(root.as_bytes()).unwrap(),
            "byte {at}"
        );
    }
}

#[test]
fn changes_are_seen_by_other_machines_and_old_views_stay_as_they_are() {
    let (store, here, there) =
        (Arc::default(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (remote(&store, here.path()), remote(&store, there.path()));
    assert!(two.open(&mut |_| {}).unwrap_err().to_string().contains("not a dataset"));
    assert_eq!(
        one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 1)).unwrap(),
        Some(1)
    );
    assert_eq!((rows(&one), rows(&two)), (1, 1));
    let view = two.open(&mut |_| {}).unwrap();
    let before: Vec<FileState> = view.state().unwrap();
    assert_eq!(
        one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 2)).unwrap(),
        Some(1)
    );
    assert_eq!((rows(&one), rows(&two)), (2, 2));
    assert_eq!(view.state().unwrap(), before);
    // The same row again changes nothing, and an error of the change is returned.
    assert_eq!(
        one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 2)).unwrap(),
        Some(0)
    );
    let failed = || ArchiveError::Missing("failed".to_owned());
    let change = |_: &Dataset| -> Result<(), ArchiveError> { Err(failed()) };
    assert!(one.change(options(), &mut |_| {}, &mut { change }).is_err());
    assert_eq!((rows(&two), keys(&store, "objects").len()), (2, 2));
    // A warm cache needs the objects no longer, and drops old views once no one has them.
    let mut progress = 0;
    drop(view);
    two.open(&mut |_| progress += 1).unwrap();
    assert_eq!(progress, 0);
    assert_eq!(fs::read_dir(there.path().join("views")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(there.path().join("objects")).unwrap().count(), 1);
}

#[test]
fn of_two_changes_at_once_the_slower_is_repeated() {
    let (store, here, there) =
        (Arc::default(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (remote(&store, here.path()), remote(&store, there.path()));
    for first in [1, 3] {
        let (mut calls, mut messages) = (0, 0);
        let mut notify = |notice| messages += usize::from(matches!(notice, Notice::Message(_)));
        one.change(options(), &mut notify, &mut |dataset| {
            calls += 1;
            if calls == 1 {
                two.change(options(), &mut |_| {}, &mut |dataset| add(dataset, first + 1))?;
            }
            add(dataset, first)
        })
        .unwrap();
        assert_eq!((calls, messages), (2, 1));
        assert_eq!(rows(&two), usize::from(first) + 1);
    }
    // Others are always faster: nothing is lost silently.
    let mut relay = 10;
    let error = one.change(options(), &mut |_| {}, &mut |dataset| {
        relay += 1;
        two.change(options(), &mut |_| {}, &mut |dataset| add(dataset, relay))?;
        add(dataset, 100)
    });
    assert!(error.unwrap_err().to_string().contains("repeat it"));
    assert_eq!(rows(&two), 4 + 5);
}

#[test]
fn a_lost_answer_is_no_conflict() {
    let (store, here) = (Arc::default(), tempfile::tempdir().unwrap());
    let one = remote(&store, here.path());
    one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 1)).unwrap();
    let published = one.storage.state().unwrap().unwrap().manifest;
    // The store refuses a request of another process with this answer, and also this process's request if it is repeated.
    assert!(one.storage.publish(&published, None).unwrap());
}

#[test]
fn damaged_and_missing_objects_are_found() {
    let (store, here) = (Arc::default(), tempfile::tempdir().unwrap());
    let one = remote(&store, here.path());
    one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 1)).unwrap();
    let key = keys(&store, "objects").remove(0);
    let whole = block_on(async { store.get(&key).await.unwrap().bytes().await.unwrap() });
    let open = || {
        let cold = tempfile::tempdir().unwrap();
        remote(&store, cold.path()).open(&mut |_| {}).map(|_| ()).map_err(|error| error.to_string())
    };
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.to_vec();
        damaged[at] ^= 16;
        block_on(store.put(&key, damaged.into())).unwrap();
        assert!(open().unwrap_err().contains("its SHA-256 is not that in the manifest"));
    }
    for len in [0, whole.len() - 1] {
        block_on(store.put(&key, whole.slice(..len).into())).unwrap();
        assert!(open().unwrap_err().contains("is damaged"));
    }
    block_on(store.delete(&key)).unwrap();
    assert!(open().unwrap_err().contains("missing in the storage"));
    // Another import does not continue without the file; the repeated import of its rows stores it again.
    let cold = tempfile::tempdir().unwrap();
    let again = ChangeOptions { is_again: true, ..options() };
    let two = remote(&store, cold.path());
    assert!(two.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 1)).is_err());
    let nothing = two.change(again, &mut |_| {}, &mut |dataset| {
        let mut line = fs::read(dataset.folder().join(MANIFEST)).unwrap();
        line.push(b'\n');
        fs::write(dataset.folder().join(MANIFEST), line).unwrap();
        Ok(())
    });
    assert!(nothing.unwrap_err().to_string().contains("missing in the storage"));
    assert!(open().is_err());
    two.change(again, &mut |_| {}, &mut |dataset| add(dataset, 1)).unwrap();
    assert!(open().is_ok());
    // Manifest and root.
    for folder in ["manifests", ""] {
        for key in keys(&store, folder) {
            let whole = block_on(async { store.get(&key).await.unwrap().bytes().await.unwrap() });
            let is_used = folder.is_empty()
                || key.as_ref().contains(&two.storage.state().unwrap().unwrap().manifest.sha256());
            let mut damaged = whole.to_vec();
            damaged[whole.len() / 2] ^= 1;
            block_on(store.put(&key, damaged.into())).unwrap();
            assert_eq!(open().is_err(), is_used, "{key}");
            block_on(store.put(&key, whole.into())).unwrap();
        }
    }
    assert!(open().is_ok());
}

#[test]
fn a_damaged_copy_is_refused_with_the_folder_to_remove() {
    let (store, here) = (Arc::default(), tempfile::tempdir().unwrap());
    let one = remote(&store, here.path());
    one.change(options(), &mut |_| {}, &mut |dataset| add(dataset, 1)).unwrap();
    let path = one.open(&mut |_| {}).unwrap().parts("statuses").unwrap().remove(0).1;
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = one.open(&mut |_| {}).unwrap().verify(1).unwrap_err().to_string();
    assert!(
        error.contains("remove the folder") && error.contains(&here.path().display().to_string()),
        "{error}"
    );
    // A truncated one, as a power failure leaves it, is downloaded again.
    fs::remove_dir_all(here.path().join("views")).unwrap();
    fs::create_dir(here.path().join("views")).unwrap();
    for object in fs::read_dir(here.path().join("objects")).unwrap() {
        fs::write(object.unwrap().path(), "").unwrap();
    }
    assert_eq!(rows(&one), 1);
}

#[test]
fn a_large_file_is_uploaded_in_parts() {
    let (store, here) = (Arc::default(), tempfile::tempdir().unwrap());
    let one = remote(&store, here.path());
    let dataset = Dataset::create(&here.path().join("dataset")).unwrap();
    let path = dataset.folder().join("large");
    let bytes: Vec<u8> = (0..40_u32 << 18).flat_map(|number| number.to_le_bytes()).collect();
    fs::write(&path, &bytes).unwrap();
    let file = FileLine::new(&dataset, &path, &path).unwrap();
    one.storage.send(dataset.folder(), &[&file], &mut |_| {}).unwrap();
    let to = here.path().join("copy");
    let mut received = None;
    one.storage
        .receive(&[(&file, Some(&to))], &mut |_| {}, &mut |_, result| {
            received = Some(result?);
            Ok(())
        })
        .unwrap();
    assert_eq!(received, Some(Received::Complete));
    assert!(fs::read(&to).unwrap() == bytes);
    // A file that changed after its digest was noted is not uploaded.
    fs::write(&path, &bytes[1..]).unwrap();
    let error = one.storage.send(dataset.folder(), &[&file], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("changed before it was uploaded"), "{error}");
}
