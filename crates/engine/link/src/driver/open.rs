//! Opens connections: accepted or dialled, then TLS, then announced to the node.

use super::Driver;
use super::socket::{self, Socket, Stage, Transport};
use crate::descriptors::Exhaustion;
use crate::tls::{Outgoing, Placed, Session};
use mio::net::TcpStream;
use mio::{Interest, Token};
use onion::Instant;
use onion::link::TlsSession;
use onion::node::{Dial, ListenerId, Node, Security};
use std::io;
use std::net::IpAddr;

/// A connection without TLS. Only the peer's address is known.
struct Plain {
    from: IpAddr,
}

impl TlsSession for Plain {
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        None
    }

    fn peer_address(&self) -> Option<IpAddr> {
        Some(self.from)
    }
}

impl<N: Node> Driver<N> {
    pub(super) fn accept(&mut self, listener: usize) {
        while let Some(listening) = self.listeners.get(listener) {
            match listening.accept() {
                Ok((stream, from)) => {
                    // An IPv4 peer of a dual-stack listener has an IPv4-mapped address.
                    let (now, from) = (self.clock.now(), from.ip().to_canonical());
                    if self.open_sockets() >= self.options.max_conns || !self.node.admits(now, from)
                    {
                        continue; // dropping it closes it
                    }
                    let id = ListenerId(u32::try_from(listener).unwrap_or(u32::MAX));
                    if self.options.accepts_plain {
                        self.accept_plain(stream, from, id);
                        continue;
                    }
                    let Ok(session) = Session::server(&self.tls) else { continue };
                    // If epoll refuses the socket, dropping it closes it.
                    let added = self.add(now, Socket::accepted(stream, session, id));
                    let victim = added.ok().and_then(|place| self.pending_accepts.add(from, place));
                    victim.into_iter().for_each(|place| self.drop_socket(place));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // No descriptors or memory left, or the connection was aborted.
                Err(error) => {
                    Exhaustion::note(&error);
                    self.must_accept_again = true;
                    break;
                }
            }
        }
    }

    fn accept_plain(&mut self, stream: TcpStream, from: IpAddr, listener: ListenerId) {
        let now = self.clock.now();
        let Some(conn) = self.node.handle_accepted(now, listener, &Plain { from }) else { return };
        match self.add(now, Socket::accepted_plain(stream, conn)) {
            Ok(place) => {
                self.by_conn.insert(conn, place);
                self.set_deadline(place, None);
            }
            Err(error) => self.node.handle_closed(now, conn, socket::cause(&error)),
        }
    }

    pub(super) fn dial(&mut self, now: Instant, dial: Dial) {
        let result = socket::connect(dial.to, self.options.dial_from).and_then(|stream| {
            let transport = match dial.security {
                Security::Tls => {
                    let session = Session::client(&self.tls, dial.to.ip());
                    Transport::Tls(Box::new(session.map_err(io::Error::other)?))
                }
                Security::Plain => Transport::Plain(Outgoing::default()),
            };
            self.add(now, Socket::dialled(stream, transport, dial.conn))
        });
        match result {
            Ok(place) => {
                self.by_conn.insert(dial.conn, place);
            }
            Err(error) => {
                Exhaustion::note(&error);
                self.node.handle_closed(now, dial.conn, socket::cause(&error));
            }
        }
    }

    /// Registers a socket and sets its handshake deadline. Returns its index.
    fn add(&mut self, now: Instant, mut socket: Socket) -> io::Result<usize> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.sockets.len() - 1
        });
        let token = Token(self.first_socket + place);
        let both = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut socket.stream, token, both) {
            self.free.push(place);
            return Err(error);
        }
        self.sockets[place] = Some(socket);
        self.set_deadline(place, Some(now + self.options.handshake_timeout));
        Ok(place)
    }

    pub(super) fn set_deadline(&mut self, place: usize, deadline: Option<Instant>) {
        let Some(socket) = &mut self.sockets[place] else { return };
        if let Some(old) = std::mem::replace(&mut socket.deadline, deadline) {
            self.deadlines.remove(old, place);
        }
        if let Some(new) = deadline {
            self.deadlines.insert(new, place);
        }
    }

    /// Continues connecting. Returns false if the socket is not connected yet.
    pub(super) fn continue_connecting(&mut self, place: usize) -> bool {
        let Some(socket) = &mut self.sockets[place] else { return false };
        match socket.finish_connecting() {
            Ok(false) => false,
            Ok(true) if matches!(socket.transport, Transport::Tls(_)) => {
                socket.stage = Stage::Handshake;
                // Processing a new client session produces its ClientHello.
                self.process(place)
            }
            Ok(true) => {
                socket.stage = Stage::Open;
                let conn = socket.conn;
                self.set_deadline(place, None);
                if let Some(conn) = conn {
                    self.node.handle_plain_connected(self.clock.now(), conn);
                }
                true
            }
            Err(error) => {
                self.close(place, socket::cause(&error));
                false
            }
        }
    }

    /// Reports an established TLS session to the node. Returns false if the node refuses it.
    pub(super) fn announce(&mut self, now: Instant, place: usize) -> bool {
        self.set_deadline(place, None);
        self.pending_accepts.remove(place);
        let Some(socket) = &mut self.sockets[place] else { return false };
        let Transport::Tls(session) = &socket.transport else { return false };
        socket.stage = Stage::Open;
        let address = socket.stream.peer_addr().ok().map(|peer| peer.ip().to_canonical());
        let tls = Placed { session, address };
        match (socket.conn, socket.listener) {
            (Some(conn), _) => self.node.handle_connected(now, conn, &tls),
            (None, Some(listener)) => match self.node.handle_accepted(now, listener, &tls) {
                Some(conn) => {
                    socket.conn = Some(conn);
                    self.by_conn.insert(conn, place);
                }
                None => {
                    self.drop_socket(place);
                    return false;
                }
            },
            (None, None) => {}
        }
        true
    }
}
