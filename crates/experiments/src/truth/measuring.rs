//! A relay that is measured, and who does it.

use coordinator::Params;
use onion::{Duration, Rate};
use tornet::network::{Choices, Network, Relay, Site};

/// A relay that is measured as an echo, by one measurer.
#[derive(Clone, Debug)]
pub struct Measuring {
    /// The relay. What is expected of it is its weight, in kilobytes per second.
    pub relay: Relay,
    /// The country of the measurer, and what it can send and get.
    pub measurer: (&'static str, Rate),
    /// How it is measured.
    pub params: Params,
    /// Kernels, queues and the relay's scheduler.
    pub choices: Choices,
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The estimate, if there is one.
    pub estimate: Option<Rate>,
    /// Why there is none, or it is no more than a lower bound.
    pub doubt: Option<String>,
    /// How far packets were late that the machine had no time for, at worst; zero in virtual time.
    pub late: Duration,
}

impl Measuring {
    /// What is expected of the relay.
    #[must_use]
    pub const fn guess(&self) -> Rate {
        Rate::from_byte_per_s(self.relay.weight * 1000)
    }

    /// The relay alone.
    #[must_use]
    pub fn network(&self) -> Network {
        Network {
            relays: vec![self.relay.clone()],
            choices: self.choices.clone(),
            ..Network::default()
        }
    }

    /// Where the measurer is.
    #[must_use]
    pub fn site(&self) -> Site {
        let (country, rate) = self.measurer;
        Site::new("measurer", country, rate)
    }
}
