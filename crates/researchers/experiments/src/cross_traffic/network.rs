//! A private network on loopback with C tor relays and ours, and a server.

use crate::error::Result;
use crate::private_network as network;
use crate::testbed;
use client::probe::{self, ProbeServer, Subject};
use client::{Directories, NetDir, RelayInfo};
use lab::{LabError, Network, NetworkSpec, OwnRelay, RelaySpec, TemporaryFolder};
use netdoc::RsaId;
use onion::Duration;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terminal::Output;

/// The timeout of a consensus that lists all relays.
const PATIENCE: Duration = Duration::from_secs(120);

/// The software of a circuit's relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Software {
    Tor,
    Ours,
}

impl Software {
    pub(super) const ALL: [Self; 2] = [Self::Tor, Self::Ours];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Tor => "tor",
            Self::Ours => "ours",
        }
    }
}

/// All processes of the experiment.
pub(super) struct SharedNetwork {
    view: Arc<NetDir>,
    c_tor: Vec<RsaId>,
    ours: Vec<RsaId>,
    server: ProbeServer,
    // Dropped before the network.
    relays: Vec<OwnRelay>,
    network: Network,
    _folder: TemporaryFolder,
}

impl SharedNetwork {
    pub(super) fn start(output: &Output) -> Result<Self> {
        // Three for the measured circuit, and one as the first hop of penetrators.
        let c_tor = (1..=4).map(|number| RelaySpec::open_exit(&format!("tor{number}"))).collect();
        let network = network::start(&NetworkSpec::new(c_tor), output)?;
        let folder = testbed::temporary_folder()?;
        let relays = testbed::start_exits(&["ours1", "ours2", "ours3"], &network, &folder, output)?;
        let own: Vec<[u8; 20]> = relays.iter().map(OwnRelay::rsa).collect();
        let all = |rsa: Vec<[u8; 20]>| rsa.into_iter().map(RsaId).collect();
        let c_tor: Vec<RsaId> = all(network.relays().iter().map(lab::Node::rsa).collect());
        let ours: Vec<RsaId> = all(own);
        let knows =
            |view: &NetDir| c_tor.iter().chain(&ours).all(|relay| view.find(relay).is_some());
        let (authorities, known) = (network.directory_addrs(), folder.path().join("client"));
        let directories = Directories::default();
        let view =
            probe::learn(authorities, directories, [].into(), known, PATIENCE, knows, || false)?;
        let server = ProbeServer::start((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { view, c_tor, ours, server, relays, network, _folder: folder })
    }

    pub(super) fn view(&self) -> Arc<NetDir> {
        Arc::clone(&self.view)
    }

    pub(super) const fn server(&self) -> SocketAddr {
        self.server.address()
    }

    fn subject(&self, path: &[RsaId]) -> Result<Subject> {
        let find = |relay: &RsaId| {
            let unknown = || LabError::Spec(format!("{relay} is no longer in the consensus"));
            Ok(self.view.find(relay).ok_or_else(unknown)?)
        };
        let path: Vec<&RelayInfo> = path.iter().map(find).collect::<Result<_>>()?;
        Ok(Subject::new(&path))
    }

    /// The measured circuit.
    pub(super) fn path(&self, kind: Software) -> Result<Subject> {
        self.subject(match kind {
            Software::Tor => &self.c_tor[..3],
            Software::Ours => &self.ours,
        })
    }

    /// A circuit that ends at the middle relay of the measured one, and shares no other relay with it.
    pub(super) fn crossing_path(&self, kind: Software) -> Result<Subject> {
        let middle = match kind {
            Software::Tor => &self.c_tor[1],
            Software::Ours => &self.ours[1],
        };
        self.subject(&[self.c_tor[3], *middle])
    }

    pub(super) fn stop(self) -> Result<()> {
        let Self { relays, network, server, .. } = self;
        drop((relays, server));
        network.stop()?;
        Ok(())
    }
}
