//! The engine among simulated peers, without I/O: for the integration tests of `onion`, `sim` and `lab`, and for
//! fuzzing.
//!
//! | module | content |
//! |---|---|
//! | [`fixture`] | one router on bytes, and the peers of its connections |
//! | [`stage`] | one relay on cells, over any cell model, and its peers |
//! | [`linked`] | a client and an exit with a Conflux set, on cells; cells of different legs arrive in any order |
//! | `exits` (feature `relays`) | FlashFlow relays as exits in private networks |
//! | [`vectors`] | bytes recorded from C tor, with the identities and TLS sessions used |
//!
//! Unit tests of a crate that this crate depends on cannot use it: they would see two versions of that crate's types.
extern crate alloc;

#[cfg(feature = "relays")]
pub mod exits;
pub mod fixture;
pub mod linked;
mod script;
pub mod stage;
pub mod vectors;

/// Implements `Deref` to [`Fixture`](fixture::Fixture) for a test's type with a field `fixture`.
#[macro_export]
macro_rules! deref_to_fixture {
    ($world:ty) => {
        impl core::ops::Deref for $world {
            type Target = $crate::fixture::Fixture<rand_chacha::ChaCha8Rng>;

            fn deref(&self) -> &Self::Target {
                &self.fixture
            }
        }

        impl core::ops::DerefMut for $world {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.fixture
            }
        }
    };
}

/// A field of `/proc/self/status` in kB, such as `VmRSS` or `VmHWM`.
///
/// # Panics
/// If the field does not exist.
#[must_use]
pub fn memory_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("readable");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a line");
    line.trim_start_matches(':').trim_end_matches("kB").trim().parse().expect("a number")
}
