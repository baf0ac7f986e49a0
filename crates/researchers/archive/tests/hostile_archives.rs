//! Imports of truncated, shuffled and malicious archives keep the valid documents, bound memory, and write nothing outside the dataset.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is their report")]

mod common;

use archive::dataset::Dataset;
use archive::import::{ImportOptions, ImportReport, Observer, import};
use common::imported;
use proptest::prelude::*;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// A folder with the sources, and a folder for the dataset.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join("sources").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    fn dataset(&self) -> Dataset {
        Dataset::create(&self.folder.path().join("dataset")).unwrap()
    }

    fn import(&self, sources: &[PathBuf]) -> (ImportReport, Vec<String>) {
        let (_, report, problems) = imported(sources, &self.folder.path().join("dataset"));
        (report, problems)
    }

    /// All files, with their sizes.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        fn walk(folder: &Path, files: &mut Vec<(PathBuf, u64)>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, files);
                } else {
                    files.push((path.clone(), fs::metadata(&path).unwrap().len()));
                }
            }
        }
        let mut files = Vec::new();
        walk(self.folder.path(), &mut files);
        files.sort();
        files
    }
}

/// A consensus of these relays in the oldest format: no footer, no weights, with `opt`.
fn consensus(hour: u32, relays: &[u8]) -> String {
    let mut text = format!(
        "@type network-status-consensus-3 1.0\nnetwork-status-version 3\nvote-status consensus\nconsensus-method 3\n\
         valid-after 2008-03-0{} {:02}:00:00\nfresh-until 2008-03-09 00:00:00\nvalid-until 2008-03-09 00:00:00\n",
        1 + hour / 24,
        hour % 24,
    );
    for relay in relays {
        let identity = base64(&[*relay; 20]);
        text += &format!(
            "r relay{relay} {identity} {identity} 2008-03-01 00:00:00 192.0.2.{relay} 9001 0\nopt s Running Valid\n"
        );
    }
    text + "directory-signature 0000000000000000000000000000000000000000 0000000000000000000000000000000000000000\n\
            -----BEGIN SIGNATURE-----\nAAAA\n-----END SIGNATURE-----\n"
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

/// A tar of members with these names and contents.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        // `set_path` refuses such names.
        let field = &mut header.as_gnu_mut().unwrap().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn xz(content: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn old_consensuses_are_imported_in_any_order() {
    let place = Place::new();
    let text = consensus(1, &[9, 3, 7]) + &consensus(0, &[3]);
    let archive = place.write("a.tar.xz", &xz(&tar(&[("2008/01", text.as_bytes())])));
    let (report, problems) = place.import(&[archive]);
    assert_eq!(problems, [""; 0]);
    assert_eq!((report.imported[0].documents["consensus"], report.new_rows), (2, 4));
}

#[test]
fn what_follows_an_archive_is_read_or_named() {
    let place = Place::new();
    let [first, second] = [consensus(0, &[1]), consensus(1, &[1])];
    let [first, second] = [first, second].map(|text| tar(&[("c", text.as_bytes())]));
    let both = place.write("both.tar", &[&first[..], &second].concat());
    let (report, problems) = place.import(&[both]);
    assert_eq!(problems, [""; 0]);
    assert!(report.is_complete() && report.imported[0].documents["consensus"] == 2);
    for (name, end) in [("junk", &b"junk"[..]), ("block", &[7; 512])] {
        let (report, problems) = place.import(&[place.write(name, &[&first[..], end].concat())]);
        assert!(!report.is_complete() && problems[0].contains("other data"), "{problems:?}");
    }
    // Sources of which nothing can be read.
    for (content, problem) in [
        (&b"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0"[..], "unlzma"),
        (b"BZh91AY", "bunzip2"),
        (b"PK\x03\x04\x14\0", "unzip"),
        (b"\xef\xbb\xbfrouter a\n", "nothing is imported"),
        (b"root:x:0:0:root:/root:/bin/sh\n", "nothing is imported"),
        (b"", "nothing is imported"),
        (b"\n\n", "nothing is imported"),
    ] {
        let source = place.write("unreadable", content);
        for _ in 0..2 {
            let (report, problems) = place.import(std::slice::from_ref(&source));
            assert!(!report.is_complete() && report.unreadable == 1, "{report:?}");
            assert!(problems.last().unwrap().contains(problem), "{problems:?}");
        }
    }
}

#[test]
fn ten_imports_at_once_add_all_rows() {
    let place = Place::new();
    let sources: Vec<PathBuf> = (0..10)
        .map(|hour| place.write(&format!("{hour}"), consensus(hour, &[1, 2, 3]).as_bytes()))
        .collect();
    std::thread::scope(|scope| {
        for source in &sources {
            scope.spawn(|| {
                let (report, _) = place.import(std::slice::from_ref(source));
                assert!(report.is_complete() && report.new_rows == 3, "{report:?}");
            });
        }
    });
    let rows: Vec<archive::rows::Status> =
        place.dataset().read_all(&mut archive::rows::Relays::default()).unwrap();
    assert_eq!((rows.len(), place.dataset().manifest().unwrap().len()), (30, 10));
    assert_eq!(place.dataset().check(2).unwrap().problems.len(), 0);
}

#[test]
fn member_names_are_only_printed_without_control_characters() {
    let place = Place::new();
    let good = consensus(0, &[1]);
    let archive = place.write(
        "a.tar",
        &tar(&[
            ("../../outside", good.as_bytes()),
            ("/tmp/flashflow-absolute-name", b"junk that is not a document\n"),
            ("\u{1b}[31mred\n", b"junk that is not a document\n"),
        ]),
    );
    let before = place.files();
    let (report, problems) = place.import(&[archive]);
    assert_eq!((report.new_rows, report.imported[0].damaged), (1, 2));
    assert!(problems.iter().all(|problem| !problem.contains(['\u{1b}', '\n'])), "{problems:?}");
    let dataset = place.folder.path().join("dataset");
    let after: Vec<_> =
        place.files().into_iter().filter(|(path, _)| !path.starts_with(&dataset)).collect();
    assert_eq!(after, before);
    assert!(!Path::new("/tmp/flashflow-absolute-name").exists());
}

#[test]
fn a_truncated_archive_keeps_the_documents_before_its_end() {
    let place = Place::new();
    let texts: Vec<String> = (0..20).map(|hour| consensus(hour, &[1, 2])).collect();
    let members: Vec<(&str, &[u8])> = texts.iter().map(|text| ("c", text.as_bytes())).collect();
    let whole = tar(&members);
    let archive = place.write("cut.tar", &whole[..whole.len() / 2]);
    let (report, problems) = place.import(std::slice::from_ref(&archive));
    assert!(report.imported[0].is_truncated);
    assert!(
        problems.iter().any(|problem| problem.contains("documents before it are kept")),
        "{problems:?}"
    );
    let documents = report.imported[0].documents["consensus"];
    assert!((5..15).contains(&documents), "{documents}");
    // A document that is truncated at the end of its file.
    let file = place.write("cut", &texts[0].as_bytes()[..texts[0].len() - 30]);
    let (report, problems) = place.import(std::slice::from_ref(&file));
    assert_eq!((report.imported.len(), report.unreadable, report.new_rows), (0, 1, 0));
    assert!(problems[0].contains("byte 0") && problems[0].contains("left out"), "{problems:?}");
    // Both are read again by the next import, and fail again.
    for source in [archive, file] {
        let (report, _) = place.import(&[source]);
        assert!(!report.is_complete() && report.known == 0, "{report:?}");
    }
}

#[test]
fn a_member_of_100_gb_is_refused_at_once() {
    let place = Place::new();
    let mut header = tar::Header::new_gnu();
    header.set_path("huge").unwrap();
    header.set_size(100_000_000_000);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    let good = consensus(0, &[1]);
    let mut bytes = tar(&[("good", good.as_bytes())]);
    bytes.truncate(bytes.len() - 1024); // Without the end of the archive.
    bytes.extend(header.as_bytes());
    bytes.extend(vec![0; 4096]);
    let (report, problems) = place.import(&[place.write("huge.tar", &bytes)]);
    assert_eq!((report.new_rows, report.imported[0].is_truncated), (1, true));
    assert!(problems[0].contains("100000000000 bytes"), "{problems:?}");
}

/// A reader that supports GNU's extension would read a name of a gigabyte into memory.
#[test]
fn a_long_name_is_not_read_into_memory() {
    let place = Place::new();
    let mut header = tar::Header::new_gnu();
    header.set_path("././@LongLink").unwrap();
    header.set_size(1 << 31);
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_cksum();
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    encoder.write_all(header.as_bytes()).unwrap();
    let block = vec![b'a'; 1 << 20];
    for _ in 0..64 {
        encoder.write_all(&block).unwrap();
    }
    let before = peak_memory_kib();
    let (report, _) = place.import(&[place.write("name.tar.xz", &encoder.finish().unwrap())]);
    assert_eq!(report.unreadable, 1);
    // The kernel's peak lags behind by some pages, so it may even be less.
    let more = peak_memory_kib().saturating_sub(before);
    assert!(more < 48 << 10, "{more} KiB more");
}

#[test]
fn a_decompression_bomb_is_refused() {
    let place = Place::new();
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
    let block = vec![0; 1 << 22];
    for _ in 0..320 {
        encoder.write_all(&block).unwrap();
    }
    let path = place.write("bomb.xz", &encoder.finish().unwrap());
    let before = peak_memory_kib();
    let (report, problems) = place.import(&[path]);
    assert!(report.unreadable == 1 && report.new_rows == 0);
    assert!(problems.iter().any(|problem| problem.contains("bomb")), "{problems:?}");
    let more = peak_memory_kib().saturating_sub(before);
    assert!(more < 256 << 10, "{more} KiB more");
}

#[test]
fn verification_leaves_out_unsigned_consensuses() {
    let place = Place::new();
    let certificates =
        dirmgr::fixture::authorities().each_ref().map(|authority| authority.certificate.as_str());
    let certificates = place.write("certificates", certificates.concat().as_bytes());
    let source = place.write("a", consensus(0, &[1]).as_bytes());
    let options = ImportOptions { certificates: Some(certificates), ..ImportOptions::default() };
    let stop = AtomicBool::new(false);
    let mut problems = common::Problems::default();
    let sources = [source];
    let report = import(&place.dataset(), &sources, &options, &stop, &mut problems).unwrap();
    assert_eq!((report.new_rows, report.unreadable), (0, 1));
    assert!(problems.0[0].contains("have signed"), "{:?}", problems.0);
    // A dataset with unverified rows cannot become a verified one.
    let other = Place::new();
    other.import(&sources);
    for is_again in [false, true] {
        let options = ImportOptions { is_again, ..options.clone() };
        let error = import(&other.dataset(), &sources, &options, &stop, &mut problems).unwrap_err();
        assert!(error.to_string().contains("without --verify before"), "{error}");
    }
    // The same holds after an import that was interrupted before it wrote anything.
    let interrupted = Place::new();
    let stopped = AtomicBool::new(true);
    let _ = import(&interrupted.dataset(), &sources, &options, &stopped, &mut problems).unwrap();
    for verified in [&place, &interrupted] {
        let unverified = ImportOptions::default();
        let error = import(&verified.dataset(), &sources, &unverified, &stop, &mut problems);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("with --verify before"), "{error}");
    }
}

#[test]
fn links_devices_and_sparse_members_are_skipped() {
    let place = Place::new();
    let good = consensus(0, &[1]);
    let mut bytes = tar(&[("good", good.as_bytes())]);
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Fifo,
        tar::EntryType::Block,
        tar::EntryType::Directory,
        tar::EntryType::GNUSparse,
    ] {
        bytes.truncate(bytes.len() - 1024); // Without the end of the archive.
        let mut header = tar::Header::new_gnu();
        let name = b"../../flashflow-outside";
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(kind);
        header.set_link_name("/etc/passwd").unwrap();
        header.set_size(0);
        // The claimed size of a sparse file.
        header.as_gnu_mut().unwrap().realsize = *b"777777777777";
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(tar(&[("good", consensus(1, &[2]).as_bytes())]));
    }
    let (report, problems) = place.import(&[place.write("links.tar", &bytes)]);
    // The content of the sparse member is missing; the others have none.
    assert!(problems.len() == 1 && problems[0].contains("holes"), "{problems:?}");
    let entry = &report.imported[0];
    assert_eq!((report.new_rows, entry.documents["consensus"], entry.damaged), (2, 7, 1));
    assert_eq!(entry.skipped["folder, link or device"], 5);
}

#[test]
fn pipes_and_devices_are_refused() {
    let place = Place::new();
    let (report, problems) = place.import(&["/dev/zero".into()]);
    assert_eq!((report.unreadable, report.imported.len()), (1, 0));
    assert!(problems[0].contains("pipe or a device"), "{problems:?}");
}

#[test]
fn invalid_change_tables_are_refused_with_file_and_line() {
    let relays = format!("relay_index,fingerprint\n0,{}\n", "A".repeat(40));
    let snapshots = "unix_time\n1700000000\n1700003600\n";
    let header = "relay_index,first_snapshot,last_snapshot\n";
    for (presence, reason) in [
        (format!("{header}0,0,1\n0,1,1\n"), "overlap"),
        (format!("{header}0,0,4000000000\n"), "line 2"),
        (format!("{header}7,0,1\n"), "relay_index"),
        (format!("{header}0,0,1\n0,{}", "1".repeat(1 << 20)), "longer than"),
        ("relay_index\n".to_owned(), "no column"),
    ] {
        let place = Place::new();
        place.write("relays.csv", relays.as_bytes());
        place.write("snapshots.csv", snapshots.as_bytes());
        let folder = place.write("presence.csv", presence.as_bytes());
        let sources = [folder.parent().unwrap().to_owned()];
        let options = ImportOptions::default();
        let stop = AtomicBool::new(false);
        let mut problems = common::Problems::default();
        let error = import(&place.dataset(), &sources, &options, &stop, &mut problems).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(reason) && error.contains("presence"), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_truncated_archive_keeps_complete_documents(permille in 0..1000_usize, is_compressed: bool) {
        let place = Place::new();
        let texts: Vec<String> = (0..6).map(|hour| consensus(hour, &[1, 2])).collect();
        let members: Vec<(&str, &[u8])> = texts.iter().map(|text| ("c", text.as_bytes())).collect();
        let whole = tar(&members);
        let whole = if is_compressed { xz(&whole) } else { whole };
        let cut = place.write("cut", &whole[..whole.len() * permille / 1000]);
        let (report, _) = place.import(&[cut]);
        // Each kept document has two relays.
        prop_assert!(report.new_rows % 2 == 0 && report.new_rows <= 12);
    }

    #[test]
    fn a_damaged_document_affects_no_other_member(
        lines in Just((0..60_usize).collect::<Vec<_>>()).prop_shuffle(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
    ) {
        let place = Place::new();
        let text = consensus(5, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let all: Vec<&str> = text.lines().collect();
        let order = lines.iter().filter_map(|line| all.get(*line));
        let mut shuffled = order.map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        for (place, byte) in flips {
            *place.get_mut(&mut shuffled) = byte;
        }
        let [before, after] = [consensus(0, &[1, 2]), consensus(1, &[1, 2])];
        let archive = tar(&[("a", before.as_bytes()), ("b", &shuffled), ("c", after.as_bytes())]);
        let (report, _) = place.import(&[place.write("shuffled.tar.xz", &xz(&archive))]);
        prop_assert!(report.imported[0].documents["consensus"] >= 2, "{report:?}");
        prop_assert!(report.new_rows >= 4);
    }
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn an_interrupted_import_is_completed_by_the_next() {
    let place = Place::new();
    let first = place.write("a", consensus(0, &[1]).as_bytes());
    let second = place.write("b", consensus(1, &[1]).as_bytes());
    struct Stop<'a>(&'a AtomicBool);
    impl Observer for Stop<'_> {
        fn progress(&mut self, _: u64, _: u64, _: u64) {
            self.0.store(true, Ordering::Relaxed);
        }
        fn problem(&mut self, _: String) {}
    }
    let stop = AtomicBool::new(false);
    let sources = [first, second];
    let report =
        import(&place.dataset(), &sources, &ImportOptions::default(), &stop, &mut Stop(&stop))
            .unwrap();
    assert!(report.is_interrupted);
    assert_eq!(place.dataset().manifest().unwrap().len(), 0);
    let (report, _) = place.import(&sources);
    assert_eq!(report.imported.len(), 2);
    assert_eq!(place.dataset().manifest().unwrap().len(), 2);
    let (report, _) = place.import(&sources);
    assert_eq!((report.known, report.new_rows), (2, 0));
}
