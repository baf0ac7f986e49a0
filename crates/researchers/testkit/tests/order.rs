//! The coordinator's link to a relay that it orders to be measured, message by message.

mod world;

mod courses;
mod ends;
