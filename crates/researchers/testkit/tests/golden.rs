//! The engine against recorded bytes of a C tor relay: see `vectors/README.md`.

mod circuits;
mod initiator;
mod messages;
mod outside;
mod proof;
mod renewal;
mod responder;

use onion::cell::{CELL_LEN, Cell, CircId, Command, Framer};
use onion::link::{Channel, ChannelError};

/// A cell's copy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedCell {
    circ_id: CircId,
    command: Command,
    body: Vec<u8>,
}

impl OwnedCell {
    fn new(command: Command, body: &[u8]) -> Self {
        Self { circ_id: CircId::LINK, command, body: body.to_vec() }
    }

    /// As it goes over the link.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Self { circ_id, command, body } = self;
        Cell { circ_id: *circ_id, command: *command, body }.encode_into(&mut bytes);
        if *command == Command::VERSIONS {
            bytes.drain(..2); // its circuit ID has two bytes
        }
        bytes
    }
}

/// Splits one direction of a link handshake into cells, from VERSIONS on.
fn cells(mut stream: &[u8]) -> Vec<OwnedCell> {
    let mut framer = Framer::new();
    let mut cells = Vec::new();
    while let Some(cell) = framer.next_cell(&mut stream).expect("cells") {
        let Cell { circ_id, command, body } = cell;
        cells.push(OwnedCell { circ_id, command, body: body.to_vec() });
        framer.widen_circ_ids();
    }
    assert_eq!(framer.carried_len(), 0, "a cut cell at the end");
    cells
}

fn find(cells: &[OwnedCell], command: Command) -> &OwnedCell {
    cells.iter().find(|cell| cell.command == command).expect("a cell of this command")
}

fn commands(cells: &[OwnedCell]) -> Vec<Command> {
    cells.iter().map(|cell| cell.command).collect()
}

/// One direction of a link handshake without NETINFO, its last cell, which contains the time.
fn but_netinfo(stream: &[u8]) -> &[u8] {
    &stream[..stream.len() - CELL_LEN]
}

/// Feeds a channel; fails if it returns a cell.
fn feed(channel: &mut Channel, mut piece: &[u8]) -> Result<(), ChannelError> {
    match channel.handle_bytes(&mut piece)? {
        None => Ok(()),
        Some(cell) => panic!("{cell:?}"),
    }
}

/// All that a channel has to send.
fn output(channel: &mut Channel) -> Vec<u8> {
    let mut bytes = vec![0; channel.queued_len()];
    let len = channel.poll_transmit(&mut bytes);
    assert_eq!(len, bytes.len());
    bytes
}
