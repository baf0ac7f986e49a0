//! A team of measurers on this machine.

use crate::local::{LocalMember, LocalOptions, Site, SiteError, free_cores};
use crate::member::{MeasurerKey, Member, MemberError};
use crate::ports::PortRange;
use coordinator::MeasurerId;
use coordinator::period::{Answer, MeasurerConfig};
use link::pump;
use link::tls::TlsConfigs;
use onion::cell::CELLS_PER_RECORD;
use onion::{Duration, Rate};
use rand::TryRng as _;
use rand::rngs::SysRng;
use std::net::{IpAddr, Ipv4Addr};

/// Choices for a team.
#[derive(Clone, Debug)]
pub struct TeamOptions {
    /// Measurers of this process.
    pub measurers: u32,
    /// Pumps of each, a thread for each; an even share of the free processors if `None`.
    pub pumps: Option<u32>,
    /// The send and receive rate of each; measured with TLS over loopback if `None`.
    pub capacity: Option<Rate>,
    /// Address of our landings, as seen by the target. If `None`, the address from which the target is reached.
    pub address: Option<IpAddr>,
    /// Ports of our landings; any if `None`.
    pub landing_ports: Option<PortRange>,
}

impl Default for TeamOptions {
    /// Two measurers.
    fn default() -> Self {
        Self { measurers: 2, pumps: None, capacity: None, address: None, landing_ports: None }
    }
}

/// The reason why a team cannot work: this machine or its configuration is to blame, never the relay.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    /// No keys, certificates or random bytes.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// The own capacity cannot be measured.
    #[error("cannot measure this machine's capacity: {0}")]
    LoadGenerator(#[from] pump::PumpError),
}

/// Measurers of this process.
pub struct LocalTeam {
    site: Site,
    capacity: Rate,
    members: Vec<LocalOptions>,
}

impl LocalTeam {
    /// Generates keys, and measures the machine's capacity unless the options state it.
    ///
    /// # Errors
    /// [`TeamError`]: this machine cannot measure.
    pub fn new(options: &TeamOptions) -> Result<Self, TeamError> {
        let site = Site::new()?;
        let site = match options.landing_ports.clone() {
            Some(ports) => site.with_landing_ports(ports),
            None => site,
        };
        let pumps = options.pumps.unwrap_or(free_cores() / options.measurers.max(1)).max(1);
        let capacity = match options.capacity {
            Some(capacity) => capacity,
            None => capacity_of_a_measurer(site.tls(), options.measurers, pumps)?,
        };
        let member = |number| {
            let mut key_seed = [0; 32];
            SysRng.try_fill_bytes(&mut key_seed).map_err(SiteError::Random)?;
            let name = format!("measurer-{number}");
            Ok(LocalOptions { name, key_seed, pumps, address: options.address })
        };
        let members = (0..options.measurers).map(member).collect::<Result<_, TeamError>>()?;
        Ok(Self { site, capacity, members })
    }

    /// The send and receive rate of each measurer.
    #[must_use]
    pub const fn capacity(&self) -> Rate {
        self.capacity
    }

    /// The measurers as a period needs them.
    #[must_use]
    pub fn configured(&self) -> Vec<MeasurerConfig> {
        let configured = |options: &LocalOptions| MeasurerConfig {
            name: options.name.clone(),
            key: MeasurerKey::of_seed(&options.key_seed),
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            limit: self.capacity,
        };
        self.members.iter().map(configured).collect()
    }

    /// The abilities of each measurer.
    #[must_use]
    pub const fn abilities(&self) -> Answer {
        Answer { capacity: self.capacity, at_once_max: u32::MAX }
    }

    /// A measurer for one measurement; `None` if there is no such measurer.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn member(&self, measurer: MeasurerId) -> Result<Option<Box<dyn Member>>, MemberError> {
        let Some(options) = self.members.get(measurer.0) else { return Ok(None) };
        let member = LocalMember::new(self.site.clone(), options.clone());
        member
            .map(|member| Some(Box::new(member) as _))
            .map_err(|error| MemberError::from_error(&error))
    }
}

/// An even share of the free processors' pumping rate.
fn capacity_of_a_measurer(tls: &TlsConfigs, measurers: u32, pumps: u32) -> Result<Rate, TeamError> {
    const RUN: Duration = Duration::from_millis(300);
    let record_len = CELLS_PER_RECORD * onion::cell::CELL_LEN;
    let per_core = pump::run(tls, record_len, RUN)?.rate_per_core();
    let measurers = measurers.max(1);
    let busy = free_cores().min(measurers.saturating_mul(pumps));
    // Measuring costs more than pumping: content, cells and checks are additional work.
    const SHARE_OF_PUMP: f64 = 0.5;
    Ok(per_core.scaled(SHARE_OF_PUMP * f64::from(busy) / f64::from(measurers)))
}
