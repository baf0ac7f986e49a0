//! TLS 1.3 between coordinators and measurers: both sides show a raw public key (RFC 7250) and accept only pinned keys.
//!
//! There are no certificates, so nothing depends on names, authorities or the time of day.

mod verifier;

use crate::keys::{PublicKey, SecretKey};
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{AlertDescription, CertificateError, ClientConfig, OtherError, ServerConfig};
use std::io;
use std::sync::Arc;
use verifier::{Pinned, Verifier};

/// The application protocol, so that other TLS servers are not mistaken for a measurer.
const ALPN: &[u8] = b"flashflow-control/1";

/// A key that is not pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it has the key of another team, {0}")]
pub(crate) struct ForeignKey(pub(crate) PublicKey);

/// The configuration of a measurer, which accepts only these coordinators.
pub(crate) fn server_config(
    own: &SecretKey,
    coordinators: impl IntoIterator<Item = PublicKey>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new(&provider, Pinned::any_of(coordinators));
    let certified = certified(own, &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // Both sides show their keys in each session, so sessions are not resumed.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The configuration of a coordinator for this measurer.
pub(crate) fn client_config(
    own: &SecretKey,
    measurer: PublicKey,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new(&provider, Pinned::any_of([measurer]));
    let certified = certified(own, &provider)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

fn certified(
    own: &SecretKey,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, rustls::Error> {
    // The library takes only a key that it owns, and wipes it.
    let der = PrivatePkcs8KeyDer::from(own.to_pkcs8().to_vec());
    let signer = provider.key_provider.load_private_key(der.into())?;
    let shown = CertificateDer::from(own.public().to_spki());
    Ok(Arc::new(CertifiedKey::new(vec![shown], signer)))
}

/// The key that the other side of an established session has shown.
pub(crate) fn peer_key(shown: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::from_spki(shown?.first()?)
}

/// The TLS error behind an error of one of its streams.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The foreign key of the other side, if the error is its refusal.
pub(crate) fn foreign_key(error: &io::Error) -> Option<ForeignKey> {
    match tls_error(error)? {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            other.downcast_ref::<ForeignKey>().copied()
        }
        _ => None,
    }
}

/// Whether the other side refused our key.
pub(crate) fn refuses_our_key(error: &io::Error) -> bool {
    // RFC 8446 §6.2; rustls sends `certificate_unknown` for an error of a custom verifier.
    let refusals = [AlertDescription::CertificateUnknown, AlertDescription::AccessDenied];
    match tls_error(error) {
        Some(rustls::Error::AlertReceived(alert)) => refusals.contains(alert),
        _ => false,
    }
}

/// Whether the other side does not speak TLS with raw public keys.
pub(crate) fn is_other_protocol(error: &io::Error) -> bool {
    matches!(
        tls_error(error),
        Some(
            rustls::Error::InvalidMessage(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::PeerIncompatible(_)
                | rustls::Error::AlertReceived(
                    AlertDescription::HandshakeFailure
                        | AlertDescription::ProtocolVersion
                        | AlertDescription::UnsupportedCertificate
                        | AlertDescription::NoApplicationProtocol
                )
        )
    )
}
