use super::buffers::{Buffers, Incoming, Outgoing};
use super::exporter::Exporter;
use super::{Presented, TlsConfigs};
use onion::link::TlsSession;
use rustls::KeyLog;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedConnectionCommon,
    UnbufferedStatus,
};
use std::net::IpAddr;
use std::sync::Arc;

/// An error that ends a session.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The peer violated the protocol or sent an alert.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
    /// Encryption failed: a bug, or 2^64 records.
    #[error("cannot encrypt: {0}")]
    Encrypt(String),
    /// The accepting side has the configuration of a client, which has nothing to present.
    #[error("there is no certificate to accept connections with")]
    NoCertificate,
}

/// The state of a session after processing received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More data of the peer is needed.
    Waiting,
    /// The handshake has just completed. Reported once; more data may be unprocessed.
    Established,
    /// The peer has closed its sending direction.
    PeerClosed,
}

/// One TLS connection without its socket: bytes in, bytes out.
///
/// A session has its own small buffers. A thread with many sessions [lends](Self::borrow_incoming)
/// them its large buffers for the time of processing.
pub struct Session {
    side: Side,
    exporter: Arc<Exporter>,
    /// SHA-256 of the certificate presented, on the accepting side.
    own_certificate: Option<Arc<[u8; 32]>>,
    incoming: Incoming,
    outgoing: Outgoing,
    is_established: bool,
    /// Plaintext received together with the end of the handshake, held until that is reported.
    early: Vec<u8>,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// The two sides of rustls' unbuffered API.
trait Unbuffered {
    type Data;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Unbuffered for UnbufferedConnectionCommon<ClientConnectionData> {
    type Data = ClientConnectionData;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Unbuffered for UnbufferedConnectionCommon<ServerConnectionData> {
    type Data = ServerConnectionData;
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Session {
    /// A session for the side that has dialled `address`.
    ///
    /// # Errors
    /// [`TlsError::Protocol`] if rustls rejects the configuration: a bug.
    pub fn client(configs: &TlsConfigs, address: IpAddr) -> Result<Self, TlsError> {
        let name = ServerName::IpAddress(address.into());
        let exporter = Arc::new(Exporter::default());
        let mut config = (*configs.client).clone();
        config.key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let conn = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Ok(Self::new(Side::Client(Box::new(conn)), exporter))
    }

    /// A session for the accepting side.
    ///
    /// # Errors
    /// [`TlsError::NoCertificate`] with the configuration of a [client](TlsConfigs::client), [`TlsError::Protocol`] if rustls rejects
    /// it: both are bugs.
    pub fn server(configs: &TlsConfigs) -> Result<Self, TlsError> {
        let exporter = Arc::new(Exporter::default());
        let Presented { config, certificate_sha256 } =
            configs.server.as_ref().ok_or(TlsError::NoCertificate)?;
        let mut config = (**config).clone();
        config.key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let conn = UnbufferedServerConnection::new(Arc::new(config))?;
        let own_certificate = Some(Arc::clone(certificate_sha256));
        Ok(Self { own_certificate, ..Self::new(Side::Server(Box::new(conn)), exporter) })
    }

    fn new(side: Side, exporter: Arc<Exporter>) -> Self {
        Self {
            side,
            exporter,
            own_certificate: None,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            is_established: false,
            early: Vec::new(),
        }
    }

    /// Whether the handshake is complete.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        self.is_established
    }

    /// Lends the session the large receive buffer.
    pub fn borrow_incoming(&mut self, buffers: &mut Buffers) {
        self.incoming.borrow(buffers);
    }

    /// Returns the large buffer; an incomplete record is kept.
    pub fn give_incoming_back(&mut self, buffers: &mut Buffers) {
        self.incoming.give_back(buffers);
    }

    /// Ciphertext to be written, and its buffer.
    pub(crate) const fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Free space for received data. Report the used part with [`commit`](Self::commit).
    pub fn read_space(&mut self) -> &mut [u8] {
        self.incoming.space()
    }

    /// Adds `len` bytes written to [`read_space`](Self::read_space).
    pub fn commit(&mut self, len: usize) {
        self.incoming.commit(len);
    }

    /// Processes received data, or starts the handshake. Passes plaintext to `on_plaintext`.
    ///
    /// # Errors
    /// [`TlsError`]: close the connection after sending what is [`pending`](Self::pending).
    pub fn process(&mut self, on_plaintext: &mut dyn FnMut(&[u8])) -> Result<Progress, TlsError> {
        if self.is_established && !self.early.is_empty() {
            on_plaintext(&std::mem::take(&mut self.early));
        }
        let was_established = self.is_established;
        let early = &mut self.early;
        // rustls yields each record once, possibly before the end of the handshake is reported.
        let on_record = &mut |record: &[u8]| {
            if was_established { on_plaintext(record) } else { early.extend_from_slice(record) }
        };
        let incoming = self.incoming.filled();
        let (is_established, outgoing) = (&mut self.is_established, &mut self.outgoing);
        let (consumed, result) = match &mut self.side {
            Side::Client(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_record)
            }
            Side::Server(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_record)
            }
        };
        self.incoming.consume(consumed);
        result
    }

    /// Encrypts `plaintext`, at most 16,384 bytes for one record, after the pending data.
    ///
    /// # Errors
    /// [`TlsError`]: close the connection.
    pub fn encrypt(&mut self, plaintext: &[u8]) -> Result<(), TlsError> {
        let incoming = self.incoming.filled();
        match &mut self.side {
            Side::Client(conn) => encrypt(&mut **conn, incoming, &mut self.outgoing, plaintext),
            Side::Server(conn) => encrypt(&mut **conn, incoming, &mut self.outgoing, plaintext),
        }
    }

    /// Ciphertext to be written to the socket.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        self.outgoing.pending()
    }

    /// Removes `len` bytes of pending data that were written.
    pub fn advance(&mut self, len: usize) {
        self.outgoing.advance(len);
    }
}

impl Session {
    fn detach(&self, address: Option<IpAddr>) -> Detached {
        let certificate = self.peer_certificate().map(<[u8]>::to_vec);
        Detached {
            certificate,
            own_certificate: self.own_certificate.clone(),
            exporter: Arc::clone(&self.exporter),
            address,
        }
    }
}

impl TlsSession for Session {
    fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = match &self.side {
            Side::Client(conn) => conn.peer_certificates(),
            Side::Server(conn) => conn.peer_certificates(),
        };
        certificates?.first().map(|certificate| &**certificate)
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        self.own_certificate.as_deref().copied()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.exporter.export(label, context)
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.detach(None)))
    }
}

/// A session with the peer's address.
pub(crate) struct Placed<'a> {
    pub(crate) session: &'a Session,
    pub(crate) address: Option<IpAddr>,
}

impl TlsSession for Placed<'_> {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificate()
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        self.session.own_certificate_sha256()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.session.export_keying_material(label, context)
    }

    fn peer_address(&self) -> Option<IpAddr> {
        self.address
    }

    fn was_admitted(&self) -> bool {
        true
    }

    /// The recipient was not determined.
    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.session.detach(self.address)))
    }
}

/// Facts about a session that outlive a borrow of it.
#[derive(Clone)]
struct Detached {
    certificate: Option<Vec<u8>>,
    own_certificate: Option<Arc<[u8; 32]>>,
    exporter: Arc<Exporter>,
    address: Option<IpAddr>,
}

impl TlsSession for Detached {
    fn peer_certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        self.own_certificate.as_deref().copied()
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.exporter.export(label, context)
    }

    fn peer_address(&self) -> Option<IpAddr> {
        self.address
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// Processes `incoming`. Returns the number of consumed bytes.
fn process<Data>(
    conn: &mut UnbufferedConnectionCommon<Data>,
    incoming: &mut [u8],
    outgoing: &mut Outgoing,
    is_established: &mut bool,
    on_plaintext: &mut dyn FnMut(&[u8]),
) -> (usize, Result<Progress, TlsError>)
where
    UnbufferedConnectionCommon<Data>: Unbuffered<Data = Data>,
{
    let mut consumed = 0;
    loop {
        if !*is_established && !conn.is_handshaking() {
            *is_established = true;
            return (consumed, Ok(Progress::Established));
        }
        let UnbufferedStatus { mut discard, state } = conn.process(&mut incoming[consumed..]);
        let progress = match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(outgoing, |out| data.encode(out));
                None
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                None
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    discard += record.discard;
                    on_plaintext(record.payload);
                }
                None
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                Some(Ok(Progress::PeerClosed))
            }
            Ok(_) => Some(Ok(Progress::Waiting)),
            Err(error) => Some(Err(error.into())),
        };
        consumed += discard;
        // The last record may have completed the handshake. Report it now: a side that waits for
        // the peer's first data gets nothing more to process.
        let is_news = !*is_established && !conn.is_handshaking();
        if let Some(progress) = progress
            && !(is_news && progress == Ok(Progress::Waiting))
        {
            return (consumed, progress);
        }
    }
}

/// Appends what `write` encodes, with the space that it requests.
fn encode(outgoing: &mut Outgoing, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let written = match write(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            write(outgoing.room(required_size)).unwrap_or(0)
        }
        Ok(written) => written,
        Err(_) => 0,
    };
    outgoing.commit(written);
}

fn encrypt<Data>(
    conn: &mut UnbufferedConnectionCommon<Data>,
    incoming: &mut [u8],
    outgoing: &mut Outgoing,
    plaintext: &[u8],
) -> Result<(), TlsError>
where
    UnbufferedConnectionCommon<Data>: Unbuffered<Data = Data>,
{
    /// Header, content type and tag of a TLS 1.3 record, with some to spare.
    const OVERHEAD: usize = 64;
    loop {
        // Nothing of `incoming` is consumed: complete records were processed before.
        let UnbufferedStatus { state, .. } = conn.process(incoming);
        match state? {
            ConnectionState::EncodeTlsData(mut data) => encode(outgoing, |out| data.encode(out)),
            ConnectionState::TransmitTlsData(transmit) => transmit.done(),
            ConnectionState::WriteTraffic(mut traffic) => {
                let room = outgoing.room(plaintext.len() + OVERHEAD);
                let written = traffic
                    .encrypt(plaintext, room)
                    .map_err(|error: EncryptError| TlsError::Encrypt(error.to_string()))?;
                outgoing.commit(written);
                return Ok(());
            }
            _ => return Err(TlsError::Encrypt("the session is not open for writing".to_string())),
        }
    }
}

#[cfg(test)]
mod tests;
