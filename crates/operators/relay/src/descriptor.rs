//! The relay's own server descriptor (dir-spec.txt, section 2.1.1).
//!
//! It states only what this relay does. `platform` names FlashFlow, not tor: authorities check
//! versions of tor only. `proto`, which they require, lists what the engine supports
//! ([`Capabilities`]). There is no `hidden-service-dir`, and no `caches-extra-info`: the directory
//! has no extra-info document but the relay's own. `onion-key` and its cross-certificate belong to
//! an obsolete handshake (TAP), but tor 0.4.9 refuses a descriptor without them ("Missing TAP
//! key"). The secret key is discarded after signing, so nobody can use it.

mod exit_lines;
mod proto;
#[cfg(test)]
mod tests;

pub use crate::document::DescriptorError;
pub use exit_lines::{exit_lines, ipv6_summary};
pub use proto::Capabilities;

use crate::document::{failed, sign};
use crate::extra_info::ExtraInfo;
use crate::family;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use link::{Certified, LongTermKeys};
use netdoc::write::{date_time, push_object};
use netdoc::{Nickname, RsaId};
use onion::cell::msg::cert_type;
use onion::keys::{Ed25519Key, RsaKey};
use onion::link::{CertifiedKey, issue_ed25519_cert};
use onion::router::ExitConfig;
use rand::CryptoRng;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// The largest bandwidth in a descriptor, in bytes/s: tor stores it in an `int`.
const BANDWIDTH_MAX: u64 = i32::MAX as u64;

/// The content of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its nickname.
    pub nickname: Nickname,
    /// Its IPv4 address.
    pub address: Ipv4Addr,
    /// Its OR port.
    pub or_port: u16,
    /// Its average rate limit, in bytes/s.
    pub rate_bytes_s: u64,
    /// Its burst, in bytes/s.
    pub burst_bytes_s: u64,
    /// Its observed bandwidth, the maximum of ten seconds, in bytes/s.
    pub observed_bytes_s: u64,
    /// The date of the descriptor, in Unix seconds.
    pub published: u64,
    /// Its uptime, in seconds.
    pub uptime_s: u64,
    /// The operator's contact information: one line of text.
    pub contact: Option<String>,
    /// Its capabilities: `proto`, and `tunnelled-dir-server` if it is a directory.
    pub capabilities: Capabilities,
    /// The other relays of the same operator.
    pub family: Vec<RsaId>,
    /// Family certificates.
    pub family_certs: Vec<Vec<u8>>,
    /// Its exit policy; `None` if it is not an exit.
    pub exit: Option<ExitConfig>,
    /// The line `overload-general` with its newline after recent overload, else empty.
    pub overload: String,
}

/// A public TAP onion key, and its signature of both identities.
#[derive(Clone, Debug)]
pub struct TapKey {
    public_der: Vec<u8>,
    cross_cert: Vec<u8>,
}

impl TapKey {
    /// Generates a key and discards its secret. Takes about a tenth of a second.
    ///
    /// # Errors
    /// [`DescriptorError`] if the key cannot be generated or cannot sign.
    pub fn generate(
        keys: &LongTermKeys,
        rng: &mut impl CryptoRng,
    ) -> Result<Self, DescriptorError> {
        let key = RsaKey::generate(rng).map_err(failed("TAP key"))?;
        let mut identities = keys.rsa.id().0.to_vec();
        identities.extend_from_slice(&keys.ed25519.id().0);
        let cross_cert = key.sign(&identities).map_err(failed("TAP cross-certificate"))?;
        Ok(Self { public_der: key.public_der().to_vec(), cross_cert })
    }
}

/// Writes and signs a descriptor; `extra_info` is its extra-info document, if any.
///
/// # Errors
/// [`DescriptorError`] if a signature fails.
pub fn write(
    announcement: &Announcement,
    extra_info: Option<&ExtraInfo>,
    keys: &LongTermKeys,
    certified: &Certified,
    tap: &TapKey,
) -> Result<String, DescriptorError> {
    let mut text = String::new();
    push_items(&mut text, announcement, extra_info, keys, certified, tap)?;
    sign(&mut text, keys, certified)?;
    Ok(text)
}

/// Everything but the signatures.
fn push_items(
    text: &mut String,
    announcement: &Announcement,
    extra_info: Option<&ExtraInfo>,
    keys: &LongTermKeys,
    certified: &Certified,
    tap: &TapKey,
) -> Result<(), DescriptorError> {
    let Announcement { nickname, address, or_port, published, uptime_s, .. } = announcement;
    writeln!(text, "router {nickname} {address} {or_port} 0 0")?;
    text.push_str("identity-ed25519\n");
    push_object(text, "ED25519 CERT", &certified.identity.signing_cert);
    let master_key = STANDARD_NO_PAD.encode(keys.ed25519.id().0);
    writeln!(text, "master-key-ed25519 {master_key}")?;
    let os = std::env::consts::OS;
    writeln!(text, "platform FlashFlow {} on {os}", env!("CARGO_PKG_VERSION"))?;
    writeln!(text, "proto {}", announcement.capabilities.protocols())?;
    writeln!(text, "published {}", date_time(*published))?;
    writeln!(text, "fingerprint {}", spaced(&certified.identity.rsa.to_string()))?;
    writeln!(text, "uptime {uptime_s}")?;
    writeln!(
        text,
        "bandwidth {} {} {}",
        // Tor refuses a rate of zero.
        announcement.rate_bytes_s.clamp(1, BANDWIDTH_MAX),
        announcement.burst_bytes_s.clamp(1, BANDWIDTH_MAX),
        announcement.observed_bytes_s.min(BANDWIDTH_MAX),
    )?;
    if let Some(extra_info) = extra_info {
        writeln!(text, "extra-info-digest {}", extra_info.digests())?;
    }
    text.push_str("onion-key\n");
    push_object(text, "RSA PUBLIC KEY", &tap.public_der);
    text.push_str("signing-key\n");
    push_object(text, "RSA PUBLIC KEY", keys.rsa.public_der());
    text.push_str("onion-key-crosscert\n");
    push_object(text, "CROSSCERT", &tap.cross_cert);
    let (sign, ntor_cross_cert) = ntor_cross_cert(keys, certified.expires_unix_s);
    writeln!(text, "ntor-onion-key-crosscert {sign}")?;
    push_object(text, "ED25519 CERT", &ntor_cross_cert);
    if let Some(contact) = &announcement.contact {
        writeln!(text, "contact {contact}")?;
    }
    text.push_str(&family::line(&announcement.family));
    for cert in &announcement.family_certs {
        text.push_str("family-cert\n");
        push_object(text, "FAMILY CERT", cert);
    }
    writeln!(text, "ntor-onion-key {}", STANDARD.encode(certified.identity.onion_key()))?;
    for line in exit_lines(announcement.exit.as_ref()) {
        writeln!(text, "{line}")?;
    }
    if let Some(summary) = ipv6_summary(announcement.exit.as_ref()) {
        writeln!(text, "ipv6-policy {summary}")?;
    }
    if announcement.capabilities.directory {
        text.push_str("tunnelled-dir-server\n");
    }
    text.push_str(&announcement.overload);
    Ok(())
}

/// The Ed25519 identity, certified by the onion key, converted to an Ed25519 key with this sign.
fn ntor_cross_cert(keys: &LongTermKeys, expiry_unix_s: u64) -> (u8, Vec<u8>) {
    let (signer, sign) = Ed25519Key::from_onion_secret(&keys.onion_secret);
    let identity = CertifiedKey::Ed25519(keys.ed25519.id().0);
    let cert = issue_ed25519_cert(cert_type::NTOR_CROSS, identity, expiry_unix_s, None, |cert| {
        signer.sign(cert)
    });
    (sign, cert)
}

/// A fingerprint in ten groups of four digits.
fn spaced(fingerprint: &str) -> String {
    let groups: Vec<_> = fingerprint.as_bytes().chunks(4).map(String::from_utf8_lossy).collect();
    groups.join(" ")
}
