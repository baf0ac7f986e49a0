//! A client, a network of stock tor, and two relays that are far from both.

use super::Case;
use crate::distant::enter;
use crate::error::Error;
use crate::stage;
use control::keys::SecretKey;
use lab::wan::{Congestion, HostSpec, Wan, WanSpec};
use lab::{
    Client, Content, ContentServer, Download, JoinedRelay, Network, NetworkSpec, OwnRelay,
    OwnRelaySpec, Pins, RelaySpec, TemporaryFolder, download,
};
use link::Clock;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;
use terminal::{Output, network};

const CLIENT: &str = "client";
const CORE: &str = "core";
const FAR: &str = "far";

/// Far more than a consensus takes; and a byte of a download has to come at least this often.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose relay is far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Stock,
    Ours,
}

impl Who {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Stock => "a stock relay",
            Self::Ours => "ours",
        }
    }
}

/// All that takes part.
pub(super) struct Scene {
    // In this order: what runs at the hosts ends before they do.
    client: Client,
    server: ContentServer,
    ours: OwnRelay,
    stock: JoinedRelay,
    network: Network,
    wan: Wan,
    _folder: TemporaryFolder,
    downloads: u64,
}

impl Scene {
    pub(super) fn start(congestion: Congestion, seed: u64, output: &Output) -> Result<Self, Error> {
        let hosts = [CLIENT, CORE, FAR].into_iter().zip(1..).map(|(name, at)| {
            HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at)).with_congestion(congestion)
        });
        let wan = Wan::start(&WanSpec::new(hosts.collect()).with_seed(seed))?;
        // Its keeper stays outside of all hosts.
        let folder = stage::temporary_folder()?;
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
        let server = stage::content_server(core.address())?;
        output.doing("starting the relays that will be far away");
        let far = wan.host(FAR)?;
        enter(far)?;
        let spec = OwnRelaySpec {
            nickname: "oursfar".to_owned(),
            limit: None,
            coordinator: SecretKey::generate()?.public().to_string(),
            authorities: network.directory_addrs(),
            client_percent: None,
            is_open_exit: true,
            address: far.address(),
        };
        let ours = OwnRelay::start(spec, folder.path(), Clock::start())?;
        let stock = JoinedRelay::start(&network, "stockfar", far.address(), PATIENCE)?;
        output.doing("waiting for the consensus that lists them");
        enter(core)?;
        let fingerprints = [ours.rsa(), stock.rsa()];
        stage::wait_until_known(&network, &fingerprints, [&ours], PATIENCE)?;
        output.doing("starting the client");
        enter(wan.host(CLIENT)?)?;
        let near = network.authorities().iter().chain(network.relays()).map(lab::Node::rsa);
        let known: Vec<[u8; 20]> = fingerprints.into_iter().chain(near).collect();
        // Whoever uses two circuits for a stream has two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let client = Client::start(&network, "client", &extra, &known, PATIENCE)?;
        Ok(Self { client, server, ours, stock, network, wan, _folder: folder, downloads: 0 })
    }

    /// Downloads through the far relay of ours or of stock tor, at the place of a case. An error is one of what plays
    /// here; that the download failed is no such error.
    pub(super) fn download(
        &mut self,
        case: &Case,
        who: Who,
        content: Content,
    ) -> Result<io::Result<Download>, Error> {
        for other in [CLIENT, CORE] {
            self.wan.set_way(other, FAR, case.way())?;
            self.wan.set_way(FAR, other, case.way())?;
        }
        let [first, second, ..] = self.network.authorities() else {
            return Err(lab::LabError::Spec("a network without authorities".to_owned()).into());
        };
        let exit = self.network.relays().first().unwrap_or(second);
        let mut path = [first.rsa(), second.rsa(), exit.rsa()];
        path[case.place.number()] = match who {
            Who::Stock => self.stock.rsa(),
            Who::Ours => self.ours.rsa(),
        };
        let [entry, middle, exit] = path.map(|rsa| vec![rsa]);
        self.client.pin(&Pins { entry, middle, exit })?;
        // What was used until now is of no interest.
        self.client.used_paths()?;
        self.downloads += 1;
        let isolation = self.downloads.to_string();
        let server = self.server.address();
        let from = (&*server.ip().to_string(), server.port());
        let done = download(self.client.socks(), from, content, &isolation, PATIENCE);
        let used = self.client.used_paths()?;
        // Word of the download before may come late.
        if !used.iter().any(|it| *it == path) {
            let elsewhere = io::Error::other(format!("it went elsewhere: {used:02x?}"));
            return Ok(Err(elsewhere));
        }
        Ok(done)
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        let Self { client, server, ours, stock, network, wan, .. } = self;
        drop((client, server, ours, stock));
        network.stop()?;
        drop(wan);
        Ok(())
    }
}
