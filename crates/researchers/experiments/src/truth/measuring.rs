//! The measurement of a relay, and its result.

use coordinator::Params;
use onion::{Duration, Rate};
use tornet::network::{Choices, Network, Relay, Site};

/// A relay to measure by echo with one measurer.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The relay. The guess is its weight, in kilobytes per second.
    pub relay: Relay,
    /// The country of the measurer, and its rate in each direction.
    pub measurer: (&'static str, Rate),
    /// The parameters of the measurement.
    pub params: Params,
    /// Kernels, queues and the relay's scheduler.
    pub choices: Choices,
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The estimate, if there is one.
    pub estimate: Option<Rate>,
    /// Why there is no estimate, or only a lower bound.
    pub doubt: Option<String>,
    /// The maximum delay that the machine added to a packet because it was busy; zero in virtual time.
    pub late: Duration,
}

impl Measuring {
    /// The guess for the relay's capacity.
    #[must_use]
    pub const fn guess(&self) -> Rate {
        Rate::from_byte_per_s(self.relay.weight * 1000)
    }

    /// The network with only this relay.
    #[must_use]
    pub fn network(&self) -> Network {
        Network {
            relays: vec![self.relay.clone()],
            choices: self.choices.clone(),
            ..Network::default()
        }
    }

    /// The measurer's site.
    #[must_use]
    pub fn site(&self) -> Site {
        let (country, rate) = self.measurer;
        Site::new("measurer", country, rate)
    }
}
