//! The one-pass parser behind [`Consensus::parse`].

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Authority, Consensus, ConsensusError, Flag, Flags, Flavour, Listed, Params, Router,
    SharedRandom,
};
use crate::input::describe;
use crate::text::{self, Line, Lines, base64_array, date_time, decimal, words};
use identity::{Ed25519Id, Nickname, RsaId};

/// A typical relay entry takes about 350 bytes; a good estimate avoids copying while the list
/// grows.
const BYTES_PER_ROUTER: usize = 350;

/// Which document is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Consensus,
    /// A consensus of any age: without a footer, with `opt`, in any order.
    Archived,
    Vote,
}

/// The parsed items of a relay's entry.
pub(super) trait Entry: Sized {
    /// Begins an entry with its `r` line.
    fn begin(line: Line<'_>, rest: &[u8], flavour: Flavour) -> Result<Self, ConsensusError>;
    fn fingerprint(&self) -> RsaId;
    /// Takes a line after `r`, or ignores it.
    fn item(
        &mut self,
        keyword: &[u8],
        line: Line<'_>,
        rest: &[u8],
        document: &mut Document,
    ) -> Result<(), ConsensusError>;
}

/// State that the entries of a document share.
pub(super) struct Document {
    flavour: Flavour,
    /// Relays run few versions with few sets of protocols: each text is stored once.
    texts: BTreeMap<Vec<u8>, Arc<str>>,
}

pub(super) fn parse<E: Entry>(bytes: &[u8], kind: Kind) -> Result<Consensus<E>, ConsensusError> {
    let mut lines = Lines::new(bytes);
    let flavour = first_line(bytes, &mut lines)?;
    if let Some(place) = memchr::memchr(0, bytes) {
        return Err(malformed_at(bytes, place, "expected no NUL byte: the file is damaged"));
    }
    // Also checked where a line would be ignored: invalid UTF-8 cannot be what was signed.
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(malformed_at(bytes, error.valid_up_to(), "expected UTF-8 text"));
    }
    let mut reader = Reader::new(kind, flavour, bytes.len());
    while let Some(mut line) = lines.next() {
        if !line.complete {
            return Err(truncated(line.number - 1, "a line is cut"));
        }
        if kind == Kind::Archived {
            reader.modernise(&mut line)?;
        }
        match reader.part {
            Part::Head => reader.head(line)?,
            Part::Routers => reader.router(line)?,
            Part::Foot => reader.foot(line, &mut lines)?,
        }
    }
    reader.finish(lines.taken())
}

fn first_line(bytes: &[u8], lines: &mut Lines<'_>) -> Result<Flavour, ConsensusError> {
    while lines.peek().is_some_and(|line| line.bytes.starts_with(b"@")) {
        lines.next();
    }
    let Some(line) = lines.next() else {
        return Err(truncated(lines.taken(), "the document is empty"));
    };
    let mut found = words(line.bytes);
    let head = (found.next(), found.next(), found.next());
    match head {
        (Some(b"network-status-version"), Some(b"3"), None | Some(b"ns")) => Ok(Flavour::Ns),
        (Some(b"network-status-version"), Some(b"3"), Some(b"microdesc")) => Ok(Flavour::Microdesc),
        (Some(b"network-status-version"), Some(b"3"), Some(flavour)) => {
            let flavour = text::excerpt(flavour);
            Err(ConsensusError::UnknownFlavour { line: line.number, flavour })
        }
        _ => Err(ConsensusError::NotAConsensus {
            line: line.number,
            found: text::excerpt(line.bytes),
            what: describe(bytes).filter(|_| head.0 != Some(b"network-status-version")),
        }),
    }
}

/// The error for a document with a wrong byte at this offset.
#[cold]
fn malformed_at(bytes: &[u8], place: usize, what: &'static str) -> ConsensusError {
    let (before, from) = bytes.split_at(place);
    let begin = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let len = from.iter().position(|byte| *byte == b'\n').unwrap_or(from.len());
    ConsensusError::Malformed {
        line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
        what,
        found: text::excerpt(&bytes[begin..place + len]),
    }
}

fn truncated(after_line: usize, missing: &'static str) -> ConsensusError {
    ConsensusError::Truncated { after_line, missing }
}

fn bad(line: Line<'_>, what: &'static str) -> ConsensusError {
    ConsensusError::Malformed { line: line.number, what, found: text::excerpt(line.bytes) }
}

/// The part of the document being parsed.
#[derive(Clone, Copy)]
enum Part {
    Head,
    Routers,
    Foot,
}

struct Reader<E> {
    kind: Kind,
    part: Part,
    document: Document,
    has_status: bool,
    valid_after: Option<u64>,
    fresh_until: Option<u64>,
    valid_until: Option<u64>,
    voting_delay_s: Option<(u32, u32)>,
    params: Params,
    shared_random: Option<SharedRandom>,
    authorities: Vec<Authority>,
    bandwidth_weights: Params,
    signatures: usize,
    routers: Vec<E>,
    expected_routers: usize,
    /// Whether the last router has its mandatory `s` line.
    has_flags: bool,
}

impl<E: Entry> Reader<E> {
    fn new(kind: Kind, flavour: Flavour, size: usize) -> Self {
        Self {
            kind,
            part: Part::Head,
            document: Document { flavour, texts: BTreeMap::new() },
            has_status: false,
            valid_after: None,
            fresh_until: None,
            valid_until: None,
            voting_delay_s: None,
            params: Params::default(),
            shared_random: None,
            authorities: Vec::new(),
            bandwidth_weights: Params::default(),
            signatures: 0,
            routers: Vec::new(),
            expected_routers: size / BYTES_PER_ROUTER,
            has_flags: true,
        }
    }

    /// Converts a line of an old document to the current format. Methods before 9 wrote no `directory-footer`; `opt` marked optional items.
    fn modernise(&mut self, line: &mut Line<'_>) -> Result<(), ConsensusError> {
        line.bytes = line.bytes.strip_prefix(b"opt ").unwrap_or(line.bytes);
        if line.bytes.starts_with(b"directory-signature ") && !matches!(self.part, Part::Foot) {
            if !self.has_flags {
                return Err(bad(*line, "the relay before this line has no flags (`s`)"));
            }
            self.part = Part::Foot;
        }
        Ok(())
    }

    fn head(&mut self, line: Line<'_>) -> Result<(), ConsensusError> {
        let (keyword, rest) = line.keyword();
        let time = |slot: &mut Option<u64>| match (date_time(rest), &slot) {
            (Some(unix), None) => {
                *slot = Some(unix);
                Ok(())
            }
            (Some(_), Some(_)) => Err(bad(line, "the date is given twice")),
            (None, _) => Err(bad(line, "expected a date and time")),
        };
        match keyword {
            b"valid-after" => time(&mut self.valid_after)?,
            b"fresh-until" => time(&mut self.fresh_until)?,
            b"valid-until" => time(&mut self.valid_until)?,
            b"vote-status" => self.status(line, rest)?,
            b"voting-delay" => {
                let mut seconds = words(rest).map(decimal);
                let (Some(Some(votes)), Some(Some(signatures))) = (seconds.next(), seconds.next())
                else {
                    return Err(bad(line, "expected two numbers of seconds"));
                };
                self.voting_delay_s = Some((votes, signatures));
            }
            b"params" => self.params = params(line, rest)?,
            b"shared-rand-current-value" => self.shared_random = Some(shared_random(line, rest)?),
            b"dir-source" => self.authorities.push(authority(line, rest)?),
            b"r" | b"directory-footer" => {
                if keyword == b"r" {
                    self.routers.reserve(self.expected_routers);
                }
                self.part = Part::Routers;
                self.router(line)?;
            }
            b"directory-signature" => return Err(bad(line, "expected `directory-footer` first")),
            _ => {}
        }
        Ok(())
    }

    /// Tor also knows `opinion`: the consensus as computed by one authority alone.
    fn status(&mut self, line: Line<'_>, rest: &[u8]) -> Result<(), ConsensusError> {
        if self.has_status {
            return Err(bad(line, "`vote-status` is given twice"));
        }
        self.has_status = true;
        match (self.kind, rest.trim_ascii_end()) {
            (Kind::Consensus | Kind::Archived, b"consensus") | (Kind::Vote, b"vote") => Ok(()),
            (Kind::Consensus | Kind::Archived, b"vote" | b"opinion") => {
                Err(ConsensusError::Vote { line: line.number, found: text::excerpt(line.bytes) })
            }
            (Kind::Consensus | Kind::Archived, _) => {
                Err(bad(line, "expected `vote-status consensus`"))
            }
            (Kind::Vote, _) => Err(bad(line, "expected `vote-status vote`")),
        }
    }

    fn router(&mut self, line: Line<'_>) -> Result<(), ConsensusError> {
        let (keyword, rest) = line.keyword();
        if matches!(keyword, b"r" | b"directory-footer") && !self.has_flags {
            return Err(bad(line, "the relay before this line has no flags (`s`)"));
        }
        match keyword {
            b"r" => {
                let next = E::begin(line, rest, self.document.flavour)?;
                let last = self.routers.last().filter(|_| self.kind != Kind::Archived);
                if last.is_some_and(|last| last.fingerprint() >= next.fingerprint()) {
                    return Err(bad(line, "expected relays in ascending order of identity"));
                }
                self.routers.push(next);
                self.has_flags = false;
                return Ok(());
            }
            b"directory-footer" => {
                self.part = Part::Foot;
                return Ok(());
            }
            b"directory-signature" => return Err(bad(line, "expected `directory-footer` first")),
            _ => {}
        }
        let Some(router) = self.routers.last_mut() else { return Ok(()) };
        match keyword {
            b"s" if self.has_flags => Err(bad(line, "the flags are given twice")),
            _ => {
                self.has_flags |= keyword == b"s";
                router.item(keyword, line, rest, &mut self.document)
            }
        }
    }

    fn foot(&mut self, line: Line<'_>, lines: &mut Lines<'_>) -> Result<(), ConsensusError> {
        match line.keyword() {
            (keyword, _) if self.signatures > 0 && keyword != b"directory-signature" => {
                // Nobody has signed it.
                return Err(bad(line, "expected nothing but signatures after the first"));
            }
            (b"bandwidth-weights", rest) => self.bandwidth_weights = params(line, rest)?,
            (b"directory-signature", rest) => {
                if words(rest).count() < 2 {
                    return Err(bad(line, "expected an identity and a key digest"));
                }
                signature(lines)?;
                self.signatures += 1;
            }
            (b"r" | b"network-status-version", _) => {
                return Err(bad(line, "expected nothing but signatures after the footer"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self, lines: usize) -> Result<Consensus<E>, ConsensusError> {
        if !matches!(self.part, Part::Foot) {
            return Err(truncated(lines, "`directory-footer` is missing"));
        }
        if self.signatures == 0 {
            return Err(truncated(lines, "`directory-signature` is missing"));
        }
        let missing = |what| ConsensusError::Malformed { line: lines, what, found: String::new() };
        if !self.has_status {
            return Err(missing("expected `vote-status` somewhere before the end"));
        }
        if self.kind == Kind::Archived {
            self.routers.sort_by_key(E::fingerprint);
            self.routers.dedup_by_key(|router| router.fingerprint());
        }
        Ok(Consensus {
            flavour: self.document.flavour,
            valid_after: self
                .valid_after
                .ok_or_else(|| missing("expected `valid-after` somewhere before the end"))?,
            fresh_until: self
                .fresh_until
                .ok_or_else(|| missing("expected `fresh-until` somewhere before the end"))?,
            valid_until: self
                .valid_until
                .ok_or_else(|| missing("expected `valid-until` somewhere before the end"))?,
            voting_delay_s: self.voting_delay_s,
            params: self.params,
            shared_random: self.shared_random,
            authorities: self.authorities,
            bandwidth_weights: self.bandwidth_weights,
            signatures: self.signatures,
            routers: self.routers,
        })
    }
}

/// Consumes the lines of a signature, from `BEGIN` to `END`.
fn signature(lines: &mut Lines<'_>) -> Result<(), ConsensusError> {
    const CUT: &str = "a `directory-signature` is incomplete";
    let begin = lines.peek().ok_or_else(|| truncated(lines.taken(), CUT))?;
    if begin.complete && begin.bytes != b"-----BEGIN SIGNATURE-----" {
        return Err(bad(begin, "expected `-----BEGIN SIGNATURE-----`"));
    }
    for line in lines.by_ref() {
        match line.bytes {
            _ if !line.complete => return Err(truncated(line.number - 1, CUT)),
            b"-----END SIGNATURE-----" => return Ok(()),
            other if line.number > begin.number && other.contains(&b' ') => {
                return Err(bad(line, "expected base64 or `-----END SIGNATURE-----`"));
            }
            _ => {}
        }
    }
    Err(truncated(lines.taken(), CUT))
}

/// A text that many relays share, stored once.
fn shared(
    texts: &mut BTreeMap<Vec<u8>, Arc<str>>,
    line: Line<'_>,
    rest: &[u8],
) -> Result<Arc<str>, ConsensusError> {
    if let Some(known) = texts.get(rest) {
        return Ok(Arc::clone(known));
    }
    let text: Arc<str> = text::utf8(rest).ok_or_else(|| bad(line, "expected UTF-8 text"))?.into();
    texts.insert(rest.to_vec(), Arc::clone(&text));
    Ok(text)
}

fn params(line: Line<'_>, rest: &[u8]) -> Result<Params, ConsensusError> {
    words(rest)
        .map(|word| {
            let (key, value) = text::key_value(word)?;
            Some((text::utf8(key)?, text::utf8(value)?.parse::<i32>().ok()?))
        })
        .collect::<Option<Params>>()
        .ok_or_else(|| bad(line, "expected `name=number` pairs that fit 32 bits"))
}

fn shared_random(line: Line<'_>, rest: &[u8]) -> Result<SharedRandom, ConsensusError> {
    let mut found = words(rest);
    let reveals = found.next().and_then(decimal);
    let value = found.next().and_then(base64_array);
    reveals
        .zip(value)
        .map(|(reveals, value)| SharedRandom { reveals, value })
        .ok_or_else(|| bad(line, "expected a number of reveals and 32 bytes of base64"))
}

fn authority(line: Line<'_>, rest: &[u8]) -> Result<Authority, ConsensusError> {
    let read = || {
        let mut found = words(rest);
        let nickname = text::utf8(found.next()?)?.to_owned();
        let fingerprint = RsaId::parse(found.next()?).ok()?;
        let _host = found.next()?;
        let address = text::utf8(found.next()?)?.parse().ok()?;
        let dir_port = decimal(found.next()?)?;
        let or_port = decimal(found.next()?)?;
        Some(Authority { nickname, fingerprint, address, dir_port, or_port })
    };
    read().ok_or_else(|| bad(line, "expected `dir-source` name, identity, host, address, 2 ports"))
}

impl Entry for Router {
    fn begin(line: Line<'_>, rest: &[u8], flavour: Flavour) -> Result<Self, ConsensusError> {
        let read = || {
            let mut found = words(rest);
            let nickname = Nickname::parse(found.next()?).ok()?;
            let fingerprint = RsaId(base64_array(found.next()?)?);
            let descriptor_digest = match flavour {
                Flavour::Ns => Some(base64_array(found.next()?)?),
                Flavour::Microdesc => None,
            };
            // Then a date and a time: unused.
            found.nth(1)?;
            let address = text::utf8(found.next()?)?.parse().ok()?;
            let or_port = decimal(found.next()?)?;
            let dir_port = decimal(found.next()?)?;
            Some(Self {
                nickname,
                fingerprint,
                ed25519: None,
                address,
                or_port,
                dir_port,
                ipv6: None,
                flags: Flags::default(),
                version: None,
                protocols: None,
                bandwidth_kb_s: None,
                measured_kb_s: None,
                unmeasured: false,
                descriptor_digest,
                microdesc_digest: None,
            })
        };
        read().ok_or_else(|| bad(line, "expected a relay: name, identity, date, address, 2 ports"))
    }

    fn fingerprint(&self) -> RsaId {
        self.fingerprint
    }

    fn item(
        &mut self,
        keyword: &[u8],
        line: Line<'_>,
        rest: &[u8],
        document: &mut Document,
    ) -> Result<(), ConsensusError> {
        match keyword {
            b"s" => self.flags = flags(rest),
            b"v" => self.version = Some(shared(&mut document.texts, line, rest)?),
            b"pr" => self.protocols = Some(shared(&mut document.texts, line, rest)?),
            // As in tor, an unreadable address does not invalidate the entry.
            b"a" if self.ipv6.is_none() => {
                self.ipv6 = text::utf8(rest).and_then(|text| text.trim().parse().ok());
            }
            b"w" => {
                for value in w_line(line, rest) {
                    match value? {
                        Weight::Bandwidth(kb_s) => self.bandwidth_kb_s = Some(kb_s),
                        Weight::Measured(kb_s) => self.measured_kb_s = Some(kb_s),
                        Weight::Unmeasured(is) => self.unmeasured = is,
                    }
                }
            }
            b"m" => {
                if let Some(digest) = m_line(line, rest, document.flavour)? {
                    self.microdesc_digest = Some(digest);
                }
            }
            b"id" => {
                let mut found = words(rest);
                if found.next() == Some(b"ed25519") {
                    let key = found.next().ok_or_else(|| bad(line, "expected an identity"))?;
                    if key != b"none" {
                        let id = Ed25519Id::parse(key)
                            .map_err(|_| bad(line, "expected 32 bytes of base64, or `none`"))?;
                        self.ed25519 = Some(id);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Entry for Listed {
    fn begin(line: Line<'_>, rest: &[u8], _: Flavour) -> Result<Self, ConsensusError> {
        let identity = words(rest).nth(1).and_then(base64_array);
        let bytes = identity.ok_or_else(|| bad(line, "expected a relay: name, identity"))?;
        Ok(Self {
            fingerprint: RsaId(bytes),
            flags: Flags::default(),
            bandwidth_kb_s: None,
            unmeasured: false,
        })
    }

    fn fingerprint(&self) -> RsaId {
        self.fingerprint
    }

    fn item(
        &mut self,
        keyword: &[u8],
        line: Line<'_>,
        rest: &[u8],
        _: &mut Document,
    ) -> Result<(), ConsensusError> {
        match keyword {
            b"s" => self.flags = flags(rest),
            b"w" => {
                for value in w_line(line, rest) {
                    match value? {
                        Weight::Bandwidth(kb_s) => self.bandwidth_kb_s = Some(kb_s),
                        Weight::Measured(_) => {}
                        Weight::Unmeasured(is) => self.unmeasured = is,
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn flags(rest: &[u8]) -> Flags {
    words(rest).filter_map(Flag::from_name).collect()
}

/// A value of a `w` line.
enum Weight {
    Bandwidth(u32),
    Measured(u32),
    Unmeasured(bool),
}

fn w_line(line: Line<'_>, rest: &[u8]) -> impl Iterator<Item = Result<Weight, ConsensusError>> {
    words(rest).filter_map(text::key_value).filter_map(move |(key, value)| {
        let number = || decimal(value).ok_or_else(|| bad(line, "expected KB/s as a number"));
        match key {
            b"Bandwidth" => Some(number().map(Weight::Bandwidth)),
            b"Measured" => Some(number().map(Weight::Measured)),
            b"Unmeasured" => Some(Ok(Weight::Unmeasured(value == b"1"))),
            _ => None,
        }
    })
}

/// The digest alone in a consensus; in a vote, preceded by consensus methods and `sha256=`,
/// possibly with other algorithms only.
fn m_line(
    line: Line<'_>,
    rest: &[u8],
    flavour: Flavour,
) -> Result<Option<[u8; 32]>, ConsensusError> {
    let digest = match flavour {
        Flavour::Microdesc => words(rest).next(),
        Flavour::Ns => words(rest).find_map(|word| word.strip_prefix(b"sha256=")),
    };
    let wrong = || bad(line, "expected a SHA-256 digest in base64");
    match digest {
        Some(digest) => Ok(Some(base64_array(digest).ok_or_else(wrong)?)),
        None if flavour == Flavour::Microdesc => Err(wrong()),
        None => Ok(None),
    }
}
