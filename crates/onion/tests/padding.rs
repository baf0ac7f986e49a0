//! Padding of links by the router, cell by cell and in virtual time (padding-spec §2).

#[path = "common/vectors.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod vectors;
#[path = "padding/world.rs"]
mod world;

#[path = "padding/links.rs"]
mod links;
#[path = "padding/negotiation.rs"]
mod negotiation;
#[path = "padding/times.rs"]
mod times;
