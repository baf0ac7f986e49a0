//! A measurement of a router that takes part, and its parties.

#![expect(clippy::unwrap_used, reason = "a helper of tests: a panic is its report")]

use crate::common::identities::{UNIX_TIME_S, identities};
use lab::liars::EchoLie;
use onion::measure::protocol::{ClientShare, CoordinatorKey, MeasurerKey, Nonce, Order};
use onion::measure::target::TargetParams;
use onion::{Duration, Rate};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// The seeds of the coordinator's and the measurers' keys.
pub(crate) const COORDINATOR: [u8; 32] = [0xc0; 32];
pub(crate) const MEASURERS: [[u8; 32]; 2] = [[0xa0; 32], [0xa1; 32]];

/// The parameters of a measurement.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) lie: Option<EchoLie>,
    /// The relay's rate.
    pub(crate) limit: Option<Rate>,
    pub(crate) measurers: usize,
    /// The total rate of all measurers.
    pub(crate) rate: Rate,
    /// Of each measurer.
    pub(crate) sockets: u32,
    pub(crate) circuits_per_socket: u32,
    pub(crate) seconds: u16,
    /// When every other socket of each measurer begins, if not at once.
    pub(crate) held_back: Option<Duration>,
    pub(crate) check_one_in: u32,
    /// The rate of clients through the relay.
    pub(crate) clients: Option<Rate>,
    pub(crate) window_cap_cells: u32,
    pub(crate) queue_limit_cells: u32,
    /// The relay's memory limit.
    pub(crate) held_bytes_max: usize,
    pub(crate) max_duration: Duration,
    pub(crate) measurements_per_period: u32,
    /// The seed of all random choices in virtual time.
    pub(crate) seed: u64,
}

impl Default for Scenario {
    /// Two measurers with two sockets of two circuits each, at 2.95 times the relay's capacity.
    fn default() -> Self {
        let limit = Rate::from_mbit_per_s(40.0);
        Self {
            lie: None,
            limit: Some(limit),
            measurers: 2,
            rate: limit.scaled(2.953),
            sockets: 2,
            circuits_per_socket: 2,
            seconds: 3,
            held_back: None,
            check_one_in: 125,
            clients: None,
            window_cap_cells: 1000,
            queue_limit_cells: onion::flow::QUEUE_LIMIT_CELLS,
            held_bytes_max: onion::router::RouterConfig::HELD_BYTES_MAX,
            max_duration: Duration::from_secs(45),
            measurements_per_period: 2,
            seed: 1,
        }
    }
}

impl Scenario {
    pub(crate) fn with_lie(lie: EchoLie) -> Self {
        Self { lie: Some(lie), ..Self::default() }
    }

    /// With one circuit, where the relay's answers are in the order of the cells.
    pub(crate) fn on_one_circuit(lie: EchoLie) -> Self {
        Self { measurers: 1, sockets: 1, circuits_per_socket: 1, ..Self::with_lie(lie) }
    }

    pub(crate) fn with_clients(mbit: f64) -> Self {
        Self { clients: Some(Rate::from_mbit_per_s(mbit)), ..Self::default() }
    }

    pub(crate) fn target_params(&self) -> TargetParams {
        TargetParams {
            is_allowed: true,
            coordinators: vec![CoordinatorKey::of_seed(&COORDINATOR)],
            measurements_per_period: self.measurements_per_period,
            max_duration: self.max_duration,
            ..TargetParams::default()
        }
    }

    pub(crate) fn order(&self, nonce: u8) -> Order {
        let measurers = MEASURERS.iter().take(self.measurers).map(MeasurerKey::of_seed);
        Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: identities().relay.ids(),
            measurers: measurers.collect(),
            seconds: self.seconds,
            client_share: ClientShare::DEFAULT,
            sockets: u16::try_from(self.measurers).unwrap() * u16::try_from(self.sockets).unwrap(),
            expires_unix_s: UNIX_TIME_S + 600,
            nonce: Nonce([nonce; 32]),
        }
    }

    pub(crate) fn rng(&self, of: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed * 1000 + of)
    }
}
