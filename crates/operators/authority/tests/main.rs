//! A team of measurers and relays over real sockets.
//!
//! One program, since linking takes long. `scripts/lanes` lists when each file runs.

mod common;
mod router;
mod stock_tor;
