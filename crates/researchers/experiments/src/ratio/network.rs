//! A private network with relays to measure and a C tor client.

use super::{MEASURERS, RatioGrid};
use crate::background_downloads::Endpoints;
use crate::common::Session;
use crate::error::{Error, Result};
use crate::private_network as network;
use crate::testbed::{self, Testbed};
use lab::{Client, ContentServer, Network, NetworkSpec, OwnRelay, Pins, RelaySpec};
use onion::Rate;
use onion::measure::load::Target;
use onion::measure::protocol::CoordinatorKey;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

/// The nickname of the exit.
const EXIT: &str = "stockexit";

/// Time until a consensus lists the relays.
const PATIENCE: Duration = Duration::from_secs(120);

/// The capacity of a measurer divided by the relay's limit. Two have more than the necessary 2.95, and one has not enough.
const CAPACITY: f64 = 1.6;

/// A relay to measure.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) target: Target,
    pub(super) pid: u32,
}

/// All processes of the experiment.
pub(super) struct RatioNetwork {
    // Dropped in this order: the client ends before the network.
    client: Client,
    server: ContentServer,
    /// One relay for each share in percent.
    relays: Vec<(u32, Subject)>,
    _own: Vec<OwnRelay>,
    pub(super) testbed: Testbed,
    network: Network,
}

impl RatioNetwork {
    /// Starts all processes, with a C tor client of this rate; `None` if the user has interrupted.
    pub(super) fn start(
        grid: &RatioGrid,
        demand: Rate,
        session: Session<'_>,
    ) -> Result<Option<Self>> {
        let Session { output, interrupt, .. } = session;
        let testbed = Testbed::with_measurers(MEASURERS, grid.limit.scaled(CAPACITY), output)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        let network = network::start(&spec(grid, &testbed), output)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        let (mut relays, mut own) = (Vec::new(), Vec::new());
        for percent in grid.shares.iter().copied() {
            let subject = if let Some(node) = network.node(&nickname(percent)) {
                Subject { target: node.target(), pid: node.pid() }
            } else {
                let (limit, authorities) = (Some(grid.limit), network.directory_addrs());
                let relay = testbed.published_relay(
                    &nickname(percent),
                    limit,
                    Some(percent),
                    authorities,
                )?;
                let subject = Subject { target: relay.target, pid: relay.process.pid() };
                own.push(relay);
                subject
            };
            relays.push((percent, subject));
        }
        let fingerprints: Vec<[u8; 20]> =
            relays.iter().map(|(_, relay)| relay.target.ids.rsa.0).collect();
        output.doing("waiting for the consensus that lists them");
        network.wait_until_running(&fingerprints, PATIENCE)?;
        network.wait_until_known(&fingerprints, PATIENCE)?;
        if interrupt.is_requested() {
            return Ok(None);
        }
        output.doing("starting a C tor client");
        let known = testbed::all_relays(&network, &fingerprints);
        let client = Client::start(&network, "client", &torrc(demand), &known, PATIENCE)?;
        let server = testbed::content_server(Ipv4Addr::LOCALHOST)?;
        Ok(Some(Self { client, server, relays, _own: own, testbed, network }))
    }

    /// The relay that grants this share to clients.
    pub(super) fn relay(&self, percent: u32) -> Result<Subject> {
        let found = self.relays.iter().find(|(its, _)| *its == percent);
        found
            .map(|(_, relay)| *relay)
            .ok_or_else(|| Error::Failed(format!("no relay for {percent} %")))
    }

    /// Makes one relay the guard of the C tor client.
    pub(super) fn enter_by(&mut self, percent: u32) -> Result<()> {
        let entry = self.relay(percent)?.target.ids.rsa.0;
        let [first, ..] = self.network.authorities() else {
            return Err(lab::LabError::Spec("a network without authorities".to_owned()).into());
        };
        let exits = self.network.node(EXIT).into_iter().map(lab::Node::rsa).collect();
        let pins = Pins { entry: vec![entry], middle: vec![first.rsa()], exit: exits };
        Ok(self.client.pin(&pins)?)
    }

    /// The C tor client's SOCKS port and the content server.
    pub(super) const fn downloads(&self) -> Endpoints {
        Endpoints { socks: self.client.socks(), server: self.server.address() }
    }

    /// The processes with links to the relays, without measurers: this one, the C tor client, and the next hops.
    pub(super) fn client_pids(&self) -> Vec<u32> {
        let nodes = self.network.nodes().iter().map(lab::Node::pid);
        [std::process::id(), self.client.pid()].into_iter().chain(nodes).collect()
    }
}

/// A network with one exit, in which the measured relays can be guards at once: those of a patched tor are part of it.
fn spec(grid: &RatioGrid, testbed: &Testbed) -> NetworkSpec {
    let key = CoordinatorKey::of_seed(&testbed.key().seed());
    let patched = |percent: u32, tor: &PathBuf| {
        let relay = RelaySpec::new(&nickname(percent)).limited_to(grid.limit);
        let mut relay = relay.measured_by_echo(tor, key);
        relay.extra_torrc.push(format!("FlashFlowClientShare {percent}"));
        relay
    };
    let patched = grid
        .tor
        .iter()
        .flat_map(|tor| grid.shares.iter().map(move |percent| patched(*percent, tor)));
    let relays = [RelaySpec::open_exit(EXIT)].into_iter().chain(patched).collect();
    NetworkSpec {
        // Clients choose only stable guards, and all relays have just started.
        extra_torrc_authorities: ["MinUptime", "MTBF"]
            .map(|what| format!("AuthDirVoteStableGuarantee{what} 1 second"))
            .to_vec(),
        bandwidth_file: false,
        ..NetworkSpec::new(relays)
    }
}

fn nickname(percent: u32) -> String {
    format!("ratio{percent}")
}

/// The configuration of a client without Conflux that is limited to this rate.
fn torrc(demand: Rate) -> [String; 3] {
    let bytes = demand.as_byte_per_s();
    [
        "ConfluxEnabled 0".to_owned(),
        format!("BandwidthRate {bytes} bytes"),
        format!("BandwidthBurst {bytes} bytes"),
    ]
}
