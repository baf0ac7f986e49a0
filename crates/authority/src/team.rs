//! Remote measurers.

use super::config::{Config, ConfiguredMeasurer};
use cli::Error;
use control::keys::PublicKey;
use control::{RemoteMeasurer, Remotes};
use coordinator::MeasurerId;
use coordinator::period::{Answer, MeasurerConfig};
use measurer::member::MeasurerKey;
use measurer::{Member, Teammate};
use onion::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use terminal::Output;

/// The measurers of a configuration, and the sessions with them.
pub struct RemoteTeam {
    measurers: Vec<(RemoteMeasurer, Rate)>,
    /// Their public keys, in the same order.
    keys: Vec<PublicKey>,
    /// Each measurer's last reported number of relays that it can help to measure at once.
    at_once_max: Mutex<BTreeMap<MeasurerId, u32>>,
    // Last, since dropping it ends the sessions.
    _remotes: Remotes,
}

impl RemoteTeam {
    /// The measurers, each with its assumed maximum capacity.
    ///
    /// # Errors
    /// If the configuration does not state that.
    pub fn new(config: &Config) -> Result<Self, Error> {
        let bounds = config
            .measurers
            .iter()
            .map(ConfiguredMeasurer::bound)
            .collect::<Result<Vec<_>, _>>()?;
        let remotes = Remotes::start(config.secret.clone())?;
        let mut measurers = Vec::new();
        for (mate, bound) in config.measurers.iter().zip(bounds) {
            measurers.push((remotes.measurer(mate.address, mate.key)?, bound));
        }
        let keys = config.measurers.iter().map(|mate| mate.key).collect();
        Ok(Self { measurers, keys, at_once_max: Mutex::default(), _remotes: remotes })
    }

    /// Its measurers' public keys, as text.
    pub fn keys(&self) -> Vec<String> {
        self.keys.iter().map(PublicKey::to_string).collect()
    }

    /// The measurers as a period needs them.
    pub(super) fn configured(&self) -> Vec<MeasurerConfig> {
        let keyed = self.measurers.iter().zip(&self.keys);
        let configured =
            |((remote, limit), key): (&(RemoteMeasurer, Rate), &PublicKey)| MeasurerConfig {
                name: key.to_string(),
                key: MeasurerKey(key.0),
                address: remote.address(),
                limit: *limit,
            };
        keyed.map(configured).collect()
    }

    /// A measurer's address.
    pub(super) fn address(&self, measurer: MeasurerId) -> Option<SocketAddr> {
        self.measurers.get(measurer.0).map(|(remote, _)| remote.address())
    }

    /// How many measurers there are.
    pub const fn size(&self) -> usize {
        self.measurers.len()
    }

    /// Queries a measurer's abilities, with at most this number of sockets to each relay.
    pub(super) fn ask(&self, measurer: MeasurerId, sockets: u32) -> Result<Answer, String> {
        let (remote, _) = self.measurers.get(measurer.0).ok_or("there is no such measurer")?;
        let abilities = remote.abilities().map_err(|error| error.to_string())?;
        let at_once_max = abilities.at_once_max(sockets);
        self.at_once().insert(measurer, at_once_max);
        Ok(Answer { capacity: abilities.capacity, at_once_max })
    }

    fn at_once(&self) -> MutexGuard<'_, BTreeMap<MeasurerId, u32>> {
        // No code that holds the lock panics.
        self.at_once_max.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of relays that the team can measure at once, by its measurers' last reports and the configuration.
    pub(super) fn at_once_max(&self, configured: Option<NonZeroU32>) -> u32 {
        let said = self.at_once().values().min().copied();
        said.into_iter().chain(configured.map(NonZeroU32::get)).min().unwrap_or(u32::MAX)
    }

    /// Queries the capacity of all measurers at once: zero, if one does not answer.
    ///
    /// # Errors
    /// None of them has any capacity.
    pub fn greet(&self, sockets: u32, output: &Output) -> Result<Vec<Rate>, Error> {
        let ids = (0..self.measurers.len()).map(MeasurerId);
        let answers: Vec<Result<Answer, String>> = thread::scope(|scope| {
            let ask = |id| scope.spawn(move || self.ask(id, sockets));
            let asked: Vec<_> = ids.map(ask).collect();
            let ended = |_| Err("the thread has panicked".to_owned());
            asked.into_iter().map(|it| it.join().unwrap_or_else(ended)).collect()
        });
        let mut capacities = Vec::new();
        for (answer, (remote, limit)) in answers.into_iter().zip(&self.measurers) {
            let capacity = answer.map(|it| it.capacity.min(*limit));
            match &capacity {
                Ok(capacity) => output.step(format!("measurer {}: {capacity}", remote.address())),
                Err(error) => output.step(format!("without a measurer: {error}")),
            }
            capacities.push(capacity.unwrap_or_default());
        }
        if capacities.iter().all(|capacity| *capacity == Rate::ZERO) {
            return Err(Error::Failed("no measurer of the team can be used".to_owned()));
        }
        Ok(capacities)
    }

    /// A measurer for one round.
    pub(super) fn member(&self, measurer: MeasurerId) -> Option<Box<dyn Member>> {
        let (remote, _) = self.measurers.get(measurer.0)?;
        Some(Box::new(remote.member()))
    }

    /// Measurers with these capacities, for one measurement.
    pub fn mates(&self, capacities: &[Rate]) -> Vec<Teammate> {
        let able = self.measurers.iter().zip(capacities).filter(|(_, it)| **it > Rate::ZERO);
        let mate = |remote: &RemoteMeasurer, capacity| Teammate {
            member: Box::new(remote.member()),
            capacity,
        };
        able.map(|((remote, _), capacity)| mate(remote, *capacity)).collect()
    }
}
