//! Tables as rows of plain values, for other programs: JSON and CSV. Rates are in bytes per second, times in
//! Unix seconds.

use crate::{Measurement, PathEntry, PeriodSummary, RelayRow, Second, State, Suspect, mode_word};
use coordinator::Suspicion;
use onion::Rate;
use schemars::JsonSchema;
use serde::Serialize;

/// A measurement, without its seconds.
#[derive(Serialize, JsonSchema)]
pub struct MeasurementLine {
    fingerprint: String,
    nickname: String,
    period_unix_s: u64,
    turn: u32,
    slot: Option<u32>,
    started_unix_s: u64,
    ended_unix_s: Option<u64>,
    state: &'static str,
    mode: Option<&'static str>,
    capacity_byte_s: Option<u64>,
    rounds: u32,
    cause: Option<String>,
    reason: Option<String>,
    blame: Option<String>,
    is_final: bool,
    /// The country of the coordinator.
    scanner_country: Option<String>,
}

/// A second of a measurement.
#[derive(Serialize, JsonSchema)]
pub struct SecondLine {
    fingerprint: String,
    ended_unix_s: Option<u64>,
    turn: u32,
    round: u32,
    second: u32,
    bytes: u64,
    client_bytes: u64,
    counts: bool,
    limiter: &'static str,
}

/// A relay.
#[derive(Serialize, JsonSchema)]
pub struct RelayLine {
    fingerprint: String,
    nickname: String,
    address: String,
    first_seen_unix_s: u64,
    last_seen_unix_s: u64,
    left_out: String,
    capacity_byte_s: Option<u64>,
    estimated_unix_s: Option<u64>,
    mode: Option<&'static str>,
    is_conclusive: Option<bool>,
    last_state: Option<&'static str>,
    last_ended_unix_s: Option<u64>,
    last_cause: Option<String>,
}

/// A period.
#[derive(Serialize, JsonSchema)]
pub struct PeriodLine {
    begin_unix_s: u64,
    length_s: u64,
    slot_s: u64,
    seed: Option<String>,
    measurements: u64,
    relays: u64,
    failed: u64,
}

/// Two relays that may share a machine.
#[derive(Serialize, JsonSchema)]
pub struct SuspicionLine {
    fingerprint: String,
    nickname: String,
    other_fingerprint: String,
    other_nickname: String,
    moves: u32,
    alike: u32,
    by_chance: f64,
}

impl MeasurementLine {
    /// The row of a measurement in a store whose coordinator is in this country.
    #[must_use]
    pub fn new(measurement: &Measurement, scanner_country: Option<&str>) -> Self {
        Self {
            fingerprint: measurement.relay.to_string(),
            nickname: measurement.nickname.clone(),
            period_unix_s: measurement.period_unix_s,
            turn: measurement.number,
            slot: measurement.slot,
            started_unix_s: measurement.started_unix_s,
            ended_unix_s: measurement.ended_unix_s,
            state: measurement.state.name(),
            mode: measurement.mode.map(mode_word),
            capacity_byte_s: measurement.capacity.map(Rate::as_byte_per_s),
            rounds: measurement.rounds,
            cause: measurement.cause.clone(),
            reason: measurement.reason.clone(),
            blame: measurement.blame.clone(),
            is_final: measurement.is_final,
            scanner_country: scanner_country.map(str::to_owned),
        }
    }
}

impl SecondLine {
    /// The row of a measurement's second.
    #[must_use]
    pub fn new(measurement: &Measurement, second: &Second) -> Self {
        Self {
            fingerprint: measurement.relay.to_string(),
            ended_unix_s: measurement.ended_unix_s,
            turn: measurement.number,
            round: second.round,
            second: second.second,
            bytes: second.bytes,
            client_bytes: second.client_bytes,
            counts: second.counts,
            limiter: second.limiter.name(),
        }
    }
}

impl From<&RelayRow> for RelayLine {
    fn from(row: &RelayRow) -> Self {
        Self {
            fingerprint: row.rsa.to_string(),
            nickname: row.nickname.clone(),
            address: row.address.clone(),
            first_seen_unix_s: row.first_seen_unix_s,
            last_seen_unix_s: row.last_seen_unix_s,
            left_out: row.left_out.clone(),
            capacity_byte_s: row.capacity.map(Rate::as_byte_per_s),
            estimated_unix_s: row.estimated_unix_s,
            mode: row.mode.map(mode_word),
            is_conclusive: row.is_conclusive,
            last_state: row.last_state.map(State::name),
            last_ended_unix_s: row.last_ended_unix_s,
            last_cause: row.last_cause.clone(),
        }
    }
}

impl From<&PeriodSummary> for PeriodLine {
    fn from(summary: &PeriodSummary) -> Self {
        Self {
            begin_unix_s: summary.period.begin_unix_s,
            length_s: summary.period.length_s,
            slot_s: summary.period.slot_s,
            seed: summary.period.seed.map(hex::encode),
            measurements: summary.measurements,
            relays: summary.relays,
            failed: summary.failed,
        }
    }
}

/// A measurer's observations of its path to a relay.
#[derive(Serialize, JsonSchema)]
pub struct PathLine {
    fingerprint: String,
    /// The measurer's public key.
    measurer: String,
    seen_unix_s: u64,
    rtt_ms: Option<f64>,
    loss_ppm: Option<u32>,
    held_back_byte_s: Option<u64>,
}

impl From<&PathEntry> for PathLine {
    fn from(PathEntry { relay, measurer, path, seen_unix_s }: &PathEntry) -> Self {
        Self {
            fingerprint: relay.to_string(),
            measurer: measurer.clone(),
            seen_unix_s: *seen_unix_s,
            rtt_ms: path.rtt.map(|rtt| rtt.as_secs_f64() * 1000.0),
            loss_ppm: path.loss_ppm,
            held_back_byte_s: path.limit.map(Rate::as_byte_per_s),
        }
    }
}

impl From<&Suspect> for SuspicionLine {
    fn from(Suspect { suspicion, nicknames: (nickname, other_nickname) }: &Suspect) -> Self {
        let Suspicion { relays: (one, other), moves, alike, by_chance } = *suspicion;
        Self {
            fingerprint: one.to_string(),
            nickname: nickname.clone(),
            other_fingerprint: other.to_string(),
            other_nickname: other_nickname.clone(),
            moves,
            alike,
            by_chance,
        }
    }
}
