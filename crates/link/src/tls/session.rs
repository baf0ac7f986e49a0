use super::TlsConfigs;
use super::exporter::Exporter;
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

/// Room for received records; the longest has 16 KiB and some.
const INCOMING_LEN: usize = 128 * 1024;

/// Below this much free room, what is left moves to the front before the next read.
const READ_SPACE_MIN: usize = 32 * 1024;

/// A session that is of no more use.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The peer broke the protocol, or an alert of its own ended it.
    #[error("{0}")]
    Protocol(#[from] rustls::Error),
    /// Encrypting failed: our bug, or 2^64 records.
    #[error("cannot encrypt: {0}")]
    Encrypt(String),
}

/// How far a session has come with what it received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It needs more from the peer.
    Waiting,
    /// The handshake has just finished. Reported once; more may wait to be processed.
    Established,
    /// The peer has said that no more will come.
    PeerClosed,
}

/// One TLS connection without its socket: bytes in, bytes out, buffers kept.
pub struct Session {
    side: Side,
    exporter: Arc<Exporter>,
    incoming: Vec<u8>,
    incoming_start: usize,
    incoming_end: usize,
    outgoing: Vec<u8>,
    outgoing_start: usize,
    is_established: bool,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What differs between the two sides of rustls' unbuffered API.
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
    /// The side that dialled `address`.
    ///
    /// # Errors
    /// Where the library refuses the configuration: our bug.
    pub fn client(configs: &TlsConfigs, address: IpAddr) -> Result<Self, TlsError> {
        let name = ServerName::IpAddress(address.into());
        let exporter = Arc::new(Exporter::default());
        let mut config = (*configs.client).clone();
        config.key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let conn = UnbufferedClientConnection::new(Arc::new(config), name)?;
        Ok(Self::new(Side::Client(Box::new(conn)), exporter))
    }

    /// The side that was dialled.
    ///
    /// # Errors
    /// Where the library refuses the configuration: our bug.
    pub fn server(configs: &TlsConfigs) -> Result<Self, TlsError> {
        let exporter = Arc::new(Exporter::default());
        let mut config = (*configs.server).clone();
        config.key_log = Arc::clone(&exporter) as Arc<dyn KeyLog>;
        let conn = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok(Self::new(Side::Server(Box::new(conn)), exporter))
    }

    fn new(side: Side, exporter: Arc<Exporter>) -> Self {
        Self {
            side,
            exporter,
            incoming: vec![0; INCOMING_LEN],
            incoming_start: 0,
            incoming_end: 0,
            outgoing: Vec::new(),
            outgoing_start: 0,
            is_established: false,
        }
    }

    /// Whether the handshake is done.
    #[must_use]
    pub const fn is_established(&self) -> bool {
        self.is_established
    }

    /// Where to put what the socket has; tell how much with [`commit`](Self::commit).
    pub fn read_space(&mut self) -> &mut [u8] {
        if self.incoming_start == self.incoming_end {
            self.incoming_start = 0;
            self.incoming_end = 0;
        } else if INCOMING_LEN - self.incoming_end < READ_SPACE_MIN {
            self.incoming.copy_within(self.incoming_start..self.incoming_end, 0);
            self.incoming_end -= self.incoming_start;
            self.incoming_start = 0;
        }
        &mut self.incoming[self.incoming_end..]
    }

    /// `len` bytes were put into [`read_space`](Self::read_space).
    pub fn commit(&mut self, len: usize) {
        self.incoming_end = (self.incoming_end + len).min(INCOMING_LEN);
    }

    /// Processes what was received, or begins the handshake; plaintext goes to `on_plaintext`.
    ///
    /// # Errors
    /// [`TlsError`]: close the connection, after sending what is [`pending`](Self::pending).
    pub fn process(&mut self, on_plaintext: &mut dyn FnMut(&[u8])) -> Result<Progress, TlsError> {
        let incoming = &mut self.incoming[self.incoming_start..self.incoming_end];
        let (is_established, outgoing) = (&mut self.is_established, &mut self.outgoing);
        let (consumed, result) = match &mut self.side {
            Side::Client(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_plaintext)
            }
            Side::Server(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_plaintext)
            }
        };
        self.incoming_start += consumed;
        result
    }

    /// Encrypts `plaintext`, at most 16,384 bytes for one record, behind what is pending.
    ///
    /// # Errors
    /// [`TlsError`]: close the connection.
    pub fn encrypt(&mut self, plaintext: &[u8]) -> Result<(), TlsError> {
        let incoming = &mut self.incoming[self.incoming_start..self.incoming_end];
        match &mut self.side {
            Side::Client(conn) => encrypt(&mut **conn, incoming, &mut self.outgoing, plaintext),
            Side::Server(conn) => encrypt(&mut **conn, incoming, &mut self.outgoing, plaintext),
        }
    }

    /// Ciphertext that waits for the socket.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.outgoing[self.outgoing_start..]
    }

    /// `len` bytes of what was pending have been written.
    pub fn advance(&mut self, len: usize) {
        self.outgoing_start += len;
        if self.outgoing_start >= self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing_start = 0;
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

    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        self.exporter.export(label, context)
    }
}

/// Works through `incoming`; returns how much of it is used up.
fn process<Data>(
    conn: &mut UnbufferedConnectionCommon<Data>,
    incoming: &mut [u8],
    outgoing: &mut Vec<u8>,
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
        if let Some(progress) = progress {
            return (consumed, progress);
        }
    }
}

/// Appends what `write` encodes, giving it the room that it asks for.
fn encode(outgoing: &mut Vec<u8>, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let before = outgoing.len();
    let written = match write(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            outgoing.resize(before + required_size, 0);
            write(&mut outgoing[before..]).unwrap_or(0)
        }
        Ok(written) => written,
        Err(_) => 0,
    };
    outgoing.truncate(before + written);
}

fn encrypt<Data>(
    conn: &mut UnbufferedConnectionCommon<Data>,
    incoming: &mut [u8],
    outgoing: &mut Vec<u8>,
    plaintext: &[u8],
) -> Result<(), TlsError>
where
    UnbufferedConnectionCommon<Data>: Unbuffered<Data = Data>,
{
    /// Header, content type and tag of a TLS 1.3 record, with some to spare.
    const OVERHEAD: usize = 64;
    loop {
        // Nothing is consumed of `incoming`: a record that is whole has been processed before.
        let UnbufferedStatus { state, .. } = conn.process(incoming);
        match state? {
            ConnectionState::EncodeTlsData(mut data) => encode(outgoing, |out| data.encode(out)),
            ConnectionState::TransmitTlsData(transmit) => transmit.done(),
            ConnectionState::WriteTraffic(mut traffic) => {
                let before = outgoing.len();
                outgoing.resize(before + plaintext.len() + OVERHEAD, 0);
                let encrypted = traffic.encrypt(plaintext, &mut outgoing[before..]);
                let written =
                    encrypted.map_err(|error: EncryptError| TlsError::Encrypt(error.to_string()));
                outgoing.truncate(before + *written.as_ref().unwrap_or(&0));
                return written.map(|_| ());
            }
            _ => return Err(TlsError::Encrypt("the session is not open for writing".to_string())),
        }
    }
}
