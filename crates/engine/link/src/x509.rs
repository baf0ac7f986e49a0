//! Issues the X.509 certificates of a relay, each signed with its own key.
//!
//! Of the RSA identity certificate in a CERTS cell, C tor verifies this signature (tor-spec, section 4.2). It verifies none of the certificate
//! of a TLS session, whose digest an Ed25519 certificate authenticates.

use crate::issue_error::{IssueError, failed};
use rand::CryptoRng;
use rsa::RsaPrivateKey;
use rsa::pkcs1v15::SigningKey;
use sha2::Sha256;
use std::time::{Duration, SystemTime};
use x509_cert::builder::{Builder, CertificateBuilder, Profile};
use x509_cert::der::asn1::GeneralizedTime;
use x509_cert::der::{DateTime, Encode};
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_cert::time::{Time, Validity};

const DAY: Duration = Duration::from_secs(86_400);

/// A certificate of this key, signed with it, for a random host name like those in C tor's certificates. It becomes
/// valid at the last midnight (UTC) that is at least a day ago, so that it does not reveal the clock, and expires after
/// `days`.
pub(crate) fn issue(
    rng: &mut impl CryptoRng,
    now: SystemTime,
    key: &RsaPrivateKey,
    names: &Names,
    days: u32,
) -> Result<Vec<u8>, IssueError> {
    let mut serial = [0; 16];
    rng.fill_bytes(&mut serial);
    let serial = SerialNumber::new(&serial).map_err(failed("serial number"))?;
    let begin = now - DAY;
    let validity =
        Validity { not_before: midnight(begin)?, not_after: midnight(begin + DAY * days)? };
    let name = |host: &str| format!("CN={host}").parse::<Name>().map_err(failed("host name"));
    let public = SubjectPublicKeyInfoOwned::from_key(key.to_public_key());
    let profile = Profile::Manual { issuer: Some(name(&names.issuer)?) };
    let signer = SigningKey::<Sha256>::new(key.clone());
    let mut builder = CertificateBuilder::new(
        profile,
        serial,
        validity,
        name(&names.subject)?,
        public.map_err(failed("public key"))?,
        &signer,
    )
    .map_err(failed("X.509 certificate"))?;
    // Without any extension, the certificate would be of version 1.
    let usages = KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment;
    builder.add_extension(&KeyUsage(usages)).map_err(failed("X.509 extension"))?;
    let cert = builder.build().map_err(failed("X.509 certificate"))?;
    cert.to_der().map_err(failed("X.509 certificate"))
}

/// The host names of a certificate.
pub(crate) struct Names {
    issuer: String,
    subject: String,
}

impl Names {
    /// Two random names.
    pub(crate) fn random(rng: &mut impl CryptoRng) -> Self {
        Self { issuer: hostname(rng), subject: hostname(rng) }
    }

    /// One random name for both.
    pub(crate) fn random_one(rng: &mut impl CryptoRng) -> Self {
        let subject = hostname(rng);
        Self { issuer: subject.clone(), subject }
    }
}

fn hostname(rng: &mut impl CryptoRng) -> String {
    let letters: String = (0..12).map(|_| char::from(b'a' + (rng.next_u32() % 26) as u8)).collect();
    format!("www.{letters}.com")
}

fn midnight(time: SystemTime) -> Result<Time, IssueError> {
    let date = DateTime::from_system_time(time).map_err(failed("date"))?;
    let date = DateTime::new(date.year(), date.month(), date.day(), 0, 0, 0);
    Ok(Time::GeneralTime(GeneralizedTime::from_date_time(date.map_err(failed("date"))?)))
}
