//! A Tor relay of FlashFlow's own: all that surrounds the engine that relays.

pub mod descriptor;
pub mod keys;
