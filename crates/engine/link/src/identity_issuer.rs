use crate::issue_error::{IssueError, failed};
use crate::long_term::LongTermKeys;
use crate::x509::{self, Names};
use ed25519_dalek::{Signer, SigningKey};
use onion::cell::msg::cert_type;
use onion::identity::OwnIdentity;
use onion::keys::RsaKey;
use onion::link::{CertifiedKey, issue_cross_cert, issue_ed25519_cert};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rsa::pkcs8::EncodePrivateKey;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime};

/// Default validity of certificates: longer than any measurement.
const LIFETIME: Duration = Duration::from_secs(2 * 24 * 3600);

/// Length of the TLS key in bits. C tor closes the link if the key is not an RSA key
/// (<https://gitlab.torproject.org/tpo/core/tor/-/issues/41226>).
const TLS_KEY_BITS: usize = 2048;

/// Validity of the TLS certificate, in days.
const TLS_DAYS: u32 = 30;

/// Validity of the certificate of the RSA identity, in days, as in C tor.
const RSA_IDENTITY_DAYS: u32 = 365;

/// An identity with fresh certificates, and the key that signed them.
pub struct Certified {
    /// The identity that the engine presents.
    pub identity: OwnIdentity,
    /// The medium-term signing key, certified by the Ed25519 identity.
    pub signing_key: SigningKey,
    /// When the certificates expire, in Unix seconds.
    pub expires_unix_s: u64,
}

/// Issues certificates for relay identities: for throw-away ones, whose keys it generates, and for
/// long-term keys.
///
/// All share one TLS key and certificate, which the driver presents on every listener. An identity
/// is proved by the certificate that it signs for the TLS certificate.
pub struct IdentityIssuer {
    rng: StdRng,
    now: SystemTime,
    lifetime: Duration,
    tls_key: RsaKey,
    tls_cert: Vec<u8>,
}

impl IdentityIssuer {
    /// Generates the TLS key and certificate, valid at `unix_time_s`. Takes some tenths of a
    /// second.
    ///
    /// # Errors
    /// [`IssueError`] if a key cannot be generated: a bug or a broken random source.
    pub fn new(seed: [u8; 32], unix_time_s: u64) -> Result<Self, IssueError> {
        let mut rng = StdRng::from_seed(seed);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(unix_time_s);
        let tls_key = RsaKey::generate_bits(&mut rng, TLS_KEY_BITS).map_err(failed("TLS key"))?;
        let names = Names::random(&mut rng);
        let tls_cert = x509::issue(&mut rng, now, tls_key.secret(), &names, TLS_DAYS)?;
        Ok(Self { rng, now, lifetime: LIFETIME, tls_key, tls_cert })
    }

    /// Sets the validity of certificates. C tor rounds it to hours.
    #[must_use]
    pub fn lasting(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// Sets the start of validity of further certificates.
    pub fn set_unix_time_s(&mut self, unix_time_s: u64) {
        self.now = SystemTime::UNIX_EPOCH + Duration::from_secs(unix_time_s);
    }

    /// The certificate and key for TLS.
    ///
    /// # Errors
    /// [`IssueError`] if the key cannot be encoded.
    pub fn tls_credentials(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IssueError> {
        let key = self.tls_key.secret().to_pkcs8_der().map_err(failed("TLS key"))?;
        let key = PrivatePkcs8KeyDer::from(key.as_bytes().to_vec());
        Ok((vec![CertificateDer::from(self.tls_cert.clone())], key.into()))
    }

    /// Generates a throw-away identity. Takes about a tenth of a second, for its RSA key.
    ///
    /// # Errors
    /// [`IssueError`] if a key or certificate cannot be generated.
    pub fn identity(&mut self) -> Result<OwnIdentity, IssueError> {
        let keys = self.keys()?;
        self.certify(&keys).map(|certified| certified.identity)
    }

    /// Generates the keys of a throw-away identity, which takes about a tenth of a second. [`certify`](Self::certify) is much faster,
    /// and can be repeated when the certificates expire.
    ///
    /// # Errors
    /// [`IssueError`] if a key cannot be generated.
    pub fn keys(&mut self) -> Result<LongTermKeys, IssueError> {
        LongTermKeys::generate(&mut self.rng)
    }

    /// Issues what an identity needs besides its long-term keys: a signing key, a link
    /// authentication key, and all certificates.
    ///
    /// # Errors
    /// [`IssueError`] if a key or certificate cannot be generated.
    pub fn certify(&mut self, keys: &LongTermKeys) -> Result<Certified, IssueError> {
        let LongTermKeys { rsa, ed25519, .. } = keys;
        let expires = (self.now + self.lifetime).duration_since(SystemTime::UNIX_EPOCH);
        let expires_unix_s = expires.map_err(failed("expiry"))?.as_secs();
        let (signing, authenticating) = (self.signing_key(), self.signing_key());

        let names = Names::random_one(&mut self.rng);
        let rsa_identity_cert =
            x509::issue(&mut self.rng, self.now, rsa.secret(), &names, RSA_IDENTITY_DAYS)?;
        let signing_cert = issue_ed25519_cert(
            cert_type::ED25519_SIGNING,
            CertifiedKey::Ed25519(signing.verifying_key().to_bytes()),
            expires_unix_s,
            Some(&ed25519.id().0),
            |cert| ed25519.sign(cert),
        );
        let by_signing_key = |cert_type, key| {
            let signer = signing.verifying_key().to_bytes();
            let sign = |cert: &[u8]| signing.sign(cert).to_bytes();
            issue_ed25519_cert(cert_type, key, expires_unix_s, Some(&signer), sign)
        };
        let tls_digest = Sha256::digest(&self.tls_cert).into();
        let tls_link_cert =
            by_signing_key(cert_type::ED25519_TLS_LINK, CertifiedKey::X509Sha256(tls_digest));
        let authenticate_cert = by_signing_key(
            cert_type::ED25519_AUTHENTICATE,
            CertifiedKey::Ed25519(authenticating.verifying_key().to_bytes()),
        );
        let rsa_cross_cert = issue_cross_cert(rsa, ed25519.id(), expires_unix_s)
            .map_err(failed("cross-certificate"))?;
        let identity = OwnIdentity {
            rsa: rsa.id(),
            rsa_sha256: Sha256::digest(rsa.public_der()).into(),
            ed25519: ed25519.id(),
            rsa_identity_cert,
            signing_cert,
            tls_link_cert,
            authenticate_cert,
            rsa_cross_cert,
            authenticate_seed: authenticating.to_bytes(),
            onion_secret: keys.onion_secret,
            previous_onion_secret: keys.previous_onion_secret,
        };
        Ok(Certified { identity, signing_key: signing, expires_unix_s })
    }

    fn signing_key(&mut self) -> SigningKey {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        SigningKey::from_bytes(&seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::cell::msg::Certs;
    use onion::link::{CertError, verify_responder_certs};

    const NOW: u64 = 1_700_000_000;

    fn forged() -> (OwnIdentity, [u8; 32]) {
        let mut issuer = IdentityIssuer::new([1; 32], NOW).expect("keys");
        let (certificates, _) = issuer.tls_credentials().expect("key");
        let digest = Sha256::digest(&certificates[0]).into();
        (issuer.identity().expect("keys"), digest)
    }

    fn verify(
        certs: [(u8, &[u8]); 4],
        tls: &[u8; 32],
        time_s: u64,
    ) -> Result<onion::link::PeerIdentity, CertError> {
        let mut body = Vec::new();
        Certs::encode_into(&certs, &mut body);
        verify_responder_certs(&Certs::parse(&body).expect("well-formed"), tls, time_s)
    }

    #[test]
    fn equal_keys_give_the_same_identity_with_different_certificates() {
        let keys = LongTermKeys::generate(&mut StdRng::from_seed([7; 32])).expect("keys");
        let week = Duration::from_secs(7 * 24 * 3600);
        let mut issuer = IdentityIssuer::new([1; 32], NOW).expect("keys").lasting(week);
        let first = issuer.certify(&keys).expect("certificates");
        issuer.set_unix_time_s(NOW + 24 * 3600);
        let second = issuer.certify(&keys).expect("certificates");
        assert_eq!(first.identity.rsa, second.identity.rsa);
        assert_eq!(first.identity.ed25519, second.identity.ed25519);
        assert_eq!(first.identity.onion_key(), second.identity.onion_key());
        assert_ne!(first.signing_key.to_bytes(), second.signing_key.to_bytes());
        let (certificates, _) = issuer.tls_credentials().expect("key");
        let digest = Sha256::digest(&certificates[0]).into();
        let at = |own: &OwnIdentity, hours: u64| {
            let certs: [(u8, &[u8]); 4] = [
                (cert_type::RSA_IDENTITY, &own.rsa_identity_cert),
                (cert_type::ED25519_SIGNING, &own.signing_cert),
                (cert_type::ED25519_TLS_LINK, &own.tls_link_cert),
                (cert_type::RSA_CROSS, &own.rsa_cross_cert),
            ];
            verify(certs, &digest, NOW + hours * 3600)
        };
        let (day, soon, late) = (24, 7 * 24 - 1, 7 * 24 + 2);
        assert!(at(&first.identity, soon).is_ok() && at(&first.identity, late).is_err());
        assert!(at(&second.identity, late).is_ok() && at(&second.identity, late + day).is_err());
    }

    #[test]
    fn the_engine_accepts_issued_certificates_and_no_others() {
        let (own, tls) = forged();
        let good: [(u8, &[u8]); 4] = [
            (cert_type::RSA_IDENTITY, &own.rsa_identity_cert),
            (cert_type::ED25519_SIGNING, &own.signing_cert),
            (cert_type::ED25519_TLS_LINK, &own.tls_link_cert),
            (cert_type::RSA_CROSS, &own.rsa_cross_cert),
        ];
        let peer = verify(good, &tls, NOW).expect("honest");
        assert_eq!(peer.ids.rsa, own.rsa);
        assert_eq!(peer.ed25519, own.ed25519);
        assert_eq!(peer.rsa_sha256, own.rsa_sha256);

        assert!(verify(good, &[0; 32], NOW).is_err(), "another TLS certificate");
        assert!(verify(good, &tls, NOW + 3 * 24 * 3600).is_err(), "expired");
        for place in 0..good.len() {
            let mut missing = good;
            missing[place].0 = 99;
            let cert_type = good[place].0;
            assert_eq!(verify(missing, &tls, NOW), Err(CertError::Missing { cert_type }));
            let mut altered_cert = good[place].1.to_vec();
            // The RSA certificate's own signature is not checked: change its key.
            let at = if place == 0 { altered_cert.len() / 2 } else { altered_cert.len() - 1 };
            altered_cert[at] ^= 1;
            let mut altered = good;
            altered[place].1 = &altered_cert;
            assert!(verify(altered, &tls, NOW).is_err(), "altered certificate {cert_type}");
            let mut cut = good;
            cut[place].1 = &good[place].1[..good[place].1.len() - 1];
            assert!(verify(cut, &tls, NOW).is_err(), "cut certificate {cert_type}");
        }
    }
}
