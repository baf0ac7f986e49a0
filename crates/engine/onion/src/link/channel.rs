//! One link from its first byte: the handshake of either side, then framing.
//!
//! A channel owns the buffers and the transcript of the handshake. It must not know circuits, and it knows TLS
//! only through [`TlsSession`].

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

/// The state of the handshake.
#[derive(Debug)]
enum State {
    /// VERSIONS is sent; the responder's cells up to NETINFO are expected.
    Initiating(Box<Initiating>),
    /// The initiator's cells from VERSIONS to NETINFO are expected.
    Responding(Box<Responding>),
    /// All cells have arrived, and signatures are to be verified.
    Verifying(Box<Verifying>),
    Open,
    Failed,
}

/// A handshake whose cells have all arrived.
#[derive(Debug)]
struct Verifying {
    /// The initiator's state, with cells still to send.
    initiating: Option<Box<Initiating>>,
    is_canonical: bool,
    /// `None` after it was taken.
    verification: Option<Verification>,
}

/// One link: the handshake as initiator or responder, then a stream of cells.
///
/// # Driving it
/// - *getters*: [`is_open`](Self::is_open), [`protocol`](Self::protocol), [`peer`](Self::peer);
/// - *handle*: pass received plaintext to [`handle_bytes`](Self::handle_bytes), repeatedly until it returns
///   `None`;
/// - *commands*: [`send`](Self::send) queues a cell;
/// - *poll*: take data to write by [`poll_transmit`](Self::poll_transmit) after either.
///
/// Signatures are verified immediately, unless the channel is [deferring](Self::deferring).
///
/// Handshake cells are consumed; once the link is open, all cells are returned, including padding.
#[derive(Debug)]
pub struct Channel {
    state: State,
    framer: Framer,
    protocol: Option<LinkProtocol>,
    /// Boxed: clients do not authenticate, and most links are theirs.
    peer: Option<Box<PeerIdentity>>,
    is_canonical: bool,
    is_deferring: bool,
    /// The versions to offer, or offered.
    versions: &'static [u16],
    /// Cells to write; bytes before `out_start` have been written.
    out: Vec<u8>,
    out_start: usize,
}

impl Channel {
    /// Begins a link as the initiator.
    ///
    /// `random` must be fresh; `unix_time_s` is compared with the validity of certificates.
    ///
    /// # Errors
    /// [`ChannelError::Tls`] if the session has no certificate or cannot export keying material.
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

    /// Begins a link as the responder.
    ///
    /// `challenge` must be fresh random bytes; `unix_time_s` is sent to the peer, and compared with the
    /// validity of its certificates if it sends some. Verifying them needs [`TlsSession::detached`]; the
    /// session is dropped when the link is open.
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

    /// Sets this side's own addresses for NETINFO, as relays do. To be called before any bytes arrive.
    #[must_use]
    pub fn at_addresses(mut self, addresses: &[IpAddr]) -> Self {
        match &mut self.state {
            State::Initiating(initiating) => initiating.claim_addresses(addresses),
            State::Responding(responding) => responding.claim_addresses(addresses),
            State::Verifying(_) | State::Open | State::Failed => {}
        }
        self
    }

    /// Offers hop-by-hop windows, [`LinkProtocol::V5WithFeedback`]. To be called before any bytes arrive or
    /// leave.
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

    /// Leaves the verification of signatures to the caller, since it is slow enough to delay other links'
    /// cells: see [`poll_verification`](Self::poll_verification).
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

    /// Whether the handshake is complete: circuits may be created.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    /// The link protocol, once negotiated.
    #[must_use]
    pub const fn protocol(&self) -> Option<LinkProtocol> {
        self.protocol
    }

    /// The authenticated peer, once the link is open. `None` for initiators that do not authenticate, such as
    /// clients.
    #[must_use]
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.peer.as_deref()
    }

    /// Whether the peer claims the address at its end of the connection as its own: a canonical link. Nobody
    /// has redirected the connection without the peer's keys.
    #[must_use]
    pub const fn is_canonical(&self) -> bool {
        self.is_canonical
    }

    /// Whether it waits for verification and accepts no more input meanwhile.
    #[must_use]
    pub const fn is_verifying(&self) -> bool {
        matches!(self.state, State::Verifying(_))
    }

    /// Returns the signatures to verify, once: the result goes to [`handle_verified`](Self::handle_verified).
    #[must_use]
    pub fn poll_verification(&mut self) -> Option<Verification> {
        match &mut self.state {
            State::Verifying(verifying) => verifying.verification.take(),
            _ => None,
        }
    }

    /// The verification is complete: the link is open or unusable. Afterwards it accepts the input that arrived
    /// meanwhile.
    ///
    /// # Errors
    /// [`ChannelError`]: close the connection, the link is unusable.
    pub fn handle_verified(&mut self, verified: Verified) -> Result<(), ChannelError> {
        let state = core::mem::replace(&mut self.state, State::Failed);
        let State::Verifying(verifying) = state else {
            self.state = state;
            return Ok(());
        };
        let peer = verified.0?;
        if let Some(mut initiating) = verifying.initiating {
            // A responder that proves nothing is an error, not an anonymous peer.
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

    /// Consumes the front of `input` up to the next cell for the caller.
    ///
    /// `None` means that `input` is consumed, or that the channel [is verifying](Self::is_verifying): then the
    /// caller keeps the rest for later.
    ///
    /// # Errors
    /// [`ChannelError`]: close the connection, the link is unusable.
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

    /// Consumes only handshake cells; returns true once the link is open, which leaves the rest of `input`.
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
        // A queue that never runs empty would keep everything that it ever sent.
        if self.out_start > self.out.len() / 2 {
            self.out.drain(..self.out_start);
            self.out_start = 0;
        }
        Cell { circ_id, command, body }.encode_into(&mut self.out);
    }

    /// Moves queued bytes into `out`; returns their number.
    #[must_use]
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> usize {
        let queued = &self.out[self.out_start..];
        let len = queued.len().min(out.len());
        out[..len].copy_from_slice(&queued[..len]);
        self.out_start += len;
        if self.out_start == self.out.len() {
            self.out_start = 0;
            // An idle link has no buffer: there may be very many, and the handshake takes kilobytes.
            self.out = Vec::new();
        }
        len
    }

    /// The number of bytes that [`poll_transmit`](Self::poll_transmit) would return.
    #[must_use]
    pub const fn queued_len(&self) -> usize {
        self.out.len() - self.out_start
    }

    /// Handles one handshake cell; returns false if `input` ends before the cell does.
    #[cold]
    fn handle_handshake(&mut self, input: &mut &[u8]) -> Result<bool, ChannelError> {
        let state = core::mem::replace(&mut self.state, State::Failed);
        let Some(cell) = self.framer.next_cell(input).map_err(ChannelError::Frame)? else {
            self.state = state;
            return Ok(false);
        };
        // Copied, to end the framer's borrow: handshakes are rare.
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

/// The result of a handshake cell.
enum Progress {
    /// More cells are expected.
    GoesOn,
    /// The link is open.
    Opened(Opened),
    /// The link is open if the verification succeeds. Whether the peer claims its end's address as its own.
    Verify(Verification, bool),
}

/// A handshake cell as received.
struct Opened {
    peer: Option<PeerIdentity>,
    is_canonical: bool,
}

/// A received cell of the handshake.
struct HandshakeCell {
    circ_id: CircId,
    command: Command,
    /// The whole cell including its header, as covered by signatures.
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

/// The Unix time in seconds, as in NETINFO.
fn timestamp(unix_time_s: u64) -> u32 {
    u32::try_from(unix_time_s).unwrap_or(u32::MAX)
}
