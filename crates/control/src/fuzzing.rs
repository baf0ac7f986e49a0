//! What comes in over a session, for the fuzz targets.

use crate::convert::told;
use crate::messages::{FromCoordinator, FromMeasurer, Order, Prepare};
use measurer::Load;
use measurer::member::RoundOrder;
use onion::Duration;
use prost::Message as _;

/// Whatever a coordinator sends is an order that can be obeyed, or none. Says whether it is one.
///
/// # Panics
/// If an order that was accepted is not what the message said, or cannot be planned for.
#[must_use]
pub fn from_coordinator(bytes: &[u8]) -> bool {
    let Ok(message) = FromCoordinator::decode(bytes) else { return false };
    let Some(Order::Prepare(prepare)) = message.order else { return false };
    let Ok(order) = RoundOrder::try_from(prepare) else { return false };
    assert_eq!(RoundOrder::try_from(Prepare::from(&order)), Ok(order), "it says what it said");
    let rtt = order.rtt.unwrap_or(Duration::ZERO);
    let load = Load::plan(&order, rtt);
    assert_eq!(load.sockets, order.sockets);
    assert!(load.circuits_per_socket > 0 && load.pace.burst > 0);
    assert!(order.defences.window_cap_cells() < order.defences.queue_limit_cells);
    true
}

/// Whatever a measurer sends is a word that is understood, or none. Says whether it is one.
#[must_use]
pub fn from_measurer(bytes: &[u8]) -> bool {
    FromMeasurer::decode(bytes).is_ok_and(|message| told(message).is_ok())
}
