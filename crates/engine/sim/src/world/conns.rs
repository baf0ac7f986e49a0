use alloc::vec::Vec;
use onion::node::ConnId;

/// The socket of each connection of an engine, by the engine's number.
#[derive(Debug, Default)]
pub(super) struct Conns {
    sockets: Vec<Option<u32>>,
}

impl Conns {
    /// The socket of a connection that is open or being established.
    pub(super) fn socket(&self, conn: ConnId) -> Option<u32> {
        self.sockets.get(conn.0 as usize).copied().flatten()
    }

    /// Sets a connection's socket; the number may have been another's.
    pub(super) fn bind(&mut self, conn: ConnId, socket: u32) {
        let place = conn.0 as usize;
        if self.sockets.len() <= place {
            self.sockets.resize(place + 1, None);
        }
        self.sockets[place] = Some(socket);
    }

    /// The engine releases the number; returns its socket.
    pub(super) fn take(&mut self, conn: ConnId) -> Option<u32> {
        self.sockets.get_mut(conn.0 as usize)?.take()
    }

    /// The connection is closed, unless its number has another socket by now. Returns whether it was this
    /// one's.
    pub(super) fn forget(&mut self, conn: ConnId, socket: u32) -> bool {
        let place = self.sockets.get_mut(conn.0 as usize);
        place.is_some_and(|place| place.take_if(|its| *its == socket).is_some())
    }
}
