use super::{ConnId, Dial, Lookup, Work};

/// Something that a [`Node`](super::Node) wants of its driver.
#[derive(Debug)]
pub enum Action {
    /// [`poll_dial`](super::Node::poll_dial): a connection is to be made.
    Dial(Dial),
    /// [`poll_lookup`](super::Node::poll_lookup): a question is to be asked.
    Lookup(Lookup),
    /// [`poll_work`](super::Node::poll_work): something is to be done on any thread.
    Work(Work),
    /// [`poll_socket_query`](super::Node::poll_socket_query): it waits for the state of a connection.
    SocketState(ConnId),
    /// [`poll_writable`](super::Node::poll_writable): a connection has something to transmit.
    Transmit(ConnId),
    /// [`poll_close`](super::Node::poll_close): a connection is to be closed, and is forgotten.
    Close(ConnId),
    /// [`poll_readable`](super::Node::poll_readable): a connection takes bytes again.
    Read(ConnId),
}
