//! Identities, scenarios, and the stages on which nodes run.

pub(crate) mod echo_report;
pub(crate) mod echo_run;
pub(crate) mod echo_scenario;
pub(crate) mod echoes;
pub(crate) mod escapes;
pub(crate) mod identities;
pub(crate) mod measurer_result;
pub(crate) mod network;
pub(crate) mod order_test;
pub(crate) mod peer;
pub(crate) mod stage;
pub(crate) mod stranger;
pub(crate) mod strangers;
pub(crate) mod transit_run;
