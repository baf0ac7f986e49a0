//! The paper's hosts, and relays at one of them.

use super::plan::{HOSTS, Plan, Setting, US_SW};
use crate::distant::{Relays, enter, measurer_at};
use crate::error::Error;
use crate::mode::Mode;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use lab::wan::{HostSpec, SocketBuffer, Wan, WanSpec};
use measurer::TeamOptions;
use std::net::Ipv4Addr;
use terminal::{Interrupt, Output};

/// The host of the relays. US-SW is beside it.
const RELAYS: &str = "relays";

/// The paper's tuned kernel; what is least and first is Linux's.
const TUNED: SocketBuffer = SocketBuffer { least: 4096, initial: 131_072, largest: 64 << 20 };

/// The hosts, a measurer at each, and the relays.
pub(super) struct Scene {
    pub(super) mode: Mode,
    pub(super) is_tuned: bool,
    // In this order: what runs at the hosts ends before they do.
    relays: Relays,
    stage: Stage,
    wan: Wan,
}

impl Scene {
    pub(super) fn start(
        plan: &Plan,
        mode: Mode,
        is_tuned: bool,
        output: &Output,
    ) -> Result<Self, Error> {
        let spec = |name, at| {
            let tuned = is_tuned.then_some(TUNED);
            let spec = HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
            HostSpec { tcp_rmem: tuned, tcp_wmem: tuned, ..spec.with_congestion(plan.congestion) }
        };
        let hosts =
            HOSTS.iter().zip(2..).map(|(it, at)| spec(it.name, at).with_access(it.access()));
        let mut wan = WanSpec::new(hosts.chain([spec(RELAYS, 1)]).collect()).with_seed(plan.seed);
        for host in &HOSTS {
            let way = host.way(plan.loss_percent);
            wan = wan.with_way(host.name, RELAYS, way).with_way(RELAYS, host.name, way);
        }
        let wan = Wan::start(&wan)?;
        // The coordinator is where the relay is: what it says takes no time.
        enter(wan.host(HOSTS[US_SW].name)?)?;
        let mut stage = Stage::new()?;
        for host in &HOSTS {
            measurer_at(wan.host(host.name)?, &mut stage, host.rate(), || Ok(()))?;
        }
        let relays = Relays::start(mode, &plan.limits, wan.host(RELAYS)?, &stage, output)?;
        Ok(Self { mode, is_tuned, relays, stage, wan })
    }

    /// Measures a relay as a setting says, with the right guess; `None` if the user has asked for the end.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        setting: &Setting,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Tried>, Error> {
        let limit = plan.limits[setting.relay];
        enter(self.wan.host(RELAYS)?)?;
        let (request, pid, mut said) = self.relays.subject(setting.relay, limit, &self.stage)?;
        enter(self.wan.host(HOSTS[US_SW].name)?)?;
        let shares = setting.hosts.iter().map(|it| (*it, HOSTS[*it].rate()));
        let options = TeamOptions {
            params: setting.params(),
            path: setting.path(),
            ..TeamOptions::default()
        };
        let team = &mut self.stage.team_with(shares, options)?;
        let name = format!("{} {limit}, {setting}", self.mode.word());
        Trial { name: &name, team, request, pid, said: &mut said }.run(output, interrupt)
    }

    pub(super) fn stop(self) -> Result<(), Error> {
        self.relays.stop()
    }
}
