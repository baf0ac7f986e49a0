//! A client, a network of C tor, and two relays that are far from both.

use super::Cell;
use crate::error::Result;
use crate::private_network as network;
use crate::testbed;
use crate::wan_site::{enter, way_of_rtt};
use lab::wan::{Congestion, HostSpec, Wan, WanSpec};
use lab::{
    Client, Content, ContentServer, Download, JoinedRelay, NetworkSpec, OwnRelay, RelaySpec,
    TemporaryFolder, download,
};
use link::Clock;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use terminal::Output;

const CLIENT: &str = "client";
const CORE: &str = "core";
const FAR: &str = "far";

/// Far more than a consensus takes; and a byte of a download has to come at least this often.
const PATIENCE: Duration = Duration::from_secs(120);

/// The software of the far relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Software {
    CTor,
    Ours,
}

impl Software {
    pub(super) const ALL: [Self; 2] = [Self::CTor, Self::Ours];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::CTor => "C tor",
            Self::Ours => "our relay",
        }
    }
}

/// All processes of the experiment.
pub(super) struct Network {
    // In this order: what runs at the hosts ends before they do.
    client: Client,
    server: ContentServer,
    ours: OwnRelay,
    stock: JoinedRelay,
    network: lab::Network,
    wan: Wan,
    _folder: TemporaryFolder,
    downloads: u64,
}

impl Network {
    pub(super) fn start(congestion: Congestion, seed: u64, output: &Output) -> Result<Self> {
        let hosts = [CLIENT, CORE, FAR].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()).with_seed(seed))?;
        // Its keeper stays outside of all hosts.
        let folder = testbed::temporary_folder()?;
        // This thread goes from host to host: processes and threads that it starts stay where it was.
        let core = wan.host(CORE)?;
        enter(core)?;
        let exit = RelaySpec::open_exit("stockexit");
        let spec = NetworkSpec {
            bandwidth_file: false,
            address: core.address(),
            ..NetworkSpec::new(vec![exit])
        };
        let network = network::start(&spec, output)?;
        let server = testbed::content_server(core.address())?;
        output.doing("starting the relays that will be far away");
        let far = wan.host(FAR)?;
        enter(far)?;
        let spec = testbed::open_exit("oursfar", &network, far.address())?;
        let ours = OwnRelay::start(spec, folder.path(), Clock::start())?;
        let stock = JoinedRelay::start(&network, "stockfar", far.address(), PATIENCE)?;
        output.doing("waiting for the consensus that lists them");
        enter(core)?;
        let fingerprints = [ours.rsa(), stock.rsa()];
        testbed::wait_until_known(&network, &fingerprints, [&ours], PATIENCE)?;
        output.doing("starting the client");
        enter(wan.host(CLIENT)?)?;
        let known = testbed::all_relays(&network, &fingerprints);
        // A client that uses two circuits for a stream has two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let client = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        Ok(Self { client, server, ours, stock, network, wan, _folder: folder, downloads: 0 })
    }

    /// Downloads through a far relay at the hop of a cell. The outer error is one of the network; the inner one is of the download.
    pub(super) fn download(
        &mut self,
        cell: &Cell,
        software: Software,
        content: Content,
    ) -> Result<io::Result<Download>> {
        for other in [CLIENT, CORE] {
            let way = way_of_rtt(cell.rtt_ms, cell.loss_percent);
            self.wan.set_path(other, FAR, way)?;
            self.wan.set_path(FAR, other, way)?;
        }
        let mut path = testbed::path_of(&self.network)?;
        path[cell.place.number()] = match software {
            Software::CTor => self.stock.rsa(),
            Software::Ours => self.ours.rsa(),
        };
        testbed::pin(&mut self.client, path)?;
        self.downloads += 1;
        let isolation = self.downloads.to_string();
        let server = self.server.address();
        let from = (&*server.ip().to_string(), server.port());
        let done = download(self.client.socks(), from, content, &isolation, PATIENCE);
        let used = self.client.used_paths()?;
        // An event of the previous download may come late.
        if !used.iter().any(|it| *it == path) {
            let elsewhere = io::Error::other(format!("it went elsewhere: {used:02x?}"));
            return Ok(Err(elsewhere));
        }
        Ok(done)
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { client, server, ours, stock, network, wan, .. } = self;
        drop((client, server, ours, stock));
        network.stop()?;
        drop(wan);
        Ok(())
    }
}
