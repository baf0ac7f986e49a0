//! TLS as Tor uses it: certificates prove nothing by themselves, the link handshake inside does.

mod buffers;
mod exporter;
mod session;
mod verifier;

pub use buffers::Buffers;
pub(crate) use buffers::Outgoing;
pub(crate) use session::Placed;
pub use session::{Progress, Session, TlsError};

use crate::forge::Forge;
use crate::forge_error::ForgeError;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use verifier::SelfSignedVerifier;

/// Configurations for both sides of a link.
#[derive(Clone, Debug)]
pub struct TlsConfigs {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// SHA-256 of the certificate that the server shows.
    certificate_sha256: Arc<[u8; 32]>,
}

impl TlsConfigs {
    /// Of one that dials and proves nothing, as a client does: its keys, made of `seed`, are for TLS alone. The seed is fresh random
    /// bytes, or all that it makes can be foretold.
    ///
    /// # Errors
    /// As [`new`](Self::new), and where no keys can be made.
    pub fn nameless(seed: [u8; 32], unix_time_s: u64) -> Result<Self, ForgeError> {
        Self::new(&Forge::new(seed, unix_time_s)?)
    }

    /// With the forge's certificate for connections that come in.
    ///
    /// # Errors
    /// Where its key is of no use to the TLS library.
    pub fn new(forge: &Forge) -> Result<Self, ForgeError> {
        let provider = Arc::new(provider());
        let (certificates, key) = forge.tls_credentials()?;
        let certificate_sha256 =
            certificates.first().map_or([0; 32], |certificate| Sha256::digest(certificate).into());
        let unusable = |error: rustls::Error| ForgeError::of_tls(&error);
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(SelfSignedVerifier::new(&provider)))
            .with_no_client_auth();
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(unusable)?;
        server.send_tls13_tickets = 0;
        Ok(Self {
            client: Arc::new(client),
            server: Arc::new(server),
            certificate_sha256: Arc::new(certificate_sha256),
        })
    }
}

/// Only the suite that every TLS 1.3 library has (RFC 8446 §9.1): with AES in hardware it is the
/// fastest. Given the choice, stock tor takes ChaCha20, at three times the cost for both sides.
/// It hashes with SHA-256, which the exporter relies on.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    provider
}
