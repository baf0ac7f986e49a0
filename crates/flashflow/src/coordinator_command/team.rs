//! Measurers elsewhere.

use super::config::{Config, Mate};
use cli::Error;
use control::keys::PublicKey;
use control::{Abilities, ConnectError, RemoteMeasurer, Remotes};
use coordinator::{Allocation, MeasurerId};
use measurer::Teammate;
use onion::Rate;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use store::{MeasurerHealth, MeasurerState};
use terminal::Output;

/// The measurers of a configuration, and the sessions with them.
pub(crate) struct RemoteTeam {
    measurers: Vec<(RemoteMeasurer, Rate)>,
    /// Their public keys, in the same order.
    keys: Vec<PublicKey>,
    /// What each has said last that it can do.
    abilities: Mutex<BTreeMap<MeasurerId, Abilities>>,
    // Last, since the sessions end with it.
    _remotes: Remotes,
}

impl RemoteTeam {
    /// The measurers, each with the most that it is believed to have.
    ///
    /// # Errors
    /// Where the configuration does not say how much that is.
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let bounds = config.measurers.iter().map(Mate::bound).collect::<Result<Vec<_>, _>>()?;
        let remotes = Remotes::start(config.secret.clone())?;
        let mut measurers = Vec::new();
        for (mate, bound) in config.measurers.iter().zip(bounds) {
            measurers.push((remotes.measurer(mate.address, mate.key)?, bound));
        }
        let keys = config.measurers.iter().map(|mate| mate.key).collect();
        let abilities = Mutex::default();
        Ok(Self { measurers, keys, abilities, _remotes: remotes })
    }

    /// Its measurers' public keys, as text.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.iter().map(PublicKey::to_string).collect()
    }

    /// Which host each is at, by a number: those at one address share a host.
    pub(crate) fn hosts(&self) -> Vec<Option<u32>> {
        let addresses: Vec<IpAddr> =
            self.measurers.iter().map(|(remote, _)| remote.address().ip()).collect();
        let first = |address: &IpAddr| addresses.iter().position(|it| it == address);
        let number = |address: &IpAddr| first(address).and_then(|it| u32::try_from(it).ok());
        addresses.iter().map(number).collect()
    }

    pub(crate) const fn len(&self) -> usize {
        self.measurers.len()
    }

    /// What a measurer has to give: what it says, but no more than what the configuration says.
    pub(crate) fn ask(&self, measurer: MeasurerId) -> Result<Rate, ConnectError> {
        let Some((remote, limit)) = self.measurers.get(measurer.0) else { return Ok(Rate::ZERO) };
        let told = remote.abilities()?;
        self.abilities().insert(measurer, told);
        Ok(told.capacity.min(*limit))
    }

    fn abilities(&self) -> MutexGuard<'_, BTreeMap<MeasurerId, Abilities>> {
        // Nobody panics while holding it.
        self.abilities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many relays it can measure at once, by what its measurers have said last and what the configuration says, whatever capacity is
    /// left: the least of all, since any of them may take part in any measurement, and may have all sockets of it. One that has not
    /// answered yet bounds nothing.
    pub(crate) fn at_once_max(&self, config: &Config) -> u32 {
        let sockets = config.params.sockets;
        let said = self.abilities().values().map(|it| it.at_once_max(sockets)).min();
        said.into_iter().chain(config.at_once_max.map(NonZeroU32::get)).min().unwrap_or(u32::MAX)
    }

    /// What a measurer that has answered, or has not, is up to; `None` if there is none with this number.
    pub(crate) fn health(
        &self,
        measurer: MeasurerId,
        answer: Result<Rate, String>,
        at_unix_s: u64,
    ) -> Option<MeasurerHealth> {
        let (remote, _) = self.measurers.get(measurer.0)?;
        let (state, detail) = match &answer {
            Ok(_) => (MeasurerState::Up, String::new()),
            Err(problem) => (MeasurerState::Down, problem.clone()),
        };
        Some(MeasurerHealth {
            key: self.keys.get(measurer.0)?.to_string(),
            place: measurer.0,
            address: remote.address().to_string(),
            capacity: answer.unwrap_or_default(),
            state,
            detail,
            at_unix_s,
        })
    }

    /// Asks all measurers at once. One that does not answer has no capacity.
    ///
    /// # Errors
    /// Where none has any.
    pub(crate) fn greet(
        &self,
        output: &Output,
        mut note: impl FnMut(MeasurerId, Result<Rate, String>),
    ) -> Result<Vec<Rate>, Error> {
        let ids = (0..self.measurers.len()).map(MeasurerId);
        let answers: Vec<Result<Rate, ConnectError>> = thread::scope(|scope| {
            let asked: Vec<_> = ids.map(|id| scope.spawn(move || self.ask(id))).collect();
            let answers = asked.into_iter().map(|it| it.join().unwrap_or(Err(ConnectError::Ended)));
            answers.collect()
        });
        let mut capacities = Vec::new();
        for ((place, answer), (remote, _)) in answers.into_iter().enumerate().zip(&self.measurers) {
            note(MeasurerId(place), answer.as_ref().copied().map_err(ConnectError::to_string));
            match &answer {
                Ok(capacity) => output.step(format!("measurer {}: {capacity}", remote.address())),
                Err(error) => output.step(format!("without a measurer: {error}")),
            }
            capacities.push(answer.unwrap_or_default());
        }
        if capacities.iter().all(|capacity| *capacity == Rate::ZERO) {
            return Err(Error::Failed("no measurer of the team can be used".to_owned()));
        }
        Ok(capacities)
    }

    /// Measurers with these capacities, for one measurement.
    pub(crate) fn mates(&self, capacities: &[Rate]) -> Vec<Teammate> {
        let able = self.measurers.iter().zip(capacities).filter(|(_, it)| **it > Rate::ZERO);
        let mate = |remote: &RemoteMeasurer, capacity| Teammate {
            member: Box::new(remote.member()),
            capacity,
        };
        able.map(|((remote, _), capacity)| mate(remote, *capacity)).collect()
    }

    /// Measurers with their shares, for one measurement, in the allocation's order.
    pub(crate) fn mates_of(&self, allocation: &Allocation) -> Vec<Teammate> {
        let found = allocation.assignments.iter().filter_map(|assignment| {
            let (remote, _) = self.measurers.get(assignment.measurer.0)?;
            Some(Teammate { member: Box::new(remote.member()), capacity: assignment.rate })
        });
        found.collect()
    }
}
