//! One scenario with equal statistics in virtual time and on real sockets: greedy clients share a relay with a rate
//! limit.

use crate::common::network::{Net, TorClient, World};
use crate::common::stage::{NodeHandle, RealSockets, VirtualTime};
use onion::client::{StreamNumber, Transfer};
use onion::router::RateLimit;
use onion::{Duration, Rate};
use sim::wire::PathModel;
use std::fmt;

const LIMIT_MBIT_PER_S: f64 = 8.0;
const WARM_UP: Duration = Duration::from_secs(1);
const COUNTED: Duration = Duration::from_secs(2);

/// The approximate latency of the loopback interface.
const LATENCY: Duration = Duration::from_micros(50);

/// The results of a run.
struct RunResult {
    world: &'static str,
    /// The relay's rate, relative to its limit.
    used: f64,
    /// Each client's share of all received bytes.
    shares: Vec<f64>,
    /// Round-trip times of a circuit with a download, and of one without on the same link.
    busy: Duration,
    quiet: Duration,
}

/// Limits the first relay's rate; each client has a separate link to it.
fn run<W: World>(name: &'static str, world: W, clients: usize) -> RunResult {
    let rate = Rate::from_mbit_per_s(LIMIT_MBIT_PER_S);
    let mut net = Net::with(world, |place, config| {
        // On a busy machine, bytes saved up between two turns are sent at once.
        config.limit = (place == 0).then_some(RateLimit { rate, burst_bytes: 60_000 });
    });
    let (busy, quiet) = (net.circuit(false), net.circuit(false));
    let endless = Transfer::download(1, 1 << 40);
    let mut streams = vec![(net.client, net.begin(busy, endless))];
    for _ in 1..clients {
        let client = net.add_client();
        streams.push((client, net.begin_from(client, endless)));
    }
    let received = |net: &mut Net<W>| -> Vec<f64> {
        let of = |(client, stream): &(NodeHandle, StreamNumber)| {
            let client: &mut TorClient = net.stage.node(*client);
            client.figures(*stream).map_or(0, |figures| figures.received_bytes) as f64
        };
        streams.iter().map(of).collect()
    };
    net.until(|net| received(net).iter().all(|bytes| *bytes > 0.0));
    net.pass(WARM_UP);
    let (from, before, sent) = (net.stage.now(), received(&mut net), sent_bytes(&mut net));
    net.pass(COUNTED);
    let took = net.stage.now() - from;
    let received: Vec<f64> =
        received(&mut net).iter().zip(before).map(|(now, before)| now - before).collect();
    let sent = Rate::from_bytes_over(sent_bytes(&mut net) - sent, took);
    let all: f64 = received.iter().sum();
    RunResult {
        world: name,
        used: sent.as_mbit_per_s() / LIMIT_MBIT_PER_S,
        shares: received.iter().map(|bytes| bytes / all).collect(),
        quiet: net.round_trip(quiet),
        busy: net.round_trip(busy),
    }
}

fn sent_bytes<S: World>(net: &mut Net<S>) -> u64 {
    net.relay(0).totals().client_bytes
}

impl RunResult {
    /// Jain's index: 1 if all have the same.
    fn fairness(&self) -> f64 {
        let squares: f64 = self.shares.iter().map(|share| share * share).sum();
        1.0 / (squares * self.shares.len() as f64)
    }
}

/// A line of the table.
impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [busy, quiet] = [self.busy, self.quiet].map(|time| time.as_secs_f64() * 1e3);
        write!(f, "| {} | {} | {:.3} ", self.shares.len(), self.world, self.used)?;
        write!(f, "| {:.4} | {busy:.1} | {quiet:.1} |", self.fairness())
    }
}

const HEAD: &str =
    "| clients | world | sent over limit | fairness | round trip, ms | of a quiet circuit, ms |
|---|---|---|---|---|---|";

fn in_virtual_time(clients: usize) -> RunResult {
    let mut stage = VirtualTime::new(1, Some(3000));
    stage.wire.set_all_paths(PathModel { latency: LATENCY, ..PathModel::default() });
    run("virtual", stage, clients)
}

#[test]
fn clients_of_a_limited_relay_share_it_equally() {
    let all = [1, 2, 5].map(in_virtual_time);
    println!("{HEAD}");
    for result in all {
        println!("{result}");
        assert!((0.97..1.03).contains(&result.used), "{result}");
        assert!(result.quiet * 3 < result.busy, "{result}");
        // All clients get equal shares.
        assert!(result.fairness() > 0.99, "{result}: {:?}", result.shares);
    }
}

mod on_real_sockets {
    use super::*;

    #[test]
    fn shares_on_real_sockets_match_those_in_virtual_time() {
        let all = [1, 2, 5]
            .map(|clients| (in_virtual_time(clients), run("real", RealSockets::new(), clients)));
        println!("{HEAD}");
        for (in_virtual_time, on_real_sockets) in all {
            println!("{in_virtual_time}\n{on_real_sockets}");
            // A busy machine sends less, but never more.
            assert!((0.4..1.1).contains(&on_real_sockets.used), "{on_real_sockets}");
            // With few clients, a short delay of the machine exceeds the queueing delay.
            let is_long = on_real_sockets.shares.len() == 5;
            assert!(!is_long || on_real_sockets.quiet < on_real_sockets.busy, "{on_real_sockets}");
            // The time is a circuit's window over its share of the limit, and the machine's delays.
            assert!(in_virtual_time.busy < on_real_sockets.busy * 3, "{in_virtual_time}");
            let fair = 1.0 / on_real_sockets.shares.len() as f64;
            let is_fair = |share: &f64| (0.5..2.0).contains(&(share / fair));
            assert!(on_real_sockets.shares.iter().all(is_fair), "{:?}", on_real_sockets.shares);
        }
    }
}
