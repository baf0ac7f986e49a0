//! HTML pages. They read the store through [`app`](crate::app) and must not know the server.

mod overview;
mod periods;
mod relay;
mod relays;

pub(crate) use overview::{SILENT_S, measurer, measurers, overview};
pub(crate) use periods::{PERIODS, period, periods};
pub(crate) use relay::{explained, relay};
pub(crate) use relays::{RelayParameters, query, relays};
