//! The wire's actions for its nodes: dialling, closing, notifying.

use super::config::{NodeId, WireError};
use super::conn::{End, Link, LinkId, Side};
use super::event_queue::Event;
use super::tls::NullTls;
use super::{Listener, Wire};
use alloc::collections::VecDeque;
use alloc::string::String;
use onion::link::{NoTls, TlsSession};
use onion::node::{Action, CloseCause, ConnId, Dial, Security};

/// Maximum number of polls of one node after one event, before it counts as busy-looping.
const DRAIN_POLLS_MAX: u32 = 1 << 20;

impl Wire {
    /// Performs all actions of a node.
    pub(super) fn drain(&mut self, id: NodeId) -> Result<(), WireError> {
        let mut readable = VecDeque::new();
        for _ in 0..DRAIN_POLLS_MAX {
            let resident = &mut self.residents[id.0];
            match resident.node.poll_action(self.now) {
                Some(Action::Dial(dial)) => self.dial(id, dial),
                Some(Action::Lookup(lookup)) => {
                    let answer = self.names.answer(&lookup.question);
                    let at = self.now + self.config.lookup_latency;
                    self.events.plan(at, Event::Answered(id, lookup.id, answer));
                }
                Some(Action::Work(work)) => resident.node.handle_work(self.now, work.run()),
                Some(Action::SocketState(conn)) => {
                    let end = resident.conns.get(&conn);
                    let end = end.and_then(|(link, side)| {
                        self.links.get(link).and_then(|link| link.end(*side))
                    });
                    let tcp = end.and_then(|end| end.tcp.as_ref());
                    let state = tcp.map(|tcp| tcp.sender.state());
                    resident.node.handle_socket_state(self.now, conn, state);
                }
                Some(Action::Transmit(conn)) => {
                    if let Some((link, side)) = resident.conns.get(&conn).copied() {
                        self.flush(link, side);
                    }
                }
                Some(Action::Close(conn)) => self.close(id, conn),
                Some(Action::Read(conn)) => readable.extend(resident.conns.get(&conn).copied()),
                None => match readable.pop_front() {
                    Some((link, side)) if self.release_held(link, side) => {
                        readable.push_back((link, side));
                    }
                    Some(_) => {}
                    None => {
                        self.note_timeout(id);
                        return Ok(());
                    }
                },
            }
        }
        Err(WireError::NeverIdle { node: id, at: self.now })
    }

    /// A node's timeout may have changed.
    pub(super) fn note_timeout(&mut self, id: NodeId) {
        self.timers.set(self.now, id, self.residents[id.0].node.poll_timeout());
    }

    /// Processes a scheduled event.
    pub(super) fn handle(&mut self, event: Event) -> Result<(), WireError> {
        match event {
            Event::Dialled(link) => self.handle_dialled(link),
            Event::Connected(link) => self.handle_connected(link),
            Event::Gone(link, side, cause) => self.handle_gone(link, side, cause),
            Event::Closed(link, side) => {
                self.handle_end(link, side, CloseCause::ByPeer);
                Ok(())
            }
            Event::Reached(link, side, load) => self.handle_reached(link, side, load),
            Event::Arrived(link, side, load) => self.handle_arrived(link, side, load),
            Event::Acked(link, side, ack) => {
                let now = self.now;
                self.with_sender(link, side, |sender| sender.handle_ack(now, ack));
                Ok(())
            }
            Event::Opened(link, side, until) => {
                self.with_sender(link, side, |sender| sender.handle_window(until));
                Ok(())
            }
            Event::Overdue(link, side, number) => {
                self.with_sender(link, side, |sender| sender.handle_overdue(number));
                Ok(())
            }
            Event::Answered(node, lookup, answer) => {
                self.residents[node.0].node.handle_answer(self.now, lookup, answer);
                self.drain(node)
            }
        }
    }

    fn dial(&mut self, node: NodeId, dial: Dial) {
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let listener = self.listeners.get(&dial.to).map(|listener| listener.node);
        let latency = listener.map_or(self.config.latency, |other| self.latency(node, other));
        let tcp = listener.and_then(|other| self.tcp(node, other));
        let dialler = End::new(node, dial.conn, self.now, tcp);
        let security = dial.security;
        self.links.insert(link, Link { to: dial.to, security, dialler, acceptor: None });
        self.residents[node.0].conns.insert(dial.conn, (link, Side::Dialler));
        self.events.plan(self.now + latency, Event::Dialled(link));
    }

    fn handle_dialled(&mut self, id: LinkId) -> Result<(), WireError> {
        let is_full = self.links.len() > self.config.conns_max;
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let (dialler, security) = (link.dialler.node, link.security);
        let listener = self.listeners.get(&link.to).filter(|_| !is_full);
        let Some(&Listener { node, id: listener, security: expected, .. }) = listener else {
            let refused = Event::Gone(id, Side::Dialler, CloseCause::Refused);
            self.events.plan(self.now + self.config.latency, refused);
            return Ok(());
        };
        let answer_at = self.now + self.latency(dialler, node);
        if security == Security::Tls && expected == Security::Plain {
            let cause = CloseCause::Tls(String::from("the peer does not speak it"));
            self.events.plan(answer_at, Event::Gone(id, Side::Dialler, cause));
            return Ok(());
        }
        let is_plain = security == Security::Plain;
        let conn = if is_plain && expected == Security::Tls {
            None // the connection has no TLS
        } else {
            let peer = self.residents[dialler.0].address;
            let null_tls = NullTls { link: id, certificate: None, peer };
            let tls: &dyn TlsSession = if is_plain { &NoTls } else { &null_tls };
            self.residents[node.0].node.handle_accepted(self.now, listener, tls)
        };
        if let Some(conn) = conn {
            let tcp = self.tcp(node, dialler);
            let end = End { is_connected: true, ..End::new(node, conn, self.now, tcp) };
            if let Some(link) = self.links.get_mut(&id) {
                link.acceptor = Some(end);
            }
            self.residents[node.0].conns.insert(conn, (id, Side::Acceptor));
        }
        self.events.plan(answer_at, Event::Connected(id));
        if conn.is_none() {
            // Refused only after TLS: the dialler sees it connect and close.
            self.events.plan(answer_at, Event::Closed(id, Side::Dialler));
        }
        self.drain(node)
    }

    fn handle_connected(&mut self, id: LinkId) -> Result<(), WireError> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let end = &mut link.dialler;
        if end.is_closed {
            return Ok(());
        }
        end.is_connected = true;
        let (node, conn) = (end.node, end.conn);
        let certificate = self.listeners.get(&link.to).map(|listener| listener.certificate.clone());
        let peer = Some(link.to.ip());
        self.fingerprint.add(self.now, id, Side::Dialler, &[]);
        let body = &mut self.residents[node.0].node;
        match link.security {
            Security::Tls => {
                let tls = NullTls { link: id, certificate, peer };
                body.handle_connected(self.now, conn, &tls);
            }
            Security::Plain => body.handle_plain_connected(self.now, conn),
        }
        self.drain(node)?;
        self.flush(id, Side::Dialler); // what it named too early
        self.note_timeout(node);
        Ok(())
    }

    /// A node closes one of its connections.
    fn close(&mut self, node: NodeId, conn: ConnId) {
        let Some((id, side)) = self.residents[node.0].conns.remove(&conn) else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        let has_other = link.end(side.other()).is_some();
        let Some(end) = link.end_mut(side) else { return };
        end.is_closed = true;
        if has_other {
            self.end(id, side);
        } else {
            self.links.remove(&id); // no node knows it yet
        }
    }

    /// Notifies the other side that one has closed, after all data sent before.
    pub(super) fn end(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other()).map(|end| end.node);
        let (Some(end), Some(other)) = (link.end_mut(side), other) else { return };
        if let Some(tcp) = &mut end.tcp {
            if tcp.sender.unsent_bytes() > 0 || tcp.sender.has_ended {
                return; // later, or done
            }
            tcp.sender.has_ended = true;
        }
        let (node, last_arrival) = (end.node, end.last_arrival);
        let at = last_arrival.max(self.now + self.latency(node, other));
        self.events.plan(at, Event::Closed(id, side.other()));
    }

    /// One side's receiver has ended: its node is notified once it has read everything.
    fn handle_end(&mut self, id: LinkId, side: Side, cause: CloseCause) {
        if let Some(end) = self.links.get_mut(&id).and_then(|link| link.end_mut(side)) {
            end.ended = Some(cause);
        }
        self.tell_end(id, side);
    }

    /// Notifies a node of its connection's end, if it has ended and everything is read.
    pub(super) fn tell_end(&mut self, id: LinkId, side: Side) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let other = link.end(side.other());
        let under_way = other.map_or(0, |end| end.under_way_bytes);
        let sent = other.and_then(|end| end.tcp.as_ref()).map(|tcp| tcp.sender.sent_bytes());
        let Some(end) = link.end_mut(side) else { return };
        let received = end.tcp.as_ref().map(|tcp| tcp.receiver.next());
        let has_all = end.held.len() == 0
            && match (sent, received) {
                (Some(sent), Some(received)) => sent == received,
                _ => under_way == 0,
            };
        if (has_all || end.is_closed)
            && let Some(cause) = end.ended.take()
        {
            self.events.plan(self.now, Event::Gone(id, side, cause));
        }
    }

    /// One side learns that a connection is closed; the other side knows already.
    fn handle_gone(&mut self, id: LinkId, side: Side, cause: CloseCause) -> Result<(), WireError> {
        let Some(link) = self.links.remove(&id) else { return Ok(()) };
        let Some(end) = link.end(side).filter(|end| !end.is_closed) else { return Ok(()) };
        self.fingerprint.add(self.now, id, side, b"closed");
        let resident = &mut self.residents[end.node.0];
        resident.conns.remove(&end.conn);
        resident.node.handle_closed(self.now, end.conn, cause);
        self.drain(end.node)
    }

    /// A path fails for a moment: all connections over it are reset at both sides.
    pub fn cut(&mut self, one: NodeId, other: NodeId) {
        let joins = |link: &Link| {
            let acceptor = link.acceptor.as_ref().map(|end| end.node);
            let ends = (link.dialler.node, acceptor);
            ends == (one, Some(other)) || ends == (other, Some(one))
        };
        for (id, link) in self.links.extract_if(.., |_, link| joins(link)) {
            for (side, end) in
                [(Side::Dialler, Some(link.dialler)), (Side::Acceptor, link.acceptor)]
            {
                let Some(end) = end.filter(|end| !end.is_closed) else { continue };
                self.fingerprint.add(self.now, id, side, b"reset");
                let resident = &mut self.residents[end.node.0];
                resident.conns.remove(&end.conn);
                resident.node.handle_closed(self.now, end.conn, CloseCause::Reset);
                self.stale.insert(end.node);
            }
        }
    }
}
