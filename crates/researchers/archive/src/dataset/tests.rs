use super::*;
use crate::rows::{Origin, Properties, RelayId, Status};
use netdoc::RsaId;
use netdoc::consensus::{Flag, Flags};
use proptest::prelude::*;

fn status(relays: &mut Relays, relay: u8, hour: u32, weight: Option<u32>) -> Status {
    let mut flags = Flags::from_iter([Flag::Running]);
    if relay.is_multiple_of(2) {
        flags.insert(Flag::Guard);
    }
    let relay = relays.id(RsaId([relay; 20]));
    let time = 1_700_000_000 + hour * 3600;
    Status { weight_kb_per_s: weight, ..Status::new(relay, time, Origin::Tor, flags) }
}

fn writer(dataset: &Dataset) -> Writer {
    dataset.writer(&mut || true).unwrap().unwrap()
}

/// All rows of a dataset as text, in the order of its files.
fn content(dataset: &Dataset) -> Vec<String> {
    let mut relays = Relays::default();
    let mut lines = Vec::new();
    for (month, _) in dataset.parts(Status::TABLE).unwrap() {
        for row in dataset.read::<Status>(&month, &mut relays).unwrap() {
            lines.push(format!("{month} {row:?}"));
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn imports_in_any_order_and_number_give_one_dataset(
        rows in proptest::collection::vec((0_u8..6, 0_u32..1500, proptest::option::of(0_u32..3)), 1..60),
        cut in 0_usize..60,
    ) {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (one, two) = (Dataset::create(one.path()).unwrap(), Dataset::create(two.path()).unwrap());
        let mut relays = Relays::default();
        let rows: Vec<_> = rows.iter().map(|(relay, hour, weight)| status(&mut relays, *relay, *hour, *weight)).collect();
        let new = writer(&one).add(rows.clone(), &mut relays).unwrap();
        let before = content(&one);
        prop_assert_eq!(usize::try_from(new).unwrap(), before.len());
        // Twice, and in two parts with the second one first.
        prop_assert_eq!(writer(&one).add(rows.clone(), &mut relays).unwrap(), 0);
        prop_assert_eq!(&content(&one), &before);
        let (first, second) = rows.split_at(cut.min(rows.len()));
        let mut others = Relays::default();
        for part in [second, first] {
            let part = part.iter().map(|row| {
                let mut row = row.clone();
                let fingerprint = [u8::try_from(before.len() % 256).unwrap(); 20];
                others.id(RsaId(fingerprint)); // So that indices differ.
                row.set_relay(others.id(relays_fingerprint(&relays, row.relay)));
                row
            });
            let part: Vec<_> = part.collect();
            writer(&two).add(part, &mut others).unwrap();
        }
        prop_assert_eq!(plain(&content(&two)), plain(&before));
    }
}

fn relays_fingerprint(relays: &Relays, id: RelayId) -> RsaId {
    relays.fingerprint(id).unwrap()
}

/// Lines without the indices of relays, which are the reader's.
fn plain(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.split_once("valid_after").unwrap().1.to_owned()).collect()
}

#[test]
fn a_cut_line_of_the_manifest_is_left_out_and_the_next_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let entry = Imported { source: "a".into(), bytes: 3, ..Imported::default() };
    writer(&dataset).note(&entry).unwrap();
    let path = folder.path().join("manifest.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"source\": \"cut");
    fs::write(&path, text).unwrap();
    writer(&dataset).note(&entry).unwrap();
    assert_eq!(dataset.manifest().unwrap(), [entry.clone(), entry]);
}

#[test]
fn a_folder_with_other_files_is_no_dataset() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), "x").unwrap();
    let error = Dataset::create(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
    assert!(Dataset::open(folder.path()).is_err());
}

#[test]
fn properties_of_a_relay_are_one_row_from_their_first_to_their_last_time_in_any_order() {
    let seen = |relays: &mut Relays, time: u32, version: &str| Properties {
        relay: relays.id(RsaId([1; 20])),
        first_seen_unix_s: time,
        last_seen_unix_s: time,
        origin: Origin::Tor,
        nickname: Some("a".into()),
        address: None,
        country: None,
        as_number: Some(1),
        as_name: None,
        version: Some(version.into()),
        platform: None,
        family: None,
        contact: None,
    };
    // Two versions that alternate in one month, and the first one again a month later.
    let (day, month) = (86_400, 32 * 86_400);
    let times = [(0, "1"), (day, "1"), (2 * day, "2"), (3 * day, "1"), (month, "1")];
    let mut found = Vec::new();
    for order in [[0, 1, 2, 3, 4], [3, 4, 2, 0, 1]] {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::create(folder.path()).unwrap();
        let mut relays = Relays::default();
        for index in order {
            let (time, version) = times[index];
            let row = seen(&mut relays, 1_700_000_000 + time, version);
            writer(&dataset).add(vec![row], &mut relays).unwrap();
        }
        let rows: Vec<Properties> = dataset.read_all(&mut relays).unwrap();
        let line = |row: &Properties| {
            let span =
                [row.first_seen_unix_s, row.last_seen_unix_s].map(|unix_s| unix_s - 1_700_000_000);
            (span, row.version.as_deref().unwrap().to_owned())
        };
        found.push(rows.iter().map(line).collect::<Vec<_>>());
    }
    let expected = [([0, 3 * day], "1"), ([2 * day, 2 * day], "2"), ([month, month], "1")];
    assert_eq!(found[0], expected.map(|(span, version)| (span, version.to_owned())));
    assert_eq!(found[0], found[1]);
}

#[test]
fn one_writer_at_a_time_and_the_others_wait_or_give_up() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let first = writer(&dataset);
    let mut attempts = 0;
    let gave_up = dataset.writer(&mut || {
        attempts += 1;
        attempts < 2
    });
    assert!(gave_up.unwrap().is_none());
    let mut first = Some(first);
    let second = dataset.writer(&mut || first.take().is_some());
    assert!(second.unwrap().is_some());
}

#[test]
fn a_file_is_what_the_last_or_the_interrupted_writer_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let mut relays = Relays::default();
    let mut contents = Vec::new();
    for hour in 0..3 {
        let row = status(&mut relays, 1, hour, None);
        writer(&dataset).add(vec![row], &mut relays).unwrap();
        let path = dataset.parts(Status::TABLE).unwrap()[0].1.clone();
        contents.push((fs::read(&path).unwrap(), path));
    }
    let (last, path) = contents.pop().unwrap();
    let problems = || dataset.check(2).unwrap().problems;
    assert_eq!(problems().len(), 0);
    // An older file is a wrong result, unless the writer was interrupted before it replaced that file.
    fs::write(&path, &contents[1].0).unwrap();
    assert!(problems()[0].to_string().contains("SHA-256"), "{:?}", problems());
    let manifest = folder.path().join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    let complete = text.trim_end().rsplit_once('\n').unwrap().0;
    fs::write(&manifest, complete).unwrap();
    assert_eq!(problems().len(), 0);
    fs::write(&path, &last).unwrap();
    assert_eq!(problems().len(), 0);
    fs::write(&path, &contents[0].0).unwrap();
    assert_eq!(problems().len(), 1);
    // A missing file, and one that no import wrote.
    fs::remove_file(&path).unwrap();
    assert!(problems()[0].to_string().contains("missing"), "{:?}", problems());
    assert!(dataset.verify(1).is_err() && dataset.read::<Status>("2023-11", &mut relays).is_err());
    fs::write(&path, &last).unwrap();
    let other = folder.path().join("statuses/month=2001-01");
    fs::create_dir(&other).unwrap();
    fs::copy(&path, other.join(PART)).unwrap();
    assert!(problems()[0].to_string().contains("no import wrote"), "{:?}", problems());
}

#[test]
fn a_dataset_without_digests_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    assert!(dataset.verify(1).is_ok());
    let mut relays = Relays::default();
    let rows = vec![status(&mut relays, 1, 0, None)];
    writer(&dataset).add(rows.clone(), &mut relays).unwrap();
    fs::write(folder.path().join(MANIFEST), "").unwrap();
    for error in [dataset.verify(1).err(), writer(&dataset).add(rows, &mut relays).err()] {
        assert!(error.unwrap().to_string().contains("earlier version"));
    }
}
