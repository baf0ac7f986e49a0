//! Streams through the router, message by message: the exit's behaviour at its edge.

#[path = "common/vectors.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod vectors;
#[path = "streams/world.rs"]
mod world;

#[path = "streams/bounds.rs"]
mod bounds;
#[path = "streams/congestion.rs"]
mod congestion;
#[path = "streams/courses.rs"]
mod courses;
#[path = "streams/opening.rs"]
mod opening;
#[path = "streams/windows.rs"]
mod windows;
