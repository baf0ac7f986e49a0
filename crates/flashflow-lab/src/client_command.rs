//! `flashflow-lab client`: a SOCKS proxy on the engine's circuits.

use crate::authorities::{Authorities, Known};
use crate::choosing::{Choosing, StrategyName};
use clap::{Args, ValueEnum};
use cli::Error;
use client::{ClientProxy, Event, Hop, LegTraffic, Settings, path::Rules};
use onion::cell::msg::DesiredUx;
use onion::tunnel::conflux::{LegScheduler, schedulers};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use terminal::{Exit, Interrupt, Output};

/// How soon an interrupt is noticed.
const STEP: Duration = Duration::from_millis(100);
/// Of its circuits.
const HOPS: usize = 3;

/// Be a Tor client for research: a SOCKS proxy whose way of choosing paths can be set.
///
/// It is for private networks and experiments, and no protection for anybody: nobody has audited it, it can be told from other
/// clients, and it prints the relays of each circuit. Use Tor Browser, C tor or Arti
/// for anonymity. It knows no onion services.
#[derive(Debug, Args)]
#[command(
    override_usage = "flashflow-lab client [OPTIONS] <--authority ...|--network ...|--public>",
    after_help = "Examples:
  flashflow-lab lab up --dir /tmp/net --limits 0,0,0 --exits
  flashflow-lab client --network /tmp/net --socks 127.0.0.1:9150
  curl --socks5-hostname 127.0.0.1:9150 http://127.0.0.1:8000/
  flashflow-lab client --network /tmp/net --legs 2 --json
  flashflow-lab client --authority 127.0.0.1:7001,127.0.0.1:7002 --json
  flashflow-lab client --network /tmp/net --strategy ranking --influence 0.5
  flashflow-lab client --network /tmp/net --geo entry=DE --geo countries=2.. --countries geoip
  flashflow-lab client --network /tmp/net --strategy measured --bwfile v3bw
  flashflow-lab client --network /tmp/net --strategy latency --model model.gz

Programs that give different users or passwords with SOCKS never share a circuit. The first line on stdout is \
`SOCKS at ADDRESS`; events are printed on stderr, with --json on stdout as well: bootstrapped, leg_built, leg_lost, \
circuit_built, circuit_closed, stream_opened, stream_closed, request_refused, trouble. Destinations are printed as \
`[scrubbed]` unless you say --show-destinations.

Exit status: 0 ended as asked; 1 failed; 2 wrong arguments."
)]
pub(crate) struct ClientOptions {
    /// Where programs reach it; 0 for any port that is free.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9150")]
    socks: SocketAddr,
    /// Let --socks be an address that others reach: they use the network under your name.
    #[arg(long)]
    allow_others: bool,
    #[command(flatten)]
    authorities: Authorities,
    /// How relays are chosen.
    #[arg(long, value_enum, default_value_t)]
    strategy: StrategyName,
    #[command(flatten)]
    choosing: Choosing,
    /// Ask circuits, busy or idle, every ten seconds how fast they answer, and give streams to the one that is fastest now. One program's streams then
    /// go by several exits.
    #[arg(long)]
    by_latency: bool,
    /// No two relays of a path in one network of 16 bits (IPv4) or 32 bits (IPv6). Always so with --public.
    #[arg(long)]
    distinct_subnets: bool,
    /// Circuits that are linked into one at their exit (Conflux), by guards and middles of their own; where the network has no
    /// exit that links them, or not relays enough, one circuit is used.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    legs: u8,
    /// Which of the linked circuits carries what programs send.
    #[arg(long, value_enum, default_value_t, value_name = "NAME")]
    leg_scheduler: LegSchedulerName,
    /// What exits are asked to use linked circuits for: stock exits send on the fastest leg with room for throughput, and on
    /// the fastest alone for latency.
    #[arg(long, value_enum, default_value_t, value_name = "WISH")]
    leg_wish: LegWish,
    /// Where it keeps its guards and what it has fetched; by default a temporary folder that is removed.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Print where streams lead, and where refused requests would have led. Without it, destinations are `[scrubbed]`.
    #[arg(long)]
    show_destinations: bool,
}

/// Which leg the next cell goes on.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LegSchedulerName {
    /// The fastest, and no other, as stock clients.
    #[default]
    MinRtt,
    /// The fastest that has room, as stock exits.
    LowRtt,
    /// The same, as far as nothing comes later than by waiting.
    CwndRtt,
    /// The one whose last round trip was the shortest, of those with room: the rule of Kristel et al.
    CurrentRtt,
    /// The fastest, or the next if that blocks nothing.
    Blest,
}

impl LegSchedulerName {
    const fn get(self) -> &'static dyn LegScheduler {
        match self {
            Self::MinRtt => &schedulers::MinRtt,
            Self::LowRtt => &schedulers::LowRtt,
            Self::CwndRtt => &schedulers::CwndRtt,
            Self::CurrentRtt => &schedulers::CurrentRtt,
            Self::Blest => &schedulers::Blest,
        }
    }
}

/// What linked circuits are for.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LegWish {
    /// As much as can be.
    #[default]
    Throughput,
    /// As soon as can be.
    Latency,
}

impl LegWish {
    const fn get(self) -> DesiredUx {
        match self {
            Self::Throughput => DesiredUx::HighThroughput,
            Self::Latency => DesiredUx::MinLatency,
        }
    }
}

impl ClientOptions {
    fn settings(&self, folder: PathBuf) -> Result<Settings, Error> {
        if !self.socks.ip().is_loopback() && !self.allow_others {
            return Err(Error::Usage(format!(
                "--socks {}: others would reach the proxy there; use an address of loopback, or add \
                 --allow-others",
                self.socks
            )));
        }
        let Known { authorities, identities, directories } = self.authorities.find()?;
        Ok(Settings {
            socks: self.socks,
            strategy: self.choosing.strategy(self.strategy, HOPS, &authorities)?,
            authorities,
            directories,
            identities,
            folder,
            by_latency: self.by_latency,
            rules: Rules { distinct_subnets: self.distinct_subnets || self.authorities.public },
            legs: usize::from(self.legs),
            leg_scheduler: self.leg_scheduler.get(),
            desired: self.leg_wish.get(),
            // On the public network no exit reaches addresses of private networks, and to ask for one gives away that a
            // program would.
            rejects_internal: self.authorities.public,
            names_destinations: self.show_destinations,
        })
    }
}

pub(crate) fn run(
    options: &ClientOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let temporary = match options.data {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|source| Error::File {
            what: "make a folder in",
            path: std::env::temp_dir(),
            source,
        })?),
    };
    let inside = || temporary.as_ref().map(|folder| folder.path().join("client"));
    let folder = options.data.clone().or_else(inside).unwrap_or_default();
    let (sender, events) = mpsc::channel();
    let proxy = ClientProxy::start(options.settings(folder)?, sender)?;
    interrupt.wind_up_in_order();
    let address = proxy.socks();
    output.result(format!("SOCKS at {address}"), || json!({"type": "socks", "address": address}));
    while !interrupt.is_requested() {
        match events.recv_timeout(STEP) {
            Ok(Event::Ended(reason)) => return Err(ended(&reason)),
            Ok(event) => tell(&event, output),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ended("its threads are gone: a bug"));
            }
        }
    }
    drop(proxy);
    // What it has told by then.
    events.try_iter().for_each(|event| tell(&event, output));
    output.step("ended");
    output.record(|| json!({"type": "ended"}));
    Ok(Exit::Done)
}

fn tell(event: &Event, output: &Output) {
    output.step(event);
    output.record(|| value(event));
}

/// An event for programs.
fn value(event: &Event) -> Value {
    let ms = |took: &Duration| (took.as_secs_f64() * 1e6).round() / 1e3;
    let hops = |path: &[Hop]| -> Vec<Value> {
        let hop = |hop: &Hop| json!({"fingerprint": hop.fingerprint.to_string(), "nickname": hop.nickname.as_str()});
        path.iter().map(hop).collect()
    };
    let leg = |it: &LegTraffic| {
        json!({
            "leg": it.leg, "received_messages": it.received_messages,
            "sent_messages": it.sent_messages, "rtt_ms": it.rtt.as_ref().map(ms),
        })
    };
    match event {
        Event::Bootstrapped { relays, exits, guards, valid_until, took } => json!({
            "type": "bootstrapped", "relays": relays, "exits": exits, "guards": guards,
            "valid_until_unix_s": valid_until, "took_ms": ms(took),
        }),
        Event::Updated { relays, valid_until } => {
            json!({"type": "updated", "relays": relays, "valid_until_unix_s": valid_until})
        }
        Event::LegBuilt { circuit, leg, path, took } => json!({
            "type": "leg_built", "circuit": circuit, "leg": leg, "path": hops(path), "took_ms": ms(took),
        }),
        Event::LegLost { circuit, leg, path, reason } => json!({
            "type": "leg_lost", "circuit": circuit, "leg": leg, "path": hops(path), "reason": reason,
        }),
        Event::CircuitBuilt { circuit, path, legs, took, is_late } => json!({
            "type": "circuit_built", "circuit": circuit, "path": hops(path), "legs": legs,
            "took_ms": ms(took), "late": is_late,
        }),
        Event::CircuitClosed { circuit, path, was_built, reason } => json!({
            "type": "circuit_closed", "circuit": circuit, "path": hops(path),
            "was_built": was_built, "reason": reason,
        }),
        Event::CircuitAnswered { circuit, rtt } => {
            json!({"type": "circuit_answered", "circuit": circuit, "rtt_ms": ms(rtt)})
        }
        Event::StreamOpened { stream, circuit, target, took } => json!({
            "type": "stream_opened", "stream": stream, "circuit": circuit, "target": target,
            "took_ms": ms(took),
        }),
        Event::StreamClosed {
            stream,
            circuit,
            target,
            sent_bytes,
            received_bytes,
            legs,
            took,
            reason,
            is_ok,
        } => json!({
            "type": "stream_closed", "stream": stream, "circuit": circuit, "target": target,
            "sent_bytes": sent_bytes, "received_bytes": received_bytes, "took_ms": ms(took),
            "legs": legs.iter().map(leg).collect::<Vec<_>>(), "reason": reason, "ok": is_ok,
        }),
        Event::RequestRefused { target, reason } => {
            json!({"type": "request_refused", "target": target, "reason": reason})
        }
        Event::Trouble(problem) => json!({"type": "trouble", "reason": problem}),
        Event::Ended(reason) => json!({"type": "error", "error": reason}),
    }
}

fn ended(reason: &str) -> Error {
    Error::Failed(format!("the client has ended: {reason}"))
}
