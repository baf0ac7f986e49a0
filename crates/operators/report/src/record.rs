//! Makes reports from records of measurements.

use crate::RoundAccount;
use crate::model::{Mode, RelayReport, SecondPoint, Spread};
use coordinator::{Inconclusive, Record, Verdict};
use onion::Rate;

/// Makes the report of a relay from the record of its measurement.
impl From<&Record> for RelayReport {
    fn from(record: &Record) -> Self {
        let relay = &record.relay;
        let conclusive = record.verdict() == Verdict::Conclusive;
        let (inconclusive_reason, error) = match record.verdict() {
            Verdict::Conclusive => (None, None),
            Verdict::LowerBound(reason) => (Some(Inconclusive::to_string(reason)), None),
            Verdict::Failed(_) => (None, Some(record.to_string())),
        };
        let bounds = record.bounds();
        Self {
            nickname: relay.nickname.clone(),
            fingerprint: relay.ids.rsa.to_string(),
            mode: record.mode.into(),
            limit_mbit_per_s: mbit(relay.limit),
            estimate_mbit_per_s: mbit(record.capacity()),
            relay_reported_mbit_per_s: mbit(record.relay_reported()),
            relay_cpu_share: record.processor.map(|processor| processor.share()),
            conclusive,
            inconclusive_reason,
            conclusive_limit_mbit_per_s: mbit(record.conclusive_limit()),
            bounds_mbit_per_s: bounds
                .map(|bounds| (bounds.lower.as_mbit_per_s(), mbit(bounds.upper))),
            spread_mbit_per_s: record.spread().map(Spread::from),
            rounds: u32::try_from(record.rounds.len()).unwrap_or(u32::MAX),
            seconds: record.params.seconds,
            cells_checked: record.decisive_round().map_or(0, |round| round.checked_cells),
            error,
            weight_kb_s: None,
            consensus_weight_kb_s: None,
            accounts: RoundAccount::all(record),
            series: series(record),
        }
    }
}

impl From<coordinator::Mode> for Mode {
    fn from(mode: coordinator::Mode) -> Self {
        match mode {
            coordinator::Mode::Transit => Self::Transit,
            coordinator::Mode::Echo => Self::Echo,
        }
    }
}

impl From<coordinator::Spread> for Spread {
    fn from(spread: coordinator::Spread) -> Self {
        let mbit = |bytes: u64| Rate::from_byte_per_s(bytes).as_mbit_per_s();
        Self {
            min: mbit(spread.min),
            lower_quartile: mbit(spread.lower_quartile),
            upper_quartile: mbit(spread.upper_quartile),
            max: mbit(spread.max),
        }
    }
}

/// The seconds for which all reports are complete.
fn series(record: &Record) -> Vec<SecondPoint> {
    let mut series = Vec::new();
    for round in &record.rounds {
        for totals in record.totals(round) {
            let second = round.seconds.iter().find(|second| second.second == totals.second);
            series.push(SecondPoint {
                round: round.number,
                second: totals.second,
                measured_mbit_per_s: Rate::from_byte_per_s(totals.total()).as_mbit_per_s(),
                relay_reported_mbit_per_s: mbit(second.and_then(|second| second.relay_reported)),
            });
        }
    }
    series
}

fn mbit(rate: Option<Rate>) -> Option<f64> {
    rate.map(Rate::as_mbit_per_s)
}

#[cfg(test)]
mod tests;
