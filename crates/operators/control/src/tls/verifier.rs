use super::ForeignKey;
use crate::keys::PublicKey;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerIncompatible, SignatureScheme,
};
use std::sync::Arc;

/// The accepted keys.
#[derive(Clone, Debug)]
pub(super) struct Pinned(Vec<PublicKey>);

impl Pinned {
    pub(super) fn any_of(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// `shown` is a SubjectPublicKeyInfo, despite its type.
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let key = PublicKey::from_spki(shown)
            .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if self.0.contains(&key) {
            return Ok(());
        }
        let foreign = OtherError(Arc::new(ForeignKey(key)));
        Err(Error::InvalidCertificate(CertificateError::Other(foreign)))
    }
}

/// Accepts peers that prove to hold a pinned key.
#[derive(Debug)]
pub(super) struct Verifier {
    pinned: Pinned,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) const fn new(provider: &CryptoProvider, pinned: Pinned) -> Self {
        Self { pinned, algorithms: provider.signature_verification_algorithms }
    }
}

/// The methods that both traits have: TLS 1.3 with raw public keys and Ed25519 only.
macro_rules! raw_public_key_methods {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(cert.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.pinned.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    raw_public_key_methods!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.pinned.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    raw_public_key_methods!();
}
