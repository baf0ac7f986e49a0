//! Pages for people.

mod overview;
mod periods;
mod relay;
mod relays;

pub(crate) use overview::{SILENT_S, measurers, overview};
pub(crate) use periods::{PERIODS, period, periods};
pub(crate) use relay::{relay, story};
pub(crate) use relays::{Wanted, query, relays};
