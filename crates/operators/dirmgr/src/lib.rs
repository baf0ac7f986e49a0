//! Fetches, verifies and stores Tor's directory documents (dir-spec.txt, sections 4 and 5), for
//! relays, clients and bandwidth authorities alike.
//!
//! [`netdoc`] parses documents; this crate decides which of them are authentic:
//!
//! - [`verify`]: signatures of consensuses and of authority certificates.
//! - [`ConsensusFetcher`] asks authorities and other directories, through a [`Source`], and keeps
//!   [`Documents`] up to date, in memory ([`Cache`]) and on disk.
//! - [`schedule`]: when a directory or a client fetches the next consensus.
//! - [`signing`]: documents other than consensuses that an authority signs.
//! - [`family`]: which families a relay has proved to belong to.
//! - [`LinkObservations`]: what a research relay has signed about its links.
//! - [`public`]: the authorities of the public network.
//!
//! It starts no thread and reads no clock: the time is always an argument, in Unix seconds. It must
//! not depend on the crates `relay`, `client` or `lab`.

mod cache;
pub mod documents;
pub mod family;
pub mod fetcher;
#[cfg(any(test, feature = "fixture"))]
pub mod fixture;
mod link_observations;
pub mod public;
pub mod schedule;
pub mod signing;
mod source;
pub mod verify;

pub use cache::{Cache, DiffCounts, DiffTotals};
pub use documents::{Documents, Wanted};
pub use fetcher::{ConsensusFetcher, FetchOutcome, FetchProblem, FetcherConfig, StoreError};
pub use link_observations::{
    CIRCUITS_MIN, LINKS_MAX, LinkObservations, ObservationError, ObservedLink,
};
pub use source::{PlainHttp, Source};
pub use verify::consensus_signers;
