//! The client on links of bytes: one [`Channel`] for each link, with handshake and framing.

use super::{Application, Core, Transfer};
use crate::cell::{BODY_LEN, CELL_LEN, CircId, Command, LinkProtocol};
use crate::cell_model::{Body, Cell, Tor};
use crate::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use crate::node::{CloseCause, ConnId, Dial, ListenerId, Node};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use core::fmt;
use core::ops::{Deref, DerefMut};
use rand_core::Rng;

/// Replaces the random bytes that only an authenticating party sends.
const NO_AUTHENTICATION: [u8; 24] = [0; 24];

/// A client on links of bytes: a [`Core`] with the link handshake, framing and the `Node` interface. See the
/// [module](super).
///
/// The core's getters and commands are reached by dereferencing.
pub struct Client<R, A = Transfer> {
    /// For the validity of certificates.
    unix_time_s: u64,
    core: Core<Tor, A, R>,
    /// The channels of links whose TLS handshake is complete.
    channels: BTreeMap<ConnId, Channel>,
}

impl<R: Rng> Client<R> {
    /// A client without circuits, whose streams are transfers. All random numbers come from the generator.
    pub fn new(unix_time_s: u64, rng: R) -> Self {
        Self::with_applications(unix_time_s, rng)
    }
}

impl<R: Rng, A: Application<Tor>> Client<R, A> {
    /// A client whose streams have other applications.
    pub fn with_applications(unix_time_s: u64, rng: R) -> Self {
        Self { unix_time_s, core: Core::new(rng), channels: BTreeMap::new() }
    }

    /// Sets the time in Unix seconds: that of the start is wrong after days, and clocks are adjusted.
    pub const fn set_unix_time(&mut self, unix_time_s: u64) {
        self.unix_time_s = unix_time_s;
    }
}

impl<R: Rng, A: Application<Tor>> Client<R, A> {
    /// Handles all cells of some plaintext.
    fn handle_cells(
        &mut self,
        now: Instant,
        conn: ConnId,
        plaintext: &[u8],
    ) -> Result<(), ChannelError> {
        let Some(channel) = self.channels.get_mut(&conn) else { return Ok(()) };
        let mut input = plaintext;
        if !channel.is_open() && channel.handle_until_open(&mut input)? {
            let has_feedback = channel.protocol() == Some(LinkProtocol::V5WithFeedback);
            self.core.handle_link_open(now, conn, has_feedback);
        }
        while let Some(cell) = channel.handle_bytes(&mut input)? {
            if (cell.circ_id, cell.command) == (CircId::LINK, Command::FEEDBACK) {
                if !self.core.handle_feedback(now, conn, cell.body) {
                    return Ok(());
                }
                continue;
            }
            let padded;
            let body = match cell.body.first_chunk::<BODY_LEN>() {
                Some(body) => body,
                None => {
                    padded = Body::<Tor>::from_bytes(cell.body);
                    &padded
                }
            };
            self.core.handle_cell(now, conn, cell.circ_id, cell.command, body);
        }
        // Answers of the link handshake.
        self.core.wake(conn);
        Ok(())
    }

    fn handle_error(&mut self, now: Instant, conn: ConnId, error: &ChannelError) {
        self.channels.remove(&conn);
        self.core.handle_broken(now, conn, error.to_string());
    }
}

impl<R, A> Deref for Client<R, A> {
    type Target = Core<Tor, A, R>;

    fn deref(&self) -> &Self::Target {
        &self.core
    }
}

impl<R, A> DerefMut for Client<R, A> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.core
    }
}

impl<R: Rng, A: Application<Tor>> Node for Client<R, A> {
    fn handle_connected(&mut self, now: Instant, conn: ConnId, tls: &dyn TlsSession) {
        let Some(to) = self.core.first_hop(conn) else { return };
        let expected = ExpectedPeer { ids: to.ids, address: to.address.ip() };
        let anonymous = Authentication::Anonymous;
        match Channel::initiator(expected, anonymous, tls, NO_AUTHENTICATION, self.unix_time_s) {
            Ok(channel) => {
                let channel =
                    if self.core.has_hop_windows() { channel.offering_feedback() } else { channel };
                self.channels.insert(conn, channel);
                self.core.wake(conn);
            }
            Err(error) => self.handle_error(now, conn, &error),
        }
    }

    fn handle_accepted(
        &mut self,
        _now: Instant,
        _listener: ListenerId,
        _tls: &dyn TlsSession,
    ) -> Option<ConnId> {
        None
    }

    fn handle_bytes(&mut self, now: Instant, conn: ConnId, plaintext: &[u8]) {
        if let Err(error) = self.handle_cells(now, conn, plaintext) {
            self.handle_error(now, conn, &error);
        }
    }

    fn handle_closed(&mut self, now: Instant, conn: ConnId, cause: CloseCause) {
        self.channels.remove(&conn);
        self.core.handle_closed(now, conn, cause);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.core.handle_timeout(now);
    }

    fn poll_dial(&mut self, _now: Instant) -> Option<Dial> {
        self.core.poll_dial()
    }

    fn poll_writable(&mut self) -> Option<ConnId> {
        self.core.poll_writable()
    }

    fn poll_transmit(&mut self, now: Instant, conn: ConnId, out: &mut [u8]) -> usize {
        let Some(channel) = self.channels.get_mut(&conn) else { return 0 };
        while let Some(body) = self.core.poll_feedback(conn) {
            channel.send(CircId::LINK, Command::FEEDBACK, &body);
        }
        let len = channel.poll_transmit(out);
        let (cells, rest) = out[len..].as_chunks_mut();
        let cells_len = self.core.poll_cells(now, conn, cells) * CELL_LEN;
        if len + cells_len > 0 || !cells.is_empty() {
            return len + cells_len;
        }
        // There is space for a part of a cell only: the channel keeps the others.
        let mut cell = [[0; CELL_LEN]];
        if rest.is_empty() || self.core.poll_cells(now, conn, &mut cell) == 0 {
            return 0;
        }
        let [cell] = &cell;
        channel.send(cell.circ_id(), cell.command(), cell.body());
        channel.poll_transmit(rest)
    }

    fn poll_close(&mut self) -> Option<ConnId> {
        let conn = self.core.poll_close()?;
        self.channels.remove(&conn);
        Some(conn)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.core.poll_timeout()
    }
}

impl<R, A> fmt::Debug for Client<R, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
