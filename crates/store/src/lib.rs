//! What a coordinator remembers for years: every measurement with its seconds and who limited each of them, failures
//! with their reasons, which slot was whose, seeds of periods that are over, consensuses that were seen.
//!
//! One SQLite file with a write-ahead log. One process writes it, by a [`Store`]; any number read it meanwhile, by
//! [`Reader`]s. What is written is [`Entry`]s, and each of them may be written again without harm: who is not sure
//! whether an entry has got to the disk writes it once more. So nothing is lost when a disk is full for a while, and
//! nothing is there twice.
//!
//! - A write is a transaction that is on the disk when [`Store::write`] returns. A process that is killed, or a machine that
//!   stops, leaves all of an entry or nothing of it.
//! - What is to come is never in it: neither a coming slot, nor the seed of a period that is not over.
//! - [`explain()`] says in words why a relay has its weight, or none.
//!
//! Times are Unix seconds, rates bytes per second. Nothing here reads a clock.

mod backup;
mod error;
mod explain;
mod likeness;
mod open;
mod overview;
mod read;
mod relays;
mod retention;
mod schema;
mod series;
#[cfg(test)]
mod testing;
mod words;
mod write;

pub use coordinator::journal::{
    ConsensusEntry, Entry, ListedRelay, MeasurementFinished, MeasurementStarted, MeasurerHealth,
    MeasurerState, Past, PathEntry, PeriodEntry, PeriodProgress, PublishedFile, mode_of, mode_word,
};
pub use error::StoreError;
pub use explain::{Line, Story, explain};
pub use likeness::Suspect;
pub use open::{Reader, Store};
pub use overview::{Cause, Consensus, File, MeasurerRow, Overview, Pass};
pub use read::{Measurement, State};
pub use relays::{RelayPage, RelayQuery, RelayRow, Sort};
pub use retention::{Removed, Retention};
pub use series::{Limiter, Second};
pub use words::utc;
