//! A relay that takes part in its measurement: the estimate of an honest one, the gain of lies, and attacks by
//! strangers.
//!
//! Each scenario runs in virtual time and on real sockets, with the same code.

mod circuits;
mod honest;
mod links;
mod measurers;
mod orders;
mod relays;
