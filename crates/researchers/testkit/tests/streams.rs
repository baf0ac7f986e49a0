//! Streams through the router, message by message: the exit's behaviour at its edge.

mod world;

mod bounds;
mod congestion;
mod courses;
mod opening;
mod windows;
