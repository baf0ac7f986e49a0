use super::{CircuitFlow, CongestionParams, FixedWindow, PathKind, Vegas};
use crate::flow::hop::HopWindow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

/// What both ends of a circuit have agreed on for their flow control, in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Congestion control (proposal 324), with a SENDME for so many cells. Fixed windows if `None`.
    pub congestion_sendme_cells: Option<u8>,
}

/// Makes the flow control of new circuits, at their ends and at the hops between.
pub trait FlowFactory: fmt::Debug + Send + Sync {
    /// The rules for one end of a circuit.
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow>;

    /// What may be under way from a relay to the next relay on a circuit; without a bound if `None`. Always the one or always the other: a
    /// relay that has windows offers them on its links.
    fn hop(&self) -> Option<Box<dyn HopWindow>> {
        None
    }
}

/// What tor does: Vegas where congestion control was agreed on, else fixed windows; nothing at hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorFlows;

impl FlowFactory for TorFlows {
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow> {
        match agreed.congestion_sendme_cells {
            None => Box::new(FixedWindow::default()),
            Some(cells) => Box::new(Vegas::new(Arc::clone(params), PathKind::Exit, cells)),
        }
    }
}
