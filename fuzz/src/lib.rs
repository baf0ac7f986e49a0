//! Fuzz targets: each takes any bytes and panics if a property does not hold.
//!
//! - `cargo fuzz run --features targets NAME` (nightly, with `cargo install cargo-fuzz`) looks for such bytes.
//! - The ordinary tests replay `corpus/NAME/` and a few thousand mutations of it: `tests/replay.rs`.
//! - `cargo run -p fuzz --features targets --bin NAME FILE...` replays single files, such as those that `cargo fuzz`
//!   leaves in `artifacts/`. Any input that once failed belongs in the corpus.
//! - `cargo run -p fuzz --example seed` writes the initial corpus from the golden vectors
//!   of `onion` and the sample documents of `netdoc`.

mod begin_dir;
mod cells;
mod cgo;
mod circuits;
mod consdiff;
mod control;
mod control_plane;
mod documents;
mod echo;
mod flow;
mod input;
mod linked;
mod links;
mod measurements;
mod model;
mod progress;
mod replay;
mod router;
mod seam;
mod seeds;
mod signed_documents;
mod target;
mod transit;

pub use begin_dir::begin_dir;
pub use cells::{certs, framer, messages};
pub use cgo::cgo;
pub use circuits::two_hop;
pub use consdiff::consdiff;
pub use control::control_port;
pub use control_plane::control_plane;
pub use documents::{bandwidth_file, consensus, descriptors};
pub use echo::{echo, order};
pub use flow::flow_control;
#[cfg(fuzzing)]
pub use libfuzzer_sys;
pub use linked::conflux;
pub use links::{channel_initiator, channel_responder};
pub use measurements::measurement;
pub use model::model;
pub use replay::{Mutator, corpus, replay_files};
pub use router::router;
pub use seam::seam;
pub use seeds::{Seed, seeds};
pub use signed_documents::signed_documents;
pub use transit::transit;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name.
pub const TARGETS: [(&str, Target); 24] = [
    ("framer", framer),
    ("messages", messages),
    ("certs", certs),
    ("channel_initiator", channel_initiator),
    ("channel_responder", channel_responder),
    ("two_hop", two_hop),
    ("transit", transit),
    ("echo", echo),
    ("order", order),
    ("consensus", consensus),
    ("descriptors", descriptors),
    ("bandwidth_file", bandwidth_file),
    ("control_port", control_port),
    ("measurement", measurement),
    ("router", router),
    ("seam", seam),
    ("control_plane", control_plane),
    ("flow_control", flow_control),
    ("cgo", cgo),
    ("consdiff", consdiff),
    ("conflux", conflux),
    ("begin_dir", begin_dir),
    ("signed_documents", signed_documents),
    ("model", model),
];

/// The body of a fuzz target's program: libFuzzer's, or one that replays files.
#[macro_export]
macro_rules! target {
    ($target:path) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| $target(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            $crate::replay_files($target)
        }
    };
}
