//! Figures of networks in virtual time: claims about them, and tables of them.
//!
//! The same code gives the same figures on any machine and in any profile, to the last digit; each table
//! ends with the fingerprint of its runs. So a table that has changed tells of a change of what the
//! engine does, or when. Where that is meant to be,
//! `INSTA_UPDATE=always cargo test -p sim --test figures` takes it over.

#[path = "figures/arithmetic.rs"]
mod arithmetic;
#[path = "../../onion/tests/common/vectors.rs"]
#[allow(dead_code, reason = "shared with tests of the engine")]
mod vectors;
#[path = "figures/world.rs"]
mod world;

#[path = "figures/chain.rs"]
mod chain;
#[path = "figures/schedulers.rs"]
mod schedulers;
#[path = "figures/sharing.rs"]
mod sharing;
