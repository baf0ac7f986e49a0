use super::{BackTap, FixedHopWindow, HopWindow};
use crate::flow::control::{Agreed, CircuitFlow, CongestionParams, FlowFactory, TorFlows};
use crate::time::Duration;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// Windows by their kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopWindows {
    /// `BackTap` from two cells on, without a ramp-up.
    BackTap,
    /// `BackTap`, begun with `CircuitStart`.
    CircuitStart,
    /// The same, and again when the way has become wider.
    CircuitStartAgain,
    /// `BackTap`, begun with the slow start of a single TCP connection.
    SlowStart,
    /// `BackTap`, begun with `JumpStart`.
    JumpStart {
        /// So many cells at once.
        cells: u32,
    },
    /// Of a fixed size.
    Fixed {
        /// That of each.
        cells: u32,
    },
}

impl HopWindows {
    /// Those that have a name, in configurations and experiments.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("backtap", Self::BackTap),
        ("circuitstart", Self::CircuitStart),
        ("circuitstart-again", Self::CircuitStartAgain),
        ("slow-start", Self::SlowStart),
        ("jumpstart", Self::JumpStart { cells: 200 }),
        ("fixed-100", Self::Fixed { cells: 100 }),
    ];

    /// Those of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|(its, _)| *its == name).map(|(_, windows)| windows)
    }

    /// A window that has seen nothing yet, to a hop that gives cells out in runs so far apart: see [`BackTap::with_grain`].
    #[must_use]
    pub fn window(self, grain: Duration) -> Box<dyn HopWindow> {
        let window = match self {
            Self::BackTap => BackTap::new(),
            Self::CircuitStart => BackTap::with_circuit_start(),
            Self::CircuitStartAgain => BackTap::with_reramp(),
            Self::SlowStart => BackTap::with_slow_start(),
            Self::JumpStart { cells } => BackTap::with_jump_start(cells),
            Self::Fixed { cells } => return Box::new(FixedHopWindow::new(cells)),
        };
        Box::new(window.with_grain(grain))
    }

    /// Such windows at each hop, beside what Tor has at the ends of a circuit. `grain` is how far apart relays' runs are.
    #[must_use]
    pub const fn flows(self, grain: Duration) -> HopFlows {
        HopFlows { windows: self, grain }
    }
}

/// Flow control with windows from hop to hop, beside what Tor has at the ends of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopFlows {
    /// What each hop has.
    pub windows: HopWindows,
    /// How far apart the runs of relays' schedulers are.
    pub grain: Duration,
}

impl FlowFactory for HopFlows {
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow> {
        TorFlows.end(params, agreed)
    }

    fn hop(&self) -> Option<Box<dyn HopWindow>> {
        Some(self.windows.window(self.grain))
    }
}
