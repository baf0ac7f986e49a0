//! Sites of stores that were written by the coordinator's code.

use crate::tests::{NOW, begun, failed, fill, ids};
use crate::{Site, SiteError, SiteOptions, write_site};
use coordinator::{End, Failure};
use documents::Vote;
use onion::Rate;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use store::{Entry, Store};
use tempfile::TempDir;

struct Scratch {
    folder: TempDir,
}

impl Scratch {
    /// A store with three relays, and as many measurements of the second one.
    fn new(measurements: u32) -> Self {
        let scratch = Self { folder: tempfile::tempdir().expect("a folder") };
        let mut store = Store::open(&scratch.path("store.db")).expect("new");
        fill(&mut store);
        for number in 1..=measurements {
            let mut begun = begun(2, 50);
            begun.number = number;
            begun.started_unix_s -= u64::from(measurements - number) * 60;
            let mut finished = failed(begun);
            finished.record.end = if number.is_multiple_of(7) {
                let detail = "192.0.2.7:9001 refused".to_owned();
                let reason = Failure::RelayUnreachable { detail };
                End::Failed { reason, measurer: None, round: 1, second: None }
            } else {
                let capacity = Rate::from_mbit_per_s(30.0 + f64::from(number % 5));
                End::Measured { capacity, round: 1, inconclusive: None }
            };
            store.write(&[Entry::Finished(Box::new(finished))]).expect("room");
        }
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, file: Option<&Path>, votes: &[Vote]) -> Result<Site, SiteError> {
        let (store, out) = (self.path("store.db"), self.path("site"));
        write_site(&SiteOptions { store: &store, file, votes, out: &out, now_unix_s: NOW })
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path("site").join(name)).expect(name)
    }

    /// All files of the site.
    fn files(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.path("site")];
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("readable").path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        files
    }
}

/// The page of a relay of these tests, without its ending.
fn page(number: u8) -> String {
    let fingerprint = ids(number).rsa.to_string();
    format!("relays/{}/{fingerprint}", &fingerprint[..2])
}

fn vote(authority: &str, kb_s: u32) -> Vote {
    let relay = ids(2).rsa;
    let measured_kb_s = [(relay, kb_s)].into();
    Vote { authority: authority.to_owned(), valid_after_unix_s: NOW, measured_kb_s }
}

#[test]
fn each_relay_has_a_page_and_json_with_its_votes_and_history() {
    let scratch = Scratch::new(14);
    let votes = [vote("moria", 4000), vote("gabel", 3000), vote("tor<26>", 5000)];
    let site = scratch.write(None, &votes).expect("room");
    assert_eq!(site.relays, 3);
    assert_eq!(site.files, scratch.files().len());
    let html = scratch.read(&format!("{}.html", page(2)));
    for part in ["<h1>relay2</h1>", "3 of 3 authorities", "4000 KB/s", "tor&#60;26&#62;", "<svg"] {
        assert!(html.contains(part), "no {part} in {html}");
    }
    assert_eq!(html.matches(">median<").count(), 1, "{html}");
    let json: Value =
        serde_json::from_str(&scratch.read(&format!("{}.json", page(2)))).expect("JSON");
    assert_eq!(json["voted_kb_s"], 4000);
    assert_eq!(json["votes"][0]["authority"], "gabel");
    assert_eq!(json["measurements"].as_array().map(Vec::len), Some(14));
    assert_eq!(json["measurements"][0]["cause"], "relay_unreachable", "the newest first");
    // 33 Mbit/s, of the thirteenth.
    assert_eq!(json["capacity_byte_s"], 4_125_000);
    let other = scratch.read(&format!("{}.html", page(1)));
    assert!(other.contains("0 of 3 authorities") && other.contains("own claim"), "{other}");
    assert!(
        scratch.read("index.html").contains("gabel, moria, tor&#60;26&#62;")
            || scratch.read("index.html").contains("moria, gabel")
    );
    let list = scratch.read("relays/02/index.html");
    assert!(list.contains(&format!("{}.html", ids(2).rsa)), "{list}");
    let found = scratch.read("relays.js");
    assert!(found.contains(&format!("[\"{}\",\"relay2\",33.0]", ids(2).rsa)), "{found}");
}

#[test]
fn no_file_has_an_address_and_no_page_is_large() {
    let scratch = Scratch::new(300);
    scratch.write(None, &[]).expect("room");
    let files = scratch.files();
    for file in &files {
        let text = fs::read_to_string(file).expect("text");
        assert!(!text.contains("192.0.2.7") && !text.contains("127.0.0."), "{}", file.display());
        let is_page = file.extension().is_some_and(|ending| ending == "html");
        assert!(!is_page || !text.contains("<script>alert"), "escaped: {}", file.display());
        assert!(text.len() < 100_000, "{}: {} bytes", file.display(), text.len());
    }
    let relay = scratch.read(&format!("{}.html", page(2))).len()
        + scratch.read(&format!("{}.json", page(2))).len();
    // 10,000 of them in 200 MB, with room for blocks of a file system.
    assert!(relay < 16_000, "{relay} bytes");
    assert!(scratch.read(&format!("{}.html", page(2))).contains("(address) refused"));
}

#[test]
fn a_site_replaces_an_earlier_one_and_nothing_else() {
    let scratch = Scratch::new(1);
    fs::create_dir(scratch.path("site")).expect("room");
    scratch.write(None, &[]).expect("an empty folder may be used");
    fs::write(scratch.path("site/relays/gone.html"), "old").expect("room");
    scratch.write(None, &[]).expect("room");
    assert!(!scratch.path("site/relays/gone.html").exists(), "pages of before are gone");
    // A bandwidth file that cannot be used changes nothing.
    fs::write(scratch.path("bad.v3bw"), "<html>").expect("room");
    let before = scratch.read("index.html");
    let error = scratch.write(Some(&scratch.path("bad.v3bw")), &[]).expect_err("no bandwidth file");
    assert!(error.to_string().contains("bad.v3bw"), "{error}");
    assert_eq!(scratch.read("index.html"), before);
    fs::remove_file(scratch.path("site/flashflow-site.txt")).expect("it is there");
    let error = scratch.write(None, &[]).expect_err("not a site");
    assert!(matches!(error, SiteError::Foreign { .. }), "{error}");
    assert_eq!(scratch.read("index.html"), before);
    let left = fs::read_dir(scratch.folder.path()).expect("a folder").count();
    assert!(left <= 5, "store.db with two others, bad.v3bw, site: {left}");
}
