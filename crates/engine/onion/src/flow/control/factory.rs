use super::{CircuitFlow, CongestionParams, FixedWindow, PathKind, Vegas};
use crate::flow::hop::HopWindow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;

/// The flow control that both ends of a circuit have negotiated in the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Congestion control (proposal 324) with one SENDME for this number of cells. `None` for fixed windows.
    pub congestion_sendme_cells: Option<u8>,
}

/// Creates the flow control of new circuits: at their ends, and from hop to hop.
pub trait FlowFactory: fmt::Debug + Send + Sync {
    /// The rules for one end of a circuit.
    fn end(&self, params: &Arc<CongestionParams>, agreed: Agreed) -> Box<dyn CircuitFlow>;

    /// The hop-by-hop window of a circuit from one relay to the next; `None` for no limit. It is always `Some`
    /// or always `None`: a relay with windows offers them on its links.
    fn hop(&self) -> Option<Box<dyn HopWindow>> {
        None
    }
}

/// Tor's flow control: Vegas if congestion control was negotiated, otherwise fixed windows; nothing from hop to
/// hop.
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
