use crate::input::Input;
use netdoc::bwfile::{FileVerdict, NodeIdStyle};
use netdoc::input::without_annotations;
use netdoc::{BandwidthFile, Consensus, check_as_tor, descriptor};
use std::collections::BTreeMap;

/// A consensus is parsed, or refused with a remedy; its relays are sorted and can be looked up.
pub fn consensus(data: &[u8]) {
    let consensus = match Consensus::parse(data) {
        Ok(consensus) => consensus,
        Err(error) => {
            assert!(error.to_string().contains("fetch"), "{error}");
            return;
        }
    };
    let routers = consensus.routers();
    assert!(routers.is_sorted_by(|a, b| a.fingerprint < b.fingerprint));
    assert!(consensus.signatures > 0);
    for router in routers {
        assert_eq!(consensus.by_fingerprint(&router.fingerprint), Some(router));
        assert_eq!(consensus.find(&router.fingerprint.to_string()), Ok(router));
        if let Ok(found) = consensus.by_nickname(router.nickname.as_str()) {
            assert_eq!(found, router);
        }
    }
    for (name, value) in consensus.params.iter() {
        assert_eq!(consensus.params.get_clamped(name, 0, i32::MIN, i32::MAX), value);
    }
}

/// Every part of a file of descriptors yields a descriptor or an error.
pub fn descriptors(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').count();
    let (good, bad) = descriptor::parse_all(data);
    assert!(good.len() + bad.len() <= lines);
    for descriptor in &good {
        let _ = (descriptor.platform(), descriptor.contact(), descriptor.tor_version());
        assert!(descriptor.family().len() <= data.len() / 2);
    }
    for bad in &bad {
        assert!(bad.first_line >= 1 && bad.line >= bad.first_line && bad.line <= lines, "{bad}");
        assert!(!bad.reason.is_empty());
    }
}

/// The strict parser and the imitation of tor's parser have the same relays with the same votes, and an encoded file
/// parses to the same values.
pub fn bandwidth_file(data: &[u8]) {
    let mut input = Input::new(data);
    let later_s = u64::from(input.u16()) * 16;
    // tor reads nothing of a file that begins with annotations; the strict parser reads all of it.
    let text = without_annotations(input.rest());
    // There is a verdict at any time.
    let _ = check_as_tor(text, u64::MAX);
    let parsed = match BandwidthFile::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(error.to_string().contains("generate it again"));
            return;
        }
    };
    let file = &parsed.file;
    let now = file.timestamp.saturating_add(later_s);
    let report = check_as_tor(text, now);
    // tor's time has 63 bits.
    if now < 1 << 62 {
        let is_stale = matches!(report.verdict, FileVerdict::Stale { .. });
        assert_eq!(is_stale, later_s > 3 * 24 * 3600, "{:?}", report.verdict);
        assert!(is_stale || report.verdict == FileVerdict::Read, "{:?}", report.verdict);
    }
    if report.verdict == FileVerdict::Read {
        #[expect(clippy::cast_possible_truncation, reason = "as tor does it")]
        let voted = file
            .relays
            .iter()
            .filter(|relay| relay.vote)
            .map(|line| (line.node_id, line.bw_kb_s as u32));
        assert_eq!(voted.collect::<BTreeMap<_, _>>(), report.relays);
    }
    for style in [NodeIdStyle::Dollar, NodeIdStyle::Plain] {
        let Ok(written) = file.to_text(style) else { continue };
        let again = BandwidthFile::parse(written.as_bytes()).expect("our own");
        assert_eq!((&again.file, again.skipped.len()), (file, 0));
        let report = check_as_tor(written.as_bytes(), file.timestamp);
        assert!(report.has_terminator && report.verdict == FileVerdict::Read);
    }
}
