//! A team of measurers and relays over real sockets.
//!
//! One program, since linking takes long. `scripts/lanes` says which file runs when.

mod common;
mod router;
mod stock_tor;
