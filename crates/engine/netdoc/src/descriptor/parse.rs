//! The one-pass parser behind [`super::iter`].

use std::net::Ipv4Addr;

use super::{BadDescriptor, ServerDescriptor};
use crate::input;
use crate::text::{self, Line, Lines, base64_array, date_time, decimal, words};
use identity::{Ed25519Id, Nickname, RsaId};

/// The descriptors of a file: each complete one, or the error. Returned by [`super::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    lines: Lines<'a>,
}

/// The error, and its line.
type Wrong = (usize, String);

impl<'a> Iter<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { lines: Lines::new(bytes) }
    }

    /// Skips the rest of a bad descriptor or of stray text.
    fn skip_to_next(&mut self) {
        while self.lines.peek().is_some_and(|line| !begins(line)) {
            self.lines.next();
        }
    }
}

/// The first words of documents that may be in one file. A microdescriptor is recognised at the
/// beginning of a part only: descriptors have a line `onion-key`, too.
const BEGINNINGS: [&[u8]; 5] =
    [b"router ", b"@", b"extra-info ", b"network-status-version ", b"dir-key-certificate-version "];

/// Whether a descriptor or another document begins at this line, including annotations.
fn begins(line: Line<'_>) -> bool {
    BEGINNINGS.iter().any(|beginning| line.bytes.starts_with(beginning))
}

impl<'a> Iterator for Iter<'a> {
    type Item = Result<ServerDescriptor<'a>, BadDescriptor>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.lines.peek().is_some_and(|l| l.bytes.is_empty() || l.bytes.starts_with(b"@")) {
            self.lines.next();
        }
        let first = self.lines.peek()?;
        let mut draft = Draft::default();
        let mut document = None;
        let result = if first.bytes.starts_with(b"router ") {
            draft.read(&mut self.lines).and_then(|()| draft.finish(self.lines.taken()))
        } else if first.has_nul() {
            Err((first.number, text::NUL.to_owned()))
        } else {
            document = input::document(first.bytes);
            let found = text::excerpt(first.bytes);
            Err((first.number, format!("expected `router` at the start, found {found:?}")))
        };
        Some(result.map_err(|(line, reason)| {
            if self.lines.taken() < first.number {
                self.lines.next(); // A truncated `router` line, which would otherwise be read forever.
            }
            self.skip_to_next();
            let line = line.max(first.number); // a truncated `router` line was not consumed
            let (first_line, fingerprint) = (first.number, draft.fingerprint);
            BadDescriptor { first_line, line, fingerprint, document, reason }
        }))
    }
}

/// The items of a descriptor parsed so far.
#[derive(Default)]
struct Draft<'a> {
    router: Option<(Nickname, Ipv4Addr, u16, u16)>,
    fingerprint: Option<RsaId>,
    master_key: Option<Ed25519Id>,
    certified_key: Option<Ed25519Id>,
    ntor_onion_key: Option<[u8; 32]>,
    bandwidth: Option<[u64; 3]>,
    published: Option<u64>,
    uptime_s: Option<u64>,
    hibernating: bool,
    overload_general: Option<u64>,
    proto: Option<&'a str>,
    platform: Option<&'a [u8]>,
    contact: Option<&'a [u8]>,
    family: Option<&'a str>,
    family_certs: Vec<Vec<u8>>,
    /// The items of [`ONCE`] that have been read: a bit for each.
    seen: u32,
}

/// Items that occur at most once: tor refuses a descriptor that has one twice (`routerparse.c`,
/// `T1` and `T01`; `overload-general`: dir-spec.txt, section 2.1.1).
const ONCE: [&[u8]; 28] = [
    b"allow-single-hop-exits",
    b"bandwidth",
    b"caches-extra-info",
    b"contact",
    b"extra-info-digest",
    b"family",
    b"fingerprint",
    b"hibernating",
    b"hidden-service-dir",
    b"identity-ed25519",
    b"ipv6-policy",
    b"master-key-ed25519",
    b"ntor-onion-key",
    b"ntor-onion-key-crosscert",
    b"onion-key",
    b"onion-key-crosscert",
    b"overload-general",
    b"platform",
    b"proto",
    b"published",
    b"read-history",
    b"router",
    b"router-sig-ed25519",
    b"router-signature",
    b"signing-key",
    b"tunnelled-dir-server",
    b"uptime",
    b"write-history",
];

/// Limit on family certificates of a descriptor: no operator needs more.
const FAMILY_CERTS_MAX: usize = 32;

/// Sets a field; `what` follows "expected" if there is no value.
fn set<T>(slot: &mut Option<T>, value: Option<T>, line: Line<'_>, what: &str) -> Result<(), Wrong> {
    *slot = Some(value.ok_or_else(|| {
        (line.number, format!("expected {what}, found {:?}", text::excerpt(line.bytes)))
    })?);
    Ok(())
}

impl<'a> Draft<'a> {
    /// Parses up to and including the signature.
    fn read(&mut self, lines: &mut Lines<'a>) -> Result<(), Wrong> {
        let mut is_first = true;
        loop {
            // The beginning of the next descriptor is not consumed.
            let next = lines.peek().filter(|l| is_first || !begins(*l));
            without_nul(next)?;
            let Some(line) = next.filter(|l| l.complete) else {
                return Err((lines.taken(), cut("the descriptor")));
            };
            lines.next();
            is_first = false;
            let (mut keyword, mut rest) = line.keyword();
            if keyword == b"opt" {
                // Before 2009 it marked optional items (dir-spec.txt, section 1.2).
                (keyword, rest) = Line { bytes: rest, ..line }.keyword();
            }
            self.once(line.number, keyword)?;
            match keyword {
                b"router-signature" => return skip_object(lines),
                b"identity-ed25519" => self.certified_key = certified_key(lines)?,
                b"family-cert" => self.family_cert(lines)?,
                b"-----BEGIN" => skip_to_end(lines)?,
                _ => self.item(line, keyword, rest)?,
            }
        }
    }

    /// Takes note of an item that may occur once.
    fn once(&mut self, number: usize, keyword: &[u8]) -> Result<(), Wrong> {
        let Some(at) = ONCE.iter().position(|known| *known == keyword) else { return Ok(()) };
        let bit = 1 << at;
        if self.seen & bit != 0 {
            return Err((number, format!("`{}` is given twice", text::excerpt(keyword))));
        }
        self.seen |= bit;
        Ok(())
    }

    /// An invalid certificate proves nothing, and has no other effect.
    fn family_cert(&mut self, lines: &mut Lines<'a>) -> Result<(), Wrong> {
        let mut room = [0; CERTIFICATE_MAX];
        if let Some(cert) = certificate(lines, &mut room)?
            && self.family_certs.len() < FAMILY_CERTS_MAX
        {
            self.family_certs.push(cert.to_vec());
        }
        Ok(())
    }

    fn item(&mut self, line: Line<'a>, keyword: &[u8], rest: &'a [u8]) -> Result<(), Wrong> {
        match keyword {
            b"router" => set(&mut self.router, router(rest), line, "`router` name address ports"),
            b"fingerprint" => set(
                &mut self.fingerprint,
                fingerprint(rest),
                line,
                "a fingerprint of 40 hex digits",
            ),
            b"master-key-ed25519" => {
                let key = Ed25519Id::parse(rest).ok();
                set(&mut self.master_key, key, line, "an Ed25519 key in base64")
            }
            b"ntor-onion-key" => {
                set(&mut self.ntor_onion_key, base64_array(rest), line, "an ntor key in base64")
            }
            b"bandwidth" => set(
                &mut self.bandwidth,
                bandwidths(rest),
                line,
                "three bandwidths in bytes/s, as tor takes them",
            ),
            b"published" => set(&mut self.published, date_time(rest), line, "a date and time"),
            b"uptime" => set(&mut self.uptime_s, decimal(rest), line, "a number of seconds"),
            b"hibernating" => {
                self.hibernating = rest == b"1";
                Ok(())
            }
            b"overload-general" => {
                let (_version, date) = Line { bytes: rest, ..line }.keyword();
                let what = "a version, a date and a time";
                set(&mut self.overload_general, date_time(date), line, what)
            }
            b"proto" => set(&mut self.proto, text::utf8(rest), line, "UTF-8 text"),
            b"platform" => set(&mut self.platform, Some(rest), line, "the platform"),
            b"contact" => set(&mut self.contact, Some(rest), line, "the contact"),
            b"family" => set(&mut self.family, text::utf8(rest), line, "UTF-8 text"),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, line: usize) -> Result<ServerDescriptor<'a>, Wrong> {
        let missing = |item| (line, format!("the descriptor ends without `{item}`"));
        let (nickname, address, or_port, dir_port) =
            self.router.ok_or_else(|| missing("router"))?;
        let [avg, burst, observed] = self.bandwidth.ok_or_else(|| missing("bandwidth"))?;
        if self.master_key.is_some()
            && self.certified_key.is_some()
            && self.master_key != self.certified_key
        {
            let reason = "`master-key-ed25519` isn't the key certified in `identity-ed25519`";
            return Err((line, reason.to_owned()));
        }
        Ok(ServerDescriptor {
            nickname,
            address,
            or_port,
            dir_port,
            fingerprint: self.fingerprint.ok_or_else(|| missing("fingerprint"))?,
            ed25519: self.master_key.or(self.certified_key),
            ntor_onion_key: self.ntor_onion_key,
            bandwidth_avg_bytes_s: avg,
            bandwidth_burst_bytes_s: burst,
            bandwidth_observed_bytes_s: observed,
            published: self.published.ok_or_else(|| missing("published"))?,
            uptime_s: self.uptime_s,
            hibernating: self.hibernating,
            overload_general: self.overload_general,
            proto: self.proto,
            platform_bytes: self.platform,
            contact_bytes: self.contact,
            family_text: self.family,
            family_certs: std::mem::take(&mut self.family_certs),
        })
    }
}

fn router(rest: &[u8]) -> Option<(Nickname, Ipv4Addr, u16, u16)> {
    let mut found = words(rest);
    let nickname = Nickname::parse(found.next()?).ok()?;
    let address = text::utf8(found.next()?)?.parse().ok()?;
    // As in tor: a relay without one is unreachable.
    let or_port = decimal(found.next()?).filter(|port| *port > 0)?;
    let _socks_port = found.next()?;
    Some((nickname, address, or_port, decimal(found.next()?)?))
}

/// Average, burst and observed. Tor accepts no descriptor with an average of 0, or with a number of
/// more than 31 bits.
fn bandwidths(rest: &[u8]) -> Option<[u64; 3]> {
    let mut numbers = words(rest).map_while(decimal);
    let found: [u64; 3] = [numbers.next()?, numbers.next()?, numbers.next()?];
    let is_small = |number: &u64| i32::try_from(*number).is_ok();
    Some(found).filter(|found| found[0] > 0 && found.iter().all(is_small))
}

/// Ten groups of four digits.
fn fingerprint(rest: &[u8]) -> Option<RsaId> {
    let mut digits = [0; 40];
    let mut len = 0;
    for byte in rest.iter().filter(|b| **b != b' ') {
        *digits.get_mut(len)? = *byte;
        len += 1;
    }
    RsaId::parse(digits.get(..len)?).ok()
}

/// The error for a line that has a NUL byte.
fn without_nul(line: Option<Line<'_>>) -> Result<(), Wrong> {
    match line.filter(Line::has_nul) {
        Some(line) => Err((line.number, text::NUL.to_owned())),
        None => Ok(()),
    }
}

fn cut(what: &str) -> String {
    format!("{what} is cut; fetch it again")
}

fn skip_object(lines: &mut Lines<'_>) -> Result<(), Wrong> {
    without_nul(lines.peek())?;
    match lines.peek() {
        Some(line) if line.bytes.starts_with(b"-----BEGIN ") && line.complete => {
            lines.next();
            skip_to_end(lines)
        }
        Some(line) if line.complete && !begins(line) => {
            Err((line.number, "expected `-----BEGIN SIGNATURE-----`".to_owned()))
        }
        _ => Err((lines.taken(), cut("the signature"))),
    }
}

/// Consumes the rest of an object, through its `END` line.
fn skip_to_end(lines: &mut Lines<'_>) -> Result<(), Wrong> {
    while let Some(line) = lines.peek().filter(|line| line.complete && !begins(*line)) {
        without_nul(Some(line))?;
        lines.next();
        if line.bytes.starts_with(b"-----END ") && line.bytes.ends_with(b"-----") {
            return Ok(());
        }
    }
    without_nul(lines.peek())?;
    Err((lines.taken(), cut("a key, certificate or signature")))
}

/// No certificate of a descriptor is longer, in bytes.
const CERTIFICATE_MAX: usize = 400;

/// Consumes the following object. Returns its bytes if they do not exceed the limit in base64.
fn certificate<'r>(
    lines: &mut Lines<'_>,
    room: &'r mut [u8; CERTIFICATE_MAX],
) -> Result<Option<&'r [u8]>, Wrong> {
    let body = lines.clone().skip(1);
    skip_object(lines)?;
    let mut base64 = [0; 600];
    let mut len = 0;
    for line in body.take_while(|line| !line.bytes.starts_with(b"-")) {
        let Some(free) = base64.get_mut(len..len + line.bytes.len()) else { return Ok(None) };
        free.copy_from_slice(line.bytes);
        len += line.bytes.len();
    }
    Ok(text::base64_into(&base64[..len], room))
}

/// The identity key that signed the following certificate (cert-spec.txt, sections 2.1, 2.2.1).
fn certified_key(lines: &mut Lines<'_>) -> Result<Option<Ed25519Id>, Wrong> {
    /// Version, type, expiry, key type, key, number of extensions.
    const FIXED: usize = 1 + 1 + 4 + 1 + 32 + 1;
    const SIGNED_WITH_ED25519_KEY: u8 = 4;

    let number = lines.peek().map_or(lines.taken(), |line| line.number);
    let mut room = [0; CERTIFICATE_MAX];
    let bytes = certificate(lines, &mut room)?
        .filter(|bytes| bytes.len() >= FIXED)
        .ok_or_else(|| (number, "expected a certificate in base64".to_owned()))?;

    let (fixed, mut rest) = bytes.split_at(FIXED);
    for _ in 0..fixed[FIXED - 1] {
        let Some(([high, low, kind, _flags], data)) = rest.split_first_chunk() else { break };
        let Some((data, next)) = data.split_at_checked(u16::from_be_bytes([*high, *low]).into())
        else {
            break;
        };
        if let (SIGNED_WITH_ED25519_KEY, Ok(key)) = (*kind, data.try_into()) {
            return Ok(Some(Ed25519Id(key)));
        }
        rest = next;
    }
    Ok(None)
}
