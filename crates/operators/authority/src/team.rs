//! Remote measurers.

use super::config::{Config, ConfiguredMeasurer};
use super::shell::Team;
use cli::Error;
use control::{RemoteMeasurer, Remotes};
use coordinator::MeasurerId;
use coordinator::period::{Answer, MeasurerConfig};
use measurer::member::{MeasurerKey, MemberError};
use measurer::{Consent, Member};
use onion::Rate;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The measurers of a configuration, and the sessions with them.
pub struct RemoteTeam {
    measurers: Vec<(RemoteMeasurer, Rate)>,
    /// Each measurer's last reported number of relays that it can help to measure at once.
    at_once_max: Mutex<BTreeMap<MeasurerId, u32>>,
    // Last, since dropping it may end the sessions.
    remotes: Arc<Remotes>,
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
        remotes.hand_out(&config.consent());
        let mut measurers = Vec::new();
        for (mate, bound) in config.measurers.iter().zip(bounds) {
            measurers.push((remotes.measurer(mate.address, mate.key)?, bound));
        }
        Ok(Self::with_sessions(Arc::new(remotes), measurers))
    }

    /// These measurers, each with its assumed maximum capacity. Their sessions end with the last owner of `remotes`.
    #[must_use]
    pub fn with_sessions(remotes: Arc<Remotes>, measurers: Vec<(RemoteMeasurer, Rate)>) -> Self {
        Self { measurers, at_once_max: Mutex::default(), remotes }
    }

    /// Hands an opt-in list to the measurers that take it.
    pub(super) fn hand_out(&self, consent: &Consent) {
        self.remotes.hand_out(consent);
    }

    /// Its measurers' public keys, as text.
    pub fn keys(&self) -> Vec<String> {
        self.measurers.iter().map(|(remote, _)| remote.key().to_string()).collect()
    }

    /// A measurer's address.
    pub fn address(&self, measurer: MeasurerId) -> Option<SocketAddr> {
        self.measurers.get(measurer.0).map(|(remote, _)| remote.address())
    }

    /// The number of measurers.
    pub const fn size(&self) -> usize {
        self.measurers.len()
    }

    fn at_once(&self) -> MutexGuard<'_, BTreeMap<MeasurerId, u32>> {
        // No code that holds the lock panics.
        self.at_once_max.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of relays that the team can measure at once, by its measurers' last reports and the configuration.
    pub(super) fn at_once_max(&self, configured: Option<NonZeroU32>) -> u32 {
        let reported = self.at_once().values().min().copied();
        reported.into_iter().chain(configured.map(NonZeroU32::get)).min().unwrap_or(u32::MAX)
    }
}

impl Team for RemoteTeam {
    fn configured(&self) -> Vec<MeasurerConfig> {
        let configured = |(remote, limit): &(RemoteMeasurer, Rate)| MeasurerConfig {
            name: remote.key().to_string(),
            key: MeasurerKey(remote.key().0),
            address: remote.address(),
            limit: *limit,
        };
        self.measurers.iter().map(configured).collect()
    }

    fn ask(&self, measurer: MeasurerId, sockets: u32) -> Result<Answer, String> {
        let (remote, _) = self.measurers.get(measurer.0).ok_or("there is no such measurer")?;
        let abilities = remote.abilities().map_err(|error| error.to_string())?;
        let at_once_max = abilities.at_once_max(sockets);
        self.at_once().insert(measurer, at_once_max);
        Ok(Answer { capacity: abilities.capacity, at_once_max })
    }

    fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError> {
        Ok(self.measurers.get(measurer.0).map(|(remote, _)| Box::new(remote.member()) as _))
    }
}
