//! The kinds of hop-by-hop windows by name, and a flow factory with them.

use super::{BackTap, FixedHopWindow, HopWindow};
use crate::flow::control::{Agreed, CircuitFlow, CongestionParams, FlowFactory, TorFlows};
use crate::time::Duration;
use alloc::boxed::Box;
use alloc::sync::Arc;

/// The kinds of windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopWindows {
    /// `BackTap` from two cells on, without a ramp-up.
    BackTap,
    /// `BackTap`, begun with `CircuitStart`.
    CircuitStart,
    /// `CircuitStart`, and again when there is additional capacity.
    CircuitStartAgain,
    /// `BackTap`, begun with the slow start of a TCP connection.
    SlowStart,
    /// `BackTap`, begun with `JumpStart`.
    JumpStart {
        /// The number of cells sent at once.
        cells: u32,
    },
    /// A window of a fixed size.
    Fixed {
        /// The size in cells.
        cells: u32,
    },
}

impl HopWindows {
    /// The kinds with a name, for configurations and experiments.
    pub const NAMED: [(&'static str, Self); 6] = [
        ("backtap", Self::BackTap),
        ("circuitstart", Self::CircuitStart),
        ("circuitstart-again", Self::CircuitStartAgain),
        ("slow-start", Self::SlowStart),
        ("jumpstart", Self::JumpStart { cells: 200 }),
        ("fixed-100", Self::Fixed { cells: 100 }),
    ];

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.into_iter().find(|(its, _)| *its == name).map(|(_, windows)| windows)
    }

    /// A new window to a hop that sends cells in runs with this interval: see [`BackTap::with_grain`].
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

    /// Flow control with these windows from hop to hop, in addition to tor's at the ends of a circuit. `grain`
    /// is the interval of relays' scheduler runs.
    #[must_use]
    pub const fn flows(self, grain: Duration) -> HopFlows {
        HopFlows { windows: self, grain }
    }
}

/// Flow control with hop-by-hop windows, in addition to tor's at the ends of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopFlows {
    /// The kind of window.
    pub windows: HopWindows,
    /// The interval of relays' scheduler runs.
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
