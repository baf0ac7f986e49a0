//! Splits a stream into directory documents, and parses them.

use super::json;
use super::places::Places;
use super::verify::Verifier;
use crate::rows::{
    BandwidthLine, Descriptor, Origin, Properties, RelayId, Relays, Row as _, Staged, Status,
    Texts, Vote,
};
use crate::times;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use netdoc::bwfile::BandwidthFile;
use netdoc::consensus::Consensus;
use netdoc::descriptor;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::IpAddr;

/// Maximum size of a document. A consensus of 9,000 relays has 3 MB, a vote 5 MB.
pub(super) const DOCUMENT_MAX: usize = 1 << 26;
/// The kind of text without any word.
pub(super) const EMPTY: &str = "empty text";
/// Bytes per read.
const CHUNK: usize = 1 << 18;

/// A stream of concatenated documents, split at their first lines.
pub(super) struct Documents<'b, R> {
    from: R,
    buffer: &'b mut Vec<u8>,
    /// Start of the next document in `buffer`.
    begin: usize,
    /// End of the lines that have been examined.
    scanned: usize,
    /// End of the bytes after these lines that have no newline, so that a long line is searched once.
    searched: usize,
    /// The offset of `buffer` in the stream.
    offset: u64,
    is_at_end: bool,
    /// Whether the last line was an annotation, which belongs to the following document.
    is_annotated: bool,
}

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// Its offset in the stream.
    pub(super) offset: u64,
    /// Its text; empty if it was too large.
    pub(super) text: &'a [u8],
}

impl<'b, R: Read> Documents<'b, R> {
    /// The buffer only provides capacity: its contents are discarded.
    pub(super) fn new(from: R, buffer: &'b mut Vec<u8>) -> Self {
        buffer.clear();
        Self {
            from,
            buffer,
            begin: 0,
            scanned: 0,
            searched: 0,
            offset: 0,
            is_at_end: false,
            is_annotated: false,
        }
    }

    /// The next document, or text between two documents.
    pub(super) fn next(&mut self) -> io::Result<Option<Piece<'_>>> {
        let mut is_too_large = false;
        let end = 'found: loop {
            while let Some(len) = self.line_len() {
                let line = self.scanned;
                let first = &self.buffer[line..line + len];
                let is_annotation = first.starts_with(b"@");
                let begins = !self.is_annotated
                    && (is_annotation
                        || first.starts_with(b"router ")
                        || first.starts_with(b"network-status-version "));
                self.is_annotated = is_annotation;
                self.scanned = line + len + 1;
                if begins && line > self.begin {
                    break 'found line;
                }
            }
            if self.is_at_end {
                break self.buffer.len();
            }
            if self.buffer.len() - self.begin > DOCUMENT_MAX {
                // Its lines are dropped, and the offset of the rest is reported.
                is_too_large = true;
                let begin = self.begin.min(self.scanned);
                self.offset += (self.scanned - begin) as u64;
                self.buffer.drain(begin..self.scanned);
                self.searched -= self.scanned - begin;
                self.scanned = begin;
                if self.buffer.len() - self.begin > DOCUMENT_MAX {
                    // One line.
                    self.offset += (self.buffer.len() - begin) as u64;
                    self.buffer.truncate(begin);
                    self.searched = begin;
                }
            }
            self.fill()?;
        };
        let begin = std::mem::replace(&mut self.begin, end);
        self.scanned = self.scanned.max(end);
        self.searched = self.searched.max(self.scanned);
        let text = if is_too_large { &[][..] } else { &self.buffer[begin..end] };
        Ok((end > begin).then_some(Piece { offset: self.offset + begin as u64, text }))
    }

    /// The length of the line that begins at `scanned`, if its end is in the buffer.
    fn line_len(&mut self) -> Option<usize> {
        let from = self.searched.clamp(self.scanned, self.buffer.len());
        let found = memchr::memchr(b'\n', &self.buffer[from..]);
        self.searched = found.map_or(self.buffer.len(), |len| from + len);
        found.map(|len| from + len - self.scanned)
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.begin > CHUNK.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.begin);
            self.offset += self.begin as u64;
            self.scanned -= self.begin;
            self.searched -= self.begin;
            self.begin = 0;
        }
        let read = self.from.by_ref().take(CHUNK as u64).read_to_end(self.buffer)?;
        self.is_at_end = read == 0;
        Ok(())
    }
}

/// The result of parsing a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Its rows were added.
    Used(&'static str),
    /// Its rows were added but for some, for this reason.
    Partly(&'static str, String),
    /// No table needs it.
    Skipped(String),
    /// It violates its format, for this reason.
    Damaged(String),
}

/// Rows of documents.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) statuses: Vec<Status>,
    pub(super) descriptors: Vec<Descriptor>,
    pub(super) properties: Vec<Properties>,
    pub(super) votes: Vec<Vote>,
    pub(super) bandwidths: Vec<BandwidthLine>,
    pub(super) staged: Vec<Staged>,
    pub(super) texts: Texts,
    /// The index of each relay's last row in `properties`.
    last_seen: BTreeMap<RelayId, usize>,
}

impl Rows {
    /// The number of rows, by the memory that they take: a unit is a status.
    pub(super) fn len(&self) -> usize {
        self.statuses.len()
            + self.descriptors.len()
            + self.staged.len()
            + 8 * self.properties.len()
            + 3 * (self.votes.len() + self.bandwidths.len())
    }

    /// Adds the properties of a relay at a time. Relays change seldom, so most documents only extend a row.
    pub(super) fn see(&mut self, seen: Properties) {
        let month = |unix_s: u32| times::month(unix_s.into());
        let at = self.last_seen.get(&seen.relay);
        if let Some(known) = at.and_then(|at| self.properties.get_mut(*at))
            && known.is_duplicate_of(&seen)
            && month(known.first_seen_unix_s) == month(seen.first_seen_unix_s)
        {
            known.first_seen_unix_s = known.first_seen_unix_s.min(seen.first_seen_unix_s);
            known.last_seen_unix_s = known.last_seen_unix_s.max(seen.last_seen_unix_s);
            return;
        }
        self.last_seen.insert(seen.relay, self.properties.len());
        self.properties.push(seen);
    }
}

/// What the parser needs besides documents.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    /// With it, consensuses must be signed.
    pub(super) verifier: Option<&'a Verifier>,
    /// Countries and autonomous systems of addresses.
    pub(super) places: &'a Places,
}

/// Parses a document and adds its rows.
pub(super) fn parse(
    text: &[u8],
    context: Context<'_>,
    relays: &mut Relays,
    rows: &mut Rows,
) -> Kind {
    let (annotation, body) = without_annotations(text);
    if body.trim_ascii().is_empty() {
        return skipped(EMPTY);
    }
    if body.trim_ascii_start().starts_with(b"{") {
        return json::parse(body, context.places, relays, rows);
    }
    let annotated = |kind: &str| annotation.is_none_or(|annotation| annotation == kind);
    let words = first_words(body);
    match (words[0], words[1]) {
        ("network-status-version", "3") if words[2] == "microdesc" => {
            skipped("microdesc consensus")
        }
        ("network-status-version", "3") if annotated("network-status-consensus-3") => {
            consensus(body, context.verifier, relays, rows)
        }
        ("network-status-version", "3") => vote(body, relays, rows),
        ("network-status-version", "2") => skipped("network status of version 2"),
        ("router", _) if annotated("server-descriptor") => {
            server_descriptor(body, context.places, relays, rows)
        }
        (time, _) if annotated("bandwidth-file") && is_unix_time(time) => {
            bandwidth_file(body, relays, rows)
        }
        (word, _) => match annotation {
            Some(kind) if known_kind(kind) => skipped(kind),
            Some(_) => skipped("document of an unknown @type"),
            None if KEYWORDS.contains(&word) => skipped(word),
            None => Kind::Damaged("not the beginning of a directory document".to_owned()),
        },
    }
}

/// First keywords of documents that no table needs.
const KEYWORDS: [&str; 6] = [
    "extra-info",
    "onion-key",
    "dir-key-certificate-version",
    "consensus-digest",
    "network-status",
    "signed-directory",
];

/// Whether CollecTor has this document type. Unknown types are not repeated in messages.
fn known_kind(kind: &str) -> bool {
    const KINDS: [&str; 14] = [
        "server-descriptor",
        "extra-info",
        "directory",
        "network-status-2",
        "dir-key-certificate-3",
        "network-status-consensus-3",
        "network-status-vote-3",
        "network-status-microdesc-consensus-3",
        "microdescriptor",
        "bandwidth-file",
        "detached-signature-3",
        "bridge-server-descriptor",
        "bridge-network-status",
        "bridge-extra-info",
    ];
    KINDS.contains(&kind)
}

fn skipped(kind: &str) -> Kind {
    Kind::Skipped(kind.to_owned())
}

/// The word after `@type`, and the text after all annotations.
fn without_annotations(text: &[u8]) -> (Option<&str>, &[u8]) {
    let (mut kind, mut rest) = (None, text);
    while rest.starts_with(b"@") || rest.starts_with(b"\n") {
        let len = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let (line, after) = rest.split_at(len);
        if let Some(words) = line.strip_prefix(b"@type ") {
            let word = words.split(|byte| *byte == b' ').next().unwrap_or_default();
            kind = std::str::from_utf8(word).ok();
        }
        rest = after.get(1..).unwrap_or_default();
    }
    (kind, rest)
}

fn first_words(body: &[u8]) -> [&str; 3] {
    let line = &body[..memchr::memchr(b'\n', body).unwrap_or(body.len()).min(200)];
    let mut words = std::str::from_utf8(line).unwrap_or_default().split_ascii_whitespace();
    [(); 3].map(|()| words.next().unwrap_or_default())
}

fn consensus(
    body: &[u8],
    verifier: Option<&Verifier>,
    relays: &mut Relays,
    rows: &mut Rows,
) -> Kind {
    let consensus = match Consensus::parse_archived(body) {
        Ok(consensus) => consensus,
        Err(netdoc::consensus::ConsensusError::Vote { .. }) => {
            return vote(body, relays, rows);
        }
        Err(error) => return Kind::Damaged(error.to_string()),
    };
    let Ok(valid_after_unix_s) = u32::try_from(consensus.valid_after) else {
        return Kind::Damaged("`valid-after` is after the year 2106".to_owned());
    };
    if let Some(Err(problem)) = verifier.map(|verifier| verifier.check(body, consensus.valid_after))
    {
        return Kind::Damaged(problem);
    }
    rows.statuses.extend(consensus.routers().iter().map(|router| Status {
        weight_kb_per_s: router.bandwidth_kb_s,
        is_unmeasured: router.unmeasured,
        ..Status::new(relays.id(router.fingerprint), valid_after_unix_s, Origin::Tor, router.flags)
    }));
    Kind::Used("consensus")
}

/// Whether this may be the first line of a bandwidth file.
fn is_unix_time(word: &str) -> bool {
    (9..=10).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn vote(body: &[u8], relays: &mut Relays, rows: &mut Rows) -> Kind {
    let vote = match Consensus::parse_vote(body) {
        Ok(vote) => vote,
        Err(error) => return Kind::Damaged(format!("a vote: {error}")),
    };
    let Some(authority) = vote.authorities.first() else {
        return Kind::Damaged("a vote without `dir-source`".to_owned());
    };
    let Ok(valid_after_unix_s) = u32::try_from(vote.valid_after) else {
        return Kind::Damaged("`valid-after` is after the year 2106".to_owned());
    };
    let authority = rows.texts.shared(&authority.nickname);
    let file = bandwidth_file_sha256(body).map(|digest| rows.texts.shared(&digest));
    rows.votes.extend(vote.routers().iter().map(|router| Vote {
        relay: relays.id(router.fingerprint),
        valid_after_unix_s,
        authority: authority.clone(),
        measured_kb_per_s: router.measured_kb_s,
        claimed_kb_per_s: router.bandwidth_kb_s,
        flags: router.flags,
        bandwidth_file_sha256: file.clone(),
    }));
    Kind::Used("network status vote")
}

/// The digest in the header of a vote (dir-spec.txt, section 3.4.1, `bandwidth-file-digest`), in hex.
fn bandwidth_file_sha256(vote: &[u8]) -> Option<String> {
    let header = vote.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"r "));
    let mut digests = header.filter_map(|line| line.strip_prefix(b"bandwidth-file-digest "));
    let words = digests.next()?.split(|byte| *byte == b' ');
    let base64 = words.filter_map(|word| word.strip_prefix(b"sha256=")).next()?;
    let digest = STANDARD_NO_PAD.decode(base64.trim_ascii().strip_suffix(b"=").unwrap_or(base64));
    digest.ok().filter(|digest| digest.len() == 32).map(hex::encode)
}

fn bandwidth_file(body: &[u8], relays: &mut Relays, rows: &mut Rows) -> Kind {
    let parsed = match BandwidthFile::parse(body) {
        Ok(parsed) => parsed,
        Err(error) => return Kind::Damaged(error.to_string()),
    };
    let file = parsed.file;
    let created = u32::try_from(file.header.file_created.unwrap_or(file.timestamp));
    let Ok(created_unix_s) = created else {
        return Kind::Damaged("its time is after the year 2106".to_owned());
    };
    let file_sha256 = rows.texts.shared(&hex::encode(Sha256::digest(body)));
    let software = rows.texts.shared(file.header.software.as_deref().unwrap_or("torflow"));
    let mut left_out = parsed.skipped.len();
    for line in &file.relays {
        let Ok(bandwidth_kb_per_s) = u32::try_from(line.bw_kb_s) else {
            left_out += 1;
            continue;
        };
        rows.bandwidths.push(BandwidthLine {
            relay: relays.id(line.node_id),
            created_unix_s,
            file_sha256: file_sha256.clone(),
            software: software.clone(),
            bandwidth_kb_per_s,
            measured_unix_s: line.time.and_then(|time| u32::try_from(time).ok()),
            is_voted: line.vote,
            is_unmeasured: line.unmeasured,
        });
    }
    match parsed.skipped.first() {
        _ if left_out == 0 => Kind::Used("bandwidth file"),
        first => {
            let reason = first.map_or_else(
                || "a bandwidth is above 2^32".to_owned(),
                |first| format!("line {}: {}", first.line, first.reason),
            );
            Kind::Partly(
                "bandwidth file",
                format!("{left_out} lines or values; the first: {reason}"),
            )
        }
    }
}

fn server_descriptor(body: &[u8], places: &Places, relays: &mut Relays, rows: &mut Rows) -> Kind {
    // The splitter cuts at `router`, so there is one; what follows it is stray text, which does not matter.
    let found = match descriptor::iter(body).next() {
        Some(Ok(found)) => found,
        Some(Err(error)) => return Kind::Damaged(error.to_string()),
        None => return skipped(EMPTY),
    };
    let number = |value: u64| u32::try_from(value).ok();
    let [rate, burst, observed] = [
        found.bandwidth_avg_bytes_s,
        found.bandwidth_burst_bytes_s,
        found.bandwidth_observed_bytes_s,
    ]
    .map(number);
    let Some(advertised_byte_per_s) = [rate, burst, observed].into_iter().flatten().min() else {
        return Kind::Damaged("no number of `bandwidth` is below 2^32".to_owned());
    };
    let Some(published_unix_s) = number(found.published) else {
        return Kind::Damaged("`published` is after the year 2106".to_owned());
    };
    let relay = relays.id(found.fingerprint);
    rows.descriptors.push(Descriptor {
        relay,
        published_unix_s,
        origin: Origin::Tor,
        advertised_byte_per_s,
        rate_byte_per_s: rate,
        burst_byte_per_s: burst,
        observed_byte_per_s: observed,
    });
    let place = places.find(IpAddr::V4(found.address));
    let texts = &mut rows.texts;
    let mut text = |text: &str| {
        Some(text.trim()).filter(|text| !text.is_empty()).map(|text| texts.shared(text))
    };
    let seen = Properties {
        relay,
        first_seen_unix_s: published_unix_s,
        last_seen_unix_s: published_unix_s,
        origin: Origin::Tor,
        nickname: text(found.nickname.as_str()),
        address: text(&found.address.to_string()),
        country: place.country.as_deref().and_then(&mut text),
        as_number: place.as_number,
        as_name: place.as_name.as_deref().and_then(&mut text),
        version: found.tor_version().and_then(&mut text),
        platform: found.platform().as_deref().and_then(&mut text),
        family: found.family_text.and_then(&mut text),
        contact: found.contact().as_deref().and_then(&mut text),
    };
    rows.see(seen);
    Kind::Used("server descriptor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A reader that returns a few bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let len = self.1.min(room.len());
            (&mut self.0).take(len as u64).read(room)
        }
    }

    fn cut(text: &str, step: usize) -> Vec<(u64, String)> {
        let mut buffer = b"router of another stream\n".to_vec();
        let mut documents = Documents::new(Slow(text.as_bytes(), step), &mut buffer);
        let mut pieces = Vec::new();
        while let Some(piece) = documents.next().unwrap() {
            pieces.push((piece.offset, String::from_utf8(piece.text.to_vec()).unwrap()));
        }
        pieces
    }

    #[test]
    fn documents_are_cut_at_their_first_lines() {
        let text = "@type server-descriptor 1.0\n@source x\nrouter a\nb\nrouter c\n@type y 1.0\nnetwork-status-version 3\nr x\n";
        let expected = [
            (0, "@type server-descriptor 1.0\n@source x\nrouter a\nb\n"),
            (49, "router c\n"),
            (58, "@type y 1.0\nnetwork-status-version 3\nr x\n"),
        ];
        assert_eq!(cut(text, 5), expected.map(|(at, text)| (at, text.to_owned())));
    }

    #[test]
    fn a_document_without_end_takes_bounded_memory_and_the_next_is_found() {
        struct Endless(u64);
        impl Read for Endless {
            fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
                let left = usize::try_from(self.0).unwrap().min(room.len());
                room[..left].fill(b'x');
                self.0 -= left as u64;
                Ok(left)
            }
        }
        let large = 3 * DOCUMENT_MAX as u64;
        let from = b"router a\n".chain(Endless(large)).chain(&b"\nrouter b\n"[..]);
        let mut buffer = Vec::new();
        let mut documents = Documents::new(from, &mut buffer);
        let mut pieces = Vec::new();
        while let Some(piece) = documents.next().unwrap() {
            pieces.push((piece.offset, piece.text.to_vec()));
        }
        assert!(buffer.capacity() < 3 * DOCUMENT_MAX, "{}", buffer.capacity());
        assert_eq!(pieces.len(), 2);
        assert!(pieces[0].1.is_empty());
        assert_eq!(pieces[1], (large + 10, b"router b\n".to_vec()));
    }

    #[test]
    fn a_line_without_end_is_searched_once() {
        let mut buffer = Vec::new();
        let mut documents = Documents::new(&b""[..], &mut buffer);
        documents.buffer.extend(b"router a\nxx");
        assert_eq!(documents.line_len(), Some(8));
        documents.scanned = 9;
        assert_eq!((documents.line_len(), documents.searched), (None, 11));
        documents.buffer.extend(b"yyy");
        // Only new bytes are searched: a newline before them would not be found.
        documents.buffer[10] = b'\n';
        assert_eq!((documents.line_len(), documents.searched), (None, 14));
        documents.buffer.extend(b"z\n");
        assert_eq!(documents.line_len(), Some(6));
    }

    proptest! {
        #[test]
        fn pieces_are_the_whole_stream_and_steps_do_not_matter(
            text in "((router |@type |network-status-version |x)[ab ]{0,3}\n?){0,30}", step in 1_usize..50,
        ) {
            let pieces = cut(&text, step);
            prop_assert_eq!(pieces.iter().map(|(_, piece)| piece.as_str()).collect::<String>(), &*text);
            prop_assert_eq!(pieces, cut(&text, 1000));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let context = Context { verifier: None, places: &Places::default() };
            parse(&bytes, context, &mut Relays::default(), &mut Rows::default());
        }
    }
}
