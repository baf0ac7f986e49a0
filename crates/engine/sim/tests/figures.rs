//! Statistics of networks in virtual time: claims, and pinned tables.
//!
//! The same code gives the same numbers on any machine and in any profile, to the last digit; each table ends
//! with the fingerprint of its runs. So a changed table indicates a change of the engine's decisions or their
//! timing. If that is intended, `INSTA_UPDATE=always cargo test -p flashflow-sim --test all figures::` accepts it.

mod arithmetic;
mod world;

mod chain;
mod schedulers;
mod sharing;
