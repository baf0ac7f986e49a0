//! Parses complete real documents, if there are any in `../shared/data`.

use std::io::ErrorKind;
use std::path::PathBuf;

use flashflow_netdoc::bwfile::{Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
use flashflow_netdoc::{BandwidthFile, Consensus, Flag, check_as_tor, consdiff, descriptor};

/// The bytes of a file of real data, or the path where it is missing.
fn read(name: &str) -> Result<Vec<u8>, PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/data").join(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(path),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// The bytes of a file of real data; without it, the test is skipped.
macro_rules! real {
    ($name:expr) => {
        match read($name) {
            Ok(bytes) => bytes,
            Err(path) => skip::this_test!("{} does not exist", path.display()),
        }
    };
}

const CONSENSUS_10: &str = "consensus/2020-02-29-10-00-00-consensus";
const CONSENSUS_11: &str = "consensus/2020-02-29-11-00-00-consensus";
const DESCRIPTORS: &str = "descriptors/2020-02-29-10-05-00-server-descriptors";

#[test]
fn two_real_consensuses_are_read() {
    // Counted with grep. One authority's signature is missing in the second.
    let counts = [(CONSENSUS_10, 6433, 3221, 10, 8), (CONSENSUS_11, 6463, 3222, 11, 7)];
    for (name, relays, guards, hour, signatures) in counts {
        let bytes = real!(name);
        let c = Consensus::parse(&bytes).unwrap();
        assert_eq!(c.routers().len(), relays);
        assert_eq!(c.routers().iter().filter(|r| r.flags.contains(Flag::Guard)).count(), guards);
        assert_eq!(c.valid_after % 86_400, hour * 3600);
        assert_eq!((c.authorities.len(), c.signatures), (8, signatures));
        assert!(c.routers().iter().all(|r| r.bandwidth_kb_s.is_some() && r.version.is_some()));
        assert!(c.routers().iter().all(|r| c.by_fingerprint(&r.fingerprint) == Some(r)));
        assert!(c.find("Unnamed").is_err(), "hundreds share that name");
    }
}

/// The annotation that CollecTor puts before a document.
fn without_annotation(bytes: &[u8]) -> &[u8] {
    let rest = bytes.split_inclusive(|byte| *byte == b'\n').next().map(|line| &bytes[line.len()..]);
    rest.filter(|_| bytes.starts_with(b"@type")).unwrap_or(bytes)
}

#[test]
fn a_diff_of_two_real_consensuses_applies_and_is_much_shorter() {
    let (a, b) = (real!(CONSENSUS_10), real!(CONSENSUS_11));
    let (a, b) = (without_annotation(&a), without_annotation(&b));
    for (from, to) in [(a, b), (b, a)] {
        let diff = consdiff::make(from, to).unwrap();
        // In an hour a few lines in a hundred change, and all signatures.
        assert!(diff.len() * 10 < to.len(), "{} of {} bytes", diff.len(), to.len());
        assert!(consdiff::apply(from, &diff, to.len()).is_ok_and(|made| made == to));
        assert_eq!(consdiff::apply(to, &diff, to.len()), Err(consdiff::DiffError::OtherBase));
    }
}

#[test]
fn a_real_consensus_cut_anywhere_is_rejected() {
    let bytes = real!(CONSENSUS_10);
    let footer = bytes.windows(17).rposition(|w| w == b"\ndirectory-footer").unwrap();
    for end in (0..footer).step_by(footer / 50) {
        assert!(Consensus::parse(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn all_real_descriptors_are_accepted() {
    let bytes = real!(DESCRIPTORS);
    let (good, bad) = descriptor::parse_all(&bytes);
    assert_eq!(bad, []);
    assert_eq!(good.len(), 587);
    assert_eq!(good.iter().filter(|d| d.ed25519.is_some()).count(), 576);
    assert_eq!(good.iter().filter(|d| d.hibernating).count(), 12);
    assert!(good.iter().all(|d| d.ntor_onion_key.is_some() && d.tor_version().is_some()));
}

#[test]
fn tor_votes_on_a_file_for_a_whole_real_network() {
    let bytes = real!(CONSENSUS_10);
    let consensus = Consensus::parse(&bytes).unwrap();
    let estimates: Vec<Estimate> = consensus
        .routers()
        .iter()
        .map(|r| Estimate {
            fingerprint: r.fingerprint,
            ed25519: None,
            nickname: r.nickname,
            outcome: Outcome::Measured {
                capacity_bytes_s: u64::from(r.bandwidth_kb_s.unwrap_or(0)) * 1000,
                measured_at: consensus.valid_after,
                descriptor_avg_bytes_s: None,
            },
            extra: Vec::new(),
        })
        .collect();
    let counts = Eligibility::count(&consensus, &estimates);
    assert_eq!(counts.eligible, counts.in_consensus);
    let now = consensus.fresh_until;
    let settings = Settings::new("test", consensus.valid_after, now);
    let file = BandwidthFile::generate(&estimates, counts, &settings).unwrap();
    let text = file.to_text(NodeIdStyle::Dollar).unwrap();
    let report = check_as_tor(text.as_bytes(), now);
    assert!(report.is_clean());
    assert_eq!(report.relays.len(), consensus.routers().len());
    assert_eq!(BandwidthFile::parse(text.as_bytes()).unwrap().file, file);
}
