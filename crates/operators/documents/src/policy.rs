//! Measurement policies: their text, which a directory authority signs, and the relays of a consensus to which they apply.
//!
//! ```text
//! flashflow-measurement-policy 1
//! scope consensus
//! announcement 2026-11-01 https://example.org/announcement
//! valid-after 2026-12-01 00:00:00
//! valid-until 2027-01-01 00:00:00
//! hours 22-06
//! relay-rate 2026-12-01 10
//! relay-rate 2026-12-15 100
//! network-rate 500
//! measurer 27d848e16b694ef11314b9e3299fb6f5aa6fc5ba1d79f3709051f3ad0aa75750 60
//! opt-out 8EE1049573B16673000000000000000000001267
//! opt-out 192.0.2.0/24
//! opt-out-contact flashflow:no
//! ```
//!
//! The order of lines does not matter, except for the first one. Unknown lines are errors: a restriction must not be
//! ignored. Lines that begin with `#` are comments. Behind it are the authority's certificate and signature
//! ([`dirmgr::signing`]).

use crate::{Documents, Error, Origin, Source};
use coordinator::policy::{Contact, Hours, OptOuts, Policy, PolicyRelays, PolicyTime, Prefix};
use dirmgr::{consensus_signers, schedule, signing};
use netdoc::consensus::Router;
use netdoc::fetch::{Fetcher, Resource};
use netdoc::write::date_time;
use onion::Rate;
use onion::identity::RsaId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use terminal::times::time;

/// The keyword of the first line, with the version of the format.
const FIRST_LINE: &str = "flashflow-measurement-policy 1";

/// The longest validity, in days. A relay that declines by a letter is loaded until a new policy replaces the old one, or the
/// old one expires.
const DAYS_MAX: u64 = 92;

/// The shortest token in `ContactInfo`, so that it is in no other word.
const TOKEN_MIN: usize = 6;

/// A policy with the certificate of its authority.
pub struct SignedPolicy {
    /// The policy.
    pub policy: Policy,
    /// The document, which includes the certificate.
    document: Vec<u8>,
}

/// Reads a policy that this authority must have signed. It may have expired.
///
/// # Errors
/// The file cannot be read or has an error, or the signature is not valid.
pub fn read_signed(path: &Path, authority: RsaId) -> Result<SignedPolicy, Error> {
    let bytes = crate::read(path, "read the measurement policy")?;
    let invalid = |problem: String| Error::Invalid { path: path.to_owned(), problem };
    // An expired certificate ends the policy, as its own end does.
    let (_, certificate_ends_unix_s) = signing::verify(&bytes, authority, 0).map_err(|problem| {
        invalid(format!(
            "the measurement policy is not accepted: {problem}. The authority in `policy_authority` signs it with: flashflow \
             policy sign"
        ))
    })?;
    // All of the file: text that no signature covers is an error.
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid("it is not text".to_owned()))?;
    let mut policy = parse(text).map_err(invalid)?;
    // A signature ends with the certificate of its key.
    if certificate_ends_unix_s < policy.valid_until.unix_s {
        let text = date_time(certificate_ends_unix_s);
        policy.valid_until = PolicyTime { unix_s: certificate_ends_unix_s, text };
    }
    Ok(SignedPolicy { policy, document: bytes })
}

/// Parses a policy, signed or not.
///
/// # Errors
/// The first error, with its line.
pub fn parse(text: &str) -> Result<Policy, String> {
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(format!("it does not begin with `{FIRST_LINE}`"));
    }
    let mut draft = Draft::default();
    let mut part = Part::Text;
    for (number, line) in (2..).zip(lines) {
        part = part.after(line);
        match part {
            Part::Text => {}
            Part::Certificate | Part::Signature => continue,
            Part::End if line.trim().is_empty() || line.starts_with("-----END") => continue,
            Part::End => {
                return Err(format!(
                    "line {number}: no signature covers this text, since it follows one"
                ));
            }
        }
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let (keyword, value) = line.split_once(' ').unwrap_or((line, ""));
        draft.take(keyword, value.trim()).map_err(|problem| format!("line {number}: {problem}"))?;
    }
    let policy = draft.complete()?;
    if let Some(problem) = policy.problem() {
        return Err(problem);
    }
    if policy.valid_until.unix_s - policy.valid_after.unix_s > DAYS_MAX * 86_400 {
        return Err(format!(
            "it is valid for more than {DAYS_MAX} days: sign a new one each month"
        ));
    }
    Ok(policy)
}

/// A part of a signed policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Text,
    Certificate,
    Signature,
    End,
}

impl Part {
    /// The part to which the next line belongs.
    fn after(self, line: &str) -> Self {
        match self {
            _ if line.starts_with("directory-signature") => Self::Signature,
            Self::Text if line.starts_with("dir-key-certificate-version ") => Self::Certificate,
            // The last item of a certificate has a signature, too.
            Self::Certificate if line.starts_with("dir-key-certification") => Self::Signature,
            Self::Signature if line.starts_with("-----END") => Self::End,
            other => other,
        }
    }
}

/// The text of a policy without its certificate and signatures, so that it can be signed again.
#[must_use]
pub fn unsigned(text: &str) -> String {
    let own = text.lines().take_while(|line| Part::Text.after(line) == Part::Text);
    own.map(|line| format!("{line}\n")).collect()
}

/// The lines of a policy so far.
#[derive(Default)]
struct Draft {
    has_scope: bool,
    announcement: Option<(PolicyTime, String)>,
    valid_after: Option<PolicyTime>,
    valid_until: Option<PolicyTime>,
    hours: Option<Hours>,
    relay_rates: Vec<(PolicyTime, Rate)>,
    network_rate: Option<Rate>,
    measurers: BTreeMap<[u8; 32], u8>,
    opt_outs: OptOuts,
}

impl Draft {
    fn take(&mut self, keyword: &str, value: &str) -> Result<(), String> {
        let pair = || value.split_once(' ').ok_or_else(|| format!("`{keyword}` has two values"));
        match keyword {
            "scope" if value == "consensus" && !self.has_scope => self.has_scope = true,
            "scope" => return Err("there is one `scope`, and it is `consensus`".to_owned()),
            "announcement" => {
                let (day, url) = pair()?;
                if !(url.starts_with("https://") || url.starts_with("http://")) {
                    return Err(format!("`{url}` is not a URL"));
                }
                once(keyword, &mut self.announcement, (at(day)?, url.to_owned()))?;
            }
            "valid-after" => once(keyword, &mut self.valid_after, at(value)?)?,
            "valid-until" => once(keyword, &mut self.valid_until, at(value)?)?,
            "hours" => once(keyword, &mut self.hours, hours(value)?)?,
            "relay-rate" => {
                let (day, mbit) =
                    value.rsplit_once(' ').ok_or("`relay-rate` has a day and a rate")?;
                let day = at(day.trim())?;
                if self.relay_rates.iter().any(|(known, _)| known.unix_s == day.unix_s) {
                    return Err(format!("there are two rates from {}", day.text));
                }
                self.relay_rates.push((day, rate(mbit)?));
            }
            "network-rate" => once(keyword, &mut self.network_rate, rate(value)?)?,
            "measurer" => {
                let (key, percent) = pair()?;
                let mut bytes = [0; 32];
                hex::decode_to_slice(key, &mut bytes)
                    .map_err(|_| format!("`{key}` is not the public key of a measurer"))?;
                let percent: Option<u8> =
                    percent.trim().parse().ok().filter(|percent| *percent <= 100);
                let percent = percent.ok_or("the share of a measurer is a percentage, 0 to 100")?;
                if self.measurers.insert(bytes, percent).is_some() {
                    return Err(format!("there are two lines for the measurer {key}"));
                }
            }
            "opt-out" => self.opt_out(value)?,
            "opt-out-contact" if value.len() >= TOKEN_MIN => {
                self.opt_outs.contact_tokens.push(value.to_owned());
            }
            "opt-out-contact" => {
                return Err(format!("a token has {TOKEN_MIN} characters or more"));
            }
            _ => return Err(format!("unknown: `{keyword}`")),
        }
        Ok(())
    }

    fn opt_out(&mut self, value: &str) -> Result<(), String> {
        if let Ok(fingerprint) = value.parse::<RsaId>() {
            self.opt_outs.relays.insert(fingerprint);
            return Ok(());
        }
        let (address, bits) = match value.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()),
            None => (value, Some(if value.contains(':') { 128 } else { 32 })),
        };
        let prefix = address.parse::<IpAddr>().ok().zip(bits);
        let prefix = prefix.and_then(|(address, bits)| Prefix::new(address, bits));
        let problem = || format!("`{value}` is not a fingerprint, an address or a prefix");
        self.opt_outs.prefixes.push(prefix.ok_or_else(problem)?);
        Ok(())
    }

    fn complete(self) -> Result<Policy, String> {
        let missing = |keyword: &str| format!("there is no `{keyword}`");
        if !self.has_scope {
            return Err(missing("scope"));
        }
        let (announced, announcement) = self.announcement.ok_or_else(|| missing("announcement"))?;
        Ok(Policy {
            announcement,
            announced,
            valid_after: self.valid_after.ok_or_else(|| missing("valid-after"))?,
            valid_until: self.valid_until.ok_or_else(|| missing("valid-until"))?,
            hours: self.hours.unwrap_or(Hours::ALL),
            relay_rates: self.relay_rates,
            network_rate: self.network_rate.ok_or_else(|| missing("network-rate"))?,
            measurers: self.measurers,
            opt_outs: self.opt_outs,
        })
    }
}

fn once<T>(keyword: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    if place.replace(value).is_some() {
        return Err(format!("there are two lines `{keyword}`"));
    }
    Ok(())
}

/// A day, or a day and a time, in UTC.
fn at(text: &str) -> Result<PolicyTime, String> {
    let is_date = matches!(text.len(), 10 | 19) && text.as_bytes().get(4) == Some(&b'-');
    let unix_s = if is_date { time(text).ok() } else { None };
    let unix_s =
        unix_s.ok_or_else(|| format!("`{text}` is not a date such as 2026-12-01 00:00:00"))?;
    Ok(PolicyTime { unix_s, text: date_time(unix_s) })
}

fn hours(text: &str) -> Result<Hours, String> {
    let ends =
        text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    let hours = ends.and_then(|(from, to)| Hours::between(from, to));
    hours.ok_or_else(|| format!("`{text}` are not hours such as 22-06"))
}

fn rate(text: &str) -> Result<Rate, String> {
    let mbit = text.parse::<f64>().ok().filter(|mbit| mbit.is_finite() && *mbit >= 0.0);
    let mbit = mbit.ok_or_else(|| format!("`{text}` is not a rate in Mbit/s"))?;
    Ok(Rate::from_mbit_per_s(mbit))
}

/// Whether a relay declines by its IPv6 address or its `ContactInfo`, which is `None` if it is not known.
#[must_use]
pub fn contact(policy: &Policy, router: &Router, contact: Option<&str>) -> Contact {
    let opt_outs = &policy.opt_outs;
    match contact {
        _ if router.ipv6.is_some_and(|address| opt_outs.has_address((*address.ip()).into())) => {
            Contact::Declines
        }
        _ if !policy.has_contact_tokens() => Contact::Silent,
        None => Contact::Unknown,
        Some(contact) if opt_outs.is_in_contact(contact) => Contact::Declines,
        Some(_) => Contact::Silent,
    }
}

/// The relays of a verified consensus, as a policy needs them.
#[must_use]
pub fn relays(documents: &Documents, policy: &Policy) -> PolicyRelays {
    let relays = documents.consensus.routers().iter().map(|router| {
        let contact = contact(policy, router, documents.contact(&router.fingerprint));
        (router.fingerprint, (IpAddr::from(router.address), contact))
    });
    let usable_until_unix_s = schedule::usable_until(&documents.consensus);
    PolicyRelays { usable_until_unix_s, relays: relays.collect() }
}

/// A measurer's own copies of a consensus and of descriptors.
#[derive(Clone, Debug)]
pub struct OwnDocuments {
    /// The source of the consensus, and of descriptors if it is an authority or cache.
    pub source: Source,
    /// The file of descriptors, if the consensus is a file.
    pub descriptors: Option<PathBuf>,
}

impl OwnDocuments {
    /// Reads the relays of the consensus, which the policy's authority must have signed.
    ///
    /// # Errors
    /// There is no consensus, it is not recent, or the authority has not signed it.
    pub fn relays(
        &self,
        signed: &SignedPolicy,
        authority: RsaId,
        now_unix_s: u64,
    ) -> Result<PolicyRelays, Error> {
        let what = self.source.to_string();
        let mut certificates = signed.document.clone();
        let (text, origin) = match &self.source {
            Source::Authority(address) => {
                let fetcher = Fetcher::default();
                // Its signing key may be newer than that of the policy.
                let path = format!("/tor/keys/fp/{authority}");
                match fetcher.get(*address, &Resource::Path(path)) {
                    Ok(newer) => certificates.extend(newer),
                    Err(error) => tracing::debug!("with the certificate of the policy: {error}"),
                }
                (fetcher.get(*address, &Resource::Consensus)?, Origin::Authority(*address))
            }
            Source::File(path) => {
                let origin = self.descriptors.as_deref().map_or(Origin::Nowhere, Origin::File);
                (crate::read(path, "read the consensus")?, origin)
            }
        };
        let trusted = [authority].into();
        if consensus_signers(&text, &certificates, &trusted, now_unix_s).is_empty() {
            return Err(Error::Unusable(format!(
                "{what} is not used for the measurement policy: {authority}, the authority in `policy_authority`, has not signed it"
            )));
        }
        let origin = if signed.policy.has_contact_tokens() { origin } else { Origin::Nowhere };
        let documents = Documents::new(what.clone(), &text, origin, now_unix_s)?;
        if !schedule::is_reasonably_live(&documents.consensus, now_unix_s) {
            let problem = crate::validity_problem(&documents.consensus, now_unix_s);
            let problem = problem.unwrap_or_default();
            return Err(Error::Unusable(format!(
                "{what} is not used for the measurement policy: it {problem}"
            )));
        }
        Ok(relays(&documents, &signed.policy))
    }
}

/// What a policy permits at a time, in sentences.
#[must_use]
pub fn describe(policy: &Policy, now_unix_s: u64) -> Vec<String> {
    let Policy { valid_after, valid_until, hours, opt_outs, .. } = policy;
    let state = if now_unix_s < valid_after.unix_s {
        "nothing: it is not valid yet.".to_owned()
    } else if now_unix_s >= valid_until.unix_s {
        "nothing: it has expired.".to_owned()
    } else if hours.contains(now_unix_s) {
        format!("{} for all relays at one address together.", policy.relay_rate(now_unix_s))
    } else {
        format!(
            "nothing: it is out of hours. In its hours it permits {} for all relays at one address together.",
            policy.relay_rate(now_unix_s)
        )
    };
    let later = policy.relay_rates.iter().filter(|(from, _)| from.unix_s > now_unix_s);
    let later = later.map(|(from, rate)| format!("From {} UTC on it is {rate}.", from.text));
    let shares = policy.measurers.iter().map(|(key, share)| {
        format!("The measurer {} has {share} % of these rates.", hex::encode(key))
    });
    let declined = format!(
        "{} and {} decline.",
        plural(opt_outs.relays.len(), "relay", "relays"),
        plural(opt_outs.prefixes.len(), "network or address", "networks or addresses")
    );
    let tokens = opt_outs.contact_tokens.iter();
    let tokens = tokens.map(|token| format!("A relay declines with `{token}` in its ContactInfo."));
    [
        format!("It is valid from {} to {} UTC, from {hours}.", valid_after.text, valid_until.text),
        format!("It was announced on {} at {}.", &policy.announced.text[..10], policy.announcement),
        format!("At {} UTC it permits {state}", date_time(now_unix_s)),
    ]
    .into_iter()
    .chain(later)
    .chain([format!("All relays of one /16 get at most {} together.", policy.network_rate)])
    .chain(shares)
    .chain([declined])
    .chain(tokens)
    .collect()
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "27d848e16b694ef11314b9e3299fb6f5aa6fc5ba1d79f3709051f3ad0aa75750";
    const RELAY: &str = "8EE1049573B16673000000000000000000001267";

    fn text() -> String {
        format!(
            "{FIRST_LINE}\n# ours\nscope consensus\nannouncement 2026-11-01 https://example.org/a\n\
             valid-after 2026-12-01 00:00:00\nvalid-until 2027-01-01 00:00:00\nhours 22-06\n\
             relay-rate 2026-12-01 10\nrelay-rate 2026-12-15 12:00:00 100\nnetwork-rate 500\nmeasurer {KEY} 60\n\
             opt-out {RELAY}\nopt-out 192.0.2.0/24\nopt-out 2001:db8::1\nopt-out-contact flashflow:no\n"
        )
    }

    #[test]
    fn a_policy_is_read_and_described() {
        let policy = parse(&text()).expect("sound");
        let begin = policy.valid_after.unix_s;
        assert_eq!((begin, policy.valid_until.unix_s), (1_796_083_200, 1_798_761_600));
        assert_eq!(policy.relay_rate(begin), Rate::from_mbit_per_s(10.0));
        assert_eq!(policy.relay_rate(begin + 15 * 86_400), Rate::from_mbit_per_s(100.0));
        assert_eq!((policy.opt_outs.relays.len(), policy.opt_outs.prefixes.len()), (1, 2));
        let lines = |now| describe(&policy, now).join("\n");
        let now = lines(begin + 3600);
        for part in [
            "from 22:00 to 06:00 UTC",
            "announced on 2026-11-01 at https://example.org/a",
            "UTC it permits 10.00 Mbit/s",
            "From 2026-12-15 12:00:00 UTC on it is 100.00 Mbit/s.",
            "at most 500.00 Mbit/s together",
            "1 relay and 2 networks or addresses decline",
            "`flashflow:no`",
        ] {
            assert!(now.contains(part), "{part}: {now}");
        }
        assert!(lines(begin - 1).contains("not valid yet"));
        assert!(lines(begin + 43_200).contains("out of hours"));
        assert!(lines(u64::MAX).contains("has expired"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let cases = [
            ("scope consensus", "scope all", "line 3: there is one `scope`"),
            ("scope consensus\n", "", "no `scope`"),
            ("hours 22-06", "hours 22-25", "`22-25` are not hours"),
            ("network-rate 500", "network-rate -5", "`-5` is not a rate"),
            ("network-rate 500", "network-rate 500\nnetwork-rate 5", "two lines `network-rate`"),
            ("network-rate 500\n", "", "no `network-rate`"),
            ("opt-out 192.0.2.0/24", "opt-out 192.0.2.0/33", "not a fingerprint, an address or"),
            ("flashflow:no", "no", "6 characters or more"),
            (&format!("{KEY} 60"), &format!("{KEY} 160"), "0 to 100"),
            (&format!("{KEY} 60"), "aa 60", "not the public key"),
            ("https://example.org/a", "example", "not a URL"),
            ("valid-until 2027-01-01", "valid-until 2028-01-01", "more than 92 days"),
            ("2026-12-01 00:00:00", "1796083200", "not a date"),
            ("announcement 2026-11-01", "announcement 2026-12-02", "before they are announced"),
            ("opt-out 2001", "except-exits yes\nopt-out 2001", "unknown: `except-exits`"),
            ("policy 1", "policy 2", "does not begin with"),
            (
                "relay-rate 2026-12-01 10",
                "relay-rate 2026-12-01 10\nrelay-rate 2026-12-01 9",
                "two rates",
            ),
            (
                "opt-out 192.0.2.0/24",
                "opt-out ::ffff:192.0.2.0/120",
                "not a fingerprint, an address or",
            ),
        ];
        for (from, to, part) in cases {
            let changed = text().replacen(from, to, 1);
            assert_ne!(changed, text(), "{from}");
            let problem = parse(&changed).expect_err(to);
            assert!(problem.contains(part), "{to}: {problem}");
        }
    }

    #[test]
    fn text_after_the_signature_is_an_error() {
        let signature = "directory-signature sha256 A B\n-----BEGIN SIGNATURE-----\nAA==\n-----END SIGNATURE-----\n";
        let certificate = "dir-key-certificate-version 3\n-----BEGIN SIGNATURE-----\nAA==\n-----END SIGNATURE-----\n";
        let signed = text() + certificate + signature;
        parse(&signed).expect("sound");
        parse(&(signed.clone() + "\n" + signature)).expect("two signatures");
        let problem = parse(&(signed + "opt-out 192.0.2.9\n")).expect_err("not covered");
        assert!(problem.contains("no signature covers this text"), "{problem}");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(flashflow-measurement-policy 1\n)?(?s).{0,300}") {
            let _ = parse(&text);
        }
    }
}
