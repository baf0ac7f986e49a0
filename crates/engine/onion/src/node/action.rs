//! The actions of a node.

use super::{ConnId, Dial, Lookup, Work};

/// Something that a [`Node`](super::Node) asks its driver to do.
#[derive(Debug)]
pub enum Action {
    /// [`poll_dial`](super::Node::poll_dial): establish a connection.
    Dial(Dial),
    /// [`poll_lookup`](super::Node::poll_lookup): send a DNS query.
    Lookup(Lookup),
    /// [`poll_work`](super::Node::poll_work): run a computation on any thread.
    Work(Work),
    /// [`poll_socket_query`](super::Node::poll_socket_query): report the state of a connection's socket.
    SocketState(ConnId),
    /// [`poll_writable`](super::Node::poll_writable): write the data of a connection.
    Transmit(ConnId),
    /// [`poll_close`](super::Node::poll_close): close a connection and forget it.
    Close(ConnId),
    /// [`poll_readable`](super::Node::poll_readable): read from a connection again.
    Read(ConnId),
}
