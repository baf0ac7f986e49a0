//! What the engine counts on, over both suites.

mod cells;
mod data;
mod handshakes;
mod layers;
