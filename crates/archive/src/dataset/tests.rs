use super::*;
use crate::rows::{Origin, RelayId, Status};
use netdoc::Fingerprint;
use proptest::prelude::*;

fn status(relays: &mut Relays, relay: u8, hour: u32, weight: Option<u32>) -> Status {
    Status {
        relay: relays.id(Fingerprint::from_bytes([relay; 20])),
        valid_after_unix_s: 1_700_000_000 + hour * 3600,
        origin: Origin::Tor,
        weight_kb_per_s: weight,
        is_unmeasured: false,
        is_running: true,
        is_guard: relay.is_multiple_of(2),
        is_exit: false,
        is_bad_exit: false,
        is_authority: false,
    }
}

/// All rows of a dataset as text, in the order of its files.
fn content(dataset: &Dataset) -> Vec<String> {
    let mut relays = Relays::default();
    let mut lines = Vec::new();
    for (month, _) in dataset.months(Status::TABLE).unwrap() {
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
        let new = one.add(rows.clone(), &mut relays).unwrap();
        let before = content(&one);
        prop_assert_eq!(usize::try_from(new).unwrap(), before.len());
        // Twice, and in two parts with the second one first.
        prop_assert_eq!(one.add(rows.clone(), &mut relays).unwrap(), 0);
        prop_assert_eq!(&content(&one), &before);
        let (first, second) = rows.split_at(cut.min(rows.len()));
        let mut others = Relays::default();
        for part in [second, first] {
            let part = part.iter().map(|row| {
                let mut row = row.clone();
                let fingerprint = [u8::try_from(before.len() % 256).unwrap(); 20];
                others.id(Fingerprint::from_bytes(fingerprint)); // So that indices differ.
                row.set_relay(others.id(relays_fingerprint(&relays, row.relay)));
                row
            });
            let part: Vec<_> = part.collect();
            two.add(part, &mut others).unwrap();
        }
        prop_assert_eq!(plain(&content(&two)), plain(&before));
    }
}

fn relays_fingerprint(relays: &Relays, id: RelayId) -> Fingerprint {
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
    dataset.note(&entry).unwrap();
    let path = folder.path().join("manifest.jsonl");
    let mut text = fs::read_to_string(&path).unwrap();
    text.push_str("{\"source\": \"cut");
    fs::write(&path, text).unwrap();
    dataset.note(&entry).unwrap();
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
