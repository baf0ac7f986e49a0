//! The FlashFlow engine: protocol logic and decisions, no I/O.
//!
//! Cells, links, circuits, windows and measurements are state machines without sockets, clocks, threads or a
//! random generator of their own. The crate `link` drives them on real sockets; the crate `sim` drives the same
//! code in virtual time. The crate is `no_std`, so the compiler rejects any I/O.
//!
//! | module | what is in it |
//! |---|---|
//! | [`cell`] | cells of link protocols 4 and 5 as views over bytes, and the messages in them |
//! | [`link`] | the link handshake as initiator and responder, certificates |
//! | [`crypto`] | CREATE_FAST, ntor of both versions, the layers of relay cells |
//! | [`circuit`] | building a circuit hop by hop |
//! | [`flow`] | flow control of [circuits](flow::control) and [streams](flow::stream), token buckets |
//! | [`measure`] | content, checks, per-second counts, the [load generator](measure::load) of a measurer, the target's side |
//! | [`router`] | a relay: cells, circuits, streams, scheduling |
//! | [`cell_model`] | the representation of cells: tor's bytes, or headers only for simulations |
//! | [`node`] | the interface between the engine and the code that does I/O |
//! | [`client`] | a client with circuits and streams, and a server for its streams |
//!
//! # The contract
//!
//! Each method of a state machine is one of four kinds:
//! - a *getter* takes `&self` and changes nothing;
//! - `handle_*` reports an event: bytes, a closed connection, an expired timeout;
//! - a *command* asks for something: start, stop, send;
//! - `poll_*` returns the next thing to do: dial, write, close, or wait until a time. The caller repeats it
//!   until it returns nothing.
//!
//! One mutation, then drain: after a `handle_*` or a command, poll. `now` is an argument and never
//! decreases; random generators are passed in.
//!
//! # Driving a node
//!
//! A minimal driver, without TLS, listeners or back-pressure:
//!
//! ```
//! use flashflow_onion::Instant;
//! use flashflow_onion::link::TlsSession;
//! use flashflow_onion::node::{CloseCause, ConnId, Node};
//! use std::collections::BTreeMap;
//! use std::io::{self, ErrorKind, Read, Write};
//! use std::net::TcpStream;
//!
//! /// Drives `node` until it has neither connections nor timeouts.
//! fn drive(
//!     node: &mut impl Node,
//!     tls: &dyn TlsSession,
//!     now: impl Fn() -> Instant,
//!     wait_until: impl Fn(Instant),
//! ) -> io::Result<()> {
//!     let mut streams = BTreeMap::<ConnId, TcpStream>::new();
//!     let mut buffer = [0; 16_384];
//!     loop {
//!         while let Some(dial) = node.poll_dial(now()) {
//!             if let Ok(stream) = TcpStream::connect(dial.to) {
//!                 stream.set_nonblocking(true)?;
//!                 streams.insert(dial.conn, stream);
//!                 node.handle_connected(now(), dial.conn, tls);
//!             } else {
//!                 node.handle_closed(now(), dial.conn, CloseCause::Refused);
//!             }
//!         }
//!         while let Some(conn) = node.poll_writable() {
//!             loop {
//!                 let len = node.poll_transmit(now(), conn, &mut buffer);
//!                 let Some(stream) = streams.get_mut(&conn).filter(|_| len > 0) else { break };
//!                 stream.write_all(&buffer[..len])?;
//!             }
//!         }
//!         while let Some(conn) = node.poll_close() {
//!             streams.remove(&conn);
//!         }
//!         let Some(timeout) = node.poll_timeout() else { return Ok(()) };
//!         wait_until(timeout); // or until a stream can be read, with epoll
//!         streams.retain(|conn, stream| {
//!             let gone = match stream.read(&mut buffer) {
//!                 Ok(0) => CloseCause::ByPeer,
//!                 Ok(len) => {
//!                     node.handle_bytes(now(), *conn, &buffer[..len]);
//!                     return true;
//!                 }
//!                 Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
//!                 Err(_) => CloseCause::Reset,
//!             };
//!             node.handle_closed(now(), *conn, gone);
//!             false
//!         });
//!         if timeout <= now() {
//!             node.handle_timeout(now());
//!         }
//!     }
//! }
//! ```
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cell;
pub mod cell_model;
pub mod circuit;
pub mod client;
pub mod crypto;
pub mod flow;
pub mod identity;
pub mod keys;
pub mod link;
pub mod measure;
pub mod node;
mod rate;
pub mod router;
mod time;
pub mod tunnel;

pub use rate::Rate;
pub use time::{Duration, Instant};
