//! The actions of client and exit, and the data of their applications.

use super::{LegEnd, Link, LinkedPair, TransferState};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use onion::cell::msg::ConfluxLink;
use onion::cell::relay::{RelayCommand, RelayFormat};
use onion::cell_model::{
    Body, Cell, HeaderOnly, HeaderOnlyBody, HeaderOnlyCell, PayloadSlice, Run, RunRoom,
};
use onion::client::{ClientEvent, Outcome};
use onion::node::{ConnId, Dial, Security};
use onion::router::LinkPeer;

/// Limit on the actions that one event may cause.
const POLLS_MAX: u32 = 100_000;

/// Maximum number of cells per write.
const RECORD_CELLS: usize = 31;

impl LinkedPair {
    /// Performs all actions of both ends.
    ///
    /// # Panics
    /// If the actions do not end, or if a destination receives data at the wrong offset.
    pub(super) fn settle(&mut self) {
        for _ in 0..POLLS_MAX {
            if !self.settle_client() && !self.settle_exit() {
                return;
            }
        }
        panic!("the actions of client and exit do not end");
    }

    fn settle_client(&mut self) -> bool {
        if let Some(dial) = self.client.poll_dial() {
            self.join(dial.conn);
        } else if let Some(conn) = self.client.poll_writable() {
            self.take_from_client(conn);
        } else if let Some(conn) = self.client.poll_close() {
            if let Some(link) = self.links.iter_mut().find(|link| link.client == Some(conn)) {
                link.client = None;
                link.backward.clear();
            }
        } else if let Some(event) = self.client.poll_event() {
            self.handle_event(event);
        } else {
            return false;
        }
        true
    }

    fn settle_exit(&mut self) -> bool {
        if let Some(dial) = self.exit.poll_dial() {
            self.connect(&dial);
        } else if let Some(conn) = self.exit.poll_socket_query() {
            self.exit.handle_socket_state(self.now, conn, None);
        } else if let Some(conn) = self.exit.poll_writable() {
            if self.exit.is_stream(conn) {
                self.take_for_destination(conn);
            } else {
                self.take_from_exit(conn);
            }
        } else if let Some(conn) = self.exit.poll_close() {
            for transfer in self.transfers.iter_mut().filter(|transfer| transfer.conn == Some(conn))
            {
                transfer.conn = None;
            }
            if let Some(link) = self.links.iter_mut().find(|link| link.exit == Some(conn)) {
                link.exit = None;
                link.forward.clear();
            }
        } else {
            return self.exit.poll_event().is_some() || self.exit.poll_readable().is_some();
        }
        true
    }

    /// The client dials a link, which is open at once at both ends.
    fn join(&mut self, client: ConnId) {
        let exit = self.exit.accept(self.now, None, None);
        let peer =
            LinkPeer { relay: None, is_canonical: false, has_padding: false, has_feedback: false };
        if let Some(exit) = exit {
            self.exit.handle_link_open(self.now, exit, &peer);
        }
        let (forward, backward) = (VecDeque::new(), VecDeque::new());
        self.links.push(Link { client: Some(client), exit, forward, backward });
        self.client.handle_link_open(self.now, client, false);
    }

    /// The exit dials a destination: its port identifies the transfer.
    fn connect(&mut self, Dial { conn, to, security }: &Dial) {
        assert_eq!(*security, Security::Plain, "the exit dials no relay");
        let SocketAddr::V4(to) = to else { return };
        if let Some(transfer) =
            usize::from(to.port()).checked_sub(1).and_then(|at| self.transfers.get_mut(at))
        {
            transfer.conn = Some(*conn);
        }
        self.exit.handle_plain_connected(self.now, *conn);
    }

    fn take_from_client(&mut self, conn: ConnId) {
        let mut cells = cells();
        loop {
            let count = self.client.poll_cells(self.now, conn, &mut cells);
            if count == 0 {
                return;
            }
            for cell in &cells[..count] {
                self.note_link(cell.body());
            }
            if let Some(link) = self.links.iter_mut().find(|link| link.client == Some(conn)) {
                link.forward.extend(cells[..count].iter().map(queued));
            }
        }
    }

    /// Records the set's nonce, which forged messages need.
    fn note_link(&mut self, body: &HeaderOnlyBody) {
        if let Ok(message) = body.message(RelayFormat::V0)
            && message.command == RelayCommand::CONFLUX_LINK
            && let Ok(link) = ConfluxLink::parse(message.data.bytes())
        {
            self.nonce = link.nonce;
        }
    }

    fn take_from_exit(&mut self, conn: ConnId) {
        let mut taken = Vec::new();
        while let Some(control) = self.exit.poll_control(self.now, conn) {
            if !control.command.is_variable_length() {
                let mut cell = HeaderOnlyCell::EMPTY;
                control.fill::<HeaderOnly>(&mut cell);
                taken.push(queued(&cell));
            }
        }
        let mut cells = cells();
        loop {
            let count = self.exit.poll_cells(self.now, conn, &mut cells);
            if count == 0 {
                break;
            }
            taken.extend(cells[..count].iter().map(queued));
        }
        if let Some(link) = self.links.iter_mut().find(|link| link.exit == Some(conn)) {
            link.backward.extend(taken);
        }
    }

    /// A destination reads all its data, which must be contiguous unless cells were forged.
    fn take_for_destination(&mut self, conn: ConnId) {
        loop {
            let mut room = RunRoom { room_bytes: 16_384, ..RunRoom::default() };
            let taken = self.exit.poll_stream_data(self.now, conn, &mut room);
            if taken == 0 {
                return;
            }
            let has_forged = self.has_forged;
            let Some(transfer) =
                self.transfers.iter_mut().find(|transfer| transfer.conn == Some(conn))
            else {
                continue;
            };
            let is_next = room.run.at == Run::place(transfer.received_bytes);
            transfer.received_bytes += taken as u64;
            let is_right = is_next && transfer.received_bytes <= transfer.request_bytes();
            assert!(is_right || has_forged, "{transfer:?} got {room:?}");
        }
    }

    fn handle_event(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Over { stream, outcome, figures } => {
                let has_forged = self.has_forged;
                let transfer = self.transfers.iter_mut().find(|transfer| transfer.stream == stream);
                let Some(transfer) = transfer else { return };
                let is_whole =
                    figures.received_bytes == whole_bytes(transfer) && outcome == Outcome::Complete;
                assert!(is_whole || has_forged, "{transfer:?}: {outcome:?}, {figures:?}");
                transfer.is_complete = is_whole;
            }
            ClientEvent::Lost { circuit, cause } if circuit == self.set => self.loss = Some(cause),
            _ => {}
        }
    }

    /// The client never receives more bytes of a transfer than its destination has sent.
    ///
    /// # Panics
    /// If it does.
    pub fn check_prefixes(&self) {
        for transfer in &self.transfers {
            if let Some(figures) = self.client.figures(transfer.stream) {
                assert!(figures.received_bytes <= transfer.sent_bytes, "{transfer:?}: {figures:?}");
                assert!(transfer.received_bytes <= figures.sent_bytes, "{transfer:?}: {figures:?}");
            }
        }
    }

    /// The end that a byte selects.
    pub(super) const fn end_of(byte: u8) -> LegEnd {
        if byte.is_multiple_of(2) { LegEnd::Client } else { LegEnd::Exit }
    }
}

fn whole_bytes(state: &TransferState) -> u64 {
    state.transfer.download_bytes + onion::client::Transfer::RECEIPT_LEN as u64
}

fn cells() -> Vec<HeaderOnlyCell> {
    (0..RECORD_CELLS).map(|_| HeaderOnlyCell::EMPTY).collect()
}

fn queued(cell: &HeaderOnlyCell) -> super::QueuedCell {
    (cell.circ_id(), cell.command(), cell.body().clone())
}
