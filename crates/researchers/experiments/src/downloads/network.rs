//! The network, our relays in it, a client, and a server.

use super::plan::Placement;
use crate::error::Result;
use crate::private_network as network;
use crate::process::Memory;
use crate::testbed;
use lab::{Client, ContentServer, Network, NetworkSpec, OwnRelay, RelaySpec, TemporaryFolder};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use terminal::Output;

/// The timeout of a consensus that lists all relays.
const PATIENCE: Duration = Duration::from_secs(120);

/// The nicknames of our relays, in the order of a circuit.
const OURS: [&str; 3] = ["oursguard", "oursmiddle", "oursexit"];

/// All processes of the experiment.
pub(super) struct DownloadNetwork {
    // The order of fields matters: the client is dropped before the network.
    client: Client,
    server: ContentServer,
    ours: Vec<OwnRelay>,
    network: Network,
    _folder: TemporaryFolder,
}

/// The resources that one of our relays has used.
#[derive(Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) nickname: String,
    pub(super) cpu_s: Option<f64>,
    /// The maximum memory since its start.
    pub(super) peak_mib: Option<f64>,
}

impl Cost {
    /// The resources since an earlier reading.
    pub(super) fn since(self, earlier: &Self) -> Self {
        let cpu_s = self.cpu_s.zip(earlier.cpu_s).map(|(now, then)| now - then);
        Self { cpu_s, ..self }
    }
}

impl DownloadNetwork {
    pub(super) fn start(output: &Output) -> Result<Self> {
        let c_tor = RelaySpec::open_exit("torexit");
        let spec = NetworkSpec::new(vec![c_tor]);
        let network = network::start(&spec, output)?;
        let folder = testbed::temporary_folder()?;
        let ours = testbed::start_exits(&OURS, &network, &folder, output)?;
        let fingerprints: Vec<[u8; 20]> = ours.iter().map(OwnRelay::rsa).collect();
        output.doing("starting the client");
        let known = testbed::all_relays(&network, &fingerprints);
        // With Conflux, the client would use two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let client = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        let server = testbed::content_server(Ipv4Addr::LOCALHOST)?;
        Ok(Self { client, server, ours, network, _folder: folder })
    }

    /// The client's SOCKS port.
    pub(super) const fn socks(&self) -> SocketAddr {
        self.client.socks()
    }

    /// The address of the content server.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// Restricts the client to one path, and returns it.
    pub(super) fn pin(&mut self, placement: Placement) -> Result<[[u8; 20]; 3]> {
        let c_tor = testbed::path_of(&self.network)?;
        let is_ours = placement.ours();
        let path = std::array::from_fn(|place| {
            let ours = self.ours.get(place).filter(|_| is_ours[place]);
            ours.map_or(c_tor[place], OwnRelay::rsa)
        });
        testbed::pin(&mut self.client, path)?;
        Ok(path)
    }

    /// The paths of the circuits that had streams since the last pinning.
    pub(super) fn used_paths(&mut self) -> Result<Vec<Vec<[u8; 20]>>> {
        Ok(self.client.used_paths()?)
    }

    /// The resources that our relays have used.
    pub(super) fn costs(&self) -> Vec<Cost> {
        let cost = |relay: &OwnRelay| {
            let pid = relay.process.pid();
            Cost {
                nickname: relay.spec.nickname.clone(),
                cpu_s: lab::cpu_time(pid).map(|time| time.as_secs_f64()),
                peak_mib: Memory::of(pid).map(|memory| memory.peak_mib.ceil()),
            }
        };
        self.ours.iter().map(cost).collect()
    }
}
