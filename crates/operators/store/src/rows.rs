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

impl From<&Measurement> for MeasurementLine {
    fn from(it: &Measurement) -> Self {
        Self {
            fingerprint: it.relay.to_string(),
            nickname: it.nickname.clone(),
            period_unix_s: it.period_unix_s,
            turn: it.number,
            slot: it.slot,
            started_unix_s: it.started_unix_s,
            ended_unix_s: it.ended_unix_s,
            state: it.state.name(),
            mode: it.mode.map(mode_word),
            capacity_byte_s: it.capacity.map(Rate::as_byte_per_s),
            rounds: it.rounds,
            cause: it.cause.clone(),
            reason: it.reason.clone(),
            blame: it.blame.clone(),
            is_final: it.is_final,
        }
    }
}

impl SecondLine {
    /// The row of a measurement's second.
    #[must_use]
    pub fn of(it: &Measurement, second: &Second) -> Self {
        Self {
            fingerprint: it.relay.to_string(),
            ended_unix_s: it.ended_unix_s,
            turn: it.number,
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
    fn from(it: &RelayRow) -> Self {
        Self {
            fingerprint: it.rsa.to_string(),
            nickname: it.nickname.clone(),
            address: it.address.clone(),
            first_seen_unix_s: it.first_seen_unix_s,
            last_seen_unix_s: it.last_seen_unix_s,
            left_out: it.left_out.clone(),
            capacity_byte_s: it.capacity.map(Rate::as_byte_per_s),
            estimated_unix_s: it.estimated_unix_s,
            mode: it.mode.map(mode_word),
            is_conclusive: it.is_conclusive,
            last_state: it.last_state.map(State::name),
            last_ended_unix_s: it.last_ended_unix_s,
            last_cause: it.last_cause.clone(),
        }
    }
}

impl From<&PeriodSummary> for PeriodLine {
    fn from(it: &PeriodSummary) -> Self {
        Self {
            begin_unix_s: it.period.begin_unix_s,
            length_s: it.period.length_s,
            slot_s: it.period.slot_s,
            seed: it.period.seed.map(hex::encode),
            measurements: it.measurements,
            relays: it.relays,
            failed: it.failed,
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
