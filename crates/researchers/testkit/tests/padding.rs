//! Padding of links by the router, cell by cell and in virtual time (padding-spec §2).

mod world;

mod excess;
mod links;
mod negotiation;
mod times;
