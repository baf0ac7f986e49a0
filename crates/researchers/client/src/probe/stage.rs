use onion::Instant;
use onion::cell_model::Tor;
use onion::client::{Application, CircuitNumber, Progress, StreamNumber, Transfer};

/// The stage of probing a circuit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    Pausing {
        until: Instant,
    },
    Building {
        circuit: CircuitNumber,
        began: Instant,
        until: Instant,
    },
    Asking {
        circuit: CircuitNumber,
        asked: usize,
        hop: usize,
        stream: StreamNumber,
        until: Instant,
    },
    Between {
        circuit: CircuitNumber,
        asked: usize,
        until: Instant,
    },
    Downloading {
        circuit: CircuitNumber,
        stream: StreamNumber,
        until: Instant,
    },
    Over,
}

impl Stage {
    /// The circuit being probed.
    pub(super) const fn circuit(&self) -> Option<CircuitNumber> {
        match self {
            Self::Building { circuit, .. }
            | Self::Asking { circuit, .. }
            | Self::Between { circuit, .. }
            | Self::Downloading { circuit, .. } => Some(*circuit),
            Self::Pausing { .. } | Self::Over => None,
        }
    }

    /// When the stage times out.
    pub(super) const fn until(&self) -> Option<Instant> {
        match self {
            Self::Pausing { until }
            | Self::Building { until, .. }
            | Self::Asking { until, .. }
            | Self::Between { until, .. }
            | Self::Downloading { until, .. } => Some(*until),
            Self::Over => None,
        }
    }
}

/// The client's end of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// A stream that will be refused: sends nothing.
    Nothing,
    /// A download.
    Transfer(Transfer),
}

impl Application<Tor> for Asked {
    fn has_more(&self, sent_bytes: u64) -> bool {
        match self {
            Self::Nothing => false,
            Self::Transfer(transfer) => Application::<Tor>::has_more(transfer, sent_bytes),
        }
    }

    fn fill(&mut self, sent_bytes: u64, room: &mut [u8]) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Transfer(transfer) => Application::<Tor>::fill(transfer, sent_bytes, room),
        }
    }

    fn take(&mut self, received_bytes: u64, data: &[u8]) -> Progress {
        match self {
            Self::Nothing => Progress::Wrong,
            Self::Transfer(transfer) => Application::<Tor>::take(transfer, received_bytes, data),
        }
    }
}
