//! The coordinator's decisions while a team of measurers measures one relay (paper §4.1, §4.2).
//!
//! Pure: no sockets, no clock, no randomness. A shell reports events to a [`Measurement`] and performs the actions that
//! it returns. A simulator drives the same code in virtual time.
//!
//! 1. A [`History`] gives the expected capacity of a relay, and the estimate that remains valid if there is no new one.
//! 2. [`allocate`] divides the load for such a guess among the measurers.
//! 3. [`Series`] adds up the measurers' reports of each second.
//! 4. [`Measurement`] runs rounds of 2 and 3 until the result is conclusive, or reports why it cannot be. [`Attempt`]
//!    defines the transition from one round to the next.
//! 5. [`Campaign`] measures many relays, several at once, within the team's capacity.
//! 6. [`plan::Plan`] draws the slot of each relay in a period at random, from a secret seed. A [`SlotSchedule`] applies
//!    the plan while relays join and leave. [`agreement`] gives several coordinators a common seed.
//! 7. A [`CoLocationTest`] finds relays that may share a machine, from their estimates of many periods.
//! 8. A [`ServiceTest`] finds relays that do not serve clients as they are measured, from ordinary circuits through them.
//! 9. [`Consent`] decides which relays may be measured: those that opted in, and those that a [`policy`] permits.
//! 10. A [`Record`] describes a finished measurement. Reports, bandwidth files and database rows are derived from it
//!     alone.
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
mod held_seconds;
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
pub mod policy;
mod record;
mod round;
mod second;
mod series;
mod service;
mod shared;
mod slot_schedule;
mod socket_ramp;
mod stats;
mod team_capacity;
mod team_measurement;
#[cfg(test)]
mod testing;
mod turn;
mod with_clients;
mod worker_load;

pub use account::{Account, Waited};
pub use allocation::{
    Allocation, Assignment, FEW_SOCKETS_ONE_IN, MeasurerId, allocate, few_sockets,
};
pub use bottleneck::{Bottleneck, MeasurerBottleneck};
pub use campaign::{Campaign, Ended, Launch, Next, Priority, RelayIndex, RelayTurn, ZoneLimit};
pub use co_location::{CoLocationTest, Suspicion};
pub use consent::{BadOptInLine, Consent, ConsentError, is_local};
pub use defences::{Defences, RESERVED_FOR_OTHERS};
pub use failure::{Blame, Failure, Violation};
pub use held_seconds::{HeldSeconds, doubt_of_seconds};
pub use history::{
    Decline, DeclineKind, Expectations, Guess, GuessSource, History, HistoryPolicy, PastEstimate,
};
pub use measurement::{Action, Measurement, SetupError};
pub use measurer_path::{MeasurerPath, PathSeen};
pub use mode::Mode;
pub use order::{OrderRetries, ends_accepted_measurement};
pub use outcome::{Bounds, Estimate, Inconclusive, Outcome, ProcessorTime};
pub use params::{CHECK_SHARE, Params, ParamsError, PathParams};
pub use record::{
    End, Facts, Observations, Record, RelaySelfReport, RoundHistory, RoundRecord, Subject, Verdict,
};
pub use round::{FailureKind, MemberReport, RoundMode, RoundOrder};
pub use second::{SecondRecord, SecondReport, SecondTotals};
pub use series::{Missing, Series, Source, Summary};
pub use service::{
    CircuitOutcome, HopPosition, ProbedCircuit, ProbedRelay, ServiceSuspicion, ServiceTest,
};
pub use shared::{Shared, fit_machine, share_aligned, share_machine};
pub use slot_schedule::{Arrival, Counts, Due, SlotSchedule};
pub use socket_ramp::{CompetitionTest, FAR, Schedule, SocketRampTest};
pub use stats::{Percentile, Spread, median, median_rate};
pub use team_capacity::{MemberTraffic, PairSecond, PairTraffic, TeamCapacity, team_capacities};
pub use team_measurement::{OrderTerms, Progress};
pub use turn::{Attempt, ROUNDS_ALLOWED};
pub use worker_load::WorkerLoad;
