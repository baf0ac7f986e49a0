//! A client, a network of C tor, and two relays that are distant from both.

use super::Cell;
use crate::error::Result;
use crate::private_network as network;
use crate::testbed;
use crate::wan_site::{enter, path_with_rtt};
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

/// Time until a consensus lists the relays. A download that receives nothing for this time has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The software of the distant relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Software {
    CTor,
    Ours,
}

impl Software {
    pub(super) const ALL: [Self; 2] = [Self::CTor, Self::Ours];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::CTor => "C tor",
            Self::Ours => "our relay",
        }
    }
}

/// All processes of the experiment.
pub(super) struct Network {
    // Dropped in this order: processes end before their hosts.
    client: Client,
    server: ContentServer,
    ours: OwnRelay,
    c_tor: JoinedRelay,
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
        // Created outside of all hosts, where its keeper then runs.
        let folder = testbed::temporary_folder()?;
        // This thread moves between hosts; processes and threads that it starts stay at the host of their start.
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
        output.doing("starting the distant relays");
        let far = wan.host(FAR)?;
        enter(far)?;
        let spec = testbed::open_exit("oursfar", &network, far.address())?;
        let ours = OwnRelay::start(spec, folder.path(), Clock::start())?;
        let c_tor = JoinedRelay::start(&network, "stockfar", far.address(), PATIENCE)?;
        output.doing("waiting for the consensus that lists them");
        enter(core)?;
        let fingerprints = [ours.rsa(), c_tor.rsa()];
        testbed::wait_until_known(&network, &fingerprints, [&ours], PATIENCE)?;
        output.doing("starting the client");
        enter(wan.host(CLIENT)?)?;
        let known = testbed::all_relays(&network, &fingerprints);
        // With Conflux, a client has two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let client = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        Ok(Self { client, server, ours, c_tor, network, wan, _folder: folder, downloads: 0 })
    }

    /// Downloads through a distant relay at the cell's position. The outer error is one of the network, the inner one of the
    /// download.
    pub(super) fn download(
        &mut self,
        cell: &Cell,
        software: Software,
        content: Content,
    ) -> Result<io::Result<Download>> {
        for other in [CLIENT, CORE] {
            let path = path_with_rtt(cell.rtt_ms, cell.loss_percent);
            self.wan.set_path(other, FAR, path)?;
            self.wan.set_path(FAR, other, path)?;
        }
        let mut path = testbed::path_of(&self.network)?;
        path[cell.place as usize] = match software {
            Software::CTor => self.c_tor.rsa(),
            Software::Ours => self.ours.rsa(),
        };
        testbed::pin(&mut self.client, path)?;
        self.downloads += 1;
        let isolation = self.downloads.to_string();
        let server = self.server.address();
        let from = (&*server.ip().to_string(), server.port());
        let result = download(self.client.socks(), from, content, &isolation, PATIENCE);
        let used = self.client.used_paths()?;
        // The list may contain the path of the previous download, whose event was late.
        if !used.iter().any(|taken| *taken == path) {
            let problem = format!("the download used another path: {used:02x?}");
            return Ok(Err(io::Error::other(problem)));
        }
        Ok(result)
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { client, server, ours, c_tor, network, wan, .. } = self;
        drop((client, server, ours, c_tor));
        network.stop()?;
        drop(wan);
        Ok(())
    }
}
