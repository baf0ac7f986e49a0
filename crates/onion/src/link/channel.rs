mod error;
mod initiator;
mod proof;
mod responder;
mod session;
mod verification;

pub use error::ChannelError;
pub use initiator::{Authentication, ExpectedPeer};
pub use session::{NoTls, TlsSession};
pub use verification::{Verification, Verified};

use super::certs::PeerIdentity;
use crate::cell::msg::parse_versions;
use crate::cell::{BODY_LEN, Cell, CircId, Command, Framer, LinkProtocol};
use crate::identity::OwnIdentity;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use initiator::Initiating;
use responder::Responding;

/// Where the handshake stands.
#[derive(Debug)]
enum State {
    /// VERSIONS sent, waiting for the responder's cells up to NETINFO.
    Initiating(Box<Initiating>),
    /// Waiting for the initiator's cells, from VERSIONS to NETINFO.
    Responding(Box<Responding>),
    /// All has come, and waits for what proves it to be verified.
    Verifying(Box<Verifying>),
    Open,
    Failed,
}

/// A handshake in which all has come.
#[derive(Debug)]
struct Verifying {
    /// We dialled, and have our part still to say.
    initiating: Option<Box<Initiating>>,
    is_canonical: bool,
    /// Until it is taken.
    verification: Option<Verification>,
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
/// Signatures are verified on the spot, unless the channel is [deferring](Self::deferring).
///
/// Cells that open the link stay inside; once it is open, all cells are handed out, padding included.
#[derive(Debug)]
pub struct Channel {
    state: State,
    framer: Framer,
    protocol: Option<LinkProtocol>,
    /// Not at hand: clients prove nothing, and there are many.
    peer: Option<Box<PeerIdentity>>,
    is_canonical: bool,
    is_deferring: bool,
    /// What we offer, or have offered.
    versions: &'static [u16],
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
        let mut out = Vec::new();
        let initiating =
            Initiating::begin(expected, authentication, tls, random, unix_time_s, &mut out)?;
        Ok(Self::new(State::Initiating(Box::new(initiating)), out))
    }

    /// Begins a link as the side that was dialled.
    ///
    /// `challenge` must be fresh random bytes; `unix_time_s` is told the peer, and checked against the
    /// dates of its certificates if it sends some. Their proof needs [`TlsSession::detached`]; the
    /// session is forgotten when the link is open.
    #[must_use]
    pub fn responder(
        identity: Arc<OwnIdentity>,
        tls: &dyn TlsSession,
        challenge: [u8; 32],
        unix_time_s: u64,
    ) -> Self {
        let responding = Responding::new(identity, tls, challenge, unix_time_s);
        Self::new(State::Responding(Box::new(responding)), Vec::new())
    }

    /// Tells the peer that these addresses are ours, as relays do. Before the first bytes come.
    #[must_use]
    pub fn at_addresses(mut self, addresses: &[IpAddr]) -> Self {
        match &mut self.state {
            State::Initiating(initiating) => initiating.claim_addresses(addresses),
            State::Responding(responding) => responding.claim_addresses(addresses),
            State::Verifying(_) | State::Open | State::Failed => {}
        }
        self
    }

    /// Offers the peer a link with windows from hop to hop, [`LinkProtocol::V5WithFeedback`]. Before the first bytes come or go.
    #[must_use]
    pub fn offering_feedback(mut self) -> Self {
        self.versions = LinkProtocol::offer(true);
        match &mut self.state {
            State::Initiating(initiating) => initiating.offer(self.versions, &mut self.out),
            State::Responding(responding) => responding.offer(self.versions),
            State::Verifying(_) | State::Open | State::Failed => {}
        }
        self
    }

    /// Leaves it to others to verify signatures, which take long enough to be in the way of other links' cells: see
    /// [`poll_verification`](Self::poll_verification).
    #[must_use]
    pub const fn deferring(mut self) -> Self {
        self.is_deferring = true;
        self
    }

    fn new(state: State, out: Vec<u8>) -> Self {
        Self {
            state,
            framer: Framer::new(),
            protocol: None,
            peer: None,
            is_canonical: false,
            is_deferring: false,
            versions: LinkProtocol::offer(false),
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

    /// Who the other side has proved to be, once the link is open. `None` for initiators that prove
    /// nothing, as clients.
    #[must_use]
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_deref()
    }

    /// Whether the peer says that the address at the other end of the connection is one of its own: what
    /// tor calls canonical. Nobody else has redirected the connection, unless he has its keys.
    #[must_use]
    pub const fn is_canonical(&self) -> bool {
        self.is_canonical
    }

    /// Whether it waits for what has come to be verified, and takes nothing more until then.
    #[must_use]
    pub const fn is_verifying(&self) -> bool {
        matches!(self.state, State::Verifying(_))
    }

    /// What is to be verified, once: its outcome goes to [`handle_verified`](Self::handle_verified).
    #[must_use]
    pub fn poll_verification(&mut self) -> Option<Verification> {
        match &mut self.state {
            State::Verifying(verifying) => verifying.verification.take(),
            _ => None,
        }
    }

    /// What was to be verified is: the link is open, or of no more use. Afterwards it takes what came meanwhile.
    ///
    /// # Errors
    /// [`ChannelError`]: close the connection, it will never be open again.
    pub fn handle_verified(&mut self, verified: Verified) -> Result<(), ChannelError> {
        let state = core::mem::replace(&mut self.state, State::Failed);
        let State::Verifying(verifying) = state else {
            self.state = state;
            return Ok(());
        };
        let peer = verified.0?;
        if let Some(mut initiating) = verifying.initiating {
            // A responder that proves nothing is an error, and no peer.
            let peer = peer.as_ref().ok_or(ChannelError::Unexpected(Command::NETINFO))?;
            initiating.finish(peer, &mut self.out)?;
        }
        self.open(Opened { peer, is_canonical: verifying.is_canonical });
        Ok(())
    }

    fn open(&mut self, Opened { peer, is_canonical }: Opened) {
        self.peer = peer.map(Box::new);
        self.is_canonical = is_canonical;
        self.state = State::Open;
        self.framer.shrink();
    }

    /// Takes bytes off the front of `input` until a cell for the circuits turns up.
    ///
    /// `None` means that `input` is used up, or that the channel [is verifying](Self::is_verifying): then the rest of it is to be
    /// kept for later.
    ///
    /// # Errors
    /// [`ChannelError`]: close the connection, it will never be open again.
    #[inline]
    pub fn handle_bytes<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Cell<'c>>, ChannelError> {
        if !self.handle_until_open(input)? {
            return Ok(None);
        }
        // In two steps: the cell borrows from the framer, the failed state does not.
        let cell = self.framer.next_cell(input);
        if cell.is_err() {
            self.state = State::Failed;
        }
        cell.map_err(ChannelError::Frame)
    }

    /// Takes only cells of the handshake off the front of `input`; true once the link is open, which
    /// leaves the rest.
    #[inline]
    pub(crate) fn handle_until_open(&mut self, input: &mut &[u8]) -> Result<bool, ChannelError> {
        while !self.is_open() {
            if self.is_verifying() || !self.handle_handshake(input)? {
                return Ok(false);
            }
        }
        Ok(true)
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
            self.out_start = 0;
            // A link at rest holds no buffer: there may be very many, and what opens one takes kilobytes.
            self.out = Vec::new();
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
        // Free of the framer's borrow; a handshake is rare enough to copy.
        let cell = HandshakeCell::new(cell);
        if cell.command == Command::VERSIONS {
            if self.protocol.is_some() {
                return Err(ChannelError::Unexpected(cell.command));
            }
            let protocol = LinkProtocol::highest(self.versions, parse_versions(cell.body())?)
                .ok_or(ChannelError::NoCommonVersion)?;
            self.protocol = Some(protocol);
            self.framer.widen_circ_ids();
        }
        let (progress, state) = match state {
            State::Initiating(mut initiating) => {
                (initiating.handle(&cell)?, State::Initiating(initiating))
            }
            State::Responding(mut responding) => {
                (responding.handle(&cell, &mut self.out)?, State::Responding(responding))
            }
            State::Verifying(_) | State::Open | State::Failed => {
                return Err(ChannelError::Unexpected(cell.command));
            }
        };
        match progress {
            Progress::GoesOn => self.state = state,
            Progress::Opened(opened) => self.open(opened),
            Progress::Verify(verification, is_canonical) => {
                let initiating = match state {
                    State::Initiating(initiating) => Some(initiating),
                    _ => None,
                };
                let verification = Some(verification);
                self.state = State::Verifying(Box::new(Verifying {
                    initiating,
                    is_canonical,
                    verification,
                }));
                if !self.is_deferring
                    && let Some(verification) = self.poll_verification()
                {
                    self.handle_verified(verification.run())?;
                }
            }
        }
        Ok(true)
    }
}

/// What has come of a cell of the handshake.
enum Progress {
    /// There is more to come.
    GoesOn,
    /// The link is open.
    Opened(Opened),
    /// The link is open if this holds. Whether the peer says that its end's address is its own.
    Verify(Verification, bool),
}

/// What has come of a handshake.
struct Opened {
    peer: Option<PeerIdentity>,
    is_canonical: bool,
}

/// A cell of the handshake, as it came.
struct HandshakeCell {
    circ_id: CircId,
    command: Command,
    /// All of it, header included: what is signed is made of that.
    encoded: Vec<u8>,
    body_len: usize,
}

impl HandshakeCell {
    fn new(cell: Cell<'_>) -> Self {
        let mut encoded = Vec::new();
        cell.encode_into(&mut encoded);
        if cell.command == Command::VERSIONS {
            encoded.drain(..2); // its circuit ID has two bytes
        }
        let (circ_id, command, body_len) = (cell.circ_id, cell.command, cell.body.len());
        Self { circ_id, command, encoded, body_len }
    }

    fn body(&self) -> &[u8] {
        &self.encoded[self.encoded.len() - self.body_len..]
    }
}

/// Appends a cell that concerns the link.
fn push_cell(command: Command, body: &[u8], out: &mut Vec<u8>) {
    Cell { circ_id: CircId::LINK, command, body }.encode_into(out);
}

/// Seconds since 1970 as NETINFO has them.
fn timestamp(unix_time_s: u64) -> u32 {
    u32::try_from(unix_time_s).unwrap_or(u32::MAX)
}
