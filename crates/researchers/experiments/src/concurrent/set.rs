//! Simultaneous measurements by one team.

use super::ConcurrentGrid;
use crate::common::Session;
use crate::error::{Error, Result};
use crate::testbed::Testbed;
use crate::trial::{Trial, TrialResult};
use authority::RemoteTeam;
use authority::one_relay::Request;
use coordinator::{Campaign, Priority, RelayIndex};
use lab::{OwnRelay, RelayReports};
use link::Clock;
use onion::Rate;
use std::ops::Range;
use std::thread;

/// Relays with the same limit.
pub(super) struct Set {
    relays: Vec<OwnRelay>,
    limit: Rate,
}

/// The result of one relay's measurement.
pub(super) struct OneOf {
    pub(super) place: u32,
    /// The number of measurers that took part.
    pub(super) measurers: usize,
    pub(super) result: Result<TrialResult>,
}

/// A prepared measurement.
struct Ready<'r> {
    place: u32,
    // Exclusive, because a process's output has a single reader.
    relay: &'r mut OwnRelay,
    measurers: usize,
    team: RemoteTeam,
    request: Request,
    clock: Clock,
}

impl Ready<'_> {
    fn measure(self, at_once: usize, session: Session<'_>) -> Option<OneOf> {
        let Self { place, measurers, .. } = self;
        let name = format!("{at_once} at once, relay {}", place + 1);
        let trial = Trial {
            name: &name,
            team: &self.team,
            request: self.request,
            pid: self.relay.process.pid(),
            reports: &mut RelayReports::watch_own(self.relay, self.clock),
        };
        let result = trial.run(session).transpose()?;
        Some(OneOf { place, measurers, result })
    }
}

impl Set {
    pub(super) fn start(testbed: &Testbed, count: u32, limit: Rate) -> Result<Self> {
        let relay = |number| testbed.relay(&format!("no{number}of{count}"), Some(limit), None);
        Ok(Self { relays: (1..=count).map(relay).collect::<Result<_, _>>()?, limit })
    }

    /// Measures the relays at these places simultaneously; `None` if the user has interrupted.
    pub(super) fn measure(
        &mut self,
        places: Range<u32>,
        grid: &ConcurrentGrid,
        testbed: &Testbed,
        session: Session<'_>,
    ) -> Result<Option<Vec<OneOf>>> {
        // Before any measurement begins, because creating a team takes time.
        let ready = self.ready(places, grid, testbed)?;
        let all = ready.len();
        Ok(thread::scope(|scope| {
            let mut started = Vec::new();
            for ready in ready {
                started.push(scope.spawn(move || ready.measure(all, session)));
            }
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            started.into_iter().map(join).collect()
        }))
    }

    /// Allocates measurers to each relay as a coordinator does.
    fn ready(
        &mut self,
        places: Range<u32>,
        grid: &ConcurrentGrid,
        testbed: &Testbed,
    ) -> Result<Vec<Ready<'_>>> {
        let (params, limit) = (grid.params(), self.limit);
        let mut campaign = Campaign::new(params.excess_factor(), params.sockets, grid.capacities());
        for place in places {
            campaign.add(RelayIndex(place as usize), Priority::Known, limit, 1);
        }
        let mut teams: Vec<Option<(usize, RemoteTeam)>> =
            self.relays.iter().map(|_| None).collect();
        while let Some(launch) = campaign.poll_launch() {
            let shares = &launch.allocation.assignments;
            let team = testbed.team_of(shares.iter().map(|share| (share.measurer.0, share.rate)));
            if let Some(place) = teams.get_mut(launch.relay.0) {
                *place = Some((shares.len(), team));
            }
        }
        if campaign.queued() > 0 {
            // A bug: the team is large enough.
            let problem = format!("no capacity is left for {} of the relays", campaign.queued());
            return Err(Error::Failed(problem));
        }
        let clock = testbed.clock();
        let mut ready = Vec::new();
        for (place, (relay, team)) in (0..).zip(self.relays.iter_mut().zip(teams)) {
            let Some((measurers, team)) = team else { continue };
            let request = testbed.echo_request(relay.target, limit, params);
            ready.push(Ready { place, relay, measurers, team, request, clock });
        }
        Ok(ready)
    }
}
