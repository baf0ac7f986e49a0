//! What a coordinator decides when a team of measurers measures one relay (paper §4.1, §4.2).
//!
//! Pure: no sockets, no clock, no randomness. A shell tells a [`Measurement`] what happened and
//! does what it asks for; a simulator drives the same code in virtual time.
//!
//! 1. A [`History`] says what capacity to expect of a relay, and which estimate holds where there is no
//!    new one.
//! 2. [`allocate`] gives each measurer its share of the load for such a guess.
//! 3. [`Series`] adds up what the measurers report each second.
//! 4. [`Measurement`] runs rounds of 2 and 3 until the answer is conclusive, or says why it can't be.
//!    [`Attempt`] is the rule by which it goes from round to round.
//! 5. [`Campaign`] measures many relays, several at once, turn by turn within the team's capacity.
//! 6. [`plan::Plan`] says when in a period each relay's turn is: by lot, from a secret seed;
//!    a [`SlotSchedule`] keeps a coordinator to it, whoever comes and goes. Several coordinators may have one seed:
//!    [`agreement`] is how they come by it.
//! 7. A [`CoLocationTest`] says which relays may share a machine, by their estimates of many periods.
//! 8. A [`Record`] is what remains of a measurement: reports, bandwidth files and rows of databases are
//!    made from it and from nothing else.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod account;
pub mod agreement;
mod allocation;
mod bottleneck;
mod campaign;
mod co_location;
mod consent;
mod defences;
mod distance;
mod failure;
mod history;
pub mod journal;
mod measurement;
mod measurer_path;
mod mode;
mod order;
mod outcome;
mod params;
pub mod period;
pub mod plan;
mod record;
mod round;
mod second;
mod series;
mod shared;
mod slot_schedule;
mod socket_ramp;
mod stats;
mod team_capacity;
mod team_measurement;
mod turn;
mod worker_load;

pub use account::{Account, Waited};
pub use allocation::{Allocation, Assignment, MeasurerId, allocate};
pub use bottleneck::{Bottleneck, MeasurerBottleneck};
pub use campaign::{Campaign, Ended, Launch, Next, Priority, RelayIndex};
pub use co_location::{CoLocationTest, Suspicion};
pub use consent::{BadOptInLine, Consent, ConsentError, is_local};
pub use defences::{Defences, RESERVED_FOR_OTHERS};
pub use failure::{Blame, Failure, Violation};
pub use history::{
    Decline, DeclineKind, Expectations, Guess, GuessSource, History, HistoryPolicy, PastEstimate,
};
pub use measurement::{Action, Measurement, SetupError};
pub use measurer_path::{MeasurerPath, PathSeen};
pub use mode::Mode;
pub use order::{OrderRetries, ends_an_accepted_one};
pub use outcome::{Bounds, Estimate, Inconclusive, Outcome, ProcessorTime};
pub use params::{CHECK_SHARE, Params, ParamsError, PathParams};
pub use record::{
    End, Facts, Record, RelaySelfReport, RoundHistory, RoundRecord, Subject, Verdict,
};
pub use round::{FailureKind, MemberReport, RoundMode, RoundOrder};
pub use second::{SecondRecord, SecondReport, SecondTotals};
pub use series::{Missing, Series, Source, Summary};
pub use shared::{Shared, fit_machine, share_aligned, share_machine};
pub use slot_schedule::{Arrival, Counts, Due, SlotSchedule};
pub use socket_ramp::{FAR, Schedule, SocketRampTest};
pub use stats::{Percentile, Spread, median, median_rate};
pub use team_capacity::{MemberTraffic, PairSecond, PairTraffic, TeamCapacity, team_capacities};
pub use team_measurement::{
    OrderTerms, Progress, TeamAction, TeamMeasurement, TeamMember, TeamRequest,
};
pub use turn::{Attempt, ROUNDS_ALLOWED};
pub use worker_load::WorkerLoad;
