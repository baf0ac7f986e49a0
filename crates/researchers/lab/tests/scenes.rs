//! Relays with clients and destinations: streams, abusive clients, and impaired paths.
//!
//! Tests without a network model run in virtual time and on real sockets, with the same code; the module
//! `modelled` runs in virtual time only.

mod agreement;
mod bounds;
mod circuits;
mod floods;
mod hop_windows;
mod linked;
mod modelled;
mod transfers;
