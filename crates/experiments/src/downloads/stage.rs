//! The network, our relays in it, a client, and a server.

use super::plan::Placement;
use crate::error::Result;
use crate::private_network as network;
use crate::testbed;
use lab::{Client, ContentServer, Network, NetworkSpec, OwnRelay, RelaySpec, TemporaryFolder};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use terminal::Output;

/// Far more than a consensus takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Our relays, in the order of their places on a circuit.
const OURS: [&str; 3] = ["oursguard", "oursmiddle", "oursexit"];

/// All processes of the experiment.
pub(super) struct DownloadNetwork {
    // In this order: the client ends before the network does.
    client: Client,
    server: ContentServer,
    ours: Vec<OwnRelay>,
    network: Network,
    _folder: TemporaryFolder,
}

/// What one of our relays has used.
pub(super) struct Cost {
    pub(super) nickname: String,
    /// Processor time.
    pub(super) cpu: Option<Duration>,
    /// The most memory, in MiB.
    pub(super) peak_mib: Option<u64>,
}

impl DownloadNetwork {
    pub(super) fn start(output: &Output) -> Result<Self> {
        let stock = RelaySpec::open_exit("stockexit");
        let spec = NetworkSpec::new(vec![stock]);
        let network = network::start(&spec, output)?;
        let folder = testbed::temporary_folder()?;
        let ours = testbed::start_exits(&OURS, &network, &folder, output)?;
        let fingerprints: Vec<[u8; 20]> = ours.iter().map(OwnRelay::rsa).collect();
        output.doing("starting the client");
        let known = testbed::all_relays(&network, &fingerprints);
        // A client that uses two circuits for a stream has two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let client = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        let server = testbed::content_server(Ipv4Addr::LOCALHOST)?;
        Ok(Self { client, server, ours, network, _folder: folder })
    }

    /// The client's SOCKS port.
    pub(super) const fn socks(&self) -> SocketAddr {
        self.client.socks()
    }

    /// Where the content is.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address()
    }

    /// Has the client use one path only, and says which.
    pub(super) fn pin(&mut self, placement: Placement) -> Result<[[u8; 20]; 3]> {
        let stock = testbed::path_of(&self.network)?;
        let is_ours = placement.ours();
        let path = std::array::from_fn(|place| {
            let ours = self.ours.get(place).filter(|_| is_ours[place]);
            ours.map_or(stock[place], OwnRelay::rsa)
        });
        testbed::pin(&mut self.client, path)?;
        Ok(path)
    }

    /// The paths of the circuits that had streams since the last pinning.
    pub(super) fn used_paths(&mut self) -> Result<Vec<Vec<[u8; 20]>>> {
        Ok(self.client.used_paths()?)
    }

    /// What our relays have used.
    pub(super) fn costs(&self) -> Vec<Cost> {
        let cost = |relay: &OwnRelay| {
            let pid = relay.process.pid();
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = peak.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            Cost {
                nickname: relay.spec.nickname.clone(),
                cpu: lab::cpu_time(pid),
                peak_mib: kib.map(|kib| kib.div_ceil(1024)),
            }
        };
        self.ours.iter().map(cost).collect()
    }
}
