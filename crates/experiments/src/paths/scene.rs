//! Relays at one end of a distance, a measurer at the other.

use super::plan::{Path, Plan};
use super::{Mode, way};
use crate::error::Error;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use lab::wan::{Congestion, Wan, WanSpec};
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, RelaySaid, RelaySpec};
use measurer::{Approach, Defences, Request, Team, TeamOptions};
use netdoc::Fingerprint;
use onion::Rate;
use onion::measure::pump::Target;
use terminal::measuring::Subject;
use terminal::{Interrupt, Output, network};

const NEAR: &str = "near";
const FAR: &str = "far";

/// Measurers of the team.
const MEASURERS: u32 = 2;

/// A distance that changes from run to run, and the relays beyond it.
pub(super) struct Scene {
    pub(super) mode: Mode,
    pub(super) congestion: Congestion,
    // In this order: the relays end before their network does.
    relays: Relays,
    /// The coordinator of those that take part.
    stage: Stage,
    wan: Wan,
}

enum Relays {
    Stock(Network),
    Own(Vec<OwnRelay>),
}

impl Scene {
    pub(super) fn start(
        plan: &Plan,
        mode: Mode,
        congestion: Congestion,
        output: &Output,
    ) -> Result<Self, Error> {
        let mut spec = WanSpec::pair(way(&Path::NONE)).with_seed(plan.seed);
        spec.hosts.iter_mut().for_each(|host| host.congestion = Some(congestion));
        let wan = Wan::start(&spec)?;
        let stage = Stage::new()?;
        let far = wan.host(FAR)?;
        let address = far.address();
        // This thread goes from host to host: processes and threads that it starts stay where it was.
        far.namespace().enter().map_err(network_error)?;
        let limits = (1..).zip(plan.limits.iter().map(|mbit| Rate::from_mbit_per_s(*mbit)));
        let relays = match mode {
            Mode::Transit => {
                let relay = |(number, limit): (u32, Rate)| {
                    RelaySpec::new(&format!("stock{number}")).limited_to(limit)
                };
                let relays = limits.map(relay).collect();
                let spec =
                    NetworkSpec { bandwidth_file: false, address, ..NetworkSpec::new(relays) };
                Relays::Stock(network::start(&spec, output)?)
            }
            Mode::Echo => {
                let start = |(number, limit): (u32, Rate)| {
                    let spec = OwnRelaySpec {
                        nickname: format!("own{number}"),
                        limit: Some(limit),
                        coordinator: stage.key().public().to_string(),
                        authorities: Vec::new(),
                        client_percent: None,
                        is_open_exit: false,
                        address,
                    };
                    stage.start_relay(spec)
                };
                Relays::Own(limits.map(start).collect::<Result<_, _>>()?)
            }
        };
        Ok(Self { mode, congestion, relays, stage, wan })
    }

    /// Measures the relay of this number over a distance, with the right guess; `None` if the user has asked
    /// for the end.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        relay: usize,
        path: &Path,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Tried>, Error> {
        for (from, to) in [(NEAR, FAR), (FAR, NEAR)] {
            self.wan.set_way(from, to, way(path))?;
        }
        let limit = Rate::from_mbit_per_s(plan.limits[relay]);
        let (near, far) = (self.wan.host(NEAR)?, self.wan.host(FAR)?);
        far.namespace().enter().map_err(network_error)?;
        let (request, pid, mut said) = self.subject(relay, limit)?;
        let options = TeamOptions {
            measurers: MEASURERS,
            pumps: Some(1),
            // Enough for a guess that has to be doubled.
            capacity: Some(limit.scaled(4.0)),
            address: Some(near.address().into()),
            params: plan.params(),
            ..TeamOptions::default()
        };
        let name = format!(
            "{} {:?} Mbit/s, {} ms, {} %, {}",
            self.mode.word(),
            plan.limits[relay],
            path.rtt_ms,
            path.loss_percent,
            self.congestion
        );
        near.namespace().enter().map_err(network_error)?;
        let team = &mut Team::new(options)?;
        Trial { name: &name, team, request, pid, said: &mut said }.run(output, interrupt)
    }

    /// The relay of this number, as it is to be measured.
    fn subject(&self, relay: usize, guess: Rate) -> Result<(Request, u32, RelaySaid<'_>), Error> {
        match &self.relays {
            Relays::Stock(network) => {
                let node = &network.relays()[relay];
                let ids = Subject::ids(Fingerprint::from_bytes(node.rsa()), Some(node.ed25519()));
                let target = Target { address: node.or_addr(), ids };
                let defences = Defences::default();
                let request = Request { target, guess, defences, approach: Approach::Transit };
                Ok((request, node.pid(), RelaySaid::watch(node)?))
            }
            Relays::Own(relays) => {
                let relay = &relays[relay];
                let said = RelaySaid::watch_own(relay, self.stage.clock());
                Ok((self.stage.echo_request(relay.target, guess), relay.process.pid(), said))
            }
        }
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        if let Relays::Stock(network) = self.relays {
            network.stop()?;
        }
        Ok(())
    }
}

fn network_error(error: std::io::Error) -> Error {
    Error::Network(error.to_string())
}
