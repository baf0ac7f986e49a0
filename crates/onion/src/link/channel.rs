use super::certs::{CertError, PeerIdentity, verify_responder_certs};
use crate::cell::msg::{
    AUTH_ED25519_SHA256_RFC5705, AuthChallenge, Certs, NetInfo, cert_type, encode_versions_cell,
    parse_versions,
};
use crate::cell::{BODY_LEN, Cell, CircId, Command, FrameError, Framer, LinkProtocol, Malformed};
use crate::identity::{OwnIdentity, RelayIds};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use sha2::{Digest, Sha256};

/// What the engine needs to know of the TLS session under a link.
pub trait TlsSession {
    /// The peer's certificate in DER; `None` for the responder, whose peers show none.
    fn peer_certificate(&self) -> Option<&[u8]>;

    /// Keying material of the session (RFC 5705); `None` if the session cannot export.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]>;

    /// The same without the connection, for another thread; `None` if that cannot be.
    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        None
    }
}

/// The session of a connection without TLS, for nodes that listen for such ones: it shows and
/// exports nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoTls;

impl TlsSession for NoTls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        None
    }
}

/// Whom an initiator wants at the other end.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedPeer {
    /// The identities that its certificates must prove.
    pub ids: RelayIds,
    /// The address we dialled, which NETINFO tells it.
    pub address: IpAddr,
}

/// Whether an initiator proves an identity of its own.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// As clients do: none.
    Anonymous,
    /// As relays do: with this identity (tor-spec §4.4.2).
    AsRelay(Arc<OwnIdentity>),
}

/// Why a link is of no more use. The peer is to blame, except for [`ChannelError::Tls`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelError {
    /// The stream cannot be cut into cells.
    Frame(FrameError),
    /// A cell of the handshake does not parse.
    Malformed(Malformed),
    /// The peer's certificates prove nothing.
    Certs(CertError),
    /// It is another relay than the one we wanted.
    WrongIdentity {
        /// Whom we wanted.
        expected: RelayIds,
        /// Who is there.
        found: RelayIds,
    },
    /// It speaks none of our link protocols.
    NoCommonVersion,
    /// A cell that must not come at this point of the handshake.
    Unexpected(Command),
    /// It offers no way to authenticate that we know.
    CannotAuthenticate,
    /// The TLS session lacks what the handshake needs: our own shell is to blame.
    Tls(&'static str),
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Certs(error) => write!(f, "the relay does not prove its identity: {error}"),
            Self::WrongIdentity { expected, found } => {
                write!(f, "wrong relay: expected {}, found {}", expected.rsa, found.rsa)?;
                if expected.rsa == found.rsa {
                    f.write_str(" with another Ed25519 identity")?;
                }
                Ok(())
            }
            Self::NoCommonVersion => f.write_str("no common link protocol: we speak 4 and 5"),
            Self::Unexpected(command) => write!(f, "unexpected {command} in the link handshake"),
            Self::CannotAuthenticate => {
                f.write_str("the relay does not offer link authentication of type 3")
            }
            Self::Tls(problem) => write!(f, "our TLS session is of no use: {problem}"),
        }
    }
}

impl core::error::Error for ChannelError {}

impl From<Malformed> for ChannelError {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

/// Where the handshake stands.
#[derive(Debug)]
enum State {
    /// Initiator: VERSIONS sent, waiting for the responder's cells up to NETINFO.
    Initiating(Box<Initiating>),
    /// Responder: waiting for VERSIONS.
    AwaitingVersions(Arc<OwnIdentity>, Box<[u8; 32]>),
    /// Responder: everything sent, waiting for NETINFO.
    AwaitingNetInfo,
    Open,
    Failed,
}

/// What an initiator keeps until the responder has said everything.
#[derive(Debug)]
struct Initiating {
    expected: ExpectedPeer,
    authentication: Authentication,
    tls_cert_sha256: [u8; 32],
    /// Exported for the authentication, if there is to be one.
    tls_secret: [u8; 32],
    random: [u8; 24],
    unix_time_s: u64,
    peer: Option<PeerIdentity>,
    challenge: Option<AuthChallenge>,
    /// All bytes from the responder up to AUTH_CHALLENGE.
    responder_log: Sha256,
    /// All bytes we sent before AUTHENTICATE.
    initiator_log: Sha256,
}

/// One link, from its first byte: handshake as initiator or responder, then a stream of cells.
///
/// # Driving it
/// - *getters*: [`is_open`](Self::is_open), [`protocol`](Self::protocol), [`peer`](Self::peer);
/// - *handle*: give every received stretch of plaintext to [`handle_bytes`](Self::handle_bytes),
///   again and again until it returns `None`;
/// - *commands*: [`send`](Self::send) queues a cell;
/// - *poll*: take what is to be written with [`poll_transmit`](Self::poll_transmit) after either.
///
/// Cells that open the link stay inside; once it is open, all cells are handed out, padding included.
#[derive(Debug)]
pub struct Channel {
    state: State,
    framer: Framer,
    protocol: Option<LinkProtocol>,
    peer: Option<PeerIdentity>,
    peer_presents_itself: bool,
    /// Cells to be written; bytes before `out_start` are gone.
    out: Vec<u8>,
    out_start: usize,
}

impl Channel {
    /// Begins a link as the side that dialled.
    ///
    /// `random` must be fresh; `unix_time_s` is checked against the certificates' dates.
    ///
    /// # Errors
    /// [`ChannelError::Tls`] where the session lacks a certificate or the means to authenticate.
    pub fn initiator(
        expected: ExpectedPeer,
        authentication: Authentication,
        tls: &dyn TlsSession,
        random: [u8; 24],
        unix_time_s: u64,
    ) -> Result<Self, ChannelError> {
        let certificate =
            tls.peer_certificate().ok_or(ChannelError::Tls("the peer showed no certificate"))?;
        let tls_cert_sha256 = Sha256::digest(certificate).into();
        let tls_secret = match &authentication {
            Authentication::Anonymous => [0; 32],
            Authentication::AsRelay(identity) => {
                let label = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";
                // The context is CID, not the Ed25519 identity that older specifications name.
                tls.export_keying_material(label, &identity.rsa_sha256)
                    .ok_or(ChannelError::Tls("it cannot export keying material"))?
            }
        };
        let versions = encode_versions_cell(&LinkProtocol::SUPPORTED);
        let initiating = Initiating {
            expected,
            authentication,
            tls_cert_sha256,
            tls_secret,
            random,
            unix_time_s,
            peer: None,
            challenge: None,
            responder_log: Sha256::new(),
            initiator_log: Sha256::new_with_prefix(&versions),
        };
        Ok(Self::new(State::Initiating(Box::new(initiating)), versions))
    }

    /// Begins a link as the side that was dialled. `challenge` must be fresh random bytes.
    ///
    /// The initiator's own proof of identity, if it sends one, is not examined.
    #[must_use]
    pub fn responder(identity: Arc<OwnIdentity>, challenge: [u8; 32]) -> Self {
        Self::new(State::AwaitingVersions(identity, Box::new(challenge)), Vec::new())
    }

    fn new(state: State, out: Vec<u8>) -> Self {
        Self {
            state,
            framer: Framer::new(),
            protocol: None,
            peer: None,
            peer_presents_itself: false,
            out,
            out_start: 0,
        }
    }

    /// Whether the handshake is done: circuits may be opened.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The link protocol, once negotiated.
    #[must_use]
    pub const fn protocol(&self) -> Option<LinkProtocol> {
        self.protocol
    }

    /// Who the responder has proved to be; `None` on the responder's own side.
    #[must_use]
    pub const fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_ref()
    }

    /// On the responder's side: the initiator presents an identity, as relays do and clients don't.
    /// It is not examined: whoever lies gets past what is meant for honest clients.
    #[must_use]
    pub const fn peer_presents_itself(&self) -> bool {
        self.peer_presents_itself
    }

    /// Takes bytes off the front of `input` until a cell for the circuits turns up.
    ///
    /// `None` means that `input` is used up.
    ///
    /// # Errors
    /// [`ChannelError`]: close the connection, it will never be open again.
    #[inline]
    pub fn handle_bytes<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Cell<'c>>, ChannelError> {
        while !self.is_open() {
            if !self.handle_handshake(input)? {
                return Ok(None);
            }
        }
        // In two steps: the cell borrows from the framer, the failed state does not.
        let cell = self.framer.next_cell(input);
        if cell.is_err() {
            self.state = State::Failed;
        }
        cell.map_err(ChannelError::Frame)
    }

    /// Queues a fixed-length cell; a short body is padded with zeros.
    pub fn send(&mut self, circ_id: CircId, command: Command, body: &[u8]) {
        debug_assert!(body.len() <= BODY_LEN || command.is_variable_length());
        // A queue that never runs empty would keep all that it ever sent.
        if self.out_start > self.out.len() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        Cell { circ_id, command, body }.encode_into(&mut self.out);
    }

    /// Moves queued bytes into `out`; returns how many.
    #[must_use]
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> usize {
        let queued = &self.out[self.out_start..];
        let len = queued.len().min(out.len());
        out[..len].copy_from_slice(&queued[..len]);
        self.out_start += len;
        if self.out_start == self.out.len() {
            self.out.clear();
            self.out_start = 0;
        }
        len
    }

    /// Bytes that [`poll_transmit`](Self::poll_transmit) would give.
    #[must_use]
    pub const fn queued_len(&self) -> usize {
        self.out.len() - self.out_start
    }

    /// Handles one cell of the handshake; false if `input` is used up before the cell's end.
    #[cold]
    fn handle_handshake(&mut self, input: &mut &[u8]) -> Result<bool, ChannelError> {
        let state = core::mem::replace(&mut self.state, State::Failed);
        let Some(cell) = self.framer.next_cell(input).map_err(ChannelError::Frame)? else {
            self.state = state;
            return Ok(false);
        };
        let command = cell.command;
        let mut encoded = Vec::new();
        if command == Command::VERSIONS {
            encoded.extend_from_slice(&[0, 0, command.get()]);
            encoded.extend_from_slice(&u16::try_from(cell.body.len()).unwrap_or(0).to_be_bytes());
            encoded.extend_from_slice(cell.body);
        } else {
            cell.encode_into(&mut encoded);
        }
        // The cell's bytes, free of the framer's borrow; a handshake is rare enough to copy.
        let body = &encoded[encoded.len() - cell.body.len()..];

        if command == Command::VERSIONS {
            if self.protocol.is_some() {
                return Err(ChannelError::Unexpected(command));
            }
            let protocol = LinkProtocol::negotiate(parse_versions(body)?)
                .ok_or(ChannelError::NoCommonVersion)?;
            self.protocol = Some(protocol);
            self.framer.widen_circ_ids();
        }
        self.state = match state {
            State::Initiating(mut initiating) => {
                if initiating.challenge.is_none() {
                    initiating.responder_log.update(&encoded);
                }
                match command {
                    Command::VERSIONS | Command::PADDING | Command::VPADDING => {
                        State::Initiating(initiating)
                    }
                    Command::CERTS if initiating.peer.is_none() => {
                        initiating.check_certs(body)?;
                        State::Initiating(initiating)
                    }
                    Command::AUTH_CHALLENGE if initiating.challenge.is_none() => {
                        initiating.challenge = Some(AuthChallenge::parse(body)?);
                        State::Initiating(initiating)
                    }
                    Command::NETINFO => {
                        NetInfo::parse(body)?;
                        self.peer = Some(initiating.finish(&mut self.out)?);
                        State::Open
                    }
                    other => return Err(ChannelError::Unexpected(other)),
                }
            }
            State::AwaitingVersions(identity, challenge) => {
                answer_versions(&identity, *challenge, &mut self.out);
                State::AwaitingNetInfo
            }
            State::AwaitingNetInfo => match command {
                Command::AUTHENTICATE => {
                    self.peer_presents_itself = true;
                    State::AwaitingNetInfo
                }
                Command::PADDING | Command::VPADDING | Command::CERTS | Command::AUTHORIZE => {
                    State::AwaitingNetInfo
                }
                Command::NETINFO => {
                    NetInfo::parse(body)?;
                    State::Open
                }
                other => return Err(ChannelError::Unexpected(other)),
            },
            State::Open | State::Failed => return Err(ChannelError::Unexpected(command)),
        };
        Ok(true)
    }
}

/// The responder's whole part: VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.
fn answer_versions(identity: &OwnIdentity, challenge: [u8; 32], out: &mut Vec<u8>) {
    out.extend(encode_versions_cell(&LinkProtocol::SUPPORTED));
    let certs: [(u8, &[u8]); 4] = [
        (cert_type::RSA_IDENTITY, &identity.rsa_identity_cert),
        (cert_type::ED25519_SIGNING, &identity.signing_cert),
        (cert_type::ED25519_TLS_LINK, &identity.tls_link_cert),
        (cert_type::RSA_CROSS, &identity.rsa_cross_cert),
    ];
    let mut body = Vec::new();
    Certs::encode_into(&certs, &mut body);
    push_cell(Command::CERTS, &body, out);
    body.clear();
    AuthChallenge { challenge, methods: Vec::from([AUTH_ED25519_SHA256_RFC5705]) }
        .encode_into(&mut body);
    push_cell(Command::AUTH_CHALLENGE, &body, out);
    body.clear();
    NetInfo { timestamp: 0, other: None, mine: Vec::new() }.encode_into(&mut body);
    push_cell(Command::NETINFO, &body, out);
}

fn push_cell(command: Command, body: &[u8], out: &mut Vec<u8>) {
    Cell { circ_id: CircId::LINK, command, body }.encode_into(out);
}

impl Initiating {
    /// Verifies the responder's certificates and compares them with whom we wanted.
    fn check_certs(&mut self, body: &[u8]) -> Result<(), ChannelError> {
        let certs = Certs::parse(body)?;
        let peer = verify_responder_certs(&certs, &self.tls_cert_sha256, self.unix_time_s)
            .map_err(ChannelError::Certs)?;
        let expected = self.expected.ids;
        let other_ed25519 = expected.ed25519.is_some_and(|wanted| wanted != peer.ed25519);
        if expected.rsa != peer.ids.rsa || other_ed25519 {
            return Err(ChannelError::WrongIdentity { expected, found: peer.ids });
        }
        self.peer = Some(peer);
        Ok(())
    }

    /// All is said: our certificates and proof, if any, and NETINFO.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<PeerIdentity, ChannelError> {
        let peer = self.peer.ok_or(ChannelError::Unexpected(Command::NETINFO))?;
        if let Authentication::AsRelay(identity) = &self.authentication {
            let identity = Arc::clone(identity);
            self.authenticate(&identity, &peer, out)?;
        }
        let mut body = Vec::new();
        let other = Some(self.expected.address);
        // As a client: no time, no address of our own.
        NetInfo { timestamp: 0, other, mine: Vec::new() }.encode_into(&mut body);
        push_cell(Command::NETINFO, &body, out);
        Ok(peer)
    }

    /// CERTS and AUTHENTICATE of an initiator that is a relay (tor-spec §4.4.2).
    fn authenticate(
        &mut self,
        identity: &OwnIdentity,
        peer: &PeerIdentity,
        out: &mut Vec<u8>,
    ) -> Result<(), ChannelError> {
        let offers = self.challenge.as_ref().map(|challenge| &challenge.methods[..]);
        if !offers.unwrap_or_default().contains(&AUTH_ED25519_SHA256_RFC5705) {
            return Err(ChannelError::CannotAuthenticate);
        }
        let certs: [(u8, &[u8]); 4] = [
            (cert_type::RSA_IDENTITY, &identity.rsa_identity_cert),
            (cert_type::ED25519_SIGNING, &identity.signing_cert),
            (cert_type::ED25519_AUTHENTICATE, &identity.authenticate_cert),
            (cert_type::RSA_CROSS, &identity.rsa_cross_cert),
        ];
        let mut body = Vec::new();
        Certs::encode_into(&certs, &mut body);
        let before = out.len();
        push_cell(Command::CERTS, &body, out);
        self.initiator_log.update(&out[before..]);

        let mut proof = Vec::from(*b"AUTH0003");
        proof.extend_from_slice(&identity.rsa_sha256);
        proof.extend_from_slice(&peer.rsa_sha256);
        proof.extend_from_slice(&identity.ed25519.0);
        proof.extend_from_slice(&peer.ed25519.0);
        proof.extend_from_slice(&self.responder_log.clone().finalize());
        proof.extend_from_slice(&self.initiator_log.clone().finalize());
        proof.extend_from_slice(&self.tls_cert_sha256);
        proof.extend_from_slice(&self.tls_secret);
        proof.extend_from_slice(&self.random);
        let signature = identity.sign_authentication(&proof);
        proof.extend_from_slice(&signature);

        body.clear();
        body.extend_from_slice(&AUTH_ED25519_SHA256_RFC5705.to_be_bytes());
        body.extend_from_slice(&u16::try_from(proof.len()).unwrap_or(0).to_be_bytes());
        body.extend_from_slice(&proof);
        push_cell(Command::AUTHENTICATE, &body, out);
        Ok(())
    }
}
