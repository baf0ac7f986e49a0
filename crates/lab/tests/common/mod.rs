//! Casts, stages and scenarios.

pub(crate) mod echo_play;
pub(crate) mod echo_report;
pub(crate) mod echo_scenario;
pub(crate) mod echo_scene;
pub(crate) mod echoes;
pub(crate) mod escapes;
pub(crate) mod found;
pub(crate) mod network;
pub(crate) mod party;
pub(crate) mod stage;
pub(crate) mod stranger;
pub(crate) mod strangers;
pub(crate) mod transit_play;
