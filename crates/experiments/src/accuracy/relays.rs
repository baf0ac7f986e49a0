//! The relays that are measured.

use super::plan::{Plan, Setting};
use crate::error::Error;
use crate::stage::Stage;
use crate::trial::{Trial, Tried};
use lab::{Network, NetworkSpec, OwnRelay, RelaySaid, RelaySpec};
use measurer::{Approach, Defences, Request};
use netdoc::Fingerprint;
use netdoc::consensus::Consensus;
use onion::Rate;
use onion::measure::load::Target;
use terminal::measuring::Subject;
use terminal::{Interrupt, Output, network};

/// A relay that is measured again and again.
pub(super) struct Candidate<'r> {
    pub(super) limit: Option<Rate>,
    request: Request,
    pid: u32,
    said: RelaySaid<'r>,
    /// What it was found to carry.
    last: Option<Rate>,
    /// What was expected of it last.
    pub(super) last_guess: Rate,
}

impl<'r> Candidate<'r> {
    fn new(limit: Option<Rate>, request: Request, pid: u32, said: RelaySaid<'r>) -> Self {
        Self { limit, request, pid, said, last: None, last_guess: Rate::ZERO }
    }

    /// One run; `None` if the user has asked for the end.
    pub(super) fn measure(
        &mut self,
        setting: &Setting,
        plan: &Plan,
        stage: &Stage,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Tried>, Error> {
        let guess = Plan::guess(self.limit, self.last, setting.run);
        self.last_guess = guess;
        let count = u64::from(setting.measurers);
        let capacity = plan.team_capacity(self.limit, setting.run).as_bit_per_s();
        // Rounded up: together they must have enough.
        let share = Rate::from_bit_per_s(capacity.div_ceil(count));
        let shares = (0..setting.measurers as usize).map(|place| (place, share));
        let trial = Trial {
            name: &setting.name(),
            team: &mut stage.team_of(shares, plan.params())?,
            request: Request { guess, ..self.request },
            pid: self.pid,
            said: &mut self.said,
        };
        let tried = trial.run(output, interrupt)?;
        let estimate = tried.as_ref().and_then(|tried| tried.estimate());
        self.last = estimate.map(|estimate| estimate.capacity).or(self.last);
        Ok(tried)
    }
}

/// Starts a relay of ours for each limit.
pub(super) fn own(stage: &Stage, plan: &Plan) -> Result<Vec<OwnRelay>, Error> {
    let start =
        |(number, limit): (u32, &Option<Rate>)| stage.relay(&format!("echo{number}"), *limit, None);
    (1..).zip(&plan.limits).map(start).collect()
}

/// Relays of ours, as they are measured with their own help.
pub(super) fn as_echoes<'r>(stage: &Stage, relays: &'r [OwnRelay]) -> Vec<Candidate<'r>> {
    let candidate = |relay: &'r OwnRelay| {
        let said = RelaySaid::watch_own(relay, stage.clock());
        let request = stage.echo_request(relay.target, Rate::ZERO);
        Candidate::new(relay.spec.limit, request, relay.process.pid(), said)
    };
    relays.iter().map(candidate).collect()
}

/// Brings up a private network with a stock relay for each limit.
pub(super) fn network(plan: &Plan, output: &Output) -> Result<Network, Error> {
    let relay = |(number, limit): (u32, &Option<Rate>)| {
        let relay = RelaySpec::new(&format!("transit{number}"));
        RelaySpec { limit: *limit, ..relay }
    };
    let relays = (1..).zip(&plan.limits).map(relay).collect();
    // Nobody votes by what is found here.
    let spec = NetworkSpec { bandwidth_file: false, ..NetworkSpec::new(relays) };
    Ok(network::start(&spec, output)?)
}

/// Stock relays, which know nothing of it.
pub(super) fn in_transit(network: &Network) -> Result<Vec<Candidate<'static>>, Error> {
    let what = || "the private network's consensus".to_owned();
    let text = network.consensus()?.unwrap_or_default();
    let consensus = Consensus::parse(text.as_bytes())
        .map_err(|source| Error::Consensus { what: what(), source })?;
    let defences = Defences::from_consensus_params(|name| consensus.params.get(name));
    let candidate = |node: &lab::Node| {
        let ids = Subject::ids(Fingerprint::from_bytes(node.rsa()), Some(node.ed25519()));
        let target = Target { address: node.or_addr(), ids };
        let request = Request { target, guess: Rate::ZERO, defences, approach: Approach::Transit };
        Ok(Candidate::new(node.limit(), request, node.pid(), RelaySaid::watch(node)?))
    };
    network.relays().iter().map(candidate).collect()
}
