//! Stock relays and ours in one private network on loopback, and a server.

use crate::error::Result;
use crate::private_network as network;
use crate::testbed;
use client::probe::{self, ProbeServer, Subject};
use client::{Directories, NetDir, RelayInfo};
use lab::{LabError, Network, NetworkSpec, OwnRelay, RelaySpec, TemporaryFolder};
use netdoc::Fingerprint;
use onion::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terminal::Output;

/// Far more than a consensus takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whose relays a circuit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Software {
    Stock,
    Ours,
}

impl Software {
    pub(super) const ALL: [Self; 2] = [Self::Stock, Self::Ours];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Stock => "stock",
            Self::Ours => "ours",
        }
    }
}

/// All processes of the experiment.
pub(super) struct SharedNetwork {
    view: Arc<NetDir>,
    stock: Vec<Fingerprint>,
    ours: Vec<Fingerprint>,
    server: ProbeServer,
    // Before the network that they are in.
    relays: Vec<OwnRelay>,
    network: Network,
    _folder: TemporaryFolder,
}

impl SharedNetwork {
    pub(super) fn start(output: &Output) -> Result<Self> {
        // Three for circuits, and one aside, over which penetrators reach the middle.
        let stock = (1..=4).map(|it| RelaySpec::open_exit(&format!("stock{it}"))).collect();
        let network = network::start(&NetworkSpec::new(stock), output)?;
        let folder = testbed::temporary_folder()?;
        let relays = testbed::start_exits(&["ours1", "ours2", "ours3"], &network, &folder, output)?;
        let own: Vec<[u8; 20]> = relays.iter().map(OwnRelay::rsa).collect();
        let all = |rsa: Vec<[u8; 20]>| rsa.into_iter().map(Fingerprint::from_bytes).collect();
        let stock: Vec<Fingerprint> = all(network.relays().iter().map(lab::Node::rsa).collect());
        let ours: Vec<Fingerprint> = all(own);
        let knows =
            |view: &NetDir| stock.iter().chain(&ours).all(|relay| view.find(relay).is_some());
        let (authorities, known) = (network.directory_addrs(), folder.path().join("client"));
        let directories = Directories::default();
        let view =
            probe::learn(authorities, directories, [].into(), known, PATIENCE, knows, || false)?;
        let server = ProbeServer::start((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { view, stock, ours, server, relays, network, _folder: folder })
    }

    pub(super) fn view(&self) -> Arc<NetDir> {
        Arc::clone(&self.view)
    }

    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address()
    }

    fn subject(&self, path: &[Fingerprint]) -> Result<Subject> {
        let find = |relay: &Fingerprint| {
            let unknown = || LabError::Spec(format!("{relay} is no longer in the consensus"));
            Ok(self.view.find(relay).ok_or_else(unknown)?)
        };
        let path: Vec<&RelayInfo> = path.iter().map(find).collect::<Result<_>>()?;
        Ok(Subject::new(&path))
    }

    /// The circuit that is measured.
    pub(super) fn path(&self, kind: Software) -> Result<Subject> {
        self.subject(match kind {
            Software::Stock => &self.stock[..3],
            Software::Ours => &self.ours,
        })
    }

    /// A circuit that ends at the middle of the one that is measured, and has nothing else in common with it.
    pub(super) fn aside(&self, kind: Software) -> Result<Subject> {
        let middle = match kind {
            Software::Stock => &self.stock[1],
            Software::Ours => &self.ours[1],
        };
        self.subject(&[self.stock[3], *middle])
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { relays, network, server, .. } = self;
        drop((relays, server));
        network.stop()?;
        Ok(())
    }
}
