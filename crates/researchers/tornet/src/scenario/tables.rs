//! The tables of a scenario, as TOML.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// A sample to which the rest is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shadow: Option<PathBuf>,
    /// The folder with TGen's models, for clients with users by models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) models: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) choices: ChoicesTable,
    #[serde(default)]
    pub(super) relays: Vec<RelayTable>,
    #[serde(default)]
    pub(super) servers: Vec<SiteTable>,
    #[serde(default)]
    pub(super) clients: Vec<ClientTable>,
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SchedulerName {
    Vanilla,
    KistLite,
    Kist,
}

#[derive(Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TcpName {
    Cubic,
    Reno,
    Shadow,
}

#[derive(Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChoicesTable {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduler: Option<SchedulerName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduler_interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tcp: Option<TcpName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) segment_memory_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) congestion_control: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hop_windows: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell_cost_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) guards: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ready_circuits: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) loss_at_300_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ramp_s: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) load: Option<f64>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SiteTable {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) count: u32,
    #[serde(default = "no_name", skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) country: String,
    pub(super) mbit_per_s: f64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RelayTable {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) count: u32,
    #[serde(default = "no_name", skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) country: String,
    pub(super) mbit_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit_mbit_per_s: Option<f64>,
    /// Equal to the upload rate if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) weight: Option<u64>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) guard: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) exit: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientTable {
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) count: u32,
    #[serde(default = "no_name", skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) country: String,
    pub(super) mbit_per_s: f64,
    /// The downloads of a benchmark,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fetch: Option<FetchTable>,
    /// or users by models.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) users: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FetchTable {
    pub(super) every_s: Pauses,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u32>,
    pub(super) sizes: Vec<SizeTable>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SizeTable {
    #[serde(default = "unit")]
    pub(super) weight: f64,
    pub(super) bytes: u32,
    /// No limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) timeout_s: Option<f64>,
}

/// Seconds from one beginning to the next: constant, or one of several.
#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub(super) enum Pauses {
    One(f64),
    Several(Vec<f64>),
}

pub(super) const fn one() -> u32 {
    1
}

pub(super) const fn unit() -> f64 {
    1.0
}

pub(super) const fn no_name() -> String {
    String::new()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(value: &u32) -> bool {
    *value == 1
}
