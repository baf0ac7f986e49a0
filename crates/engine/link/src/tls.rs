//! TLS as Tor uses it: the certificates prove nothing; the link handshake inside TLS authenticates.

mod buffers;
mod exporter;
mod session;
mod verifier;

pub use buffers::Buffers;
pub(crate) use buffers::Outgoing;
pub(crate) use session::Placed;
pub use session::{Progress, Session, TlsError};

use crate::identity_issuer::IdentityIssuer;
use crate::issue_error::{IssueError, failed};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use verifier::SelfSignedVerifier;

/// TLS configurations of both sides of a link.
#[derive(Clone, Debug)]
pub struct TlsConfigs {
    client: Arc<ClientConfig>,
    /// `None` for a client, which only dials.
    server: Option<Presented>,
}

/// What the accepting side presents.
#[derive(Clone, Debug)]
struct Presented {
    config: Arc<ServerConfig>,
    certificate_sha256: Arc<[u8; 32]>,
}

impl TlsConfigs {
    /// For a client, which dials. It accepts no connections and needs no key; generating one takes some tenths of a second. Listeners
    /// close what they accept.
    ///
    /// # Errors
    /// [`IssueError`] if rustls rejects the configuration: a bug.
    pub fn client() -> Result<Self, IssueError> {
        let provider = Arc::new(provider());
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed("TLS configuration"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(SelfSignedVerifier::new(&provider)))
            .with_no_client_auth();
        client.resumption = rustls::client::Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { client: Arc::new(client), server: None })
    }

    /// Presents the issuer's certificate to incoming connections.
    ///
    /// # Errors
    /// [`IssueError`] if rustls rejects its key.
    pub fn new(issuer: &IdentityIssuer) -> Result<Self, IssueError> {
        let (certificates, key) = issuer.tls_credentials()?;
        let certificate_sha256 =
            certificates.first().map_or([0; 32], |certificate| Sha256::digest(certificate).into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed("TLS configuration"))?
            .with_no_client_auth()
            .with_single_cert(certificates, key)
            .map_err(failed("TLS configuration"))?;
        config.send_tls13_tickets = 0;
        let certificate_sha256 = Arc::new(certificate_sha256);
        let server = Some(Presented { config: Arc::new(config), certificate_sha256 });
        Ok(Self { server, ..Self::client()? })
    }
}

/// Only the cipher suite that every TLS 1.3 library has (RFC 8446 §9.1): with AES instructions it
/// is the fastest. Given the choice, unmodified tor selects ChaCha20, at three times the cost for
/// both sides. Its hash is SHA-256, on which the exporter relies.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![TLS13_AES_128_GCM_SHA256];
    provider
}
