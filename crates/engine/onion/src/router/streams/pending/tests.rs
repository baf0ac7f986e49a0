use super::*;
use crate::cell::msg::BeginFlags;
use crate::cell_model::{StreamId, Tor};
use crate::flow::stream::{StreamFlow, StreamWindow};
use crate::router::circuits::TunnelIndex;
use crate::router::streams::{BeginRequest, Stream};
use alloc::collections::BTreeMap;
use alloc::{format, vec};
use core::net::SocketAddr;
use proptest::prelude::*;

fn stream(now: Instant, state: State) -> Stream<Tor> {
    Stream::new(
        now,
        TunnelIndex(0),
        StreamId(1),
        state,
        StreamFlow::Windowed(StreamWindow::default()),
    )
}

fn asked() -> BeginRequest {
    BeginRequest { port: 80, flags: BeginFlags::default() }
}

fn to() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 80))
}

/// An event of a table.
#[derive(Clone, Copy, Debug)]
enum Step {
    Resolve,
    Connect,
    Open(u32),
    Buffer(u32, usize),
    Unbuffer(u32, usize),
    Finish(u32),
    Close(u32),
    Lose(u32),
    Answer(u32),
    PollClose,
    PollWritable,
    WakeReading(u32),
    PollReadable,
    KeepUp(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let conn = || 0u32..12;
    prop_oneof![
        Just(Step::Resolve),
        Just(Step::Connect),
        conn().prop_map(Step::Open),
        (conn(), 0usize..500).prop_map(|(conn, len)| Step::Buffer(conn, len)),
        (conn(), 0usize..900).prop_map(|(conn, len)| Step::Unbuffer(conn, len)),
        conn().prop_map(Step::Finish),
        conn().prop_map(Step::Close),
        conn().prop_map(Step::Lose),
        conn().prop_map(Step::Answer),
        Just(Step::PollClose),
        Just(Step::PollWritable),
        conn().prop_map(Step::WakeReading),
        Just(Step::PollReadable),
        (0u64..20).prop_map(Step::KeepUp),
    ]
}

/// A table and its expected content.
#[derive(Default)]
struct Model {
    conns: Conns<Tor>,
    streams: Streams,
    /// State by name, and buffered bytes.
    known: BTreeMap<ConnId, (&'static str, usize)>,
    now: Instant,
}

impl Model {
    fn add(&mut self, is_resolving: bool) {
        let conn = self.conns.reserve();
        let state = if is_resolving {
            let lookup = self.streams.ask(
                self.now,
                TunnelIndex(0),
                conn,
                DnsQuery::Addresses(format!("{conn:?}")),
            );
            State::Resolving { lookup, asked: asked() }
        } else {
            State::Connecting { to: to(), reports_address: false }
        };
        self.conns.add_stream(conn, stream(self.now, state));
        self.streams.handle_added(StreamKind::Exit, None, TunnelIndex(0), conn);
        let name = if is_resolving { "resolving" } else { "connecting" };
        assert!(self.known.insert(conn, (name, 0)).is_none());
    }

    fn play(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Resolve => self.add(true),
            Step::Connect => self.add(false),
            Step::Open(conn) => {
                if let Some((name @ "connecting", _)) = self.known.get_mut(&ConnId(conn)) {
                    *name = "open";
                    self.conns.stream_mut(ConnId(conn)).expect("known").state = State::Open;
                    self.streams.wake(&mut self.conns, ConnId(conn));
                }
            }
            Step::Buffer(conn, len) => {
                if let Some(("resolving" | "connecting" | "open", buffered)) =
                    self.known.get_mut(&ConnId(conn))
                {
                    *buffered += len;
                    let data = &[1; 500][..len];
                    let conn = ConnId(conn);
                    let buffered_bytes = self.streams.buffer(now, &mut self.conns, conn, data);
                    assert_eq!(buffered_bytes, *buffered);
                }
            }
            Step::Unbuffer(conn, len) => {
                let mut out = [0; 900];
                let (taken, left) =
                    self.streams.unbuffer(now, &mut self.conns, ConnId(conn), &mut out[..len]);
                if let Some(("open" | "draining", buffered)) = self.known.get_mut(&ConnId(conn)) {
                    assert_eq!(taken, len.min(*buffered));
                    *buffered -= taken;
                    assert_eq!(left, *buffered);
                } else {
                    assert_eq!((taken, left), (0, 0));
                }
            }
            Step::Finish(conn) => {
                let conn = ConnId(conn);
                self.streams.finish(&mut self.conns, now, conn);
                match self.known.get_mut(&conn) {
                    Some(("resolving", _)) => {
                        self.known.remove(&conn);
                    }
                    Some(known @ ("open", 1..)) => known.0 = "draining",
                    Some(known @ ("open" | "connecting", _)) => *known = ("closing", 0),
                    _ => {}
                }
            }
            // Only connections that the shell knows can be closed.
            Step::Close(conn) => {
                if let Some(known @ ("connecting" | "open" | "draining", _)) =
                    self.known.get_mut(&ConnId(conn))
                {
                    *known = ("closing", 0);
                    self.streams.close(&mut self.conns, ConnId(conn));
                }
            }
            Step::Lose(conn) => {
                if self.known.get(&ConnId(conn)).is_some_and(|(name, _)| *name != "resolving") {
                    self.known.remove(&ConnId(conn));
                    self.streams.remove(&mut self.conns, ConnId(conn));
                }
            }
            Step::Answer(id) => {
                let asker = self.streams.take_asker(LookupId(id));
                if let Some(conn) = asker {
                    assert_eq!(self.known[&conn].0, "resolving");
                    self.known.get_mut(&conn).expect("known").0 = "connecting";
                    let stream = self.conns.stream_mut(conn).expect("known");
                    stream.state = State::Connecting { to: to(), reports_address: false };
                }
            }
            Step::PollClose => {
                let closing = self.known.values().any(|(name, _)| *name == "closing");
                let closed = self.streams.poll_close(&mut self.conns);
                assert_eq!(closed.is_some(), closing);
                if let Some(conn) = closed {
                    assert_eq!(self.known.remove(&conn).map(|(name, _)| name), Some("closing"));
                }
            }
            Step::PollWritable => {
                if let Some(conn) = self.streams.poll_writable(&mut self.conns) {
                    assert!(matches!(self.known[&conn].0, "open" | "draining"));
                }
            }
            Step::WakeReading(conn) => self.streams.wake_reading(&mut self.conns, ConnId(conn)),
            Step::PollReadable => {
                if let Some(conn) = self.streams.poll_readable(&mut self.conns) {
                    assert_eq!(self.known[&conn].0, "open");
                }
            }
            Step::KeepUp(time_s) => {
                self.now += Duration::from_secs(time_s);
                for conn in self.streams.expire(&mut self.conns, self.now) {
                    assert_eq!(self.known[&conn].0, "resolving");
                }
                let conns = &self.conns;
                for (conn, known) in &mut self.known {
                    if conns.stream(*conn).expect("known").state == State::Closing {
                        *known = ("closing", 0);
                    }
                }
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.conns.stream_count(), self.known.len());
        let buffered: usize = self.known.values().map(|(_, bytes)| *bytes).sum();
        assert_eq!(self.streams.held_bytes(), buffered);
        let conns: Vec<ConnId> = self.conns.streams().map(|(conn, _)| conn).collect();
        assert_eq!(conns, self.known.keys().copied().collect::<Vec<_>>());
        for (conn, (_, bytes)) in &self.known {
            assert_eq!(self.conns.stream(*conn).expect("known").buffer.len(), *bytes);
        }
        assert!(self.streams.lookups.waiting() <= self.known.len());
    }
}

proptest! {
    #[test]
    fn the_table_matches_a_simple_model(
        steps in prop::collection::vec(any_step(), 0..300),
    ) {
        let mut model = Model::default();
        for step in steps {
            model.play(step);
            model.check();
        }
        for conn in model.known.keys() {
            model.streams.remove(&mut model.conns, *conn);
        }
        let (streams, conns) = (&mut model.streams, &mut model.conns);
        prop_assert_eq!((conns.stream_count(), streams.held_bytes()), (0, 0));
        prop_assert!(streams.lookups.waiting() == 0 && streams.rated.is_empty());
        prop_assert_eq!(streams.poll_close(conns), None);
        prop_assert_eq!(streams.poll_writable(conns), None);
        prop_assert_eq!(streams.poll_readable(conns), None);
        prop_assert!(streams.poll_lookup().is_none());
    }
}
