//! Lines of the newest bandwidth file.

use netdoc::bwfile::BandwidthFile;
use netdoc::check_as_tor;
use onion::identity::RsaId;
use std::fs;
use std::path::Path;
use store::Line;

/// The line of a relay in a bandwidth file; `None` if it has none.
///
/// # Errors
/// A message if the file cannot be read or parsed.
pub fn weights(file: &Path, relay: RsaId) -> Result<Option<Line>, String> {
    let bytes = fs::read(file).map_err(|error| error.to_string())?;
    let parsed = BandwidthFile::parse(&bytes).map_err(|error| error.to_string())?;
    let mut lines = lines(&bytes, &parsed.file);
    Ok(lines.find(|(found, _)| *found == relay).map(|(_, line)| line))
}

/// The lines of a file, which was parsed from these bytes.
pub(crate) fn lines(bytes: &[u8], file: &BandwidthFile) -> impl Iterator<Item = (RsaId, Line)> {
    // Judged at the time of the file: its age is a separate matter.
    let voted = check_as_tor(bytes, file.timestamp).relays;
    file.relays.iter().map(move |line| {
        let parsed = Line {
            bw_kb_s: line.bw_kb_s,
            time_unix_s: line.time,
            is_voted: voted.contains_key(&line.node_id),
            is_unmeasured: line.unmeasured,
            is_under_min_report: line.under_min_report,
        };
        (line.node_id, parsed)
    })
}
