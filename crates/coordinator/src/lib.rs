//! What a coordinator decides when a team of measurers measures one relay (paper §4.1, §4.2).
//!
//! Pure: no sockets, no clock, no randomness. A shell tells a [`Measurement`] what happened and
//! does what it asks for; a simulator drives the same code in virtual time.
//!
//! 1. [`first_guess`] says what capacity to expect of a relay.
//! 2. [`allocate`] gives each measurer its share of the load for such a guess.
//! 3. [`Series`] adds up what the measurers report each second.
//! 4. [`Measurement`] runs rounds of 2 and 3 until the answer is conclusive, or says why it can't be.
//! 5. [`Campaign`] measures many relays, several at once, within the team's capacity.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod allocation;
mod campaign;
mod failure;
mod guess;
mod measurement;
mod outcome;
mod params;
mod series;
mod stats;
mod team_capacity;

pub use allocation::{Allocation, Assignment, MeasurerId, allocate};
pub use campaign::{Campaign, Launch, RelayId, Standing, Verdict};
pub use failure::{Blame, Failure, Violation};
pub use guess::{Guess, GuessPolicy, GuessSource, PastEstimate, first_guess};
pub use measurement::{Action, Measurement, SetupError};
pub use outcome::{Bounds, Estimate, Inconclusive, Outcome};
pub use params::{Params, ParamsError};
pub use series::{Missing, Mode, SecondReport, SecondTotals, Series, Source, Summary};
pub use stats::{Percentile, Spread, median};
pub use team_capacity::{MemberTraffic, PairSecond, PairTraffic, TeamCapacity, team_capacities};
