//! The coordinator's long-term record: every measurement with its seconds and the limiting cause of each, failures with
//! their reasons, the relays of each slot, seeds of finished periods, and consensuses.
//!
//! One SQLite file with a write-ahead log. One process writes it, by a [`Store`]; any number of [`Reader`]s read it
//! concurrently. The unit of writing is an [`Entry`], and an entry may be written again without effect: a caller that
//! does not know whether an entry is on the disk writes it once more. So nothing is lost while a disk is full, and
//! nothing is duplicated.
//!
//! - A write is a transaction that is on the disk when [`Store::write`] returns. If the process is killed or the
//!   machine stops, an entry is written completely or not at all.
//! - The store never has data about the future: neither a coming slot, nor the seed of a period that is not over.
//! - An [`Explainer`] explains in words why a relay has its weight, or none.
//!
//! Times are Unix seconds, rates bytes per second. Nothing here reads a clock.

mod backup;
mod dates;
mod error;
mod explain;
mod falls;
mod format;
mod open;
mod overview;
mod read;
mod relays;
mod retention;
pub mod rows;
mod schema;
mod series;
mod service;
mod suspects;
#[cfg(test)]
mod testing;
mod weights;
mod write;

pub use coordinator::journal::{
    ConsensusEntry, Entry, ListedRelay, MeasurementFinished, MeasurementStarted, MeasurerHealth,
    MeasurerState, Past, PathEntry, PeriodEntry, PeriodProgress, PublishedFile, mode_of, mode_word,
};
pub use error::StoreError;
pub use explain::{Audience, Explainer, Line, explain_record};
pub use falls::{Fall, Falls};
pub use format::utc;
pub use open::{Interrupter, Reader, Store};
pub use overview::{Cause, Consensus, File, MeasurerRow, Overview, PeriodSummary, Week};
pub use read::{Measurement, State};
pub use relays::{RelayPage, RelayQuery, RelayRow, Sort};
pub use retention::{Removed, Retention};
pub use series::{Limiter, Second};
pub use service::{MeasuredRelays, explain_service};
pub use suspects::Suspect;
pub use weights::{PathRow, Total, Weighed};
