//! Statistics of networks in virtual time: claims, and pinned tables.
//!
//! The same code gives the same numbers on any machine and in any profile, to the last digit; each table ends
//! with the fingerprint of its runs. So a changed table indicates a change of the engine's decisions or their
//! timing. If that is intended, `INSTA_UPDATE=always cargo test -p flashflow-sim --test figures` accepts it.

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
