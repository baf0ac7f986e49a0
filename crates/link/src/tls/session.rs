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
    outgoing: Outgoing,
    is_established: bool,
    /// Plaintext that came along with the handshake's end: it has to wait until that is reported.
    early: Vec<u8>,
}

/// Ciphertext that waits for the socket. The buffer only grows: clearing what is to be overwritten
/// would cost as much as copying it.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Outgoing {
    /// Room for `len` bytes behind what is pending; tell how much was used by moving `end`.
    fn room(&mut self, len: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
        if self.buffer.len() - self.end < len {
            // A socket that is never quite drained must not make the buffer grow for ever.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < len {
            self.buffer.resize(self.end + len, 0);
        }
        &mut self.buffer[self.end..]
    }
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
            outgoing: Outgoing::default(),
            is_established: false,
            early: Vec::new(),
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
        if self.is_established && !self.early.is_empty() {
            on_plaintext(&std::mem::take(&mut self.early));
        }
        let was_established = self.is_established;
        let early = &mut self.early;
        // The library gives a record out once, maybe before it can be told that it is established.
        let on_record = &mut |record: &[u8]| {
            if was_established { on_plaintext(record) } else { early.extend_from_slice(record) }
        };
        let incoming = &mut self.incoming[self.incoming_start..self.incoming_end];
        let (is_established, outgoing) = (&mut self.is_established, &mut self.outgoing);
        let (consumed, result) = match &mut self.side {
            Side::Client(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_record)
            }
            Side::Server(conn) => {
                process(&mut **conn, incoming, outgoing, is_established, on_record)
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
        &self.outgoing.buffer[self.outgoing.start..self.outgoing.end]
    }

    /// `len` bytes of what was pending have been written.
    pub fn advance(&mut self, len: usize) {
        self.outgoing.start = (self.outgoing.start + len).min(self.outgoing.end);
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
        // What was just processed may have ended the handshake: say so now, since a side that waits
        // for the other's first word gets nothing more to process.
        let is_news = !*is_established && !conn.is_handshaking();
        if let Some(progress) = progress
            && !(is_news && progress == Ok(Progress::Waiting))
        {
            return (consumed, progress);
        }
    }
}

/// Appends what `write` encodes, giving it the room that it asks for.
fn encode(outgoing: &mut Outgoing, mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>) {
    let written = match write(&mut []) {
        Err(EncodeError::InsufficientSize(InsufficientSizeError { required_size })) => {
            write(outgoing.room(required_size)).unwrap_or(0)
        }
        Ok(written) => written,
        Err(_) => 0,
    };
    outgoing.end += written;
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
        // Nothing is consumed of `incoming`: a record that is whole has been processed before.
        let UnbufferedStatus { state, .. } = conn.process(incoming);
        match state? {
            ConnectionState::EncodeTlsData(mut data) => encode(outgoing, |out| data.encode(out)),
            ConnectionState::TransmitTlsData(transmit) => transmit.done(),
            ConnectionState::WriteTraffic(mut traffic) => {
                let room = outgoing.room(plaintext.len() + OVERHEAD);
                let written = traffic
                    .encrypt(plaintext, room)
                    .map_err(|error: EncryptError| TlsError::Encrypt(error.to_string()))?;
                outgoing.end += written;
                return Ok(());
            }
            _ => return Err(TlsError::Encrypt("the session is not open for writing".to_string())),
        }
    }
}

#[cfg(test)]
#[path = "session/tests.rs"]
mod tests;
