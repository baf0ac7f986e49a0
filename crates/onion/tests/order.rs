//! The coordinator's link to a relay that it orders to be measured, message by message.

#[path = "common/vectors.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod vectors;
#[path = "order/world.rs"]
mod world;

#[path = "order/courses.rs"]
mod courses;
#[path = "order/ends.rs"]
mod ends;
