//! The engine among peers that a test controls, without I/O: for the integration tests of `onion`, `sim` and `lab`, and for fuzzing.
//!
//! | module | what is in it |
//! |---|---|
//! | [`fixture`] | one router on bytes, and the peers of its connections |
//! | [`stage`] | one relay on cells, over any cell model, and all its peers |
//! | [`linked`] | a client's Conflux set and its exit on cells, with a network that delivers cells of different legs in any order |
//! | `exits` (feature `relays`) | our relays as exits in private networks |
//! | [`vectors`] | recorded bytes of C tor, and the identities and TLS sessions that they belong to |
//!
//! Unit tests of a crate below this one cannot use it: they would see two versions of that crate's types.
extern crate alloc;

#[cfg(feature = "relays")]
pub mod exits;
pub mod fixture;
pub mod linked;
mod script;
pub mod stage;
pub mod vectors;

/// A field of this process in `/proc/self/status`, in kB: `VmRSS`, `VmHWM`.
///
/// # Panics
/// If there is no such field.
#[must_use]
pub fn memory_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line");
    line.trim_start_matches(':').trim_end_matches("kB").trim().parse().expect("a number")
}
