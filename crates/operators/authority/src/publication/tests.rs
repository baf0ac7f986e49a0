#![expect(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use super::*;
use crate::network;
use control::keys::SecretKey;
use coordinator::PastEstimate;
use documents::gate::CheckVerdict;
use onion::{Duration, Rate};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use tempfile::TempDir;

/// The configuration of a coordinator whose consensus is a file.
const CONFIG: &str = "key = \"coordinator.key\"\nout = \"bandwidth\"\nconsensus = \"consensus\"\n\
    [[measurers]]\naddress = \"127.0.0.1:7100\"\n\
    key = \"19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1\"\ncapacity_mbit_per_s = 1000\n";

struct Coordinator {
    folder: TempDir,
    config: Config,
    journal: Journal,
    network: Network,
}

impl Coordinator {
    fn new(sections: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        SecretKey::from_seed([1; 32]).write_new(&path("coordinator.key")).expect("space");
        fs::write(path("c.toml"), format!("{CONFIG}{sections}")).expect("space");
        fs::create_dir(path("bandwidth")).expect("space");
        let now = unix_time_s();
        let times =
            [("valid-after", now - 3600), ("fresh-until", now), ("valid-until", now + 7200)];
        let dated = |line: &str| {
            let time = times.iter().find(|(name, _)| line.split(' ').next() == Some(*name));
            let date = time.map(|(name, at)| format!("{name} {}", netdoc::write::date_time(*at)));
            date.unwrap_or_else(|| line.to_owned()) + "\n"
        };
        let text = include_str!("../../../../engine/netdoc/tests/data/consensus-ns");
        fs::write(path("consensus"), text.lines().map(dated).collect::<String>()).expect("space");
        let config = Config::read(&path("c.toml")).expect("valid");
        let journal = Journal::open(&config, now).expect("a store");
        let network = network::read(&config, now).expect("a consensus");
        Self { folder, config, journal, network }
    }

    /// Publishes estimates that are the weights of the consensus times a factor.
    fn publish(&self, factor: f64) -> Outcome {
        let now = unix_time_s();
        let routers = self.network.documents.consensus.routers().iter();
        let published = |router: &netdoc::Router| {
            let kb_s = f64::from(router.bandwidth_kb_s.expect("a weight"));
            let capacity = Rate::from_byte_per_s((kb_s * factor * 1000.0) as u64);
            let estimate = PastEstimate {
                capacity,
                measured_unix_s: now - 60,
                mode: None,
                is_conclusive: Some(false),
                sockets: None,
            };
            PublishedRelay {
                ids: self.network.documents.ids(router),
                nickname: router.nickname.to_string(),
                result: PublishedResult::Estimate { estimate, share: capacity },
            }
        };
        let relays: Vec<PublishedRelay> =
            routers.filter(|router| router.is_measurable()).map(published).collect();
        let Self { config, journal, network, .. } = self;
        publish(config, journal, network, &relays, &[], now).expect("space").expect("results");
        let json = fs::read(self.out().join(OUTCOME)).unwrap_or_default();
        serde_json::from_slice(&json).unwrap_or(Outcome {
            passed: true,
            checked_unix_s: now,
            checks: Vec::new(),
        })
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("bandwidth")
    }

    /// The sum of the file that tor reads.
    fn total(&self) -> u64 {
        let text = fs::read(self.out().join(LATEST)).expect("a file");
        let file = BandwidthFile::parse(&text).expect("what we wrote").file;
        file.relays.iter().map(|line| line.bw_kb_s).sum()
    }
}

#[test]
fn a_file_that_fails_the_gate_does_not_replace_the_one_that_tor_reads() {
    // Lower bounds of an unknown cause are no subject here.
    let coordinator = Coordinator::new("[gate]\nlower_bounds_max_percent = 100\n");
    let outcome = coordinator.publish(1.0);
    assert!(outcome.passed, "{outcome:#?}");
    let made = |outcome: &Outcome, name: CheckName| {
        outcome
            .checks
            .iter()
            .any(|check| check.check == name && check.verdict != CheckVerdict::NotChecked)
    };
    assert!(made(&outcome, CheckName::Missing), "compared with the consensus: {outcome:#?}");
    let good = coordinator.total();

    // In the same second, so that the names would be equal.
    let outcome = coordinator.publish(0.5);
    let failed: Vec<CheckName> = outcome.failed().map(|check| check.check).collect();
    assert_eq!(failed, [CheckName::TotalFall, CheckName::LargeLosses], "{outcome:#?}");
    assert_eq!(coordinator.total(), good);
    let stored = bwfile::stored(&coordinator.out()).expect("a folder");
    let [first, second] = &stored[..] else { panic!("{stored:?}") };
    let text = |path: &Path| fs::read_to_string(path).expect("a file");
    assert!(text(first) != text(second), "both are there");

    // The operator accepts it, as the manual says.
    let latest = coordinator.out().join(LATEST);
    fs::remove_file(&latest).expect("a link");
    symlink(second.file_name().expect("a name"), &latest).expect("ours");
    let outcome = coordinator.publish(0.5);
    assert!(outcome.passed, "{outcome:#?}");
    assert_eq!(coordinator.total(), good / 2);
}

#[test]
fn a_file_is_compared_with_those_of_other_places_and_says_which_cannot_be_read() {
    let sections = "[gate]\nlower_bounds_max_percent = 100\nplaces = [\"fr.v3bw\", \"absent\"]\n\
                    [header]\nscanner_country = \"AT\"\n";
    let coordinator = Coordinator::new(sections);
    coordinator.publish(1.0);
    let latest = fs::read_to_string(coordinator.out().join(LATEST)).expect("a file");
    let theirs = latest.replacen("scanner_country=AT", "scanner_country=FR", 1);
    fs::write(coordinator.folder.path().join("fr.v3bw"), theirs).expect("space");
    let outcome = coordinator.publish(1.0);
    let places: Vec<(CheckName, Option<&str>, Option<f64>)> = outcome
        .checks
        .iter()
        .filter(|check| check.place.is_some())
        .map(|check| (check.check, check.place.as_deref(), check.figure))
        .collect();
    let absent = coordinator.folder.path().join("absent").display().to_string();
    let expected = [
        (CheckName::PlaceRatio, Some(absent.as_str()), None),
        (CheckName::PlaceDeviating, Some(absent.as_str()), None),
        (CheckName::PlaceRatio, Some("FR"), Some(1.0)),
        (CheckName::PlaceDeviating, Some("FR"), Some(0.0)),
    ];
    assert_eq!(places, expected);
    let store = store::Reader::open(&coordinator.config.store).expect("there");
    assert_eq!(store.scanner_country().expect("read").as_deref(), Some("AT"));
}

#[test]
fn without_a_gate_each_file_replaces_the_last_and_the_header_has_the_operators_keys() {
    let header = "[header]\nscanner_country = \"AT\"\ndestinations_countries = [\"AT\", \"DE\"]\ndirauth_nickname = \"tor26\"\n";
    let coordinator = Coordinator::new(header);
    coordinator.publish(1.0);
    let before = coordinator.total();
    coordinator.publish(0.5);
    assert_eq!(coordinator.total(), before / 2);
    assert!(!coordinator.out().join(OUTCOME).exists());
    let text = fs::read_to_string(coordinator.out().join(LATEST)).expect("a file");
    for line in ["scanner_country=AT", "destinations_countries=AT,DE", "dirauth_nickname=tor26"] {
        assert!(text.lines().any(|known| known == line), "{text}");
    }
}

#[test]
fn a_change_of_failed_checks_is_told_apart() {
    let coordinator = Coordinator::new("[gate]\nlower_bounds_max_percent = 100\n");
    let path = coordinator.out().join(OUTCOME);
    assert_eq!(failed_before(&path), []);
    coordinator.publish(1.0);
    assert_eq!(failed_before(&path), []);
    coordinator.publish(2.0);
    let failed = [(CheckName::TotalRise, None), (CheckName::LargeGains, None)];
    assert_eq!(failed_before(&path), failed);
}

#[test]
fn a_lower_bound_has_its_cause() {
    let mut estimates = [7, 8, 9].map(|number| {
        let ids = onion::identity::RelayIds { rsa: RsaId([number; 20]), ed25519: None };
        documents::failed(&ids, "relay".parse().expect("a nickname"), "x".to_owned(), None, None)
    });
    estimates[0].extra = vec![(documents::CONCLUSIVE.to_owned(), "0".to_owned())];
    estimates[1].extra = vec![(documents::CONCLUSIVE.to_owned(), "1".to_owned())];
    let causes = [7, 8, 9].map(|number| (RsaId([number; 20]), "team_too_small".to_owned()));
    add_causes(&mut estimates, &BTreeMap::from(causes));
    let has =
        |estimate: &bwfile::Estimate| estimate.extra.iter().any(|(key, _)| key == documents::CAUSE);
    assert_eq!(estimates.each_ref().map(has), [true, false, false]);
}

#[test]
fn all_files_of_a_day_stay_however_often_they_are_written() {
    let mut coordinator = Coordinator::new("");
    coordinator.config.refresh = Duration::from_secs(1800);
    for number in 0..60 {
        let (day, hour, minute) = (1 + number / 48, number / 2 % 24, number % 2 * 30);
        let name = format!("202001{day:02}-{hour:02}{minute:02}00.v3bw");
        fs::write(coordinator.out().join(name), "").expect("space");
    }
    tidy(&coordinator.config).expect("removed");
    let files = fs::read_dir(coordinator.out()).expect("there");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    assert_eq!(names.filter(|name| name.ends_with("00.v3bw")).count(), 48);
}
