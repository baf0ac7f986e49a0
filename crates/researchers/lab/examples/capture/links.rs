//! A link over a blocking socket.

use super::{Result, unexpected};
use link::tls::{Progress, Session};
use onion::cell::{BODY_LEN, Cell, CircId, Command};
use onion::link::{Channel, ChannelError};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Far more than tor takes for any answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A received cell.
pub(super) struct RawCell {
    pub(super) circ_id: CircId,
    pub(super) command: Command,
    pub(super) body: [u8; BODY_LEN],
    /// With its header.
    pub(super) raw: Vec<u8>,
}

/// One link over a blocking socket, which records its handshake.
pub(super) struct Link {
    stream: TcpStream,
    pub(super) session: Session,
    pub(super) channel: Channel,
    /// Plaintext that was not processed yet.
    unread: Vec<u8>,
    /// The received bytes of the link handshake.
    pub(super) received: Vec<u8>,
    /// The sent bytes of the link handshake.
    pub(super) sent: Vec<u8>,
}

impl Link {
    /// Performs the TLS handshake and the link handshake.
    pub(super) fn open(
        mut stream: TcpStream,
        mut session: Session,
        begin: impl FnOnce(&Session) -> std::result::Result<Channel, ChannelError>,
    ) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut unread = Vec::new();
        loop {
            let progress = session.process(&mut |bytes| unread.extend_from_slice(bytes))?;
            stream.write_all(session.pending())?;
            session.advance(session.pending().len());
            if progress == Progress::Established {
                break;
            }
            read(&mut stream, &mut session)?;
        }
        let channel = begin(&session)?;
        let (received, sent) = (Vec::new(), Vec::new());
        let mut link = Self { stream, session, channel, unread, received, sent };
        while !link.channel.is_open() {
            let sent = link.flush()?;
            link.sent.extend(sent);
            let byte = link.next_byte()?;
            link.received.push(byte);
            if link.channel.handle_bytes(&mut &[byte][..])?.is_some() {
                return unexpected("a cell in the link handshake");
            }
        }
        let sent = link.flush()?;
        link.sent.extend(sent);
        Ok(link)
    }

    /// Sends the channel's queued bytes; returns them.
    fn flush(&mut self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.channel.queued_len()];
        let len = self.channel.poll_transmit(&mut bytes);
        bytes.truncate(len);
        if !bytes.is_empty() {
            self.session.encrypt(&bytes)?;
            self.stream.write_all(self.session.pending())?;
            self.session.advance(self.session.pending().len());
        }
        Ok(bytes)
    }

    /// Sends a cell; returns it as encoded.
    pub(super) fn send(
        &mut self,
        circ_id: CircId,
        command: Command,
        body: &[u8],
    ) -> Result<Vec<u8>> {
        self.channel.send(circ_id, command, body);
        self.flush()
    }

    fn next_byte(&mut self) -> Result<u8> {
        while self.unread.is_empty() {
            let unread = &mut self.unread;
            self.session.process(&mut |bytes| unread.extend_from_slice(bytes))?;
            if self.unread.is_empty() {
                read(&mut self.stream, &mut self.session)?;
            }
        }
        Ok(self.unread.remove(0))
    }

    /// The next cell for a circuit.
    pub(super) fn next_cell(&mut self) -> Result<RawCell> {
        let mut raw = Vec::new();
        loop {
            let byte = self.next_byte()?;
            raw.push(byte);
            let byte = [byte];
            let Some(cell) = self.channel.handle_bytes(&mut &byte[..])? else { continue };
            let Cell { circ_id, command, body } = cell;
            if circ_id == CircId::LINK || command == Command::PADDING {
                raw.clear(); // link padding
                continue;
            }
            let Some(body) = body.first_chunk() else {
                return unexpected(format!("{command} of variable length on a circuit"));
            };
            return Ok(RawCell { circ_id, command, body: *body, raw });
        }
    }

    /// The next cell, which must have this command.
    pub(super) fn expect_cell(&mut self, command: Command) -> Result<RawCell> {
        let cell = self.next_cell()?;
        if cell.command == command {
            return Ok(cell);
        }
        unexpected(format!("{} instead of {command}: {:?}", cell.command, &cell.body[..8]))
    }
}

fn read(stream: &mut TcpStream, session: &mut Session) -> Result<()> {
    let len = stream.read(session.read_space())?;
    if len == 0 {
        return unexpected("the relay closed the connection");
    }
    session.commit(len);
    Ok(())
}
